// SPDX-License-Identifier: MIT
//! The tree of calls as text: from the outermost function down to the sites, or from the sites up to their callers.

use std::collections::HashMap;

use crate::calls::{Calls, ROOT};
use crate::estimate::{live, part};
use crate::model::Live;
use crate::query::Choice;

/// Branches with a smaller part of the whole are told by number only.
const LEAST: f64 = 0.01;
/// Lines of a tree.
const MOST: usize = 2000;

/// In which direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From callers to the functions they call.
    Down,
    /// From the place of an allocation to its callers.
    Up,
}

impl Direction {
    /// All of them.
    pub const ALL: [Choice<Self>; 2] = [
        (Direction::Down, "top-down", "From callers to sites"),
        (Direction::Up, "bottom-up", "From sites to callers"),
    ];
}

/// A branch that is large enough to be shown.
#[derive(Debug, Clone, Default)]
struct Node {
    label: u32,
    /// Of it and all below it.
    sum: Live,
    /// The largest first.
    children: Vec<Node>,
    /// All of the children that are too small, and how many these are.
    rest: (Live, usize),
}

/// A tree with sums, of which only the large branches are there: a tree with a million leaves has a few hundred of these.
#[derive(Debug, Clone)]
pub struct Summed {
    root: Node,
}

/// Of a row: the leaf of the tree of calls, and what it has.
pub type Leaf<'a> = dyn Fn(u32) -> (u32, Live) + 'a;

/// Is this much enough to be shown?
fn is_large(bytes: u64, whole: u64) -> bool {
    bytes > 0 && bytes as f64 >= whole as f64 * LEAST
}

fn sort(children: &mut [Node]) {
    children.sort_by_key(|child| std::cmp::Reverse(child.sum.bytes.value()));
}

impl Summed {
    /// Of some rows, which `of` says the leaf of the tree of calls of, and what it has.
    pub fn new(calls: &Calls, rows: &[u32], of: &Leaf, direction: Direction) -> Self {
        let root = match direction {
            Direction::Down => Down::new(calls, rows, of).node(calls, ROOT),
            Direction::Up => {
                let mut root = Node { label: calls.calls()[0].label, ..Node::default() };
                rows.iter().for_each(|&row| root.sum += of(row).1);
                let up = Up { calls, of, whole: root.sum.bytes.value() };
                (root.children, root.rest) = up.callers(rows.iter().map(|&row| (of(row).0, row)).collect());
                root
            }
        };
        Self { root }
    }

    /// The sum of all.
    pub fn all(&self) -> Live {
        self.root.sum
    }

    /// As text.
    pub fn text(&self, calls: &Calls) -> String {
        let mut lines = Vec::new();
        self.lines(calls, &self.root, "", &mut lines);
        let more = lines.len() > MOST;
        lines.truncate(MOST);
        let head = format!("100 % {}\n", live(&self.all()));
        let end = if more { "(the rest of the tree is left out; --filter narrows it)\n" } else { "" };
        head + &lines.concat() + end
    }

    fn lines(&self, calls: &Calls, node: &Node, indent: &str, lines: &mut Vec<String>) {
        let whole = self.all().bytes.value();
        let (rest, n) = &node.rest;
        for (at, child) in node.children.iter().enumerate() {
            if lines.len() > MOST {
                return;
            }
            let is_last = at + 1 == node.children.len() && rest.bytes.value() == 0;
            let label = calls.label_of(child.label);
            let (mark, below) = if is_last { ("└ ", "  ") } else { ("├ ", "│ ") };
            lines.push(format!(
                "{indent}{mark}{} {} {}\n",
                part(child.sum.bytes.value(), whole),
                live(&child.sum),
                label.text
            ));
            // A path without branches does not move to the right for ever.
            let deep = indent.chars().count() >= 80;
            let inner = if deep { indent.to_owned() } else { format!("{indent}{below}") };
            self.lines(calls, child, &inner, lines);
        }
        if rest.bytes.value() > 0 {
            let below = part((whole as f64 * LEAST) as u64, whole);
            lines.push(format!(
                "{indent}└ {} {} in {}, each below {below}\n",
                part(rest.bytes.value(), whole),
                live(rest),
                quarry_report::units::of(*n as u64, "place")
            ));
        }
    }
}

