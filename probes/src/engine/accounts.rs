//! The accounts of a run: the results so far, and the progress report of each second.

use std::collections::BTreeMap;

use super::Engine;
use super::outcome::Usage;
use crate::clock::{Nanos, SECOND};
use crate::progress::{Progress, Told};
use crate::recorder::first_second_end;
use crate::sys;

/// The accounts of all classes.
#[derive(Debug)]
pub(super) struct Accounts {
    progress: Progress,
    pub(super) next_second: Nanos,
    pub(super) requests_sent: u64,
    pub(super) body_bytes: u64,
    /// The resources used before the measured time, and at its end.
    pub(super) before: Option<Usage>,
    pub(super) after: Option<Usage>,
    /// The reason for the first failure of a connection, by a word for its kind.
    pub(super) faults: BTreeMap<&'static str, String>,
}

impl Accounts {
    pub(super) fn new(progress: Progress, window_start: Nanos) -> Self {
        Self {
            progress,
            next_second: first_second_end(window_start),
            requests_sent: 0,
            body_bytes: 0,
            before: None,
            after: None,
            faults: BTreeMap::new(),
        }
    }
}

impl Engine<'_> {
    /// Records the resources used at the start and the end of the measured time.
    pub(super) fn mark(&mut self, now: Nanos) {
        let accounts = &mut self.accounts;
        if accounts.before.is_none() && now >= self.plan.window().start {
            accounts.before = Some(Usage::now());
        }
        if accounts.after.is_none() && now >= self.ending.stop_at {
            accounts.after = Some(Usage::now());
        }
        if now < accounts.next_second {
            return;
        }
        for class in &mut self.classes {
            class.recorder.roll(now);
        }
        let second = accounts.next_second.div_ceil(SECOND);
        let told: Vec<_> = self.classes.iter().map(Told::of).collect();
        let all = match &self.side {
            None => Some(told),
            Some(side) => side.tell(told),
        };
        if let Some(all) = all {
            let names = self.classes.iter().map(|class| class.plan.name.as_str());
            let cpu = sys::cpu_time();
            accounts.progress.tell(second, names, &all, cpu);
        }
        let passed = (now - accounts.next_second) / SECOND + 1;
        accounts.next_second += SECOND * passed;
        self.watch_errors();
    }
}
