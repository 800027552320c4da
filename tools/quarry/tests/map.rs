// SPDX-License-Identifier: MIT
//! quarry map on a process that has a mapping of each kind, on all processes it can read, and on copies of them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::common::{Bench, Ended, kill, text, wait_until};
use serde_json::Value;

/// The process with the mappings, and where it made them.
struct Subject {
    bench: Bench,
    child: Child,
    places: Value,
}

impl Subject {
    fn new() -> Option<Self> {
        let bench = Bench::new()?;
        let program = bench.compile("mappings", include_str!("mappings.c"), &["-O1", "-pthread"]).unwrap();
        let mut child =
            Command::new(program).arg(bench.path("file")).arg("wait").stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        kill("STOP", child.id());
        Some(Self { bench, child, places: serde_json::from_str(&line).unwrap() })
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    fn json(&self) -> Value {
        self.bench.run(&["map", "-p", &self.pid(), "--json"]).expect(0).json()
    }

    /// The mapping at the place of this name.
    #[track_caller]
    fn at<'a>(&self, map: &'a Value, name: &str) -> &'a Value {
        let address = number(&self.places[name]);
        let holds =
            |mapping: &&Value| (number(&mapping["start"])..number(&mapping["end"])).contains(&address);
        map["mappings"].as_array().unwrap().iter().find(holds).unwrap_or_else(|| panic!("{name}"))
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// "0x12".
fn number(value: &Value) -> u64 {
    let text = value.as_str().unwrap();
    text.strip_prefix("0x").map_or(0, |digits| u64::from_str_radix(digits, 16).unwrap())
}

fn counter(mapping: &Value, name: &str) -> u64 {
    mapping["counters"][name].as_u64().unwrap_or_else(|| panic!("{name} in {mapping:#}"))
}

/// Sums that are not the kernel's. With how many others pages are shared may change between two looks.
fn differing(map: &Value) -> Vec<&Value> {
    let of_others = |what: &str| {
        ["Pss", "Shared_", "Private_", "SwapPss", "Locked"].iter().any(|begin| what.starts_with(begin))
    };
    let lines = map["checks"].as_array().unwrap().iter();
    lines.filter(|line| line["agrees"] != true && !of_others(line["what"].as_str().unwrap())).collect()
}

const MIB: u64 = 1 << 20;

#[test]
fn every_kind_is_told() {
    let Some(subject) = Subject::new() else { return };
    let map = subject.json();
    assert_eq!(map["schema"], "quarry-map/1");
    let denied =
        map["gaps"].as_array().unwrap().iter().any(|gap| gap.as_str().unwrap().contains("stack pointers"));
    for (name, quadrant, kind) in [
        ("shared", 2, "shared"),
        ("reserved", 1, "anonymous"),
        ("private", 3, "file"),
        ("through", 4, "file"),
        ("memfd", 2, "memfd"),
        ("sysv", 2, "sysv"),
        ("locked", 1, "anonymous"),
        ("deleted", 4, "file"),
        ("bss", 1, "bss"),
        ("data", 3, "data"),
        ("rodata", 3, "rodata"),
        ("text", 3, "text"),
        ("heap", 1, "heap"),
        ("stack", 1, "stack"),
    ] {
        let mapping = subject.at(&map, name);
        assert_eq!(
            (mapping["quadrant"].as_u64(), mapping["kind"].as_str()),
            (Some(quadrant), Some(kind)),
            "{name}: {mapping:#}"
        );
    }
    if number(&subject.places["posix"]) != 0 {
        let mapping = subject.at(&map, "posix");
        assert_eq!(mapping["kind"], "posix-shm");
        assert_eq!(counter(mapping, "Rss"), MIB / 2);
    }
    // What is dirty: in a shared file it can be written back, elsewhere only swap has room for it.
    let dirty = |at: usize, key: &str| map["quadrants"][at][key].as_u64().unwrap();
    assert_eq!(dirty(0, "dirty_write_back") + dirty(1, "dirty_write_back"), 0);
    assert_eq!((dirty(3, "dirty_needs_swap"), dirty(3, "dirty_write_back")), (0, dirty(3, "dirty")));
    assert!(dirty(3, "dirty_write_back") >= 64 << 10 && dirty(1, "dirty_needs_swap") >= 52 * MIB);
    // Code has the file's pages, which may be dirty as long as the file is new. A variable's page is the process's own.
    let [code, data] = ["text", "data"].map(|name| subject.at(&map, name));
    assert!(counter(code, "Anonymous") == 0 && counter(code, "Rss") > 0, "{code:#}");
    assert!(counter(data, "Anonymous") > 0 && counter(data, "Private_Dirty") >= counter(data, "Anonymous"));
    // The articles' 50 MiB: resident, shared, no part of it anonymous to the kernel.
    let shared = subject.at(&map, "shared");
    assert_eq!(
        (counter(shared, "Rss"), counter(shared, "Private_Dirty"), counter(shared, "Anonymous")),
        (50 * MIB, 50 * MIB, 0)
    );
    assert_eq!((shared["name"].as_str(), shared["deleted"].as_bool()), (Some("/dev/zero"), Some(true)));
    assert!(map["total"]["rss_shared_memory"].as_u64().unwrap() >= 52 * MIB);
    // Reserved is not resident.
    let reserved = subject.at(&map, "reserved");
    assert!(counter(reserved, "Rss") == 0 && reserved["flags"].as_array().unwrap().contains(&"nr".into()));
    // 32 of 64 pages of the private file were written, and are no pages of the file any more.
    let private = subject.at(&map, "private");
    assert_eq!((counter(private, "Rss"), counter(private, "Anonymous")), (256 << 10, 128 << 10));
    let through = subject.at(&map, "through");
    assert!(counter(through, "Anonymous") == 0 && counter(through, "Rss") >= 64 << 10);
    if subject.places["is_locked"] == 1 {
        assert_eq!(counter(subject.at(&map, "locked"), "Locked"), 64 << 10);
    }
    if subject.places["is_lazy"] == 1 {
        // The kernel marks pages in batches, and takes them when it likes.
        let lazy = subject.at(&map, "lazy");
        assert!(
            counter(lazy, "LazyFree") >= counter(lazy, "Rss") / 2 && counter(lazy, "LazyFree") > 0,
            "{lazy:#}"
        );
    }
    assert_eq!(subject.at(&map, "deleted")["deleted"], true);
    let sections = |name: &str| subject.at(&map, name)["sections"].to_string();
    assert!(sections("text").contains(".text") && sections("data").contains(".data"));
    assert!(sections("bss").contains(".bss") && sections("rodata").contains(".rodata"));
    // Two threads with a stack and a guard each.
    let of_kind = |kind: &str| {
        let mappings = map["mappings"].as_array().unwrap().iter();
        mappings.filter(|mapping| mapping["kind"] == kind).cloned().collect::<Vec<_>>()
    };
    let stacks = of_kind("thread-stack");
    assert_eq!(stacks.len(), 2, "{stacks:#?}");
    assert!(of_kind("guard").len() >= 2);
    if !denied {
        let mut threads: Vec<&Value> =
            stacks.iter().flat_map(|stack| stack["threads"].as_array().unwrap()).collect();
        threads.dedup();
        assert_eq!(threads.len(), 2, "{stacks:#?}");
        let named = |thread: &&Value| thread["name"] == "worker";
        assert_eq!(map["threads"].as_array().unwrap().iter().filter(named).count(), 2);
    }
}

#[test]
fn sums_are_the_kernels() {
    let Some(subject) = Subject::new() else { return };
    let mut map = subject.json();
    for _ in 0..20 {
        if map["steady"] == true {
            break;
        }
        map = subject.json();
    }
    let lines = map["checks"].as_array().unwrap();
    assert!(lines.len() >= 25);
    assert!(lines.iter().all(|line| line["agrees"] == true), "{lines:#?}");
    // What top shows.
    let page = map["page_size"].as_u64().unwrap();
    let statm = fs::read_to_string(format!("/proc/{}/statm", subject.pid())).unwrap();
    let statm: Vec<u64> = statm.split_whitespace().map(|word| word.parse::<u64>().unwrap() * page).collect();
    assert_eq!((map["top"]["virt"].as_u64(), map["top"]["data"].as_u64()), (Some(statm[0]), Some(statm[5])));
    assert_eq!(map["total"]["rss"].as_u64(), Some(statm[1]));
    let quadrants = map["quadrants"].as_array().unwrap();
    for (of_all, of_each) in [("rss", "rss"), ("rss", "pages"), ("size", "size"), ("uss", "uss")] {
        let sum: u64 = quadrants.iter().map(|quadrant| quadrant[of_each].as_u64().unwrap()).sum();
        assert_eq!(map["total"][of_all].as_u64(), Some(sum), "{of_each}");
    }
    for by in ["quadrant", "kind", "object", "file", "mapping"] {
        let map = subject.bench.run(&["map", "-p", &subject.pid(), "--json", "--by", by]).expect(0).json();
        let sum: u64 =
            map["groups"].as_array().unwrap().iter().map(|group| group["rss"].as_u64().unwrap()).sum();
        assert_eq!(sum, statm[1], "{by}");
    }
}

/// Whatever runs here and may be read. Only what stands still can be compared to the page.
#[test]
fn every_process_can_be_mapped() {
    let Some(bench) = Bench::new() else { return };
    let mut compared = 0;
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    for pid in pids.take(60) {
        let ended = bench.run(&["map", "-q", "-p", &pid.to_string(), "--json"]);
        if ended.code == Some(1) {
            let reasons = ["there is no process", "has no memory", "not permitted", "hidden"];
            assert!(reasons.iter().any(|reason| ended.stderr.contains(reason)), "{}", ended.stderr);
            continue;
        }
        let map = ended.expect(0).json();
        if map["steady"] == true {
            // A difference must be one that no later look has. The process may have ended by then, or not stand still any more.
            let again = |_| {
                let later = bench.run(&["map", "-q", "-p", &pid.to_string(), "--json"]);
                if later.code == Some(1) {
                    return false;
                }
                let later = later.expect(0).json();
                later["steady"] == true && !differing(&later).is_empty()
            };
            assert!(
                differing(&map).is_empty() || !(0..5).all(again),
                "{pid} {}: {:#?}",
                map["name"],
                differing(&map)
            );
            compared += 1;
        }
    }
    assert!(compared > 0);
}

#[test]
fn a_copy_is_as_good() {
    const FILES: [&str; 10] = [
        "smaps",
        "smaps_rollup",
        "maps",
        "stat",
        "statm",
        "status",
        "comm",
        "cmdline",
        "mountinfo",
        "limits",
    ];
    let Some(subject) = Subject::new() else { return };
    let folder = subject.bench.path("saved");
    let task = folder.join("task").join(subject.pid());
    fs::create_dir_all(&task).unwrap();
    let copy = |name: &&str| {
        fs::write(folder.join(name), fs::read(format!("/proc/{}/{name}", subject.pid())).unwrap()).unwrap();
    };
    // Files are copied one after the other, and where nothing changed in between is the only copy to compare.
    let steady = || {
        let live = subject.json();
        FILES.iter().for_each(copy);
        (subject.json()["total"] == live["total"]).then_some(live)
    };
    let live = (0..50).find_map(|_| steady()).expect("a process that does nothing to be the same twice");
    let saved = subject.bench.run(&["map", "--json", text(&folder)]).expect(0).json();
    assert_eq!(
        (saved["origin"].as_str(), &saved["pid"], &saved["command"]),
        (Some("folder"), &live["pid"], &live["command"])
    );
    // What is shared, and with how many, changes with other processes.
    for key in ["count", "size", "rss", "rss_anonymous", "rss_file", "rss_shared_memory", "no_reserve"] {
        assert_eq!(saved["total"][key], live["total"][key], "{key}");
    }
    assert_eq!(saved["quadrants"][2]["pages"], live["quadrants"][2]["pages"]);
    assert!(differing(&saved).is_empty());
    // A whole /proc.
    let root = subject.bench.path("proc");
    fs::create_dir(&root).unwrap();
    fs::rename(&folder, root.join("77")).unwrap();
    let from = subject.bench.run(&["map", "--json", "--proc", text(&root), "-p", "77"]).expect(0).json();
    assert_eq!(from["total"], saved["total"]);
    assert!(!from["gaps"].to_string().contains("stack pointers"), "{}", from["gaps"]);
    // A limit of the group around its own, and what that one uses.
    let group = root.join("cgroup/a/b");
    fs::create_dir_all(&group).unwrap();
    for (file, text) in [
        ("77/cgroup", "0::/a/b\n"),
        ("cgroup/a/b/memory.stat", ""),
        ("cgroup/a/b/memory.current", "10485760"),
        ("cgroup/a/memory.max", "104857600"),
        ("cgroup/a/memory.current", "83886080"),
    ] {
        fs::write(root.join(file), text).unwrap();
    }
    let limited = subject.bench.run(&["map", "--proc", text(&root), "-p", "77"]).expect(0).stdout;
    assert!(limited.contains("may have 100 MiB, of which 80.0 MiB are used"), "{limited}");
    // A thread that ran when it was copied: where its stack is cannot be told.
    let task = root.join("77/task/78");
    fs::create_dir_all(&task).unwrap();
    fs::write(task.join("comm"), "worker\n").unwrap();
    fs::write(task.join("syscall"), "running\n").unwrap();
    let ran = subject.bench.run(&["map", "--json", "--proc", text(&root), "-p", "77"]).expect(0).json();
    assert!(ran["gaps"].to_string().contains("stack pointers of 1 of 1 thread,"), "{}", ran["gaps"]);
    // smaps alone, and maps, which has no counters.
    let smaps = root.join("77/smaps");
    let alone = subject.bench.run(&["map", "--json", text(&smaps)]).expect(0).json();
    assert_eq!(alone["total"]["rss"], live["total"]["rss"]);
    let maps = subject.bench.run(&["map", text(&root.join("77/maps"))]).expect(0);
    maps.says("a copy of maps");
    // Cut off anywhere it is damaged, and what is there is shown.
    let bytes = fs::read(&smaps).unwrap();
    fs::write(&smaps, &bytes[..bytes.len() - 100]).unwrap();
    let cut = subject.bench.run(&["map", text(&smaps)]).expect(1);
    cut.says("it ends within a mapping");
    assert!(cut.stdout.contains("private anonymous"));
}

/// What top calls SWAP. Shared memory in swap is in the column alone.
#[test]
fn swap_is_what_the_kernel_counts_for_the_process() {
    let Some(bench) = Bench::new() else { return };
    let folder = bench.path("saved");
    fs::create_dir(&folder).unwrap();
    let smaps = folder.join("smaps");
    let mapping = |line: &str, swap: u64| format!("{line}\nRss: 4 kB\nSwap: {swap} kB\n");
    let heap = mapping("10000-20000 rw-p 00000000 00:00 0 [heap]", 8);
    let shared = mapping("30000-40000 rw-s 00000000 00:01 9 /dev/zero (deleted)", 16);
    fs::write(&smaps, heap + &shared).unwrap();
    fs::write(folder.join("status"), "Name:\tx\nVmSwap:\t8 kB\n").unwrap();
    for (what, head, remark) in [
        (&folder, "SWAP 8.00 KiB\n", "8.00 KiB are in swap (VmSwap):"),
        (&smaps, "SWAP 24.0 KiB\n", "24.0 KiB are in swap (smaps, with shared memory):"),
    ] {
        let said = bench.run(&["map", text(what)]).expect(0).stdout;
        assert!(said.contains(head) && said.contains(remark), "{said}");
    }
    let map = bench.run(&["map", "--json", text(&folder)]).expect(0).json();
    assert_eq!((&map["top"]["swap"], &map["total"]["swap"]), (&(8 << 10).into(), &(24 << 10).into()));
}

#[test]
fn what_people_see() {
    let Some(subject) = Subject::new() else { return };
    let pid = subject.pid();
    let run = |args: &[&str]| subject.bench.run(&[&["map", "-p", &pid], args].concat()).expect(0).stdout;
    let report = run(&[]);
    for part in [
        "1 private anonymous",
        "/dev/zero (deleted)",
        "sums equal the kernel's own",
        "RLIMIT_STACK",
        "DATA is",
    ] {
        assert!(report.contains(part), "no '{part}' in: {report}");
    }
    let idle = report.lines().find(|line| line.contains("less than 1 % is resident")).unwrap();
    assert!(idle.contains("1.00 GiB of no name (rw-pR)"), "{idle}");
    let dirty = report.lines().find(|line| line.starts_with("of dirty pages ")).unwrap();
    assert!(
        dirty.contains("can be written back to files, and") && dirty.contains("can only go to swap"),
        "{dirty}"
    );
    assert!(run(&["--check"]).contains("status RssShmem"));
    let only = run(&["--kind", "memfd,sysv", "--by", "mapping"]);
    assert!(only.contains("quarry-test") && only.contains("SYSV") && !only.contains("[heap]"), "{only}");
    let filtered = run(&["--filter", "libc", "--quadrant", "3", "--by", "file"]);
    assert!(filtered.contains("libc.so") && !filtered.contains("mappings.c"), "{filtered}");
    let x = run(&["-x"]);
    let zero = x.lines().find(|line| line.contains("/dev/zero")).unwrap();
    let words: Vec<&str> = zero.split_whitespace().collect();
    assert_eq!(&words[1..5], &["51200", "51200", "51200", "rw-s"], "{zero}");
    let total = x.lines().last().unwrap();
    let virt = subject.json()["total"]["size"].as_u64().unwrap() / 1024;
    assert!(total.starts_with("total kB") && total.contains(&virt.to_string()), "{total}");
    let all = run(&["-X"]);
    assert!(all.contains("SwapPss") && all.contains("[rd wr sh mr mw me ms"), "{all}");
    // Every counter of this kernel, whatever it is, for every mapping.
    let smaps = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let first: Vec<(&str, &str)> = smaps.lines().skip(1).filter_map(|line| line.split_once(':')).collect();
    let end = first.iter().position(|(name, _)| *name == "VmFlags").unwrap();
    let heads: Vec<&str> = all.lines().nth(1).unwrap().split_whitespace().collect();
    let cells: Vec<&str> = all.lines().nth(2).unwrap().split_whitespace().collect();
    for (name, value) in &first[..end] {
        let at =
            heads.iter().position(|head| head == name).unwrap_or_else(|| panic!("no {name} in {heads:?}"));
        assert_eq!(Some(cells[at]), value.split_whitespace().next(), "{name}");
    }
    let picture = run(&["--picture"]);
    assert!(picture.contains('█') && picture.contains("unmapped") && !picture.contains('\x1b'), "{picture}");
    assert!(run(&["--picture", "--color", "always"]).contains("\x1b[34m"));
    let (svg, html) = (subject.bench.path("map.svg"), subject.bench.path("map.html"));
    run(&["-o", text(&svg), "-o", text(&html)]);
    let twice = ["map", "-p", &pid, "-o", text(&svg), "-o", text(&svg)];
    subject.bench.run(&twice).expect(2).says("would be written twice");
    subject.bench.run(&["map", "-p", &pid, "-x", "--json"]).expect(2).says("--extended is text");
    let (svg, html) = (fs::read_to_string(svg).unwrap(), fs::read_to_string(html).unwrap());
    assert!(
        svg.starts_with("<?xml") && svg.contains("prefers-color-scheme:dark") && svg.ends_with("</svg>\n")
    );
    assert!(html.contains("width=device-width") && html.contains("memfd:quarry-test"));
    for outside in ["http:", "https:", "src="] {
        assert!(!html.contains(outside), "{outside}");
    }
}

/// The articles' listing: its addresses and names as in `/proc/PID/maps`, its KiB, resident and dirty ones as in `pmap -x`.
const LISTING: [(&str, [u64; 3]); 17] = [
    ("00400000-00401000 r-xp 00000000 08:01 3507636 /blah", [4, 4, 4]),
    ("00401000-00402000 rw-p 00000000 08:01 3507636 /blah", [4, 4, 4]),
    ("7fbb5da87000-7fbb60c87000 rw-s 00000000 00:04 8467 /dev/zero (deleted)", [51200, 51200, 51200]),
    (
        "7fbb60c87000-7fbb60e07000 r-xp 00000000 08:01 3334313 /lib/x86_64-linux-gnu/libc-2.13.so",
        [1536, 188, 0],
    ),
    (
        "7fbb60e07000-7fbb61007000 ---p 00180000 08:01 3334313 /lib/x86_64-linux-gnu/libc-2.13.so",
        [2048, 0, 0],
    ),
    (
        "7fbb61007000-7fbb6100b000 r--p 00180000 08:01 3334313 /lib/x86_64-linux-gnu/libc-2.13.so",
        [16, 16, 16],
    ),
    ("7fbb6100b000-7fbb6100c000 rw-p 00184000 08:01 3334313 /lib/x86_64-linux-gnu/libc-2.13.so", [4, 4, 4]),
    ("7fbb6100c000-7fbb61011000 rw-p 00000000 00:00 0", [20, 12, 12]),
    ("7fbb61011000-7fbb61031000 r-xp 00000000 08:01 3334316 /lib/x86_64-linux-gnu/ld-2.13.so", [128, 108, 0]),
    ("7fbb61221000-7fbb61224000 rw-p 00000000 00:00 0", [12, 12, 12]),
    ("7fbb6122e000-7fbb61230000 rw-p 00000000 00:00 0", [8, 8, 8]),
    ("7fbb61230000-7fbb61231000 r--p 0001f000 08:01 3334316 /lib/x86_64-linux-gnu/ld-2.13.so", [4, 4, 4]),
    ("7fbb61231000-7fbb61232000 rw-p 00020000 08:01 3334316 /lib/x86_64-linux-gnu/ld-2.13.so", [4, 4, 4]),
    ("7fbb61232000-7fbb61233000 rw-p 00000000 00:00 0", [4, 4, 4]),
    ("7fff9350f000-7fff93530000 rw-p 00000000 00:00 0 [stack]", [132, 12, 12]),
    ("7fff9356e000-7fff9356f000 r-xp 00000000 00:00 0 [vdso]", [4, 4, 0]),
    ("ffffffffff600000-ffffffffff601000 r-xp 00000000 00:00 0 [vsyscall]", [4, 0, 0]),
];

/// `pmap` adds all seventeen up to 55132 KiB. The kernel counts vsyscall's page to no process, and neither does VIRT; so
/// the sum here is 55128, and that page is listed all the same.
#[test]
fn the_documents_listing() {
    let Some(bench) = Bench::new() else { return };
    let mut smaps = String::new();
    for (line, [size, resident, dirty]) in LISTING {
        smaps += &format!(
            "{line}\nSize: {size} kB\nRss: {resident} kB\nShared_Dirty: 0 kB\nPrivate_Dirty: {dirty} kB\n"
        );
    }
    let file = bench.path("smaps");
    fs::write(&file, smaps).unwrap();
    let listing = bench.run(&["map", "-x", text(&file)]).expect(0).stdout;
    let lines: Vec<Vec<&str>> = listing.lines().map(|line| line.split_whitespace().collect()).collect();
    let shown: Vec<&Vec<&str>> =
        lines.iter().filter(|words| words.len() > 4 && words[0].len() == 16).collect();
    assert_eq!(shown.len(), LISTING.len(), "{listing}");
    for (words, (line, counts)) in shown.iter().zip(LISTING) {
        let (range, rest) = line.split_once(' ').unwrap();
        let address = format!("{:0>16}", range.split_once('-').unwrap().0);
        let counts = counts.map(|count| count.to_string());
        assert_eq!(words[0], address, "{listing}");
        assert_eq!(words[1..4], counts, "{listing}");
        assert_eq!(words[4], &rest[..4], "{listing}");
    }
    assert_eq!(lines.last().unwrap()[..], ["total", "kB", "55128", "51584", "51284"], "{listing}");
    let every: u64 = LISTING.iter().map(|(_, counts)| counts[0]).sum();
    assert_eq!(every, 55132);
}

#[test]
fn a_command_is_looked_at_when_it_ends() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.compile("mappings", include_str!("mappings.c"), &["-O1", "-pthread"]).unwrap();
    let (file, out) = (bench.path("file"), bench.path("out"));
    let run =
        |how: &str| bench.run(&["map", "--json", "-o", text(&out), "--", text(&program), text(&file), how]);
    let json = |ended: &Ended| -> Value {
        serde_json::from_str(&fs::read_to_string(&out).unwrap())
            .unwrap_or_else(|error| panic!("{error}: {}", ended.stderr))
    };
    let ended = run("exit").expect(3);
    let map = json(&ended);
    assert!(ended.stdout.starts_with('{'), "its output is its own: {}", ended.stdout);
    let shared = |map: &Value| {
        let mappings = map["mappings"].as_array().unwrap();
        counter(mappings.iter().find(|mapping| mapping["kind"] == "shared").unwrap(), "Rss")
    };
    assert_eq!(shared(&map), 50 * MIB);
    assert!(differing(&map).is_empty(), "{:#?}", differing(&map));
    let worker = |thread: &&Value| thread["name"] == "worker";
    assert_eq!(map["threads"].as_array().unwrap().iter().filter(worker).count(), 2, "{:#}", map["threads"]);
    let stacks =
        map["mappings"].as_array().unwrap().iter().filter(|mapping| mapping["kind"] == "thread-stack");
    assert_eq!(stacks.count(), 2);
    // Also when a signal ends it.
    let ended = run("abort").expect(128 + 6);
    ended.says("SIGABRT");
    assert_eq!(shared(&json(&ended)), 50 * MIB);
    // One that stops and goes on, starts others, and becomes another program.
    let script = "kill -STOP $$ & wait $!; (sleep 0.01); exec true";
    let mut child =
        bench.quarry(["map", "--json", "-o", text(&out), "--", "sh", "-c", script]).spawn().unwrap();
    resume_children(&mut child);
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
    let map: Value = serde_json::from_str(&fs::read_to_string(&out).unwrap()).unwrap();
    assert_eq!(map["name"], "true");
    bench.run(&["map", "--", "/no/such/program"]).expect(127);
    bench.run(&["map", "--", "sh", "-c", "kill -KILL $$"]).expect(128 + 9).says("SIGKILL");
}

