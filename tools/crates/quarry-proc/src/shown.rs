// SPDX-License-Identifier: MIT
//! Names that processes gave themselves, as text that can be printed.

/// A name as it may be printed: control characters are written out, since they would move the cursor.
pub fn shown(text: &str) -> String {
    if !text.chars().any(char::is_control) {
        return text.to_owned();
    }
    let escaped =
        |letter: char| if letter.is_control() { letter.escape_default().to_string() } else { letter.into() };
    text.chars().map(escaped).collect()
}
