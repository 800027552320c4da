// SPDX-License-Identifier: MIT
//! Records as bytes: the other side of [`decode`](crate::decode).

use crate::decode::{State, WITH_STACK, extension, has_align, op};
use crate::event::{AllocApi, Event, FreeApi, HiddenChild, PoolWhat, StackNode, What};
use crate::wire::{address, put_text, put_varint, zigzag};

/// Why an event has no record.
pub(crate) type Unfit = &'static str;

fn tag(to: &mut Vec<u8>, op: u8, variant: u8) {
    to.push(op | variant << 4);
}

fn put_address(to: &mut Vec<u8>, state: &mut State, kind: usize, address: u64) -> Result<(), Unfit> {
    let field = state.addresses.put(kind, address).ok_or("an address that is too far from the one before")?;
    put_varint(to, field);
    Ok(())
}

/// Append the records of an event; when it does not fit, what `to` and `state` hold is garbage.
/// Returns how many records they are.
pub(crate) fn event(to: &mut Vec<u8>, state: &mut State, event: &Event) -> Result<u32, Unfit> {
    let dt = event.time.checked_sub(state.time).ok_or("a time before the last one of its thread")?;
    state.time = event.time;
    let mut records = 1;
    match &event.what {
        &What::Alloc { api, size, address, align, stack } => {
            let with_stack = if stack != 0 { WITH_STACK } else { 0 };
            tag(to, op::ALLOC, api as u8 | with_stack);
            put_varint(to, dt);
            put_varint(to, size);
            put_address(to, state, address::of_size(size), address)?;
            put_align(to, api, align)?;
            if stack != 0 {
                put_varint(to, stack.into());
            }
        }
        &What::Free { api, address, touched } => {
            if let Some(bytes) = touched {
                tag(to, op::TOUCHED, 0);
                put_varint(to, bytes);
                records = 2;
            }
            tag(to, op::FREE, api as u8);
            put_varint(to, dt);
            match (api, address) {
                (FreeApi::Null, 0) => {}
                (FreeApi::Null, _) => return Err("a free(NULL) with an address"),
                _ => put_address(to, state, address::FREE, address)?,
            }
        }
        &What::Realloc { took, old, size, new, stack } => {
            let stays = u8::from(old == new);
            tag(to, op::REALLOC, stays | if stack != 0 { WITH_STACK } else { 0 });
            put_varint(to, dt);
            put_varint(to, took);
            put_address(to, state, address::FREE, old)?;
            put_varint(to, size);
            if old != new {
                put_address(to, state, address::of_size(size), new)?;
            }
            if stack != 0 {
                put_varint(to, stack.into());
            }
        }
        &What::Failed { api, size } => numbers(to, op::FAILED, api as u8, &[dt, size]),
        What::ThreadBegin { tid, creator } => {
            numbers(to, op::THREAD, 0, &[dt, (*tid).into(), (*creator).into()]);
        }
        What::ThreadEnd => numbers(to, op::THREAD, 1, &[dt]),
        What::ThreadGone => {
            let mut time = Vec::new();
            if dt > 0 {
                put_varint(&mut time, dt);
            }
            numbers(to, op::EXTENSION, 0, &[extension::GONE, time.len() as u64]);
            to.extend_from_slice(&time);
        }
        What::ThreadName(name) => text(to, op::THREAD, 2, &[dt], name),
        &What::Sampled { mean } => numbers(to, op::THREAD, 3, &[dt, mean]),
        &What::Fork { child } => numbers(to, op::PROCESS, 0, &[dt, child.into()]),
        What::Exec(program) => text(to, op::PROCESS, 1, &[dt], program),
        &What::Exit { status } => numbers(to, op::PROCESS, 2, &[dt, status.into()]),
        &What::Zeroed { address, size, resident } => {
            tag(to, op::TOUCHED, 1);
            put_varint(to, dt);
            put_varint(to, size);
            put_address(to, state, address::of_size(size), address)?;
            put_varint(to, resident);
        }
        &What::Memory { anonymous, file } => numbers(to, op::MEMORY, 0, &[dt, anonymous, file]),
        &What::Clock { ns } => numbers(to, op::CLOCK, 0, &[dt, ns]),
        What::ModuleLoaded { base, about } => text(to, op::MODULE, 0, &[dt, *base], about),
        What::ModuleUnloaded { base, about } => text(to, op::MODULE, 1, &[dt, *base], about),
        What::Pool { pool, what } => pool_what(to, state, &[dt, (*pool).into()], what)?,
        &What::Lost { count, reason } => numbers(to, op::LOST, 0, &[dt, count, reason.into()]),
        What::Mark(note) => text(to, op::MARK, 0, &[dt], note),
        What::Usage(usage) => extended(to, extension::USAGE, dt, &usage.numbers()),
        &What::Resident { address, bytes } => extended(to, extension::RESIDENT, dt, &[address, bytes]),
        &What::Written { address, bytes } => extended(to, extension::WRITTEN, dt, &[address, bytes]),
        &What::ChildEnded { child, status } => {
            extended(to, extension::CHILD, dt, &[child.into(), status.into()]);
        }
        &What::HiddenChildEnded(HiddenChild { status, began_ns, ended_ns }) => {
            extended(to, extension::HIDDEN_CHILD, dt, &[status.into(), began_ns, ended_ns]);
        }
    }
    Ok(records)
}

