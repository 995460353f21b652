//! One JSON line a second on a descriptor of its own, for whoever watches.

use std::fs::File;
use std::io::Write as _;

use serde_json::{Map, Value, json};

use crate::class::Class;
use crate::clock::{Nanos, SECOND, seconds};
use crate::sys;

/// A line of at most this many bytes is written whole or not at all (`PIPE_BUF`).
const LONGEST_LINE_BYTES: usize = 4096;

/// Writes progress, or nothing.
#[derive(Debug, Default)]
pub struct Progress {
    file: Option<File>,
    cpu_before: Nanos,
}

impl Progress {
    /// Progress into a file; none is silence.
    pub fn new(file: Option<File>) -> Self {
        Self {
            file,
            cpu_before: 0,
        }
    }

    /// Tells how the classes stand. A reader who is slow misses lines; the run never waits.
    pub fn tell(&mut self, second: u64, classes: &[Class<'_>], cpu: Nanos) {
        if self.file.is_none() {
            return;
        }
        let cpu_ratio = cpu.saturating_sub(self.cpu_before) as f64 / SECOND as f64;
        self.cpu_before = cpu;
        let line = |parts: Value| {
            json!({
                // Since the start of the run, warm-up included.
                "second": second,
                "cpu_seconds": seconds(cpu),
                "cpu_ratio": cpu_ratio,
                "classes": parts,
            })
        };
        let each: Map<_, _> = classes
            .iter()
            .map(|class| (class.plan.name.clone(), of_class(class)))
            .collect();
        if !self.write(&line(each.into())) {
            self.write(&line(json!({"all classes": of_all(classes)})));
        }
    }

    /// Writes one line, if it can be written at once; false when it is too long.
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
            // The reader is gone.
            self.file = None;
        }
        true
    }
}

/// A class's last second, and what is under way.
fn of_class(class: &Class<'_>) -> Value {
    let last = class.recorder.series.last();
    json!({
        "scheduled": last.scheduled,
        "sent": last.sent,
        "requests": last.requests,
        "errors": last.errors,
        "in_flight": class.in_flight,
        "pending": class.pending.len(),
        "p50": last.p50.map(seconds),
        "p99": last.p99.map(seconds),
        "lateness_p99": last.lateness_p99.map(seconds),
    })
}

/// All classes together: what is said where a line of each would be too long.
fn of_all(classes: &[Class<'_>]) -> Value {
    let sum = |count: fn(&Class<'_>) -> u64| classes.iter().map(count).sum::<u64>();
    json!({
        "scheduled": sum(|class| class.recorder.series.last().scheduled),
        "sent": sum(|class| class.recorder.series.last().sent),
        "requests": sum(|class| class.recorder.series.last().requests),
        "errors": sum(|class| class.recorder.series.last().errors),
        "in_flight": sum(|class| class.in_flight as u64),
        "pending": sum(|class| class.pending.len() as u64),
    })
}
