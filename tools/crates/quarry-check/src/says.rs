// SPDX-License-Identifier: MIT
//! A finding in words.

use quarry_report::units;

use crate::finding::{Block, Fault, Finding, Leaked, What};
use crate::kinds::{About, Kind};

fn bytes(count: u64) -> String {
    format!("{count} {}", units::noun(count, "byte"))
}

/// "1 block", "2 blocks".
pub fn blocks(count: u64) -> String {
    format!("{count} {}", units::noun(count, "block"))
}

/// "8 bytes into a freed block of 32 bytes", and how far behind its end an access of `length` bytes reaches. Behind a block
/// the bytes between are told: "1 byte behind" may be understood as the first or the second one.
pub fn relation(offset: i64, length: u64, block: &Block) -> String {
    let state = if block.freed { "freed block" } else { "block" };
    let of = format!("a {state} of {}", bytes(block.size));
    let size = i64::try_from(block.size).unwrap_or(i64::MAX);
    let end = offset.saturating_add(i64::try_from(length).unwrap_or(i64::MAX));
    let past = match (0..size).contains(&offset) && end > size && !block.freed {
        true => format!(" and {} past its end", bytes(end.abs_diff(size))),
        false => String::new(),
    };
    match offset {
        0 if block.size > 0 => format!("at the begin of {of}{past}"),
        ..0 => format!("{} before the begin of {of}", bytes(offset.unsigned_abs())),
        _ if offset == size => format!("directly behind {of}"),
        _ if offset > size => format!("behind {of} with {} between", bytes(offset.abs_diff(size))),
        _ => format!("{} into {of}{past}", bytes(offset.unsigned_abs())),
    }
}

fn place(fault: &Fault) -> String {
    match &fault.block {
        Some(block) => format!(
            "{:#x}, {}",
            fault.address,
            relation(fault.offset, if fault.evidence { 0 } else { fault.bytes }, block)
        ),
        None => format!("{:#x}", fault.address),
    }
}

fn fault(kind: &Kind, fault: &Fault) -> String {
    let place = place(fault);
    let mut text = match kind.about {
        About::Access if fault.evidence => {
            let what = match fault.bytes {
                0 => String::from("bytes were"),
                1 => String::from("1 byte was"),
                count => format!("{count} bytes were"),
            };
            format!("{what} overwritten at {place}, and this was found later")
        }
        About::Access => {
            let access = if fault.write { "write" } else { "read" };
            match fault.bytes {
                0 => format!("{access} at {place}"),
                // Up to the first byte behind the block. How far it went is not known.
                count if kind.word == "unterminated" => {
                    format!("{access} of at least {} at {place}", bytes(count))
                }
                count => format!("{access} of {} at {place}", bytes(count)),
            }
        }
        _ => format!("{} ({place})", kind.means),
    };
    if let Some(function) = &fault.function {
        text = format!("{function}: {text}");
    }
    if let Some(detail) = &fault.detail {
        text = format!("{text}: {detail}");
    }
    text
}

/// "32 bytes in 1 block are lost, and 64 bytes in 2 blocks with them".
pub fn leak(kind: &str, leak: &Leaked) -> String {
    let own = format!("{} in {}", sized(leak.bytes), blocks(leak.blocks));
    let text = match kind {
        "leak-definite" => format!("{own} are lost"),
        "leak-indirect" => format!("{own} are lost, as only lost blocks lead there"),
        "leak-possible" => format!("{own} are possibly lost: only pointers into the blocks are left"),
        "leak-growing" => format!("{own} are still in use, and they became more from scan to scan"),
        _ => format!("{own} are not freed, and still in use"),
    };
    match leak.indirect_blocks {
        0 => text,
        count => format!("{text}, and {} in {} with them", sized(leak.indirect_bytes), blocks(count)),
    }
}

/// Exact below 1 KiB.
fn sized(count: u64) -> String {
    if count < 1024 { bytes(count) } else { format!("{count} bytes ({})", units::bytes(count as f64)) }
}

/// One sentence without its end.
pub fn sentence(finding: &Finding) -> String {
    match &finding.what {
        What::Fault(it) => fault(finding.kind, it),
        What::Leak(it) => leak(&finding.word, it),
    }
}

