// SPDX-License-Identifier: MIT
//! Why the kernel does not let this process read another one's memory, and what to do about it.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::maker::proc;
use crate::sys;

/// What is known of both.
struct Case {
    /// The user that we act as.
    ours: u32,
    /// The user that the process runs as, ...
    its: Option<u32>,
    /// ... and the owner of its files in /proc: root where it may not be dumped.
    owner: Option<u32>,
    /// kernel.yama.ptrace_scope; 0 where the kernel has no such thing.
    scope: u32,
}

/// What to do, in words that go on after a colon.
pub fn advice(pid: i32) -> String {
    let status = fs::read_to_string(proc(pid, "status")).unwrap_or_default();
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok();
    let case = Case {
        ours: sys::user(),
        its: uids.and_then(|uids| uids.split_whitespace().nth(1)?.parse().ok()),
        owner: fs::metadata(proc(pid, "stat")).ok().map(|file| file.uid()),
        scope: scope.and_then(|scope| scope.trim().parse().ok()).unwrap_or(0),
    };
    case.advice()
}

impl Case {
    fn advice(&self) -> String {
        const AT_THE_END: &str =
            "or start it with `quarry run --stats -- CMD`, which reports at its end and needs no right";
        let user = self.its.filter(|&its| its != self.ours);
        match (self.ours, self.scope) {
            (_, 3..) => {
                format!(
                    "kernel.yama.ptrace_scope is 3, so nobody may until the machine is started anew; {AT_THE_END}"
                )
            }
            (0, _) => String::from(
                "this root lacks CAP_SYS_PTRACE; give it that (a container: --cap-add SYS_PTRACE), or run quarry outside",
            ),
            _ if user.is_some() => {
                format!("it is of user {}; run quarry as that user, or as root", user.unwrap_or(0))
            }
            _ if self.owner.is_some_and(|owner| owner != self.ours) => format!(
                "it has changed its user, or forbids it (prctl PR_SET_DUMPABLE); run quarry as root, {AT_THE_END}"
            ),
            (_, 2) => {
                format!("kernel.yama.ptrace_scope is 2, so only root may; run quarry as root, {AT_THE_END}")
            }
            (_, 1) => format!(
                "kernel.yama.ptrace_scope is 1, so only root and its ancestors may; run quarry as root, or allow it with \
                 `sysctl kernel.yama.ptrace_scope=0`, {AT_THE_END}"
            ),
            _ => format!("it has rights that this user has not; run quarry as root, {AT_THE_END}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_has_its_own_way_out() {
        let of = |ours, its, owner, scope| Case { ours, its: Some(its), owner: Some(owner), scope }.advice();
        for (advice, words) in [
            (of(1000, 1000, 1000, 1), "sysctl kernel.yama.ptrace_scope=0"),
            (of(1000, 1000, 1000, 2), "ptrace_scope is 2"),
            (of(1000, 1000, 1000, 3), "started anew"),
            (of(0, 0, 0, 3), "started anew"),
            (of(0, 1000, 1000, 1), "CAP_SYS_PTRACE"),
            (of(1000, 1001, 1001, 1), "it is of user 1001"),
            (of(1000, 1000, 0, 0), "PR_SET_DUMPABLE"),
            (of(1000, 1000, 1000, 0), "rights that this user has not"),
        ] {
            assert!(advice.contains(words), "{words:?} is not in {advice:?}");
        }
        assert!(advice(std::process::id().try_into().unwrap()).len() > 20);
    }
}