/// Append a record that defines a stack.
pub(crate) fn stack(to: &mut Vec<u8>, state: &mut State, node: &StackNode) -> Result<(), Unfit> {
    if node.id == 0 {
        return Err("a stack of number 0");
    }
    tag(to, op::STACK, u8::from(node.is_return));
    put_varint(to, zigzag(u64::from(node.id).wrapping_sub(u64::from(state.stack)).wrapping_sub(1)));
    put_varint(to, node.parent.into());
    put_varint(to, zigzag(node.pc.wrapping_sub(state.pc)));
    state.stack = node.id;
    state.pc = node.pc;
    Ok(())
}

fn put_align(to: &mut Vec<u8>, api: AllocApi, align: u8) -> Result<(), Unfit> {
    match (has_align(api), align) {
        (true, 0..=63) => put_varint(to, align.into()),
        (true, _) => return Err("an alignment of more than 64 bits"),
        (false, 0) => {}
        (false, _) => return Err("an alignment of a function that has none; say Memalign or AlignedNew"),
    }
    Ok(())
}

fn numbers(to: &mut Vec<u8>, op: u8, variant: u8, fields: &[u64]) {
    tag(to, op, variant);
    for &field in fields {
        put_varint(to, field);
    }
}

/// A reader that does not know the kind leaves out the time, too: the recorder's is 0.
fn extended(to: &mut Vec<u8>, kind: u64, dt: u64, fields: &[u64]) {
    let mut body = Vec::with_capacity(10 * (fields.len() + 1));
    put_varint(&mut body, dt);
    for &field in fields {
        put_varint(&mut body, field);
    }
    tag(to, op::EXTENSION, 0);
    put_varint(to, kind);
    put_varint(to, body.len() as u64);
    to.append(&mut body);
}

fn text(to: &mut Vec<u8>, op: u8, variant: u8, fields: &[u64], text: &str) {
    numbers(to, op, variant, fields);
    put_text(to, text);
}

fn pool_what(to: &mut Vec<u8>, state: &mut State, first: &[u64; 2], what: &PoolWhat) -> Result<(), Unfit> {
    let mut begin = |variant| numbers(to, op::POOL, variant, first);
    match what {
        PoolWhat::Created { parent, kind, name } => {
            begin(0);
            put_varint(to, (*parent).into());
            put_text(to, kind);
            put_text(to, name);
        }
        PoolWhat::Destroyed => begin(1),
        PoolWhat::Pushed => begin(2),
        PoolWhat::Popped => begin(3),
        &PoolWhat::Sealed { cookie } => {
            begin(4);
            put_varint(to, cookie);
        }
        &PoolWhat::Released { cookie } => {
            begin(5);
            put_varint(to, cookie);
        }
        &PoolWhat::Alloc { size, address, align, stack } => {
            begin(6);
            put_varint(to, size);
            put_address(to, state, address::POOL_ALLOC, address)?;
            if align > 63 {
                return Err("an alignment of more than 64 bits");
            }
            put_varint(to, align.into());
            put_varint(to, stack.into());
        }
        &PoolWhat::Free { address } => {
            begin(7);
            put_address(to, state, address::POOL_FREE, address)?;
        }
        &PoolWhat::Resized { old, size, new, stack } => {
            begin(8);
            put_address(to, state, address::POOL_FREE, old)?;
            put_varint(to, size);
            put_address(to, state, address::POOL_ALLOC, new)?;
            put_varint(to, stack.into());
        }
        PoolWhat::Emptied => begin(9),
        &PoolWhat::Held { held, used } => {
            begin(10);
            put_varint(to, held);
            put_varint(to, used);
        }
    }
    Ok(())
}
