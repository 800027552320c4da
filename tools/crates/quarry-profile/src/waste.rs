// SPDX-License-Identifier: MIT
//! Bytes of pages that are not live, charged to the sites whose blocks keep the pages.
//!
//! A page stays as long as a live block touches it. What is not live on it is shared equally by the blocks that touch it: each of them
//! could be the last one that leaves (the Shapley value). So the charges of all sites add up to the waste, to the byte. Beside it stand
//! the pages that one site keeps alone: they would be free if its blocks lay elsewhere. Pages without a live block are the allocator's,
//! and no site's.

use std::collections::HashMap;
use std::ops::AddAssign;

use quarry_report::style::Style;
use quarry_report::table::{self, Align, Text};
use quarry_report::units;
use quarry_trace::classes::Classes;
use quarry_trace::live::{Follower, Tracker};
use quarry_trace::sample::Sampling;
use quarry_trace::{StackId, Trace, TraceError};
use serde_json::{Value, json};

use crate::calls::{Calls, ROOT};
use crate::estimate::{bytes, count, part, time};
use crate::model::{Division, Profile};
use crate::query::At;
use crate::report::Report;
use crate::resident::{Looks, Resident};

/// Moments at which the waste is looked at, beside the one that was asked for.
const MOMENTS: usize = 64;
/// A page, if the trace does not say.
const PAGE: u64 = 4096;

/// What a site keeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Charge {
    /// Its blocks.
    pub blocks: u64,
    /// Their bytes.
    pub live: u64,
    /// What their size classes add to that.
    pub rounding: u64,
    /// Its share of what is not live on their pages.
    pub waste: u64,
    /// Pages with waste on which all blocks are its own.
    pub sole_pages: u64,
    /// What is not live on them.
    pub sole_waste: u64,
}

impl AddAssign for Charge {
    fn add_assign(&mut self, more: Self) {
        self.blocks += more.blocks;
        self.live += more.live;
        self.rounding += more.rounding;
        self.waste += more.waste;
        self.sole_pages += more.sole_pages;
        self.sole_waste += more.sole_waste;
    }
}

/// The pages with live blocks at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pages {
    /// In ticks.
    pub time: u64,
    /// How many there are.
    pub pages: u64,
    /// Live bytes on them.
    pub live: u64,
    /// Bytes on them that are not live.
    pub waste: u64,
}

/// What was found.
#[derive(Debug, Clone)]
pub struct Waste {
    /// Bytes of a page.
    pub page: u64,
    /// At the moment that was asked for.
    pub now: Pages,
    /// Over time.
    pub course: Vec<Pages>,
    /// By call of the tree of calls, most waste first.
    pub charges: Vec<(u32, Charge)>,
    /// What size classes add to all live blocks: the sum of the charges.
    pub rounding: u64,
    /// Whose size classes.
    pub classes: Classes,
    /// What the kernel counted about then, divided.
    pub resident: Option<Resident>,
}

/// A live block: where it begins, its bytes, and whose it is.
pub type Block = (u64, u64, u32);

/// The page that is being looked at.
#[derive(Default)]
struct Open {
    page: u64,
    live: u64,
    /// Whose blocks touch it.
    owners: Vec<u32>,
}

/// Sums over pages.
struct Sweep<'a> {
    size: u64,
    open: Open,
    pages: Pages,
    charge: &'a mut dyn FnMut(u32, Charge),
}

impl Sweep<'_> {
    /// `bytes` bytes of a block lie on a page.
    fn touch(&mut self, page: u64, bytes: u64, owner: u32) {
        if page > self.open.page || self.open.owners.is_empty() {
            self.close();
            self.open.page = page;
        }
        self.open.live = (self.open.live + bytes).min(self.size);
        self.open.owners.push(owner);
    }

    fn close(&mut self) {
        let open = &mut self.open;
        let Some(&first) = open.owners.first() else { return };
        let waste = self.size - open.live;
        self.pages.pages += 1;
        self.pages.live += open.live;
        self.pages.waste += waste;
        let n = open.owners.len() as u64;
        for (at, &owner) in open.owners.iter().enumerate() {
            let share = waste / n + u64::from((at as u64) < waste % n);
            (self.charge)(owner, Charge { waste: share, ..Charge::default() });
        }
        if waste > 0 && open.owners.iter().all(|&owner| owner == first) {
            (self.charge)(first, Charge { sole_pages: 1, sole_waste: waste, ..Charge::default() });
        }
        open.owners.clear();
        open.live = 0;
    }
}

