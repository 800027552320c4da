// SPDX-License-Identifier: MIT
//! Where the numbers were taken: no time means anything without it.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::sys;

/// The machine and its software, as far as allocation depends on them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// Processors this process may use.
    pub cores: usize,
    /// Physical memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Operating system kernel.
    pub kernel: String,
    /// Bytes of a page.
    pub page_size: u64,
    /// When the kernel uses transparent huge pages: always, madvise or never.
    pub transparent_huge_pages: String,
    /// The C library.
    pub libc: String,
    /// Load average over the last minute before the measurement.
    pub load: Option<f64>,
    /// The governor of the processors' frequency, where the kernel shows one.
    #[serde(default)]
    pub governor: Option<String>,
    /// The processors this process may use, by number.
    #[serde(default)]
    pub processors: Vec<usize>,
}

impl Machine {
    /// Describe this machine.
    pub fn read() -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Self {
            cpu: cpu(&text("/proc/cpuinfo")),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory(&text("/proc/meminfo")),
            kernel: sys::kernel_release(),
            page_size: sys::page_size(),
            transparent_huge_pages: chosen(&text("/sys/kernel/mm/transparent_hugepage/enabled")),
            libc: sys::libc_version(),
            load: load(),
            governor: Some(text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").trim().to_owned())
                .filter(|name| !name.is_empty()),
            processors: processors(),
        }
    }
}

/// Load average over the last minute.
pub fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// The processors this process may use, by number.
pub fn processors() -> Vec<usize> {
    sys::processors()
}

/// Processor time of the whole machine since it was started, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Busy {
    /// All that processors did.
    pub used_s: f64,
    /// What a hypervisor gave to others when we could have run.
    pub stolen_s: f64,
}

impl Busy {
    /// The kernel's account now.
    pub fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?, sys::ticks_per_second())
    }

    /// user nice system idle iowait irq softirq steal guest guest_nice; guests are in user and nice already.
    fn parse(stat: &str, ticks: f64) -> Option<Self> {
        let mut fields = stat.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace();
        let mut next = || fields.next()?.parse::<f64>().ok();
        let [user, nice, system, _, _, irq, softirq, steal] = [(); 8].map(|()| next());
        let used = user? + nice? + system? + irq? + softirq?;
        Some(Self { used_s: used / ticks, stolen_s: steal.unwrap_or(0.0) / ticks })
    }
}

fn cpu(text: &str) -> String {
    let field = |name: &str| {
        let mut fields = text.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
    };
    let part = || Some(format!("implementer {} part {}", field("CPU implementer")?, field("CPU part")?));
    field("model name").or_else(part).unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

fn memory(text: &str) -> Option<u64> {
    let kib = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?.trim().strip_suffix("kB")?;
    Some(kib.trim().parse::<u64>().ok()? * 1024)
}

/// The word in brackets: "always [madvise] never".
fn chosen(text: &str) -> String {
    let word = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    word.map_or_else(|| String::from("unavailable"), |(word, _)| word.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_texts() {
        assert_eq!(cpu("processor\t: 0\nmodel name\t: Fast One\nmodel name\t: Other\n"), "Fast One");
        assert_eq!(cpu("CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n"), "implementer 0x41 part 0xd0c");
        assert_eq!(cpu(""), std::env::consts::ARCH);
        assert_eq!(memory("MemTotal:       16 kB\n"), Some(16384));
        assert_eq!(memory(""), None);
        assert_eq!(chosen("always [madvise] never\n"), "madvise");
        assert_eq!(chosen(""), "unavailable");
    }

    #[test]
    fn processor_time_of_all() {
        let stat = "cpu  100 20 30 4000 500 6 7 80 9 10\ncpu0 1 2 3 4\n";
        assert_eq!(Busy::parse(stat, 10.0), Some(Busy { used_s: 16.3, stolen_s: 8.0 }));
        assert_eq!(Busy::parse("cpu 1 2", 10.0), None);
        let (before, after) = (Busy::now().unwrap(), Busy::now().unwrap());
        assert!(after.used_s >= before.used_s);
    }

    #[test]
    fn this_machine() {
        let machine = Machine::read();
        assert!(machine.cores >= 1 && machine.page_size.is_power_of_two());
        assert!(machine.kernel.contains('.'), "{}", machine.kernel);
        assert!(!machine.processors.is_empty());
        let json = serde_json::to_string(&machine).unwrap();
        assert_eq!(serde_json::from_str::<Machine>(&json).unwrap(), machine);
    }
}
