// SPDX-License-Identifier: MIT
//! Where the numbers were taken: no time means anything without it.

use std::fs;

use serde::Serialize;

use crate::sys;

/// The machine and its software, as far as allocation depends on them.
#[derive(Debug, Clone, PartialEq, Serialize)]
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
            load: text("/proc/loadavg").split(' ').next().and_then(|n| n.parse().ok()),
        }
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
    fn this_machine() {
        let machine = Machine::read();
        assert!(machine.cores >= 1 && machine.page_size.is_power_of_two());
        assert!(machine.kernel.contains('.'), "{}", machine.kernel);
    }
}
