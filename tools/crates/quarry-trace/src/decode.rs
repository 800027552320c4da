// SPDX-License-Identifier: MIT
//! Records from the bytes of a payload. Total: any bytes give a record or a reason why not, and nothing is
//! changed by those that give none.

use crate::event::{AllocApi, Event, FreeApi, HiddenChild, PoolWhat, StackNode, ThreadId, Usage, What};
use crate::wire::{Addresses, Bytes, Stop, address, unzigzag};

/// The operations of records.
pub(crate) mod op {
    pub(crate) const ALLOC: u8 = 1;
    pub(crate) const FREE: u8 = 2;
    pub(crate) const REALLOC: u8 = 3;
    pub(crate) const FAILED: u8 = 4;
    pub(crate) const STACK: u8 = 5;
    pub(crate) const MODULE: u8 = 6;
    pub(crate) const THREAD: u8 = 7;
    pub(crate) const PROCESS: u8 = 8;
    pub(crate) const MEMORY: u8 = 9;
    pub(crate) const CLOCK: u8 = 10;
    pub(crate) const POOL: u8 = 11;
    pub(crate) const TOUCHED: u8 = 12;
    pub(crate) const LOST: u8 = 13;
    pub(crate) const MARK: u8 = 14;
    pub(crate) const EXTENSION: u8 = 15;
}

/// Kinds of extensions.
pub(crate) mod extension {
    pub(crate) const GONE: u64 = 1;
    pub(crate) const USAGE: u64 = 2;
    pub(crate) const RESIDENT: u64 = 3;
    pub(crate) const CHILD: u64 = 4;
    pub(crate) const HIDDEN_CHILD: u64 = 5;
    pub(crate) const WRITTEN: u64 = 6;
}

/// The bit of a variant that says that a stack follows.
pub(crate) const WITH_STACK: u8 = 8;

const TIME: Stop = Stop::Bad("a time that is cut off");
const VARIANT: Stop = Stop::Bad("a variant that does not exist");

/// What the fields of a block's records refer to.
#[derive(Debug, Clone)]
pub(crate) struct State {
    pub thread: ThreadId,
    pub time: u64,
    pub addresses: Addresses,
    pub pc: u64,
    pub stack: u32,
}

impl State {
    pub(crate) fn new(thread: ThreadId, time: u64, address: u64) -> Self {
        Self { thread, time, addresses: Addresses::new(address), pc: 0, stack: 0 }
    }
}

/// What stands in a payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    Event(Event),
    Stack(StackNode),
    /// Resident bytes of the block that is freed next.
    Touched(u64),
    /// Nothing that this version knows.
    Extension,
    /// The payload ends here, before its last byte.
    End,
}

/// The next record. An error leaves `state` as it was; `from` may have moved.
#[inline]
pub(crate) fn record(from: &mut Bytes, state: &mut State) -> Result<Record, Stop> {
    let tag = from.byte()?;
    let variant = tag >> 4;
    match tag & 15 {
        op::ALLOC => alloc(from, state, variant),
        op::FREE => free(from, state, variant),
        _ => rare(from, state, tag),
    }
}

#[inline]
pub(crate) fn later(state: &State, dt: u64) -> Result<u64, Stop> {
    state.time.checked_add(dt).ok_or(Stop::Bad("a time of more than 64 bits"))
}

#[inline]
fn event(state: &mut State, time: u64, what: What) -> Result<Record, Stop> {
    state.time = time;
    Ok(Record::Event(Event { time, thread: state.thread, what }))
}

fn log2(from: &mut Bytes) -> Result<u8, Stop> {
    match from.varint()? {
        align @ 0..=63 => Ok(align as u8),
        _ => Err(Stop::Bad("an alignment of more than 64 bits")),
    }
}

#[inline]
fn stack_if(from: &mut Bytes, variant: u8) -> Result<u32, Stop> {
    if variant & WITH_STACK != 0 { from.u32() } else { Ok(0) }
}

const ALLOC_APIS: [AllocApi; 8] = [
    AllocApi::Malloc,
    AllocApi::Calloc,
    AllocApi::Memalign,
    AllocApi::New,
    AllocApi::AlignedNew,
    AllocApi::Realloc,
    AllocApi::Pool,
    AllocApi::Other,
];

const FREE_APIS: [FreeApi; 5] =
    [FreeApi::Free, FreeApi::Delete, FreeApi::Sized, FreeApi::Null, FreeApi::Other];

/// Does a record of this function hold an alignment?
pub(crate) fn has_align(api: AllocApi) -> bool {
    matches!(api, AllocApi::Memalign | AllocApi::AlignedNew)
}

