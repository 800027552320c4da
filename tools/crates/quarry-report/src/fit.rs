// SPDX-License-Identifier: MIT
//! Texts in the width that there is.

/// A text that is not wider than the screen: of a path the end is kept, of anything else both ends.
pub fn fitted(text: &str, width: Option<usize>) -> String {
    let letters: Vec<char> = text.chars().collect();
    match width {
        Some(width) if letters.len() > width => {
            let is_path = text.starts_with('/') && !text.contains(": ");
            let head = if is_path { 0 } else { width.saturating_sub(3) / 2 };
            let tail = width.saturating_sub(3) - head;
            let part = |part: &[char]| part.iter().collect::<String>();
            format!("{}...{}", part(&letters[..head]), part(&letters[letters.len() - tail..]))
        }
        _ => text.to_owned(),
    }
}

/// Words in lines of at most `width` columns; the first begins with `first`, the others with `next`.
pub fn wrapped(text: &str, width: usize, first: &str, next: &str) -> String {
    let mut lines = vec![first.to_owned()];
    let mut used = first.chars().count();
    let mut fresh = true;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if !fresh && used + 1 + length > width {
            lines.push(next.to_owned());
            used = next.chars().count();
            fresh = true;
        }
        let line = lines.last_mut().expect("there is always one");
        if !fresh {
            line.push(' ');
            used += 1;
        }
        line.push_str(word);
        used += length;
        fresh = false;
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_where_they_say_least() {
        assert_eq!(fitted("/usr/lib/libc.so.6", Some(12)), "...libc.so.6");
        assert_eq!(fitted("abcdefghij", Some(7)), "ab...ij");
        assert_eq!(fitted("short", Some(7)), "short");
        assert_eq!(fitted("anything", None), "anything");
    }

    #[test]
    fn words_go_to_the_next_line_where_they_do_not_fit() {
        assert_eq!(wrapped("one two three", 9, "- ", "  "), "- one two\n  three");
        assert_eq!(wrapped("unbreakable", 4, "", ""), "unbreakable");
    }
}
