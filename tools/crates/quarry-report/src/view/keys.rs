// SPDX-License-Identifier: MIT
//! The keys of a view: its help and the documents are made of these lists, and a test presses each key.

/// What some keys do.
#[derive(Debug, Clone, Copy)]
pub struct Binding {
    /// The keys, as they are called in text.
    pub keys: &'static [&'static str],
    /// What they do.
    pub does: &'static str,
}

/// Keys that mean the same in each view.
pub const COMMON: &[Binding] = &[
    Binding { keys: &["h", "?"], does: "what each column is, and what it is made of" },
    Binding {
        keys: &["up", "down", "Page Up", "Page Down", "Home", "End", "j", "k"],
        does: "move the cursor, which stays on its row; scroll",
    },
    Binding { keys: &["<", ">", "left", "right"], does: "the column to sort by" },
    Binding { keys: &["r"], does: "turn the order" },
    Binding { keys: &["/"], does: "filter while typing; Enter keeps it, and Esc shows all again" },
    Binding { keys: &["space"], does: "pause, and go on" },
    Binding { keys: &["+", "-"], does: "twice, half the delay" },
    Binding { keys: &["Ctrl-L"], does: "draw anew" },
    Binding { keys: &["Ctrl-Z"], does: "stop, as any program in a shell, which fg lets go on" },
];

/// All keys of a view as the head of its help.
pub(super) fn sentence(own: &[Binding]) -> String {
    let each = own.iter().chain(COMMON).map(|one| format!("{}: {}", one.keys.join(", "), one.does));
    format!("Keys. {}.", each.collect::<Vec<_>>().join(". "))
}