#[inline]
fn alloc(from: &mut Bytes, state: &mut State, variant: u8) -> Result<Record, Stop> {
    let api = ALLOC_APIS[usize::from(variant & 7)];
    let time = later(state, from.varint()?)?;
    let (size, field) = (from.varint()?, from.varint()?);
    let align = if has_align(api) { log2(from)? } else { 0 };
    let stack = stack_if(from, variant)?;
    let address = state.addresses.take(address::of_size(size), field);
    event(state, time, What::Alloc { api, size, address, align, stack })
}

#[inline]
fn free(from: &mut Bytes, state: &mut State, variant: u8) -> Result<Record, Stop> {
    let api = *FREE_APIS.get(usize::from(variant)).ok_or(VARIANT)?;
    let time = later(state, from.varint()?)?;
    let address = match api {
        FreeApi::Null => 0,
        _ => {
            let field = from.varint()?;
            state.addresses.take(address::FREE, field)
        }
    };
    event(state, time, What::Free { api, address, touched: None })
}

#[inline(never)]
fn rare(from: &mut Bytes, state: &mut State, tag: u8) -> Result<Record, Stop> {
    let variant = tag >> 4;
    match tag & 15 {
        0 if variant == 0 => return Ok(Record::End),
        0 => return Err(Stop::Bad("a tag without an operation")),
        op::STACK => return stack(from, state, variant),
        op::TOUCHED if variant == 0 => return Ok(Record::Touched(from.varint()?)),
        op::TOUCHED if variant > 1 => return Err(VARIANT),
        op::EXTENSION => {
            let (kind, bytes) = (from.varint()?, from.slice()?);
            if kind != extension::GONE {
                return Ok(extension(kind, bytes, state));
            }
            let dt = if bytes.is_empty() { 0 } else { Bytes::new(bytes, 0).varint().map_err(|_| TIME)? };
            return event(state, later(state, dt)?, What::ThreadGone);
        }
        _ => {}
    }
    let time = later(state, from.varint()?)?;
    let what = match (tag & 15, variant) {
        (op::REALLOC, _) => realloc(from, state, variant)?,
        (op::FAILED, 0..8) => What::Failed { api: ALLOC_APIS[usize::from(variant)], size: from.varint()? },
        (op::MODULE, 0) => What::ModuleLoaded { base: from.varint()?, about: from.text()? },
        (op::MODULE, 1) => What::ModuleUnloaded { base: from.varint()?, about: from.text()? },
        (op::THREAD, 0) => What::ThreadBegin { tid: from.u32()?, creator: from.u32()? },
        (op::THREAD, 1) => What::ThreadEnd,
        (op::THREAD, 2) => What::ThreadName(from.text()?),
        (op::THREAD, 3) => What::Sampled { mean: from.varint()? },
        (op::PROCESS, 0) => What::Fork { child: from.u32()? },
        (op::PROCESS, 1) => What::Exec(from.text()?),
        (op::PROCESS, 2) => What::Exit { status: from.u32()? },
        (op::TOUCHED, _) => {
            let (size, field) = (from.varint()?, from.varint()?);
            let address = state.addresses.take(address::of_size(size), field);
            What::Zeroed { address, size, resident: from.varint()? }
        }
        (op::MEMORY, 0) => What::Memory { anonymous: from.varint()?, file: from.varint()? },
        (op::CLOCK, 0) => What::Clock { ns: from.varint()? },
        (op::POOL, _) => {
            let pool = from.u32()?;
            What::Pool { pool, what: pool_what(from, state, variant)? }
        }
        (op::LOST, 0) => What::Lost {
            count: from.varint()?,
            reason: u8::try_from(from.varint()?).map_err(|_| Stop::Bad("a reason of more than 8 bits"))?,
        },
        (op::MARK, 0) => What::Mark(from.text()?),
        _ => return Err(VARIANT),
    };
    event(state, time, what)
}

/// Numbers of the extension "usage" that are always there.
const USAGE_LEAST: usize = 7;

/// Of a kind that is not known, or with numbers that are missing, it is nothing. More numbers are for later versions.
fn extension(kind: u64, body: &[u8], state: &mut State) -> Record {
    let mut from = Bytes::new(body, 0);
    let mut read = || {
        let time = later(state, from.varint()?)?;
        let what = match kind {
            extension::USAGE => {
                let mut numbers = [0; 8];
                for number in &mut numbers[..USAGE_LEAST] {
                    *number = from.varint()?;
                }
                // The first version had no more.
                numbers[USAGE_LEAST] = from.varint().unwrap_or(0);
                What::Usage(Box::new(Usage::of_numbers(numbers)))
            }
            extension::RESIDENT => What::Resident { address: from.varint()?, bytes: from.varint()? },
            extension::WRITTEN => What::Written { address: from.varint()?, bytes: from.varint()? },
            extension::CHILD => What::ChildEnded { child: from.u32()?, status: from.u32()? },
            extension::HIDDEN_CHILD => What::HiddenChildEnded(HiddenChild {
                status: from.u32()?,
                began_ns: from.varint()?,
                ended_ns: from.varint()?,
            }),
            _ => return Ok(Record::Extension),
        };
        event(state, time, what)
    };
    read().unwrap_or(Record::Extension)
}

