// SPDX-License-Identifier: MIT
//! Looks at the open process in a thread of its own, so that very many mappings hold up neither a frame nor a key.

use std::io;
use std::panic;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use quarry_proc::sum::By;
use quarry_proc::{ProcError, Root};
use quarry_report::top::Opened;

use super::opened::Opener;
use crate::view::SHARE;

/// What a look has found.
pub struct Found {
    /// When it was asked for, since the same beginning as frames.
    pub at: Duration,
    /// What it took.
    pub took: Duration,
    pub by: By,
    pub opened: Result<Opened, ProcError>,
}

/// One process, looked at by request. The thread ends with it, after the look it is at.
pub struct Looker {
    pid: u32,
    ask: Sender<(Duration, By)>,
    answers: Receiver<Found>,
    thread: Option<JoinHandle<()>>,
    /// How the look under way puts mappings together.
    pending: Option<By>,
    /// The last look did it like that, and the next one may begin then.
    last: Option<(By, Instant)>,
}

impl Looker {
    pub fn new(root: Root, pid: u32) -> io::Result<Self> {
        let (ask, asked) = channel::<(Duration, By)>();
        let (answer, answers) = channel();
        let work = move || {
            let mut opener = Opener::new(root, pid);
            for (at, by) in asked {
                let start = Instant::now();
                let opened = opener.look(at, by);
                if answer.send(Found { at, took: start.elapsed(), by, opened }).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("look".into()).spawn(work)?;
        Ok(Self { pid, ask, answers, thread: Some(thread), pending: None, last: None })
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Is a look under way?
    pub fn is_busy(&self) -> bool {
        self.pending.is_some()
    }

    /// Look again, unless a look is under way, or the last one took so much that the next one has to wait; `urgent`: not for
    /// that. What is found within `patience` is returned.
    pub fn look(&mut self, now: Duration, by: By, urgent: bool, patience: Duration) -> Option<Found> {
        let may = self.last.is_none_or(|(last, rest)| last != by || urgent || Instant::now() >= rest);
        if self.pending.is_none() && may {
            self.ask(now, by);
        }
        let found = self.found(now, by, patience)?;
        // What was under way was asked for before the grouping was changed.
        if found.by != by { self.found(now, by, patience).or(Some(found)) } else { Some(found) }
    }

    /// What has been found meanwhile; if that was put together in another way than is wanted by now, another look begins.
    pub fn found(&mut self, now: Duration, by: By, patience: Duration) -> Option<Found> {
        self.pending?;
        let found = match self.answers.recv_timeout(patience) {
            Ok(found) => found,
            Err(RecvTimeoutError::Timeout) => return None,
            Err(RecvTimeoutError::Disconnected) => {
                // A fault there is one here: the hook has given the terminal back, and there is nothing to go on with.
                if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
                    panic::resume_unwind(panic);
                }
                self.pending = None;
                return None;
            }
        };
        self.pending = None;
        self.last = Some((found.by, Instant::now() + found.took * SHARE));
        if found.by != by {
            self.ask(now, by);
        }
        Some(found)
    }

    fn ask(&mut self, now: Duration, by: By) {
        self.pending = self.ask.send((now, by)).is_ok().then_some(by);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVER: Duration = Duration::MAX;

    fn ourselves() -> Looker {
        Looker::new(Root::live(), std::process::id()).unwrap()
    }

    #[test]
    fn who_waits_gets_what_was_asked_for() {
        let mut looker = ourselves();
        for (by, at) in [(By::Kind, 1), (By::Object, 2), (By::Kind, 3)] {
            let found = looker.look(Duration::from_secs(at), by, true, EVER).unwrap();
            assert_eq!((found.by, found.at), (by, Duration::from_secs(at)));
            assert!(found.opened.unwrap().parts.len() > 3 && !looker.is_busy());
        }
    }

    #[test]
    fn dear_looks_are_rare() {
        let mut looker = ourselves();
        looker.look(Duration::ZERO, By::Kind, false, EVER).unwrap();
        looker.last = Some((By::Kind, Instant::now() + Duration::from_secs(1000)));
        assert!(looker.look(Duration::ZERO, By::Kind, false, EVER).is_none() && !looker.is_busy());
        // Another grouping does not wait, nor a process that seems to be gone.
        assert_eq!(looker.look(Duration::ZERO, By::Object, false, EVER).unwrap().by, By::Object);
        looker.last = Some((By::Object, Instant::now() + Duration::from_secs(1000)));
        assert!(looker.look(Duration::ZERO, By::Object, true, EVER).is_some());
    }

    #[test]
    fn a_grouping_that_is_not_wanted_any_more_is_followed_by_the_one_that_is() {
        let mut looker = ourselves();
        looker.ask(Duration::ZERO, By::Kind);
        assert_eq!(looker.look(Duration::ZERO, By::Object, false, EVER).unwrap().by, By::Object);
        looker.ask(Duration::ZERO, By::Kind);
        assert_eq!(looker.found(Duration::ZERO, By::Quadrant, EVER).unwrap().by, By::Kind);
        assert!(looker.is_busy());
        assert_eq!(looker.found(Duration::ZERO, By::Quadrant, EVER).unwrap().by, By::Quadrant);
        assert!(!looker.is_busy() && looker.found(Duration::ZERO, By::Quadrant, EVER).is_none());
    }
}
