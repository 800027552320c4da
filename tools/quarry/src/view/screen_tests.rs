// SPDX-License-Identifier: MIT
//! What is written of a frame; and a panic, in a terminal of its own.

use ratatui_core::style::Style;

use super::*;

#[path = "../../tests/common/pty.rs"]
#[allow(dead_code, reason = "the other tests use the rest")]
mod pty;

/// What is written to show this after that.
fn written(before: &Buffer, after: &Buffer) -> String {
    let mut bytes = Vec::new();
    write_changes(&mut bytes, &before.diff(after)).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn only_what_changed_is_written() {
    let area = Rect::new(0, 0, 20, 2);
    let (empty, mut one) = (Buffer::empty(area), Buffer::empty(area));
    assert_eq!(written(&empty, &one), "");
    one.set_string(2, 1, "abc \u{4e2d}d", Style::new());
    assert_eq!(written(&empty, &one), "\x1b[2;3Habc\x1b[2;7H\u{4e2d}\x1b[2;9Hd");
    let mut other = one.clone();
    other.set_string(3, 1, "B", Style::new());
    assert_eq!(written(&one, &other), "\x1b[2;4HB");
    // A look that ends within the line, and one that ends with the frame.
    other.set_style(Rect::new(2, 1, 1, 1), Style::new().fg(Color::Red).add_modifier(Modifier::BOLD));
    assert_eq!(written(&one, &other), "\x1b[2;3H\x1b[0;1;31ma\x1b[0mB");
    other = one.clone();
    other.set_style(
        Rect::new(2, 1, 1, 1),
        Style::new().add_modifier(Modifier::REVERSED | Modifier::UNDERLINED),
    );
    assert_eq!(written(&one, &other), "\x1b[2;3H\x1b[0;4;7ma\x1b[0m");
}

/// In a terminal of its own.
fn panics_while_the_terminal_is_ours() {
    let mut screen = Screen::take().unwrap();
    screen.draw(|buffer, _| buffer.set_string(0, 0, "on the screen", Style::new())).unwrap();
    // Until a key says that it was seen.
    while screen.event(Duration::from_secs(30)).unwrap().is_none() {}
    screen.draw(|_, _| panic!("this is why")).unwrap();
}

#[test]
fn a_panic_gives_the_terminal_back_and_can_be_read() {
    const INSIDE: &str = "QUARRY_TEST_INSIDE";
    if std::env::var_os(INSIDE).is_some() {
        return panics_while_the_terminal_is_ours();
    }
    let module = module_path!().split_once("::").unwrap().1;
    let name = format!("{module}::a_panic_gives_the_terminal_back_and_can_be_read");
    let program = std::env::current_exe().unwrap();
    let args = ["--exact", &name, "--nocapture", "--test-threads=1"];
    let environment = [("RUST_BACKTRACE", "0"), (INSIDE, "1")];
    let mut session = pty::Session::new(program.as_os_str(), args, &environment, (80, 24));
    session.shows("on the screen");
    assert!(session.parser.screen().alternate_screen());
    session.press("x");
    assert_ne!(session.ends().code(), Some(0));
    assert!(session.text().contains("this is why"), "{}", session.text());
}
