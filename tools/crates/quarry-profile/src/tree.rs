// SPDX-License-Identifier: MIT
//! The tree of calls as text: from the outermost function down to the sites, or from the sites up to their callers.

use std::collections::HashMap;

use crate::calls::{Calls, ROOT};
use crate::estimate::{live, part};
use crate::model::Live;

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

/// A tree with sums, those of a node with all below it.
#[derive(Debug, Clone, Default)]
pub struct Summed {
    /// Label of the node, and its children.
    nodes: Vec<(u32, Vec<u32>)>,
    sums: Vec<Live>,
}

impl Summed {
    /// Of what each leaf has.
    pub fn new(calls: &Calls, leaves: &[(u32, Live)], direction: Direction) -> Self {
        let mut tree =
            Self { nodes: vec![(calls.calls()[0].label, Vec::new())], sums: vec![Live::default()] };
        let mut known: HashMap<(u32, u32), u32> = HashMap::new();
        let mut path = Vec::new();
        for (leaf, sum) in leaves {
            path.clear();
            path.extend(calls.up(*leaf).map(|call| calls.calls()[call as usize].label));
            if direction == Direction::Down {
                path.reverse();
            }
            let mut node = ROOT;
            tree.sums[0] += *sum;
            for &label in &path {
                node = *known.entry((node, label)).or_insert_with(|| {
                    let new = tree.nodes.len() as u32;
                    tree.nodes.push((label, Vec::new()));
                    tree.sums.push(Live::default());
                    tree.nodes[node as usize].1.push(new);
                    new
                });
                tree.sums[node as usize] += *sum;
            }
        }
        tree
    }

    /// The sum of all.
    pub fn all(&self) -> Live {
        self.sums[0]
    }

    /// The children of a node, the largest first.
    fn children(&self, node: u32) -> Vec<u32> {
        let mut children = self.nodes[node as usize].1.clone();
        children.sort_by_key(|&child| (std::cmp::Reverse(self.sums[child as usize].bytes.value()), child));
        children
    }

    /// As text.
    pub fn text(&self, calls: &Calls) -> String {
        let mut lines = Vec::new();
        self.lines(calls, ROOT, "", &mut lines);
        let more = lines.len() > MOST;
        lines.truncate(MOST);
        let head = format!("100 % {}\n", live(&self.all()));
        let end = if more { "(the rest of the tree is left out; --filter narrows it)\n" } else { "" };
        head + &lines.concat() + end
    }

    fn lines(&self, calls: &Calls, node: u32, indent: &str, lines: &mut Vec<String>) {
        let whole = self.all().bytes.value();
        let is_large = |&child: &u32| {
            let sum = self.sums[child as usize].bytes.value();
            sum > 0 && sum as f64 >= whole as f64 * LEAST
        };
        let children = self.children(node);
        let (large, small): (Vec<u32>, Vec<u32>) = children.iter().partition(|child| is_large(child));
        let mut rest = Live::default();
        small.iter().for_each(|&child| rest += self.sums[child as usize]);
        for (at, &child) in large.iter().enumerate() {
            if lines.len() > MOST {
                return;
            }
            let is_last = at + 1 == large.len() && rest.bytes.value() == 0;
            let sum = &self.sums[child as usize];
            let label = &calls.labels()[self.nodes[child as usize].0 as usize];
            let (mark, below) = if is_last { ("└ ", "  ") } else { ("├ ", "│ ") };
            lines.push(format!(
                "{indent}{mark}{} {} {}\n",
                part(sum.bytes.value(), whole),
                live(sum),
                label.text
            ));
            // A path without branches does not move to the right for ever.
            let deep = indent.chars().count() >= 80;
            self.lines(
                calls,
                child,
                &if deep { indent.to_owned() } else { format!("{indent}{below}") },
                lines,
            );
        }
        if rest.bytes.value() > 0 {
            let n = small.len();
            let below = part((whole as f64 * LEAST) as u64, whole);
            lines.push(format!(
                "{indent}└ {} {} in {n} places, each below {below}\n",
                part(rest.bytes.value(), whole),
                live(&rest)
            ));
        }
    }
}
