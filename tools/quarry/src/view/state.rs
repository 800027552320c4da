// SPDX-License-Identifier: MIT
//! What the user looks at, and what keys do to that.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use quarry_report::view::{Heading, Look, Order};

/// No frame comes faster, nor slower.
pub const FASTEST: Duration = Duration::from_millis(100);
pub const SLOWEST: Duration = Duration::from_secs(86_400);

/// What has to happen after a key; of several, the last of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Do {
    /// Nothing at all, ...
    Nothing,
    /// ... unless the view has a meaning for this key of its own.
    Own,
    /// Show the same in another way.
    Draw,
    /// Other rows, or in another order: rank those that are here anew.
    Rank,
    /// Read all again, now.
    Read,
    /// What takes long, when the screen says so.
    Work,
    /// Write all of the screen again: something else has written on it.
    Redraw,
    /// Give the terminal back and stop, until somebody lets us go on.
    Stop,
    Quit,
}

/// What the user looks at, and what follows from the keys that were pressed.
#[derive(Debug, Clone)]
pub struct State<C> {
    pub look: Look<C>,
    /// The row the cursor stays on, once it was moved.
    pub follow: Option<u32>,
}

impl<C: Heading> State<C> {
    pub fn new(order: Order<C>, delay: Duration, opened: Option<u32>) -> Self {
        Self { look: Look::new(order, delay, opened), follow: None }
    }

    /// A key was pressed. `ids` name the rows in the order they are shown.
    pub fn key(&mut self, key: KeyEvent, ids: &[u32]) -> Do {
        if key.kind == KeyEventKind::Release {
            return Do::Nothing;
        }
        self.look.message = None;
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Do::Quit,
                KeyCode::Char('l') => Do::Redraw,
                KeyCode::Char('z') => Do::Stop,
                _ => Do::Nothing,
            };
        }
        match () {
            () if self.look.typing.is_some() => self.typed(key.code),
            () if self.look.help.is_some() => self.in_help(key.code),
            () => self.command(key.code, ids),
        }
    }

    /// Keys while a filter is typed: rows are chosen with each letter.
    fn typed(&mut self, code: KeyCode) -> Do {
        match code {
            KeyCode::Enter => self.look.typing = None,
            KeyCode::Esc => self.look.order.filter = self.look.typing.take().unwrap_or_default(),
            KeyCode::Backspace => {
                self.look.order.filter.pop();
            }
            KeyCode::Char(letter) => self.look.order.filter.push(letter),
            _ => return Do::Nothing,
        }
        self.rewind();
        Do::Rank
    }

    /// Any key that does not scroll leaves the help.
    fn in_help(&mut self, code: KeyCode) -> Do {
        let first = self.look.help.unwrap_or_default();
        self.look.help = self.scrolled(code, first, usize::MAX);
        Do::Draw
    }

    /// Where a key leads from this line; the ends are not looked at. `None`: it is no key that scrolls.
    fn scrolled(&self, code: KeyCode, from: usize, last: usize) -> Option<usize> {
        Some(match code {
            KeyCode::Down | KeyCode::Char('j') => from.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => from.saturating_sub(1),
            KeyCode::PageDown => from.saturating_add(self.look.page),
            KeyCode::PageUp => from.saturating_sub(self.look.page),
            KeyCode::Home => 0,
            KeyCode::End => last,
            _ => return None,
        })
    }

    /// The last screen of the help, or of an open row, begins at this line.
    pub fn scrolled_to(&mut self, furthest: usize) {
        match &mut self.look.help {
            Some(first) => *first = furthest.min(*first),
            None => self.look.part = furthest.min(self.look.part),
        }
    }

    fn command(&mut self, code: KeyCode, ids: &[u32]) -> Do {
        match code {
            KeyCode::Char('q') => return Do::Quit,
            KeyCode::Char('h' | '?') => self.look.help = Some(0),
            KeyCode::Char(' ') => self.look.paused = !self.look.paused,
            KeyCode::Char('+') => self.look.delay = (self.look.delay * 2).min(SLOWEST),
            KeyCode::Char('-') => self.look.delay = (self.look.delay / 2).max(FASTEST),
            code if self.look.opened.is_some() => return self.in_opened(code),
            code => return self.in_table(code, ids),
        }
        Do::Draw
    }

    fn in_table(&mut self, code: KeyCode, ids: &[u32]) -> Do {
        match code {
            KeyCode::Esc => {
                self.look.order.filter.clear();
                self.follow = None;
                self.rewind();
            }
            KeyCode::Char('/') => self.look.typing = Some(self.look.order.filter.clone()),
            KeyCode::Char('r') => self.look.order.reverse = !self.look.order.reverse,
            KeyCode::Char('<') | KeyCode::Left => self.sort_beside(C::ALL.len() - 1),
            KeyCode::Char('>') | KeyCode::Right => self.sort_beside(1),
            KeyCode::Enter => {
                let Some(&id) = ids.get(self.look.selected) else { return Do::Nothing };
                (self.look.opened, self.follow, self.look.part) = (Some(id), Some(id), 0);
                return Do::Read;
            }
            code => return self.moved(code, ids),
        }
        Do::Rank
    }

    fn in_opened(&mut self, code: KeyCode) -> Do {
        match code {
            KeyCode::Esc => {
                self.look.opened = None;
                Do::Read
            }
            code => {
                let Some(part) = self.scrolled(code, self.look.part, usize::MAX) else { return Do::Own };
                self.look.part = part;
                Do::Draw
            }
        }
    }

    fn moved(&mut self, code: KeyCode, ids: &[u32]) -> Do {
        let last = ids.len().saturating_sub(1);
        let Some(to) = self.scrolled(code, self.look.selected, last) else { return Do::Own };
        self.look.selected = to.min(last);
        self.follow = ids.get(self.look.selected).copied();
        self.scroll();
        Do::Rank
    }

    fn sort_beside(&mut self, steps: usize) {
        let at = C::ALL.iter().position(|column| *column == self.look.order.sort).unwrap_or_default();
        self.look.order.sort = C::ALL[(at + steps) % C::ALL.len()];
    }

    fn rewind(&mut self) {
        (self.look.selected, self.look.first) = (0, 0);
    }

    /// The rows are others now: the cursor stays on its row, or at least on a row.
    pub fn settle(&mut self, ids: &[u32]) {
        let at = self.follow.and_then(|id| ids.iter().position(|other| *other == id));
        self.look.selected = at.unwrap_or(self.look.selected).min(ids.len().saturating_sub(1));
        self.look.first = self.look.first.min(ids.len().saturating_sub(self.look.page));
        self.scroll();
    }

    /// Have the cursor on the screen.
    fn scroll(&mut self) {
        self.look.first = self
            .look
            .first
            .min(self.look.selected)
            .max((self.look.selected + 1).saturating_sub(self.look.page));
    }
}

