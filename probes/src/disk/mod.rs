//! The disk probe: random reads of files at increasing depths, bypassing the page cache.
//!
//! A plan names files (or block devices) and steps. A step of depth n has n threads, each with one
//! `pread` in progress at random offsets over all files. A sequential step has one thread that
//! reads from the beginning to the end. The files are opened with `O_DIRECT`, so that the disk
//! answers and not memory, and read-only, so that nothing can change. The data are discarded.
//!
//! Reads of the warm-up are not counted. A rate counts the reads that end inside the measured time.
//! A latency distribution has the reads that start inside it, however late they end. If the disk is
//! so slow that each read of a deeper step would take too long, that step is skipped: a read in
//! progress cannot be cancelled, and the probe must be able to stop quickly.

mod buffer;
mod plan;
mod report;
mod step;
mod tally;
mod target;

use std::fs::{self, File};
use std::io::Read as _;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::clock::{Clock, MILLISECOND, Nanos, SECOND, nanos, seconds};
use crate::error::Error;
use crate::progress::Progress;
use crate::sys::{self, Poller, READABLE};

pub use self::plan::{Kind, Plan, Step};
pub use self::report::document;
pub use self::step::Done;
use self::step::Running;
pub use self::target::Target;

/// The longest wait for pending reads after the end of a step.
const PATIENCE: Nanos = 10 * SECOND;

/// The longest wait for pending reads after a signal.
const PATIENCE_INTERRUPTED: Nanos = 600 * MILLISECOND;

/// The longest time between two checks of the threads.
const LONGEST_NAP: Nanos = 50 * MILLISECOND;

/// The same, while waiting for the last reads.
const END_NAP: Nanos = MILLISECOND;

/// The size of a `signalfd_siginfo`.
const SIGNAL_BYTES: usize = 128;

/// The results of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The files that could be read.
    pub target: Arc<Target>,
    /// The steps, run or skipped, in the plan's order.
    pub steps: Vec<Done>,
    /// The number of bytes read.
    pub bytes: u64,
    /// Bytes that the kernel read from devices for this process; `None` if it does not report them.
    pub device_bytes: Option<u64>,
    /// The reasons why the result is degraded.
    pub flags: Vec<String>,
    /// True if a signal ended the run.
    pub interrupted: bool,
}

/// Runs a plan.
///
/// # Errors
/// `Error::Unreadable` if no file can be read past the page cache, `Error::System` if a system call
/// that the run needs fails.
pub fn run(plan: &Plan, progress: &mut Progress) -> Result<Outcome, Error> {
    let signals = sys::catch_signals().map_err(|error| Error::System("signals", error))?;
    let poller = Poller::new(true).map_err(|error| Error::System("epoll", error))?;
    let watched = poller.add(&signals, 0, READABLE);
    watched.map_err(|error| Error::System("epoll", error))?;
    let target = Arc::new(Target::open(plan)?);
    let clock = Clock::start();
    let mut run = Run {
        plan,
        clock,
        signals,
        poller,
        steps: Vec::new(),
        bytes: 0,
        interrupted: false,
    };
    let fetched = fetched_bytes();
    for step in &plan.steps {
        let done = match run.reason_to_skip(step) {
            Some(reason) => Done::skipped(step, reason),
            None => run.take(step, &target)?,
        };
        run.bytes += done.tally.all_bytes;
        progress.write(&progress_line(run.steps.len() + 1, plan.steps.len(), &done));
        run.steps.push(done);
        if run.is_over() {
            break;
        }
    }
    let mut flags = target.flags();
    flags.extend(run.flags());
    Ok(Outcome {
        device_bytes: fetched_bytes().zip(fetched).map(|(now, then)| now - then),
        target,
        steps: run.steps,
        bytes: run.bytes,
        flags,
        interrupted: run.interrupted,
    })
}

/// A run in progress.
struct Run<'a> {
    plan: &'a Plan,
    clock: Clock,
    signals: File,
    poller: Poller,
    steps: Vec<Done>,
    bytes: u64,
    interrupted: bool,
}