/// Charge the waste of all pages that these blocks touch. They are in the order of their addresses.
pub fn sweep(blocks: &[Block], page: u64, charge: &mut dyn FnMut(u32, Charge)) -> Pages {
    let mut sweep = Sweep { size: page, open: Open::default(), pages: Pages::default(), charge };
    for &(address, size, owner) in blocks {
        (sweep.charge)(owner, Charge { blocks: 1, live: size, ..Charge::default() });
        let end = address.saturating_add(size.max(1));
        let (first, last) = (address / page, (end - 1) / page);
        if first == last {
            sweep.touch(first, size, owner);
            continue;
        }
        sweep.touch(first, (first + 1) * page - address, owner);
        // All between is live, and nobody else's.
        sweep.pages.pages += last - first - 1;
        sweep.pages.live += (last - first - 1) * page;
        sweep.touch(last, end - last * page, owner);
    }
    sweep.close();
    sweep.pages
}

/// All live blocks, by address.
fn blocks(tracker: &Tracker, owner: impl Fn(StackId) -> u32) -> Vec<Block> {
    let mut blocks: Vec<Block> =
        tracker.objects().map(|object| (object.address, object.size, owner(object.stack))).collect();
    blocks.sort_unstable();
    blocks
}

/// Read the trace once more, and look at its pages at the moment that leads and at others. `None` of a sample, which does not know
/// what else is on a page.
pub fn find(trace: &Trace, profile: &Profile, calls: &Calls, at: At) -> Result<Option<Waste>, TraceError> {
    if profile.sampling.is_sample() || profile.division != Division::Stack {
        return Ok(None);
    }
    let page = if trace.head().page.is_power_of_two() { trace.head().page } else { PAGE };
    let leaves: HashMap<StackId, u32> = profile
        .rows
        .iter()
        .enumerate()
        .filter(|(_, row)| row.key.pool == 0)
        .map(|(number, row)| (row.key.stack, calls.leaf(number)))
        .collect();
    let owner = |stack| leaves.get(&stack).copied().unwrap_or(ROOT);
    let step = (profile.events / MOMENTS as u64).max(1);
    let moment = match at {
        At::Moment(number) => profile.moments.get(number).map_or(u64::MAX, |moment| moment.0),
        At::Peak | At::End => u64::MAX,
    };
    let classes = Classes::of(&trace.head().malloc);
    let mut looks = Looks::new(page, at == At::End);
    let mut course = Vec::new();
    let mut found: Option<(Vec<Block>, u64)> = None;
    let mut follower = Follower::of(Sampling::ALL);
    let mut events = trace.events();
    let (mut number, mut now) = (0u64, profile.first);
    while let Some(event) = events.next_with(|address| follower.tracker().is_live(address)) {
        let event = event?;
        if found.is_none() && event.time > moment {
            found = Some((blocks(follower.tracker(), owner), now));
        }
        follower.feed(&event);
        looks.add(&event, found.is_some(), follower.tracker());
        (number, now) = (number + 1, event.time);
        if at == At::Peak && number == profile.peak.events {
            found = Some((blocks(follower.tracker(), owner), now));
        }
        if number.is_multiple_of(step) && course.len() < MOMENTS {
            let pages = sweep(&blocks(follower.tracker(), owner), page, &mut |_, _| {});
            course.push(Pages { time: now, ..pages });
        }
    }
    let (blocks, time) = found.unwrap_or_else(|| (blocks(follower.tracker(), owner), now));
    let mut charges: HashMap<u32, Charge> = HashMap::new();
    let pages = sweep(&blocks, page, &mut |owner, more| *charges.entry(owner).or_default() += more);
    let mut rounding = 0;
    for &(_, size, owner) in &blocks {
        let more = classes.rounding(size);
        rounding += more;
        charges.entry(owner).or_default().rounding += more;
    }
    let now = Pages { time, ..pages };
    let mut charges: Vec<(u32, Charge)> = charges.into_iter().collect();
    charges.sort_unstable_by_key(|(call, charge)| (std::cmp::Reverse(charge.waste), *call));
    let resident = looks.at(&now, rounding, follower.tracker());
    Ok(Some(Waste { page, now, course, charges, rounding, classes, resident }))
}