#[cfg(test)]
mod tests {
    use quarry_report::top::Column;
    use quarry_report::view::{Binding, COMMON};

    use super::*;

    fn state() -> State<Column> {
        let order = Order { sort: Column::Res, reverse: false, filter: String::new() };
        let mut state = State::new(order, Duration::from_secs(2), None);
        state.look.page = 10;
        state
    }

    fn press(state: &mut State<Column>, code: KeyCode, pids: &[u32]) -> Do {
        state.key(KeyEvent::new(code, KeyModifiers::NONE), pids)
    }

    #[test]
    fn the_cursor_stays_on_its_process_and_on_the_screen() {
        let mut state = state();
        let pids: Vec<u32> = (1..=100).collect();
        for _ in 0..15 {
            press(&mut state, KeyCode::Down, &pids);
        }
        assert_eq!((state.look.selected, state.look.first, state.follow), (15, 6, Some(16)));
        let turned: Vec<u32> = pids.iter().rev().copied().collect();
        state.settle(&turned);
        assert_eq!((state.look.selected, state.look.first), (84, 75));
        // It ended, and most others too.
        state.settle(&[1, 2, 3]);
        assert_eq!((state.look.selected, state.look.first), (2, 0));
        state.settle(&[]);
        assert_eq!((state.look.selected, state.look.first), (0, 0));
        assert_eq!(press(&mut state, KeyCode::Enter, &[]), Do::Nothing);
        press(&mut state, KeyCode::End, &pids);
        assert_eq!((state.look.selected, state.look.first), (99, 90));
        press(&mut state, KeyCode::PageUp, &pids);
        assert_eq!((state.look.selected, state.look.first), (89, 89));
    }

    #[test]
    fn a_filter_is_typed_and_taken_back() {
        let mut state = state();
        press(&mut state, KeyCode::Char('/'), &[]);
        for letter in "qux".chars() {
            assert_eq!(press(&mut state, KeyCode::Char(letter), &[]), Do::Rank);
        }
        press(&mut state, KeyCode::Backspace, &[]);
        press(&mut state, KeyCode::Enter, &[]);
        assert_eq!((state.look.order.filter.as_str(), state.look.typing.is_none()), ("qu", true));
        press(&mut state, KeyCode::Char('/'), &[]);
        press(&mut state, KeyCode::Char('x'), &[]);
        press(&mut state, KeyCode::Esc, &[]);
        assert_eq!(state.look.order.filter, "qu");
        press(&mut state, KeyCode::Esc, &[]);
        assert_eq!(state.look.order.filter, "");
    }

