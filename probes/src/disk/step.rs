//! A step: its threads and their common counts.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::buffer::Buffer;
use super::plan::{Kind, Step};
use super::tally::Tally;
use super::target::{Place, Places, Target};
use crate::chance::{Chance, Purpose};
use crate::clock::{Clock, MILLISECOND, Nanos, nanos, seconds};
use crate::sys;

/// The approximate length of the parts of the measured time, whose spread shows how steady the disk
/// is. A throttled disk works in slices of 100 ms (`throtl_slice` in block/blk-throttle.c), which
/// shorter parts would show.
const PART: Nanos = 100 * MILLISECOND;
const LEAST_PARTS: u64 = 4;
const MOST_PARTS: u64 = 1000;

/// The pause before a failed read is repeated.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(5);

/// The stack of a thread, which does not hold the buffers.
const STACK_BYTES: usize = 128 << 10;

/// The results of a step.
#[derive(Debug)]
pub struct Done {
    /// The step.
    pub step: Step,
    /// The reason why it was skipped, if it was.
    pub skipped: Option<String>,
    /// The measured time.
    pub measured: Nanos,
    /// The length of a part of the measured time.
    pub part: Nanos,
    /// The counts of all threads together.
    pub tally: Tally,
    /// Reads that had not ended when the run continued.
    pub unfinished: usize,
    /// CPU time of this process during the step, as a share of the time of its CPUs.
    pub cpu_ratio: f64,
}

impl Done {
    /// A step that was skipped.
    pub fn skipped(step: &Step, reason: String) -> Self {
        Self {
            step: step.clone(),
            skipped: Some(reason),
            measured: 0,
            part: 0,
            tally: Tally::new(0..0, 0),
            unfinished: 0,
            cpu_ratio: 0.0,
        }
    }

    /// Reads per second.
    pub fn reads_per_second(&self) -> f64 {
        per_second(self.tally.reads(), self.measured)
    }

    /// Bytes per second.
    pub fn bytes_per_second(&self) -> f64 {
        per_second(self.tally.bytes, self.measured)
    }

    /// Reads per second in each whole part of the measured time.
    pub fn rates(&self) -> Vec<f64> {
        let whole = self.measured.checked_div(self.part).unwrap_or(0) as usize;
        let parts = self.tally.parts.iter().take(whole);
        parts.map(|&reads| per_second(reads, self.part)).collect()
    }
}

fn per_second(count: u64, time: Nanos) -> f64 {
    if time == 0 {
        0.0
    } else {
        count as f64 / seconds(time)
    }
}

/// A step in progress.
#[derive(Debug)]
pub(super) struct Running {
    step: Step,
    cpu: Nanos,
    started: Nanos,
    window: Range<Nanos>,
    parts: usize,
    stopped: Nanos,
    shared: Arc<Shared>,
    tallies: Vec<Arc<Mutex<Tally>>>,
}

/// The state that the threads of a step share.
#[derive(Debug)]
struct Shared {
    target: Arc<Target>,
    places: Places,
    chance: Chance,
    kind: Kind,
    read_bytes: usize,
    ends: Nanos,
    clock: Clock,
    stop: AtomicBool,
    /// The number of reads started by all threads: the index of the next one.
    begun: AtomicU64,
    /// The number of bytes that may still be read.
    left: AtomicU64,
    /// The number of threads that have not ended.
    active: AtomicUsize,
}

