// SPDX-License-Identifier: MIT
//! Names of C++ as people say them: std::string, and no default arguments of templates.

use std::borrow::Cow;

/// Lists in lists in lists: of deeper ones the name stays as it is.
const DEEPEST: usize = 64;
/// Templates that are called otherwise where they are of char, after `basic_`.
const OF_CHAR: [&str; 15] = [
    "string",
    "string_view",
    "ostream",
    "istream",
    "iostream",
    "ostringstream",
    "istringstream",
    "stringstream",
    "stringbuf",
    "ofstream",
    "ifstream",
    "fstream",
    "streambuf",
    "filebuf",
    "ios",
];
/// What the standard library's templates have as an argument that nobody wrote.
const DEFAULTS: [&str; 6] = [
    "std::allocator<",
    "std::char_traits<",
    "std::less<",
    "std::hash<",
    "std::equal_to<",
    "std::default_delete<",
];

/// This name, for a table or a line. What cannot be taken apart stays as it is.
pub fn shortened(name: &str) -> Cow<'_, str> {
    if !name.contains("std::") {
        return name.into();
    }
    let mut text = name.replace("[abi:cxx11]", "");
    for namespace in ["__cxx11::", "__1::"] {
        text = text.replace(&format!("std::{namespace}"), "std::");
    }
    let mut parser = Parser { text: &text, at: 0 };
    match parser.part(0, "") {
        Some(short) if parser.at == text.len() => short.into(),
        _ => text.into(),
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    /// Up to one of these characters, or to the end where there are none.
    fn part(&mut self, depth: usize, ends: &str) -> Option<String> {
        let mut short = String::new();
        while let Some(next) = self.text[self.at..].chars().next() {
            if ends.contains(next) {
                return Some(short);
            }
            if let Some(symbol) = self.symbol(&short) {
                short += &symbol;
                continue;
            }
            self.at += next.len_utf8();
            match next {
                '<' => {
                    let arguments = self.list(depth)?;
                    with_arguments(&mut short, arguments);
                }
                '(' => {
                    short.push('(');
                    short += &self.part((depth < DEEPEST).then_some(depth + 1)?, ")")?;
                    short.push(')');
                    self.at += 1;
                }
                '>' | ')' => return None,
                other => short.push(other),
            }
        }
        ends.is_empty().then_some(short)
    }

    /// Characters that look like ends of lists and are none: an arrow, and what an operator is called.
    fn symbol(&mut self, before: &str) -> Option<String> {
        let rest = &self.text[self.at..];
        let is_operator = before.ends_with("operator");
        let symbols = ["<=>", "<<=", ">>=", "<<", ">>", "<=", ">=", "->*", "->", "()", "<", ">"];
        let found = symbols.into_iter().find(|symbol| rest.starts_with(symbol))?;
        if !is_operator && found != "->" {
            return None;
        }
        self.at += found.len();
        Some(found.to_owned())
    }

    /// The arguments of a template, after its first character.
    fn list(&mut self, depth: usize) -> Option<Vec<String>> {
        let mut arguments = Vec::new();
        loop {
            let argument = self.part((depth < DEEPEST).then_some(depth + 1)?, ",>")?;
            arguments.push(argument.trim().to_owned());
            let end = self.text[self.at..].starts_with('>');
            self.at += 1;
            if end {
                return Some(arguments);
            }
        }
    }
}

/// The template whose name ends here has these.
fn with_arguments(short: &mut String, mut arguments: Vec<String>) {
    let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let from = short.trim_end_matches(is_name).len();
    let template = &short[from..];
    if template.starts_with("std::") || template.starts_with("__gnu_cxx::") {
        let is_default = |argument: &String| {
            argument.ends_with('>') && DEFAULTS.iter().any(|default| argument.starts_with(default))
        };
        let mut place = 0;
        arguments.retain(|argument| {
            place += 1;
            place == 1 || !is_default(argument)
        });
        if let Some(name) = template.strip_prefix("std::basic_").filter(|name| OF_CHAR.contains(name)) {
            let wide = match &*arguments {
                [one] if one == "char" => Some(""),
                [one] if one == "wchar_t" => Some("w"),
                _ => None,
            };
            if let Some(wide) = wide {
                let name = format!("std::{wide}{name}");
                short.truncate(from);
                *short += &name;
                return;
            }
        }
    }
    *short += &format!("<{}>", arguments.join(", "));
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRING: &str = "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >";

    #[track_caller]
    fn is(name: &str, short: &str) {
        assert_eq!(shortened(name), short);
    }

    #[test]
    fn strings_and_containers() {
        is(STRING, "std::string");
        is(
            &format!("Cache::store({STRING} const&, char const*, unsigned long)"),
            "Cache::store(std::string const&, char const*, unsigned long)",
        );
        is(
            &format!("std::vector<{STRING}, std::allocator<{STRING} > >::push_back({STRING}&&)"),
            "std::vector<std::string>::push_back(std::string&&)",
        );
        is(&format!("{STRING}::basic_string(char const*)"), "std::string::basic_string(char const*)");
        is(
            &format!(
                "std::unordered_map<{STRING}, char*, std::hash<{STRING} >, std::equal_to<{STRING} >, std::allocator<std::pair<{STRING} const, char*> > >::emplace<{STRING} const&, char*&>"
            ),
            "std::unordered_map<std::string, char*>::emplace<std::string const&, char*&>",
        );
        is(
            "std::map<int, int, std::greater<int>, std::allocator<std::pair<int const, int> > >",
            "std::map<int, int, std::greater<int>>",
        );
        is(
            "std::basic_ostream<char, std::char_traits<char> >& std::operator<< <std::char_traits<char> >(int)",
            "std::ostream& std::operator<< <std::char_traits<char>>(int)",
        );
        is(
            "std::__1::basic_string<wchar_t, std::__1::char_traits<wchar_t>, std::__1::allocator<wchar_t>>",
            "std::wstring",
        );
        is("std::unique_ptr<A, std::default_delete<A> >::~unique_ptr()", "std::unique_ptr<A>::~unique_ptr()");
        is("std::__cxx11::to_string[abi:cxx11](int)", "std::to_string(int)");
    }

    #[test]
    fn what_somebody_wrote_stays() {
        for name in [
            "main",
            "mine<int, std::allocator<int>>::f()",
            "std::allocator<int>::allocate(unsigned long)",
            "std::vector<int, my::allocator<int>>::reserve(unsigned long)",
            "std::operator<(a const&, b const&)",
            "std::function<void(int, char)>::operator()(int, char) const",
            "std::shared_ptr<a>::operator->() const",
            "auto std::apply(f)::{lambda(auto, int)#1}::operator()<int>(auto, int) const -> int",
            "<std::io::Stdout as std::io::Write>::write",
            "<alloc::vec::Vec<T, A> as core::ops::drop::Drop>::drop<std::path::Path>",
            // No end, or too many.
            "std::vector<int, std::allocator<int>",
            "std::f)>",
            "std::größe<int, (",
        ] {
            is(name, name);
        }
        let deep = format!("std::{}{}", "a<".repeat(5000), ">".repeat(5000));
        is(&deep, &deep);
    }
}
