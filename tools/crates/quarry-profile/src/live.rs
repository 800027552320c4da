// SPDX-License-Identifier: MIT
//! A profile of what goes on: what `quarry profile --live` shows.
//!
//! [`Ongoing`] takes events as they come, and says at any time what there is: [`Seen`], with a [`Site`] for each group. A [`Frame`] becomes
//! text or JSON (quarry-profile-live/1), and [`draw`] fills a screen with a [`Picture`].

mod column;
mod draw;
mod frame;
mod ongoing;
mod past;
mod sampled;
mod site;

pub use column::Column;
pub use draw::{OWN, Picture, draw};
pub use frame::{Frame, SCHEMA};
pub use ongoing::{Ongoing, Seen};
pub use sampled::Sampled;
pub use site::{Change, Site, sort};