impl Running {
    /// Starts a step; its time begins now. About `most_bytes` are read at most.
    pub(super) fn start(
        step: &Step,
        target: &Arc<Target>,
        seed: u64,
        clock: Clock,
        most_bytes: u64,
    ) -> io::Result<Self> {
        let name = format!("{} {} {}", step.kind.name(), step.read_bytes, step.depth);
        let started = clock.now();
        let begin = started + nanos(step.warmup_seconds);
        let window = begin..begin + nanos(step.seconds);
        let parts = ((window.end - window.start) / PART).clamp(LEAST_PARTS, MOST_PARTS) as usize;
        let shared = Arc::new(Shared {
            target: Arc::clone(target),
            places: target.places(step.read_bytes),
            chance: Chance::new(seed, &name, Purpose::Path),
            kind: step.kind,
            read_bytes: step.read_bytes as usize,
            ends: window.end,
            clock,
            stop: AtomicBool::new(false),
            begun: AtomicU64::new(0),
            left: AtomicU64::new(most_bytes),
            active: AtomicUsize::new(step.depth),
        });
        let mut running = Self {
            step: step.clone(),
            cpu: sys::cpu_time(),
            started,
            stopped: window.end,
            window,
            parts,
            shared,
            tallies: Vec::with_capacity(step.depth),
        };
        for _ in 0..step.depth {
            if let Err(error) = running.add_thread() {
                running.stop();
                return Err(error);
            }
        }
        Ok(running)
    }

    fn add_thread(&mut self) -> io::Result<()> {
        let tally = Tally::new(self.window.clone(), self.parts);
        let tally = Arc::new(Mutex::new(tally));
        let (shared, own) = (Arc::clone(&self.shared), Arc::clone(&tally));
        // Not joined: a read that never ends must not delay the result.
        thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn(move || {
                shared.read_on(&own);
                shared.active.fetch_sub(1, Ordering::Release);
            })?;
        self.tallies.push(tally);
        Ok(())
    }

    /// The end of the measured time.
    pub(super) fn ends(&self) -> Nanos {
        self.window.end
    }

    /// Whether all reads have ended and no more will start.
    pub(super) fn has_ended(&self) -> bool {
        self.shared.active.load(Ordering::Acquire) == 0
    }

    /// Prevents further reads.
    pub(super) fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.stopped = self.stopped.min(self.shared.clock.now());
    }

    /// The counts of the threads. Unfinished reads count with their age.
    pub(super) fn finish(mut self) -> Done {
        let now = self.shared.clock.now();
        if now < self.stopped {
            // The limit on bytes ended it.
            self.stop();
        }
        let mut sum = Tally::new(self.window.clone(), self.parts);
        let mut unfinished = 0;
        for tally in &self.tallies {
            let mut tally = lock(tally);
            unfinished += usize::from(tally.give_up(now));
            sum.add(&tally);
        }
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let cpu = seconds(sys::cpu_time().saturating_sub(self.cpu));
        Done {
            skipped: None,
            measured: self.stopped.saturating_sub(self.window.start),
            part: (self.window.end - self.window.start) / self.parts as u64,
            tally: sum,
            unfinished,
            cpu_ratio: cpu / cpus as f64 / seconds(now - self.started).max(1e-9),
            step: self.step,
        }
    }
}

impl Shared {
    /// Reads until the step is over; the body of a thread.
    fn read_on(&self, tally: &Mutex<Tally>) {
        let mut buffer = Buffer::new(self.read_bytes);
        while !self.stop.load(Ordering::Relaxed)
            && self.left.load(Ordering::Relaxed) > 0
            && self.clock.now() < self.ends
        {
            let place = self.next_place();
            let started = self.clock.now();
            lock(tally).under_way = Some(started);
            let read = self.target.read(place, buffer.first(self.read_bytes));
            let ended = self.clock.now();
            if let Ok(bytes) = read {
                lock(tally).read(started, ended, bytes as u64);
                self.take_from_the_rest(bytes as u64);
            } else {
                lock(tally).failed();
                thread::sleep(PAUSE_AFTER_ERROR);
            }
        }
    }

    fn next_place(&self) -> Place {
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        let count = self.places.count();
        self.places.place(match self.kind {
            Kind::Random => self.chance.below(number, count),
            Kind::Sequential => (self.chance.below(0, count) + number) % count,
        })
    }

    fn take_from_the_rest(&self, bytes: u64) {
        let less = |left: u64| Some(left.saturating_sub(bytes));
        let _ = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

/// Locks a tally. If a thread panicked while it held the lock, the tally is still consistent.
fn lock(tally: &Mutex<Tally>) -> std::sync::MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}
