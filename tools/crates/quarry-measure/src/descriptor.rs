// SPDX-License-Identifier: MIT
//! Descriptors that were handed to us by number, as `/dev/fd/5` names one.

use std::io;
use std::os::fd::OwnedFd;

use crate::sys;

/// One more descriptor of what is open under this number.
pub fn duplicate(number: i32) -> io::Result<OwnedFd> {
    sys::duplicate(number)
}