/// From callers to sites: the tree of calls itself.
struct Down {
    /// The sums of large calls, and of the small ones below them.
    large: HashMap<u32, (Live, Live)>,
    /// Large calls by their callers.
    children: HashMap<u32, Vec<u32>>,
    /// How many small calls there are by their callers.
    small: HashMap<u32, usize>,
}

impl Down {
    fn new(calls: &Calls, rows: &[u32], of: &Leaf) -> Self {
        let mut bytes = vec![0u64; calls.calls().len()];
        for (leaf, live) in rows.iter().map(|&row| of(row)) {
            bytes[leaf as usize] = bytes[leaf as usize].wrapping_add(live.bytes.value());
        }
        for (at, call) in calls.calls().iter().enumerate().skip(1).rev() {
            bytes[call.parent as usize] = bytes[call.parent as usize].wrapping_add(bytes[at]);
        }
        let whole = bytes[0];
        let is_shown = |call: u32| call == ROOT || is_large(bytes[call as usize], whole);
        let (mut children, mut small) = (HashMap::<u32, Vec<u32>>::new(), HashMap::<u32, usize>::new());
        for (at, call) in calls.calls().iter().enumerate().skip(1) {
            match is_shown(at as u32) {
                true => children.entry(call.parent).or_default().push(at as u32),
                false if bytes[at] > 0 && is_shown(call.parent) => {
                    *small.entry(call.parent).or_default() += 1;
                }
                false => {}
            }
        }
        let mut large = HashMap::<u32, (Live, Live)>::new();
        for (leaf, live) in rows.iter().map(|&row| of(row)) {
            for (at, call) in calls.up(leaf).chain([ROOT]).filter(|call| is_shown(*call)).enumerate() {
                let sums = large.entry(call).or_default();
                sums.0 += live;
                // The innermost of them has the rest of what it calls.
                if at == 0 && call != leaf {
                    sums.1 += live;
                }
            }
        }
        Self { large, children, small }
    }

    fn node(&self, calls: &Calls, call: u32) -> Node {
        let (sum, rest) = self.large.get(&call).copied().unwrap_or_default();
        let children = self.children.get(&call).into_iter().flatten();
        let mut children: Vec<Node> = children.map(|&child| self.node(calls, child)).collect();
        sort(&mut children);
        let small = self.small.get(&call).copied().unwrap_or(0);
        Node { label: calls.calls()[call as usize].label, sum, children, rest: (rest, small) }
    }
}

/// From sites to callers: a branch is a row, or several with the same label, and goes up from there.
struct Up<'a> {
    calls: &'a Calls,
    of: &'a Leaf<'a>,
    whole: u64,
}