/// What it starts is its own matter, also where the kernel shows it to us as it shows threads.
#[test]
fn what_a_command_leaves_behind_lives_on() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.compile("left_behind", include_str!("left_behind.c"), &["-O1"]).unwrap();
    let out = bench.path("map.json");
    for at_once in ["at-once", "later"] {
        let ended = bench.run(&["map", "--json", "-o", text(&out), "--", text(&program), at_once]).expect(0);
        let map: Value = serde_json::from_str(&fs::read_to_string(&out).unwrap()).unwrap();
        let pid: u32 = ended.stdout.trim().parse().unwrap();
        assert_ne!(map["pid"], pid);
        let stat = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        wait_until("it sleeps", || !stat().contains(") R"));
        assert!(stat().contains("(left_behind) S"), "{at_once}: {}", stat());
        kill("KILL", pid);
    }
}

/// Continue the child of this process whenever it has stopped, until the process ends. Once is not enough: a child that is
/// traced stops for its tracer too, and looks the same then.
fn resume_children(child: &mut Child) {
    for _ in 0..150_000 {
        if child.try_wait().unwrap().is_some() {
            return;
        }
        let children =
            fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap_or_default();
        for pid in children.split_whitespace() {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            if stat.contains(") T ") || stat.contains(") t ") {
                // It may have gone on by itself, and be gone.
                Command::new("sh")
                    .args(["-c", &format!("kill -CONT {pid}")])
                    .stderr(Stdio::null())
                    .status()
                    .unwrap();
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    kill("KILL", child.id());
    panic!("it never ended");
}

#[test]
fn a_core_file_has_the_mappings() {
    let Some(subject) = Subject::new() else { return };
    let Some(core) = core_of(&subject) else {
        eprintln!("skipped: needs gcore (the package gdb)");
        return;
    };
    let ended = subject.bench.run(&["map", "--json", text(&core)]).expect(0);
    ended.says("a core file says");
    let map = ended.json();
    let (pid, main) = (subject.child.id(), subject.at(&map, "stack"));
    assert_eq!((map["origin"].as_str(), map["pid"].as_u64()), (Some("core"), Some(u64::from(pid))));
    assert_eq!(main["kind"], "stack");
    for (name, kind) in [("shared", "shared"), ("text", "text"), ("memfd", "memfd"), ("bss", "bss")] {
        assert_eq!(subject.at(&map, name)["kind"], kind, "{name}");
    }
    let stacks =
        map["mappings"].as_array().unwrap().iter().filter(|mapping| mapping["kind"] == "thread-stack");
    assert_eq!(stacks.count(), 2);
    assert!(subject.bench.run(&["map", "--picture", text(&core)]).expect(0).stdout.contains("saved"));
    let file = fs::File::options().write(true).open(&core).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    subject.bench.run(&["map", text(&core)]).expect(1).says("it ends within a mapping");
}

fn core_of(subject: &Subject) -> Option<PathBuf> {
    let stem = subject.bench.path("core");
    // gdb must be let to stop it itself.
    let made = Command::new("gcore").arg("-o").arg(&stem).arg(subject.pid()).output().ok()?;
    let file = PathBuf::from(format!("{}.{}", stem.display(), subject.pid()));
    (made.status.success() && Path::new(&file).exists()).then_some(file)
}

#[test]
fn what_makes_no_sense_is_said() {
    let Some(bench) = Bench::new() else { return };
    bench.run(&["map"]).expect(2).says("-p PID");
    bench.run(&["map", "-p", "1", "file"]).expect(2);
    bench.run(&["map", "--kind", "nonsense", "-p", "1"]).expect(2).says("thread-stack");
    bench.run(&["map", "--quadrant", "5", "-p", "1"]).expect(2);
    // What the other texts do not obey.
    for text in ["-x", "-X", "--picture"] {
        for option in [&["--by", "kind"][..], &["--sort", "size"], &["--check"], &["--bytes"]] {
            bench.run(&[&["map", "-p", "1", text], option].concat()).expect(2).says(option[0]);
        }
    }
    bench.run(&["map", "-p", "1", "-x", "-n", "5"]).expect(2);
    bench.run(&["map", "-p", "4000000000"]).expect(1).says("there is no process 4000000000");
    bench.run(&["map", "/no/such/file"]).expect(1).says("/no/such/file");
    let file = bench.path("odd");
    fs::write(&file, "nothing of the kind\n").unwrap();
    bench.run(&["map", text(&file)]).expect(1).says("is neither smaps or maps nor a core file");
    bench.run(&["map", "/bin/sh"]).expect(1).says("no core file");
}

/// Where the kernel shows no names, Quarry's heap says itself where it is: what it has, and what it keeps for later.
#[test]
fn quarrys_own_memory_is_named() {
    let Some(bench) = Bench::new() else { return };
    let Some(library) = crate::common::quarry_library() else { return };
    let program = bench.compile("explained", include_str!("explained.c"), &["-O1", "-pthread"]).unwrap();
    let mut child = Command::new(program)
        .args(["fragmentation"])
        .env("LD_PRELOAD", library)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let map = bench.run(&["map", "-p", &child.id().to_string(), "--json"]).expect(0).json();
    child.kill().unwrap();
    child.wait().unwrap();
    let mappings = map["mappings"].as_array().unwrap();
    let named =
        |object: &str| mappings.iter().filter(|mapping| mapping["object"] == object).collect::<Vec<_>>();
    let heap = named("quarry heap");
    assert!(heap.iter().all(|mapping| mapping["kind"] == "quarry" && mapping["quadrant"] == 1));
    let resident: u64 = heap.iter().map(|mapping| counter(mapping, "Rss")).sum();
    assert!(resident > MIB, "{line}{heap:#?}");
    assert!(!named("quarry metadata").is_empty(), "{mappings:#?}");
}
