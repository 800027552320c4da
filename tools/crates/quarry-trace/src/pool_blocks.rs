// SPDX-License-Identifier: MIT
//! Which blocks of pools are live, as far as events of single blocks tell.

use crate::event::{Event, PoolWhat, What};
use crate::hash::{AddressSet, NumberMap};

/// The live blocks of each pool; None of one that has had frames: these end many blocks at once, so that it is not known, and
/// all is possible there.
#[derive(Debug, Default)]
pub(crate) struct PoolBlocks {
    pools: NumberMap<Option<AddressSet>>,
}

impl PoolBlocks {
    /// It has happened.
    pub(crate) fn note(&mut self, event: &Event) {
        let What::Pool { pool, what } = &event.what else { return };
        let blocks = self.pools.get_or((*pool).into(), || Some(AddressSet::default()));
        match *what {
            PoolWhat::Pushed | PoolWhat::Popped | PoolWhat::Sealed { .. } | PoolWhat::Released { .. } => {
                *blocks = None
            }
            PoolWhat::Created { .. } | PoolWhat::Held { .. } => {}
            PoolWhat::Destroyed => _ = self.pools.remove((*pool).into()),
            PoolWhat::Emptied => *blocks = blocks.is_some().then(AddressSet::default),
            PoolWhat::Alloc { address, .. } => _ = blocks.as_mut().map(|blocks| blocks.insert(address)),
            PoolWhat::Free { address } => _ = blocks.as_mut().map(|blocks| blocks.remove(address)),
            PoolWhat::Resized { old, new, .. } => {
                if let Some(blocks) = blocks {
                    blocks.remove(old);
                    blocks.insert(new);
                }
            }
        }
    }

    /// Can this happen next in this pool?
    pub(crate) fn is_possible(&self, pool: u32, what: &PoolWhat) -> bool {
        let blocks = self.pools.get(pool.into());
        if matches!(blocks, Some(None)) {
            return true;
        }
        let live = |address| blocks.and_then(Option::as_ref).is_some_and(|blocks| blocks.contains(address));
        match *what {
            PoolWhat::Alloc { address, .. } => !live(address),
            PoolWhat::Free { address } => live(address),
            PoolWhat::Resized { old, new, .. } => live(old) && (old == new || !live(new)),
            _ => true,
        }
    }
}
