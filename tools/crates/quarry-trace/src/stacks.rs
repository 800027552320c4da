// SPDX-License-Identifier: MIT
//! The call stacks of a process: a tree, whose nodes know their callers.

use crate::event::{StackId, StackNode};
use crate::hash::NumberMap;

/// Numbers may run so far ahead of the nodes that were seen, and still be kept in a row.
const AHEAD: usize = 1 << 16;
/// Most nodes that are kept.
const MOST: usize = 1 << 26;

const PRESENT: u32 = 1;
const RETURN: u32 = 2;

/// A node, 16 bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Node {
    pc: u64,
    parent: StackId,
    flags: u32,
}

/// The tree of call stacks.
#[derive(Debug, Clone, Default)]
pub struct StackTree {
    /// By number, from 1.
    row: Vec<Node>,
    /// Those whose numbers are far from the others.
    far: NumberMap<Node>,
    nodes: usize,
}

impl StackTree {
    /// Most frames of a stack that are followed.
    pub const DEEPEST: usize = 4096;

    /// A tree without nodes.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many nodes it has.
    pub fn len(&self) -> usize {
        self.nodes
    }

    /// Has it none?
    pub fn is_empty(&self) -> bool {
        self.nodes == 0
    }

    /// Add a node. The first one of a number counts.
    pub fn add(&mut self, node: &StackNode) {
        if self.nodes >= MOST || node.id == 0 || self.node(node.id).is_some() {
            return;
        }
        let flags = PRESENT | if node.is_return { RETURN } else { 0 };
        let new = Node { pc: node.pc, parent: node.parent, flags };
        let index = node.id as usize - 1;
        self.nodes += 1;
        if index >= self.nodes + AHEAD {
            self.far.insert(node.id.into(), new);
            return;
        }
        if index >= self.row.len() {
            self.row.resize(index + 1, Node::default());
        }
        self.row[index] = new;
    }

    fn node(&self, id: StackId) -> Option<&Node> {
        let index = (id as usize).checked_sub(1)?;
        self.row.get(index).filter(|node| node.flags & PRESENT != 0).or_else(|| self.far.get(id.into()))
    }

    /// The node of this number.
    pub fn get(&self, id: StackId) -> Option<StackNode> {
        let node = self.node(id)?;
        Some(StackNode { id, parent: node.parent, pc: node.pc, is_return: node.flags & RETURN != 0 })
    }

    /// All nodes, in no order.
    pub fn nodes(&self) -> impl Iterator<Item = StackNode> + '_ {
        let far = self.far.iter().map(|(id, _)| id as StackId);
        (1..=self.row.len() as StackId).chain(far).filter_map(|id| self.get(id))
    }

    /// The frames of a stack, the innermost first. A chain that never ends, which only a damaged trace has, is
    /// cut.
    pub fn frames(&self, id: StackId) -> impl Iterator<Item = StackNode> + '_ {
        self.chain(id).take(Self::DEEPEST)
    }

    /// Has a stack more frames than so many?
    pub fn is_deeper(&self, id: StackId, than: usize) -> bool {
        self.chain(id).nth(than).is_some()
    }

    fn chain(&self, id: StackId) -> impl Iterator<Item = StackNode> + '_ {
        std::iter::successors(self.get(id), |node| self.get(node.parent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: u32, parent: u32) -> StackNode {
        StackNode { id, parent, pc: u64::from(id) * 16, is_return: id.is_multiple_of(2) }
    }

    #[test]
    fn frames_lead_to_the_root() {
        let mut tree = StackTree::new();
        for (id, parent) in [(3, 2), (1, 0), (2, 1), (u32::MAX, 3), (2, 0)] {
            tree.add(&node(id, parent));
        }
        tree.add(&StackNode { id: 0, parent: 1, pc: 5, is_return: false });
        assert_eq!(tree.len(), 4);
        let frames: Vec<StackNode> = tree.frames(u32::MAX).collect();
        assert_eq!(frames, [node(u32::MAX, 3), node(3, 2), node(2, 1), node(1, 0)]);
        assert!(tree.is_deeper(u32::MAX, 3) && !tree.is_deeper(u32::MAX, 4) && !tree.is_deeper(77, 0));
        assert_eq!(tree.frames(0).count(), 0);
        assert_eq!(tree.frames(77).count(), 0);
        assert!(tree.row.len() < 10, "a number of 2^32 takes no row of that length");
    }

    #[test]
    fn a_ring_is_cut() {
        let mut tree = StackTree::new();
        tree.add(&node(1, 2));
        tree.add(&node(2, 1));
        assert_eq!(tree.frames(1).count(), StackTree::DEEPEST);
        assert!(tree.is_deeper(1, StackTree::DEEPEST));
    }

    #[test]
    fn numbers_in_any_order_meet() {
        let mut tree = StackTree::new();
        for id in (1..300_000).rev() {
            tree.add(&node(id, id - 1));
        }
        assert_eq!(tree.len(), 299_999);
        assert!((1..300_000).all(|id| tree.get(id) == Some(node(id, id - 1))));
    }
}
