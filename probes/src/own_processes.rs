//! Which processes on this host the command that started this one started too.
//!
//! A lab gives all that it starts a mark in the environment: the user, the process and the start of the
//! command that made it (`nginx_tune/nginx/lab/keeper.py`). A mark is a claim, and anybody can write one into
//! the environment of a server of their own. So it is this process's own mark that is asked for, and the
//! kernel has to confirm it: the command runs, as this user, above this process; or, where it cannot be
//! seen from inside the walls that it made, the first process of their namespace has the same mark.
//! What counts as ours descends from that process. nginx overwrites its environment with its title
//! (`ngx_setproctitle.c`), so the mark may be an ancestor's.

use std::collections::HashSet;
use std::fs;
use std::iter;
use std::process;

/// Set for every process that a lab starts (`nginx_tune/host/lab_mark.py`).
const VARIABLE: &str = "NGINX_TUNE_LAB";

/// The initial namespace has this number on every kernel (`PROC_PID_INIT_INO`).
const INITIAL_NAMESPACE: &str = "pid:[4026531836]";

/// The first process of a namespace.
const FIRST: u32 = 1;

/// What the command started that started this process.
#[derive(Debug)]
pub struct OwnProcesses {
    mark: Vec<u8>,
    user: u32,
    /// Ours descend from it.
    root: u32,
}

impl OwnProcesses {
    /// None where this process has no mark, or one that the kernel does not confirm.
    pub fn find() -> Option<Self> {
        let value = std::env::var(VARIABLE).ok()?;
        let claim = Claim::read(&value)?;
        let mark = format!("{VARIABLE}={value}").into_bytes();
        let user = Status::of(process::id())?.user;
        let above: HashSet<u32> = lineage(process::id()).collect();
        let is_above = |pid| above.contains(&pid) && is_of(pid, user);
        let is_command = is_above(claim.pid) && started(claim.pid) == Some(claim.started);
        let is_walled = || is_above(FIRST) && has(FIRST, &mark) && !is_initial_namespace();
        let root = if is_command {
            claim.pid
        } else if is_walled() {
            FIRST
        } else {
            return None;
        };
        (claim.user == user).then_some(Self { mark, user, root })
    }

    /// Of whom sockets of ours are.
    pub fn user(&self) -> u32 {
        self.user
    }

    /// Whether a process, or one above it, has the mark, and the command started that one.
    pub fn contains(&self, pid: u32) -> bool {
        let mut is_marked = false;
        for one in lineage(pid) {
            // The command need not have the mark that it gives.
            is_marked |= has(one, &self.mark) && is_of(one, self.user);
            if one == self.root {
                return is_marked;
            }
        }
        false
    }
}

/// What a mark says of the command that made it.
#[derive(Debug, PartialEq, Eq)]
struct Claim {
    user: u32,
    pid: u32,
    started: u64,
}

impl Claim {
    /// `USER-PROCESS-START-NUMBER`.
    fn read(text: &str) -> Option<Self> {
        let parts: Vec<_> = text.split('-').collect();
        let [user, pid, started, _] = parts[..] else {
            return None;
        };
        Some(Self {
            user: user.parse().ok()?,
            pid: pid.parse().ok()?,
            started: started.parse().ok()?,
        })
    }
}

/// What the kernel says of a process.
#[derive(Debug, PartialEq, Eq)]
struct Status {
    parent: u32,
    /// The effective one.
    user: u32,
}

impl Status {
    fn of(pid: u32) -> Option<Self> {
        Self::read(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
    }

    /// Source: `proc_pid_status(5)`.
    fn read(text: &str) -> Option<Self> {
        let field = |name: &str, at: usize| {
            let mut lines = text.lines();
            let words = lines.find_map(|line| line.strip_prefix(name))?;
            words.split_whitespace().nth(at)?.parse().ok()
        };
        Some(Self {
            parent: field("PPid:", 0)?,
            user: field("Uid:", 1)?,
        })
    }
}

fn is_of(pid: u32, user: u32) -> bool {
    Status::of(pid).is_some_and(|status| status.user == user)
}

/// A process, its parent, and so on up to the first of its namespace.
fn lineage(pid: u32) -> impl Iterator<Item = u32> {
    let mut seen = HashSet::new();
    iter::successors(Some(pid), |&pid| Some(Status::of(pid)?.parent))
        .take_while(move |&pid| pid > 0 && seen.insert(pid))
}

fn has(pid: u32, mark: &[u8]) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|&byte| byte == 0).any(|it| it == mark)
}

