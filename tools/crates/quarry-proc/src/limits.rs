// SPDX-License-Identifier: MIT
//! /proc/PID/limits: what the process may use.

use crate::text;

/// One limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// As the kernel calls it: "Max stack size".
    pub name: String,
    /// What counts; `None`: unlimited.
    pub soft: Option<u64>,
    /// Up to where the process may raise it; `None`: unlimited.
    pub hard: Option<u64>,
    /// "bytes", "files", ... or nothing.
    pub unit: String,
}

/// All limits of a process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Limits(pub Vec<Limit>);

impl Limits {
    /// Read them; lines that are none are left out. Columns are told apart by at least two blanks.
    pub fn parse(bytes: &[u8]) -> Self {
        let value = |text: &str| match text {
            "unlimited" => Some(None),
            digits => text::decimal(digits.as_bytes()).map(Some),
        };
        let limit = |line: &[u8]| {
            let line = text::lossy(line);
            let mut columns = line.split("  ").map(str::trim).filter(|column| !column.is_empty());
            let name = columns.next()?.to_owned();
            let (soft, hard) = (value(columns.next()?)?, value(columns.next()?)?);
            Some(Limit { name, soft, hard, unit: columns.next().unwrap_or_default().to_owned() })
        };
        Self(text::lines(bytes).filter_map(limit).collect())
    }

    /// The limit of this name, such as "Max stack size".
    pub fn get(&self, name: &str) -> Option<&Limit> {
        self.0.iter().find(|limit| limit.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns() {
        let text = b"Limit                     Soft Limit           Hard Limit           Units     \n\
                     Max stack size            8388608              unlimited            bytes     \n\
                     Max nice priority         0                    0                    \n\
                     Max data size             many                 unlimited            bytes\n";
        let limits = Limits::parse(text);
        let stack = limits.get("Max stack size").unwrap();
        assert_eq!((stack.soft, stack.hard, stack.unit.as_str()), (Some(8 << 20), None, "bytes"));
        assert_eq!(limits.get("Max nice priority").unwrap().unit, "");
        assert_eq!(limits.0.len(), 2);
    }
}