/// Which calls are asked about.
pub(crate) fn fitting(report: &Report) -> impl Fn(u32) -> bool {
    let fits = report.query.filter.as_ref().map(|pattern| report.calls.fits(pattern));
    move |call| fits.as_ref().is_none_or(|fits| fits[call as usize])
}

/// Charges by the name of the site, most waste first.
pub(crate) fn by_site(report: &Report, waste: &Waste) -> Vec<(String, Charge)> {
    let (mut sites, fits) = (HashMap::<&str, Charge>::new(), fitting(report));
    for (call, charge) in waste.charges.iter().filter(|(call, _)| fits(*call)) {
        *sites.entry(report.calls.label(*call).text).or_default() += *charge;
    }
    let mut sites: Vec<(String, Charge)> =
        sites.into_iter().map(|(name, charge)| (name.to_owned(), charge)).collect();
    sites.sort_by(|a, b| b.1.waste.cmp(&a.1.waste).then_with(|| a.0.cmp(&b.0)));
    sites
}

/// Whose size classes, in words.
fn whose(classes: &Classes) -> String {
    match classes.is_own() {
        true => format!("as {} has them", classes.name()),
        false => {
            format!("if they were those of {}: those of the program's malloc are not known", classes.name())
        }
    }
}

/// The table of sites.
pub(crate) fn text(report: &Report, waste: &Waste, style: Style) -> String {
    let pages = &waste.now;
    let title = format!("Page waste by site, {}", report.moment_text());
    let most = waste.course.iter().max_by_key(|pages| pages.waste);
    let mut text = format!(
        "\n{}\n{} in {} of {}, {} of it not live\n",
        style.bold(&title),
        bytes(pages.pages * waste.page),
        units::of(pages.pages, "page"),
        bytes(waste.page),
        bytes(pages.waste)
    );
    if let Some(most) = most.filter(|most| most.waste > pages.waste) {
        text += &format!(
            "most waste of the moments looked at: {} after {}\n",
            bytes(most.waste),
            time(report.after(most.time))
        );
    }
    text += &format!(
        "size classes add {} to what was asked for, {}\n",
        bytes(waste.rounding),
        whose(&waste.classes)
    );
    let sites = by_site(report, waste);
    let row = |(name, charge): &(String, Charge)| {
        let cells = [
            bytes(charge.waste),
            part(charge.waste, pages.waste),
            bytes(charge.rounding),
            bytes(charge.live),
            count(charge.blocks),
            count(charge.sole_pages),
            bytes(charge.sole_waste),
            name.clone(),
        ];
        cells.map(Text::from).to_vec()
    };
    let mut align = [Align::Right; 8];
    align[7] = Align::Left;
    if report.query.filter.is_some() {
        text += "these pages are those of all call stacks, and the sites those that fit --filter\n";
    }
    let names = ["waste", "", "rounding", "live", "blocks", "sole pages", "waste there", "site"];
    text += &table::render(style, &align, &names, sites.iter().take(report.query.top).map(row).collect());
    let more = sites.len().saturating_sub(report.query.top);
    if more > 0 {
        text += &format!("and {more} more\n");
    }
    text + &waste.resident.as_ref().map_or_else(String::new, |resident| resident.text(report, style))
}