    #[test]
    fn sorting_goes_round_and_delays_have_ends() {
        let mut state = state();
        for _ in 0..Column::ALL.len() {
            press(&mut state, KeyCode::Char('>'), &[]);
        }
        assert_eq!(state.look.order.sort, Column::Res);
        press(&mut state, KeyCode::Char('<'), &[]);
        assert_eq!(state.look.order.sort, Column::Virt);
        for _ in 0..40 {
            press(&mut state, KeyCode::Char('-'), &[]);
        }
        assert_eq!(state.look.delay, FASTEST);
        for _ in 0..40 {
            press(&mut state, KeyCode::Char('+'), &[]);
        }
        assert_eq!(state.look.delay, SLOWEST);
    }

    #[test]
    fn opened_and_back() {
        let mut state = state();
        press(&mut state, KeyCode::Down, &[7, 8]);
        assert_eq!(press(&mut state, KeyCode::Enter, &[7, 8]), Do::Read);
        assert_eq!(state.look.opened, Some(8));
        assert_eq!(press(&mut state, KeyCode::Char('g'), &[7, 8]), Do::Own);
        press(&mut state, KeyCode::End, &[7, 8]);
        state.scrolled_to(5);
        assert_eq!(press(&mut state, KeyCode::Char('k'), &[7, 8]), Do::Draw);
        assert_eq!((state.look.part, state.look.selected), (4, 1));
        press(&mut state, KeyCode::Char('h'), &[7, 8]);
        press(&mut state, KeyCode::PageDown, &[7, 8]);
        // Beyond its end there is nothing, so one key leads back.
        state.scrolled_to(4);
        assert_eq!(press(&mut state, KeyCode::Up, &[7, 8]), Do::Draw);
        assert_eq!((state.look.help, state.look.part), (Some(3), 4));
        press(&mut state, KeyCode::Esc, &[7, 8]);
        assert!(state.look.help.is_none() && state.look.opened.is_some());
        press(&mut state, KeyCode::Esc, &[7, 8]);
        assert_eq!(state.look.opened, None);
        assert_eq!(press(&mut state, KeyCode::Char('q'), &[]), Do::Quit);
    }

    /// The code behind the name of a key.
    fn code(name: &str) -> KeyCode {
        match name {
            "up" => KeyCode::Up,
            "down" => KeyCode::Down,
            "left" => KeyCode::Left,
            "right" => KeyCode::Right,
            "Page Up" => KeyCode::PageUp,
            "Page Down" => KeyCode::PageDown,
            "Home" => KeyCode::Home,
            "End" => KeyCode::End,
            "Enter" => KeyCode::Enter,
            "Esc" => KeyCode::Esc,
            "space" => KeyCode::Char(' '),
            letter => KeyCode::Char(letter.chars().next().unwrap()),
        }
    }

    /// What the lists of keys say and what keys do is the same.
    #[test]
    fn each_key_of_the_lists_does_something_and_no_other() {
        let named =
            |bindings: &[Binding]| bindings.iter().flat_map(|one| one.keys).copied().collect::<Vec<_>>();
        let common = named(COMMON);
        let (controls, plain): (Vec<&str>, Vec<&str>) =
            common.iter().copied().partition(|name| name.starts_with("Ctrl-"));
        assert_eq!(controls, ["Ctrl-L", "Ctrl-Z"]);
        for own in [named(quarry_report::top::OWN), named(quarry_profile::live::OWN)] {
            for letter in ' '..='~' {
                let is_common = plain.iter().any(|name| code(name) == KeyCode::Char(letter)) || letter == 'q';
                let is_own = own.iter().any(|name| name.len() == 1 && code(name) == KeyCode::Char(letter));
                let done = press(&mut state(), KeyCode::Char(letter), &[7, 8]);
                assert_eq!(done != Do::Own, is_common, "{letter}");
                // A key of one view is none of all views.
                assert!(!is_own || !is_common || letter == 'q', "{letter}");
            }
        }
        for name in plain.iter().chain(&["Enter", "Esc"]) {
            assert_ne!(press(&mut state(), code(name), &[7, 8]), Do::Own, "{name}");
        }
        for (letter, done) in [('c', Do::Quit), ('l', Do::Redraw), ('z', Do::Stop)] {
            let key = KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL);
            assert_eq!(state().key(key, &[]), done);
        }
    }
}
