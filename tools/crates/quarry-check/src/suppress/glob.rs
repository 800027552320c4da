// SPDX-License-Identifier: MIT
//! Patterns with wildcards. The time is the product of both lengths at most, whatever is in them.

/// Is the whole text as the pattern says? `*` is any text, and `?` any character.
pub fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    whole(pattern, text, |&p| p == b'*', |p, t| *p == b'?' || p == t)
}

/// Is the text somewhere as the pattern says? `*` is any text, `^` at the begin and `$` at the end bind it there.
pub fn contains(pattern: &str, text: &str) -> bool {
    let (bound, pattern) = pattern.strip_prefix('^').map_or((false, pattern), |rest| (true, rest));
    let (ends, pattern) = pattern.strip_suffix('$').map_or((false, pattern), |rest| (true, rest));
    let mut all = String::with_capacity(pattern.len() + 2);
    if !bound {
        all.push('*');
    }
    all.push_str(pattern);
    if !ends {
        all.push('*');
    }
    whole(all.as_bytes(), text.as_bytes(), |&p| p == b'*', |p, t| p == t)
}

/// Do the first items of `items` fit the pattern? What is behind them does not matter.
pub fn prefix<P, T>(
    pattern: &[P],
    items: &[T],
    is_any: impl Fn(&P) -> bool,
    fits: impl Fn(&P, &T) -> bool,
) -> bool {
    // As if a wildcard stood behind it.
    let mut all: Vec<Option<&P>> = pattern.iter().map(|p| Some(p).filter(|p| !is_any(p))).collect();
    all.push(None);
    whole(&all, items, Option::is_none, |p, t| p.is_some_and(|p| fits(p, t)))
}

/// The last wildcard takes more, until the rest fits.
fn whole<P, T>(
    pattern: &[P],
    items: &[T],
    is_any: impl Fn(&P) -> bool,
    fits: impl Fn(&P, &T) -> bool,
) -> bool {
    let (mut p, mut t, mut back) = (0, 0, None);
    while t < items.len() {
        if p < pattern.len() && is_any(&pattern[p]) {
            back = Some((p + 1, t));
            p += 1;
        } else if p < pattern.len() && fits(&pattern[p], &items[t]) {
            p += 1;
            t += 1;
        } else if let Some((after, from)) = back {
            back = Some((after, from + 1));
            p = after;
            t = from + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(is_any)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards() {
        for (pattern, text, is) in [
            ("abc", "abc", true),
            ("abc", "abcd", false),
            ("*", "", true),
            ("a*c", "abbbc", true),
            ("a*c", "abbb", false),
            ("*lib?.so*", "/usr/libx.so.1", true),
            ("a*b*c*", "axbxbxcx", true),
            ("?", "", false),
        ] {
            assert_eq!(matches(pattern, text), is, "{pattern} {text}");
        }
        for (pattern, text, is) in [
            ("foo", "a_foo_b", true),
            ("^foo", "a_foo_b", false),
            ("^a*b$", "a_foo_b", true),
            ("f*b", "a_foo_b", true),
            ("foo$", "a_foo_b", false),
            ("", "x", true),
        ] {
            assert_eq!(contains(pattern, text), is, "{pattern} {text}");
        }
    }

    #[test]
    fn no_pattern_takes_long() {
        let pattern = "*a".repeat(2000) + "b";
        assert!(!matches(&pattern, &"a".repeat(4000)));
    }

    #[test]
    fn a_prefix_is_enough() {
        let is = |pattern: &str, text: &str| {
            prefix(pattern.as_bytes(), text.as_bytes(), |&p| p == b'*', |p, t| p == t)
        };
        assert!(is("ab", "abc") && is("a*c", "abcd") && is("*", "") && is("*d", "abcd") && is("a*", "a"));
        assert!(!is("b", "abc") && !is("abcd", "abc") && !is("a*e", "abcd") && is("a*b*c", "axbbxcy"));
    }
}