impl Up<'_> {
    /// The callers of some rows. Each has gone up to a call, which comes first.
    fn callers(&self, mut rows: Vec<(u32, u32)>) -> (Vec<Node>, (Live, usize)) {
        let call = |at: u32| &self.calls.calls()[at as usize];
        rows.retain(|row| row.0 != ROOT);
        rows.sort_unstable_by_key(|row| (call(row.0).label, row.1));
        let (mut large, mut rest) = (Vec::new(), (Live::default(), 0));
        for branch in rows.chunk_by(|a, b| call(a.0).label == call(b.0).label) {
            let mut sum = Live::default();
            branch.iter().for_each(|row| sum += (self.of)(row.1).1);
            if is_large(sum.bytes.value(), self.whole) {
                let above = branch.iter().map(|row| (call(row.0).parent, row.1));
                large.push((call(branch[0].0).label, sum, above.collect()));
            } else if sum.bytes.value() > 0 {
                rest.0 += sum;
                rest.1 += 1;
            }
        }
        drop(rows);
        let node = |(label, sum, above)| {
            let (children, rest) = self.callers(above);
            Node { label, sum, children, rest }
        };
        let mut nodes: Vec<Node> = large.into_iter().map(node).collect();
        sort(&mut nodes);
        (nodes, rest)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::model::{Builder, Division, Spans};
    use crate::query::{At, live_at};
    use quarry_symbols::{Folding, Symbols};
    use quarry_trace::sample::Sampling;
    use quarry_trace::{AllocApi, Event, StackNode, StackTree, What};

    /// Numbers by chance, below `n`.
    fn random(state: &mut u64, n: u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state % n
    }

    /// Stacks by chance, whose functions are few, and what each has.
    fn some(state: &mut u64) -> (Calls, Vec<(u32, Live)>) {
        let mut stacks = StackTree::new();
        let mut builder = Builder::new(Sampling::ALL, Division::Stack, Spans::new(0, 200), &[]);
        for id in 1..=200u32 {
            let (parent, pc) = (random(state, id.min(60).into()) as u32, 1 + random(state, 7));
            stacks.add(&StackNode { id, parent, pc, is_return: false });
            let size = 1 << random(state, 14);
            let (api, address) = (AllocApi::Malloc, u64::from(id) << 20);
            let what = What::Alloc { api, size, address, align: 0, stack: id };
            builder.add(&Event { time: id.into(), thread: 1, what });
        }
        let profile = builder.finish();
        let calls = Calls::of(&profile, &stacks, &mut Symbols::new(Vec::new()), &Folding::default());
        let of = |(number, row)| (calls.leaf(number), live_at(row, At::End));
        let leaves = profile.rows.iter().enumerate().map(of).collect();
        (calls, leaves)
    }

    /// What each path of labels has, those below it too.
    fn all_paths(calls: &Calls, leaves: &[(u32, Live)], direction: Direction) -> BTreeMap<Vec<u32>, u64> {
        let mut sums = BTreeMap::new();
        for (leaf, live) in leaves {
            let mut path: Vec<u32> = calls.up(*leaf).map(|call| calls.calls()[call as usize].label).collect();
            if direction == Direction::Down {
                path.reverse();
            }
            for n in 0..=path.len() {
                *sums.entry(path[..n].to_vec()).or_default() += live.bytes.value();
            }
        }
        sums
    }

    fn check(node: &Node, path: &[u32], paths: &BTreeMap<Vec<u32>, u64>, whole: u64) -> usize {
        assert_eq!(node.sum.bytes.value(), paths[path]);
        let is_child =
            |(other, _): &(&Vec<u32>, &u64)| other.len() == path.len() + 1 && other.starts_with(path);
        let (large, small): (Vec<_>, Vec<_>) =
            paths.iter().filter(is_child).partition(|(_, bytes)| is_large(**bytes, whole));
        let mut labels: Vec<u32> = node.children.iter().map(|child| child.label).collect();
        assert!(node.children.is_sorted_by_key(|child| std::cmp::Reverse(child.sum.bytes.value())));
        labels.sort_unstable();
        assert_eq!(labels, large.iter().map(|(other, _)| other[path.len()]).collect::<Vec<u32>>());
        let rest = small.iter().map(|(_, bytes)| **bytes).sum::<u64>();
        assert_eq!((node.rest.0.bytes.value(), node.rest.1), (rest, small.len()));
        let below = |child: &Node| check(child, &[path, &[child.label]].concat(), paths, whole);
        1 + node.children.iter().map(below).sum::<usize>()
    }

    #[test]
    fn large_branches_are_those_of_the_whole_tree() {
        let mut state = 88172645463325252u64;
        for _ in 0..50 {
            let (calls, leaves) = some(&mut state);
            for direction in [Direction::Down, Direction::Up] {
                let paths = all_paths(&calls, &leaves, direction);
                let rows: Vec<u32> = (0..leaves.len() as u32).collect();
                let tree = Summed::new(&calls, &rows, &|row| leaves[row as usize], direction);
                let shown = check(&tree.root, &[], &paths, tree.all().bytes.value());
                assert!(shown > 5 && shown < paths.len(), "{shown} of {}", paths.len());
            }
        }
    }
}
