// SPDX-License-Identifier: MIT
//! Colour, where it is wanted.

/// How text may look.
#[derive(Debug, Clone, Copy, Default)]
pub struct Style {
    /// Use terminal escapes.
    pub color: bool,
    /// Columns of the terminal; `None`: as wide as it gets.
    pub width: Option<u16>,
}

impl Style {
    /// Emphasised.
    pub fn bold(&self, text: &str) -> String {
        self.wrap("1", text)
    }

    /// Something to look at.
    pub fn warning(&self, text: &str) -> String {
        self.wrap("1;33", text)
    }

    /// Something that failed.
    pub fn error(&self, text: &str) -> String {
        self.wrap("1;31", text)
    }

    fn wrap(&self, code: &str, text: &str) -> String {
        if self.color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}
