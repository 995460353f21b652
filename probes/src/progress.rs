//! Progress reports: one JSON line per second on a separate descriptor.

use std::fs::File;
use std::io::Write as _;

use serde_json::{Map, Value, json};

use crate::class::Class;
use crate::clock::{Nanos, SECOND, seconds};
use crate::recorder::Second;
use crate::sys;

/// The longest line in bytes: up to this length, it is written whole or not at all (`PIPE_BUF`).
const LONGEST_LINE_BYTES: usize = 4096;

/// Writes progress reports, or nothing.
#[derive(Debug, Default)]
pub struct Progress {
    file: Option<File>,
    cpu_before: Nanos,
}

impl Progress {
    /// Reports to a file; with `None`, nothing is reported.
    pub fn new(file: Option<File>) -> Self {
        Self {
            file,
            cpu_before: 0,
        }
    }

    /// Reports the state of the classes. A slow reader misses lines; the run never waits.
    pub fn tell<'n>(
        &mut self,
        second: u64,
        names: impl Iterator<Item = &'n str>,
        told: &[Told],
        cpu: Nanos,
    ) {
        if self.file.is_none() {
            return;
        }
        let cpu_ratio = cpu.saturating_sub(self.cpu_before) as f64 / SECOND as f64;
        self.cpu_before = cpu;
        let line = |parts: Value| {
            json!({
                // Seconds since the start of the run, including the warm-up.
                "second": second,
                "cpu_seconds": seconds(cpu),
                "cpu_ratio": cpu_ratio,
                "classes": parts,
            })
        };
        let each: Map<_, _> = names
            .zip(told)
            .map(|(name, told)| (name.to_owned(), told.document()))
            .collect();
        if !self.write(&line(each.into())) {
            self.write(&line(json!({"all classes": of_all(told)})));
        }
    }

    /// Writes a line if that is possible at once; returns false if it is too long.
    pub fn write(&mut self, line: &Value) -> bool {
        let Some(file) = &mut self.file else {
            return true;
        };
        let mut text = line.to_string().into_bytes();
        text.push(b'\n');
        if text.len() > LONGEST_LINE_BYTES {
            return false;
        }
        if sys::would_take_a_write(file) && file.write_all(&text).is_err() {
            // The reader has closed the pipe.
            self.file = None;
        }
        true
    }
}

/// The last second of a class, and its requests in progress.
#[derive(Debug, Clone)]
pub struct Told {
    second: Second,
    in_flight: usize,
    pending: usize,
}

impl Told {
    /// The last second of a class, or of one thread's part of it.
    pub fn of(class: &Class<'_>) -> Self {
        Self {
            second: *class.recorder.series.last(),
            in_flight: class.in_flight,
            pending: class.pending.len(),
        }
    }

    /// Adds another thread's part. Quantiles of a second cannot be added; the larger one is
    /// reported.
    pub fn add(&mut self, other: &Self) {
        let (own, theirs) = (&mut self.second, &other.second);
        own.scheduled += theirs.scheduled;
        own.sent += theirs.sent;
        own.requests += theirs.requests;
        own.errors += theirs.errors;
        own.p50 = own.p50.max(theirs.p50);
        own.p99 = own.p99.max(theirs.p99);
        own.lateness_p99 = own.lateness_p99.max(theirs.lateness_p99);
        self.in_flight += other.in_flight;
        self.pending += other.pending;
    }

    fn document(&self) -> Value {
        let last = &self.second;
        json!({
            "scheduled": last.scheduled,
            "sent": last.sent,
            "requests": last.requests,
            "errors": last.errors,
            "in_flight": self.in_flight,
            "pending": self.pending,
            "p50": last.p50.map(seconds),
            "p99": last.p99.map(seconds),
            "lateness_p99": last.lateness_p99.map(seconds),
        })
    }
}

/// The sum of all classes, which is reported if a line with each class would be too long.
fn of_all(told: &[Told]) -> Value {
    let sum = |count: fn(&Told) -> u64| told.iter().map(count).sum::<u64>();
    json!({
        "scheduled": sum(|told| told.second.scheduled),
        "sent": sum(|told| told.second.sent),
        "requests": sum(|told| told.second.requests),
        "errors": sum(|told| told.second.errors),
        "in_flight": sum(|told| told.in_flight as u64),
        "pending": sum(|told| told.pending as u64),
    })
}