/// What to do about it. `hint`: and how to find the instruction, where it is not known.
pub fn advice(finding: &Finding, hint: bool) -> String {
    match finding.fault() {
        Some(fault) if fault.evidence && hint => {
            format!("{} quarry check --pinpoint finds the instruction.", finding.kind.advice)
        }
        _ => finding.kind.advice.into(),
    }
}

/// "1 error is", "2 errors and 1 leak are".
pub fn counted(errors: usize, leaks: usize) -> String {
    let of = |count: usize, noun: &str| format!("{count} {}", units::noun(count as u64, noun));
    let is = if errors + leaks == 1 { "is" } else { "are" };
    match (errors, leaks) {
        (_, 0) => format!("{} {is}", of(errors, "error")),
        (0, _) => format!("{} {is}", of(leaks, "leak")),
        _ => format!("{} and {} {is}", of(errors, "error"), of(leaks, "leak")),
    }
}

/// "malloc", or "tlsf pool \"messages\"".
pub fn maker(family: &str, pool: Option<&str>, kind: Option<&str>) -> String {
    match (pool, kind) {
        (Some(pool), Some(kind)) => format!("{kind} pool \"{pool}\""),
        (Some(pool), None) => format!("pool \"{pool}\""),
        _ if family.is_empty() => "?".into(),
        _ => family.into(),
    }
}

/// "block of 24 bytes at 0x10 (malloc)".
pub fn block(block: &Block) -> String {
    let maker = maker(&block.family, block.pool.as_deref(), block.pool_kind.as_deref());
    format!("block of {} at {:#x} ({maker})", bytes(block.size), block.address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;

    fn a_block(size: u64, freed: bool) -> Block {
        Block {
            address: 0x10,
            size,
            family: "malloc".into(),
            pool: None,
            pool_kind: None,
            freed,
            ordinal: 1,
            site: 0,
            alloc: None,
            free: None,
        }
    }

    #[test]
    fn pools_have_their_kind() {
        assert_eq!(maker("pool", Some("messages"), Some("ring")), "ring pool \"messages\"");
        assert_eq!(maker("pool", Some("messages"), None), "pool \"messages\"");
        assert_eq!(maker("malloc", None, None), "malloc");
        assert_eq!(block(&a_block(24, false)), "block of 24 bytes at 0x10 (malloc)");
    }

    #[test]
    fn places_are_told_from_the_nearer_end() {
        assert_eq!(relation(8, 0, &a_block(32, true)), "8 bytes into a freed block of 32 bytes");
        assert_eq!(relation(0, 0, &a_block(1, false)), "at the begin of a block of 1 byte");
        assert_eq!(
            relation(4, 30, &a_block(32, false)),
            "4 bytes into a block of 32 bytes and 2 bytes past its end"
        );
        assert_eq!(relation(-1, 0, &a_block(32, false)), "1 byte before the begin of a block of 32 bytes");
        assert_eq!(relation(32, 0, &a_block(32, false)), "directly behind a block of 32 bytes");
        assert_eq!(relation(33, 0, &a_block(32, false)), "behind a block of 32 bytes with 1 byte between");
        assert_eq!(relation(0, 0, &a_block(0, false)), "directly behind a block of 0 bytes");
        assert_eq!(relation(i64::MIN, u64::MAX, &a_block(u64::MAX, false)).split(' ').nth(1), Some("bytes"));
    }

    #[test]
    fn how_far_a_string_was_read_is_not_known() {
        let said = |word| {
            let read = Fault {
                function: Some(String::from("strlen")),
                address: 0x10,
                write: false,
                bytes: 16,
                evidence: false,
                offset: 0,
                detail: None,
                thread: Default::default(),
                block: None,
            };
            fault(kinds::of(word), &read)
        };
        assert_eq!(said("unterminated"), "strlen: read of at least 16 bytes at 0x10");
        assert_eq!(said("overflow-read"), "strlen: read of 16 bytes at 0x10");
    }

    #[test]
    fn leaks_have_what_hangs_on_them() {
        let leaked = Leaked {
            bytes: 32,
            blocks: 1,
            indirect_bytes: 4096,
            indirect_blocks: 2,
            scan: 1,
            process: None,
            example: 0,
            family: String::new(),
            pool: None,
            pool_kind: None,
        };
        let text = leak("leak-definite", &leaked);
        assert_eq!(text, "32 bytes in 1 block are lost, and 4096 bytes (4.00 KiB) in 2 blocks with them");
    }
}