/// The same for machines.
pub(crate) fn json(report: &Report, waste: &Waste) -> Value {
    let pages = |pages: &Pages| json!({ "after_ns": report.after(pages.time), "pages": pages.pages, "live_bytes": pages.live, "waste_bytes": pages.waste });
    let site = |(name, charge): &(String, Charge)| {
        json!({
            "name": name,
            "waste_bytes": charge.waste,
            "rounding_bytes": charge.rounding,
            "live_bytes": charge.live,
            "blocks": charge.blocks,
            "sole_pages": charge.sole_pages,
            "sole_waste_bytes": charge.sole_waste,
        })
    };
    let sites = by_site(report, waste);
    let shown = &sites[..sites.len().min(report.query.top)];
    // What is not shown, whether it fits or not: all of it adds up.
    let other = |whole: u64, of: fn(&Charge) -> u64| {
        whole.saturating_sub(shown.iter().map(|(_, charge)| of(charge)).sum::<u64>())
    };
    json!({
        "page_bytes": waste.page,
        "now": pages(&waste.now),
        "course": waste.course.iter().map(pages).collect::<Vec<_>>(),
        "sites": shown.iter().map(site).collect::<Vec<_>>(),
        "rounding_bytes": waste.rounding,
        "size_classes": waste.classes.name(),
        "size_classes_known": waste.classes.is_own(),
        "other_rounding_bytes": other(waste.rounding, |charge| charge.rounding),
        "resident": waste.resident.as_ref().map(|resident| resident.json(report)),
        "other_waste_bytes": other(waste.now.waste, |charge| charge.waste),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn charged(blocks: &[Block]) -> (Pages, HashMap<u32, Charge>) {
        let mut charges: HashMap<u32, Charge> = HashMap::new();
        let pages = sweep(blocks, 4096, &mut |owner, more| {
            let charge = charges.entry(owner).or_default();
            charge.waste += more.waste;
            charge.live += more.live;
            charge.sole_pages += more.sole_pages;
            charge.sole_waste += more.sole_waste;
        });
        (pages, charges)
    }

    #[test]
    fn a_page_is_shared_by_its_blocks() {
        // Two sites on the first page, one alone on the second, a block over three pages.
        let (pages, charges) = charged(&[
            (0, 100, 1),
            (1000, 50, 2),
            (2000, 46, 1),
            (4096, 96, 2),
            (3 * 4096 - 100, 4096 + 200, 3),
        ]);
        assert_eq!((pages.pages, pages.live), (5, 100 + 50 + 46 + 96 + 4296));
        assert_eq!(pages.waste, 5 * 4096 - pages.live);
        assert_eq!(charges[&1].waste, 2 * (3900 / 3));
        assert_eq!(charges[&2].waste, 3900 / 3 + 4000);
        assert_eq!((charges[&2].sole_pages, charges[&2].sole_waste), (1, 4000));
        assert_eq!((charges[&3].sole_pages, charges[&3].waste), (2, 2 * 3996));
    }

    #[test]
    fn charges_are_the_waste_to_the_byte() {
        let mut state = 88172645463325252u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for _ in 0..200 {
            let (mut at, mut blocks) = (random() % 4096, Vec::new());
            for _ in 0..random() % 300 {
                let size = if random().is_multiple_of(20) { random() % 30_000 } else { random() % 300 };
                blocks.push((at, size, (random() % 7) as u32));
                at += size.max(1) + if random().is_multiple_of(5) { random() % 9000 } else { random() % 16 };
            }
            let (pages, charges) = charged(&blocks);
            assert_eq!(charges.values().map(|charge| charge.waste).sum::<u64>(), pages.waste);
            assert_eq!(charges.values().map(|charge| charge.live).sum::<u64>(), pages.live);
            assert_eq!(pages.pages * 4096, pages.live + pages.waste);
            let sole: u64 = charges.values().map(|charge| charge.sole_waste).sum();
            assert!(sole <= pages.waste);
        }
    }

    #[test]
    fn blocks_that_cannot_be_do_no_harm() {
        let (pages, charges) = charged(&[(0, 8000, 1), (100, 9000, 2), (200, 0, 3), (u64::MAX - 5, 5, 4)]);
        assert_eq!(charges.values().map(|charge| charge.waste).sum::<u64>(), pages.waste);
    }
}
