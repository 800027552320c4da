// SPDX-License-Identifier: MIT
//! What the user wants to see.

use std::time::Duration;

/// Which rows, and in which order.
#[derive(Debug, Clone)]
pub struct Order<C> {
    /// The column to sort by.
    pub sort: C,
    /// The smallest first.
    pub reverse: bool,
    /// Only rows that match this.
    pub filter: String,
}

/// What the user wants to see.
#[derive(Debug, Clone)]
pub struct Look<C> {
    /// Which rows.
    pub order: Order<C>,
    /// From one frame to the next.
    pub delay: Duration,
    /// No frame comes.
    pub paused: bool,
    /// The row under the cursor, ...
    pub selected: usize,
    /// ... and the first on the screen.
    pub first: usize,
    /// The row that is open.
    pub opened: Option<u32>,
    /// The first part on the screen of the row that is open.
    pub part: usize,
    /// The first line of the help, while that is shown.
    pub help: Option<usize>,
    /// The filter before it is typed, while it is.
    pub typing: Option<String>,
    /// What is to be said in the last line, until the next key.
    pub message: Option<String>,
    /// Rows that fit on the screen.
    pub page: usize,
}

impl<C> Look<C> {
    /// From the beginning.
    pub fn new(order: Order<C>, delay: Duration, opened: Option<u32>) -> Self {
        Self {
            order,
            delay,
            paused: false,
            selected: 0,
            first: 0,
            opened,
            part: 0,
            help: None,
            typing: None,
            message: None,
            page: 1,
        }
    }
}