impl Run<'_> {
    /// The reason to skip a step whose reads would each take too long.
    fn reason_to_skip(&self, step: &Step) -> Option<String> {
        let is_alike = |done: &&Done| {
            let alike = done.step.kind == step.kind && done.step.read_bytes == step.read_bytes;
            alike && done.skipped.is_none()
        };
        let before = self.steps.iter().rev().find(is_alike)?;
        let wait_seconds = step.depth as f64 / before.reads_per_second();
        let too_long = wait_seconds > self.plan.most_wait_seconds;
        (step.depth > before.step.depth && too_long).then(|| {
            format!(
                "each read would wait about {} s",
                if wait_seconds < 60.0 {
                    format!("{wait_seconds:.1}")
                } else {
                    "60 or more".into()
                }
            )
        })
    }

    /// Runs a step.
    fn take(&mut self, step: &Step, target: &Arc<Target>) -> Result<Done, Error> {
        let left = self.plan.caps.bytes - self.bytes.min(self.plan.caps.bytes);
        let mut running = Running::start(step, target, self.plan.seed, self.clock, left)
            .map_err(|error| Error::System("starting a thread", error))?;
        let ends = running.ends().min(nanos(self.plan.caps.seconds));
        let mut deadline = ends + PATIENCE;
        while !running.has_ended() && self.clock.now() < deadline {
            let now = self.clock.now();
            if now >= ends {
                running.stop();
            }
            let rest = if now < ends { ends - now } else { END_NAP };
            if self.is_signalled(rest.min(deadline - now).min(LONGEST_NAP))? {
                self.interrupted = true;
                running.stop();
                deadline = deadline.min(self.clock.now() + PATIENCE_INTERRUPTED);
            }
        }
        Ok(running.finish())
    }

    /// Waits for a signal for at most `nap`.
    fn is_signalled(&mut self, nap: Nanos) -> Result<bool, Error> {
        let events = self.poller.wait(nap);
        let events = events.map_err(|error| Error::System("epoll", error))?;
        let signalled = (0..events).any(|number| self.poller.event(number).is_some());
        if signalled {
            let mut signal = [0; SIGNAL_BYTES];
            // Its kind does not matter; it is read so that it does not wake the poller again.
            let _ = self.signals.read(&mut signal);
        }
        Ok(signalled)
    }

    fn is_over(&self) -> bool {
        self.interrupted || self.is_stuck() || self.is_at_a_cap()
    }

    fn is_stuck(&self) -> bool {
        self.steps.last().is_some_and(|done| done.unfinished > 0)
    }

    fn is_at_a_cap(&self) -> bool {
        self.bytes >= self.plan.caps.bytes || self.clock.now() >= nanos(self.plan.caps.seconds)
    }

    /// Whether the last step was cut short.
    fn is_cut(&self) -> bool {
        let cut = |done: &Done| done.skipped.is_none() && done.measured < nanos(done.step.seconds);
        self.steps.last().is_some_and(cut)
    }

    /// The reason why the run ended early.
    fn flags(&self) -> Option<String> {
        let caps = &self.plan.caps;
        if self.interrupted {
            Some("interrupted".into())
        } else if self.is_stuck() {
            let reads = self.steps.last().map_or(0, |done| done.unfinished);
            let patience = seconds(PATIENCE);
            Some(format!(
                "stalled: {reads} reads did not come back within {patience} s"
            ))
        } else if self.bytes >= caps.bytes {
            Some(format!("stopped: the cap of {} bytes", caps.bytes))
        } else if self.steps.len() < self.plan.steps.len() || self.is_cut() {
            Some(format!("stopped: the cap of {} s", caps.seconds))
        } else {
            None
        }
    }
}

fn progress_line(number: usize, steps: usize, done: &Done) -> Value {
    json!({
        "step": number,
        "steps": steps,
        "kind": done.step.kind.name(),
        "read_bytes": done.step.read_bytes,
        "depth": done.step.depth,
        "reads_per_second": done.reads_per_second(),
        "bytes_per_second": done.bytes_per_second(),
        "skipped": done.skipped,
    })
}

/// Bytes that block devices delivered to this process.
///
/// Source: `proc_pid_io(5)`, `read_bytes`; `submit_bio()` in block/blk-core.c counts them.
fn fetched_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/io").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("read_bytes:"))?;
    line.trim().parse().ok()
}
