// SPDX-License-Identifier: MIT
//! The shell of every HTML report: one head and one style sheet, light and dark, for screens of all sizes. A page is one file
//! and needs nothing beside itself.

use crate::svg::escape;

/// The rules of all pages.
const STYLE: &str = include_str!("page.css");

/// For pages with a script: tables that are sorted by their headings.
pub const SORT: &str = include_str!("sort.js");

/// What browsers are told of every page: it asks for nothing, whatever stands in it.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// What stands in a page.
#[derive(Debug, Clone, Copy)]
pub struct Page<'a> {
    /// Its title, as plain text. It is the first heading, too.
    pub title: &'a str,
    /// Rules of its own, which win over those of all pages.
    pub style: &'a str,
    /// HTML below the first heading.
    pub body: &'a str,
}

impl Page<'_> {
    /// The file.
    pub fn html(&self) -> String {
        let (title, style, body) = (escape(self.title), self.style, self.body);
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>{title}</title>\n<style>\n{STYLE}{style}</style>\n</head>\n\
             <body>\n<h1>{title}</h1>\n{body}</body>\n</html>\n"
        )
    }
}

/// Rules that give names to colours: one on white, one on black.
pub fn colors<N: AsRef<str>>(named: &[(N, (&str, &str))]) -> String {
    let set = |dark: bool| -> String {
        let color = |(name, pair): &(N, (&str, &str))| {
            format!("--{}:{};", name.as_ref(), if dark { pair.1 } else { pair.0 })
        };
        named.iter().map(color).collect()
    };
    format!(":root{{{}}}\n@media (prefers-color-scheme:dark){{:root{{{}}}}}\n", set(false), set(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_one_head_for_light_and_dark() {
        let page = Page { title: "a <b>", style: "i{color:red}\n", body: "<p>text</p>\n" }.html();
        for part in [
            "<!DOCTYPE html>\n<html lang=\"en\">",
            "width=device-width",
            "content=\"light dark\"",
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none';",
            "<title>a &lt;b&gt;</title>",
            "<h1>a &lt;b&gt;</h1>\n<p>text</p>\n</body>\n</html>\n",
        ] {
            assert_eq!(page.matches(part).count(), 1, "{part}");
        }
        assert!(page.find("i{color:red}").unwrap() > page.find("prefers-color-scheme:dark").unwrap());
        for outside in ["src=", "@import", "url(", "<link"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    /// Bodies of pages lie beside what fills them. None has a head of its own.
    #[test]
    fn no_other_page_has_a_head() {
        fn bodies(folder: &std::path::Path, seen: &mut usize) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    bodies(&path, seen);
                } else if path.extension().is_some_and(|ending| ending == "html") {
                    let body = std::fs::read_to_string(&path).unwrap();
                    assert!(!body.contains("<head") && !body.contains("<style"), "{}", path.display());
                    *seen += 1;
                }
            }
        }
        let mut seen = 0;
        let crates = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
        for folder in [crates, concat!(env!("CARGO_MANIFEST_DIR"), "/../../quarry/src")] {
            bodies(std::path::Path::new(folder), &mut seen);
        }
        assert!(seen >= 7, "{seen} pages");
    }

    #[test]
    fn every_rule_is_closed() {
        let mut depth = 0;
        for letter in STYLE.chars() {
            depth += i32::from(letter == '{') - i32::from(letter == '}');
            assert!((0..=2).contains(&depth));
        }
        assert_eq!(depth, 0);
        // Each colour that is used has a value for light and one for dark.
        let (light, dark) = STYLE.split_once("@media (prefers-color-scheme:dark)").unwrap();
        for used in STYLE.split("var(--").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            let set = format!("--{used}:");
            assert!(light.contains(&set) && dark.contains(&set), "{used}");
        }
    }

    #[test]
    fn colours_have_names() {
        let rules = colors(&[("a", ("#fff", "#000")), ("b", ("#111", "#eee"))]);
        assert!(rules.starts_with(":root{--a:#fff;--b:#111;}") && rules.contains("--a:#000;--b:#eee;"));
    }
}