fn is_initial_namespace() -> bool {
    // Where it cannot be told nothing is ours.
    fs::read_link("/proc/self/ns/pid").map_or(true, |name| name.as_os_str() == INITIAL_NAMESPACE)
}

/// When a process started, in ticks since the boot.
fn started(pid: u32) -> Option<u64> {
    start_in(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// `proc_pid_stat(5)`: the name may hold anything, so what counts stands behind its last bracket.
fn start_in(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{Claim, OwnProcesses, Status, lineage, start_in, started};
    use std::os::unix::process::parent_id;
    use std::process;

    #[test]
    fn a_mark_names_user_process_and_start() {
        let claim = Claim {
            user: 0,
            pid: 12,
            started: 345,
        };
        assert_eq!(Claim::read("0-12-345-ab"), Some(claim));
        for other in [
            "",
            "test",
            "12-ab",
            "0-12-345",
            "0-x-345-ab",
            "0--12-345",
            "0-1-2-3-4",
        ] {
            assert_eq!(Claim::read(other), None, "{other}");
        }
    }

    #[test]
    fn parent_and_effective_user_are_read() {
        let text = "Name:\ta\\nPPid:\t9\nPPid:\t5\nUid:\t7\t0\t7\t7\nGid:\t1\t1\t1\t1\n";
        assert_eq!(Status::read(text), Some(Status { parent: 5, user: 0 }));
        assert_eq!(Status::read("Name:\tx\nUid:\t1\t1\t1\t1\n"), None);
    }

    #[test]
    fn the_start_stands_behind_the_name() {
        let numbers: Vec<_> = (4..=25).map(|number| number.to_string()).collect();
        let stat = format!("7 (a) S 9) R {}", numbers.join(" "));
        assert_eq!(start_in(&stat), Some(22));
        assert_eq!(start_in("junk"), None);
    }

    #[test]
    fn this_process_descends_from_its_parent() {
        assert_eq!(
            lineage(process::id()).take(2).collect::<Vec<_>>(),
            [process::id(), parent_id()]
        );
        assert!(started(parent_id()) <= started(process::id()));
    }

    #[test]
    fn only_marked_descendants_of_the_command_are_ours() {
        // As if this process's parent were the command. cargo gives no mark.
        let user = Status::of(process::id()).unwrap().user;
        let ours = |mark: &str, root| OwnProcesses {
            mark: mark.into(),
            user,
            root,
        };
        let mut child = process::Command::new("sleep")
            .arg("60")
            .env("A_MARK", "1")
            .spawn()
            .unwrap();
        let pid = child.id();
        // It is a copy of this process until it runs its program.
        while !super::has(pid, b"A_MARK=1") {
            std::thread::yield_now();
        }
        assert!(ours("A_MARK=1", parent_id()).contains(pid));
        assert!(!ours("A_MARK=1", parent_id()).contains(process::id()));
        assert!(!ours("A_MARK=11", parent_id()).contains(pid));
        assert!(!ours("A_MARK=", parent_id()).contains(pid));
        // Its own parent is no other's child.
        let mut other = process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(!ours("A_MARK=1", other.id()).contains(pid));
        let user = user + 1;
        let theirs = OwnProcesses {
            user,
            ..ours("A_MARK=1", parent_id())
        };
        assert!(!theirs.contains(pid));
        for one in [&mut child, &mut other] {
            one.kill().unwrap();
            one.wait().unwrap();
        }
    }
}