fn realloc(from: &mut Bytes, state: &mut State, variant: u8) -> Result<What, Stop> {
    if variant & !(1 | WITH_STACK) != 0 {
        return Err(VARIANT);
    }
    let stays = variant & 1 != 0;
    let (took, old_field, size) = (from.varint()?, from.varint()?, from.varint()?);
    let new_field = if stays { 0 } else { from.varint()? };
    let stack = stack_if(from, variant)?;
    let old = state.addresses.take(address::FREE, old_field);
    let new = if stays { old } else { state.addresses.take(address::of_size(size), new_field) };
    Ok(What::realloc(took, old, size, new, stack))
}

fn stack(from: &mut Bytes, state: &mut State, variant: u8) -> Result<Record, Stop> {
    if variant > 1 {
        return Err(VARIANT);
    }
    let (id, parent, pc) = (from.varint()?, from.u32()?, from.varint()?);
    let id = u64::from(state.stack).wrapping_add(1).wrapping_add(unzigzag(id));
    let id = u32::try_from(id).ok().filter(|&id| id != 0).ok_or(Stop::Bad("a number that no stack has"))?;
    state.stack = id;
    state.pc = state.pc.wrapping_add(unzigzag(pc));
    Ok(Record::Stack(StackNode { id, parent, pc: state.pc, is_return: variant == 1 }))
}

fn pool_what(from: &mut Bytes, state: &mut State, variant: u8) -> Result<PoolWhat, Stop> {
    Ok(match variant {
        0 => PoolWhat::Created { parent: from.u32()?, kind: from.text()?, name: from.text()? },
        1 => PoolWhat::Destroyed,
        2 => PoolWhat::Pushed,
        3 => PoolWhat::Popped,
        4 => PoolWhat::Sealed { cookie: from.varint()? },
        5 => PoolWhat::Released { cookie: from.varint()? },
        6 => {
            let (size, field, align, stack) = (from.varint()?, from.varint()?, log2(from)?, from.u32()?);
            PoolWhat::Alloc { size, address: state.addresses.take(address::POOL_ALLOC, field), align, stack }
        }
        7 => {
            let field = from.varint()?;
            PoolWhat::Free { address: state.addresses.take(address::POOL_FREE, field) }
        }
        8 => {
            let (old, size, new, stack) = (from.varint()?, from.varint()?, from.varint()?, from.u32()?);
            let old = state.addresses.take(address::POOL_FREE, old);
            let new = state.addresses.take(address::POOL_ALLOC, new);
            PoolWhat::Resized { old, size, new, stack }
        }
        9 => PoolWhat::Emptied,
        10 => PoolWhat::Held { held: from.varint()?, used: from.varint()? },
        _ => return Err(VARIANT),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(payload: &[u8]) -> (Record, usize) {
        let mut from = Bytes::new(payload, 0);
        let read = record(&mut from, &mut State::new(1, 5, 0)).unwrap();
        (read, from.at)
    }

    #[test]
    fn extensions_are_skipped_as_a_whole() {
        let resident = Event { time: 7, thread: 1, what: What::Resident { address: 3, bytes: 4 } };
        // A known one; with a number more; one number short; of an unknown kind; empty.
        assert_eq!(read(&[0x0f, 3, 3, 2, 3, 4, 99]), (Record::Event(resident.clone()), 6));
        assert_eq!(read(&[0x0f, 3, 4, 2, 3, 4, 5, 99]), (Record::Event(resident), 7));
        assert_eq!(read(&[0x0f, 3, 2, 2, 3, 99]), (Record::Extension, 5));
        assert_eq!(read(&[0x0f, 9, 3, 2, 3, 4, 99]), (Record::Extension, 6));
        assert_eq!(read(&[0x0f, 2, 0, 99]), (Record::Extension, 3));
        // One that is longer than the payload is no record.
        assert_eq!(record(&mut Bytes::new(&[0x0f, 3, 5, 1], 0), &mut State::new(1, 5, 0)), Err(Stop::Short));
    }
}
