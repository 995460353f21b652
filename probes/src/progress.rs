//! One JSON line a second on a descriptor of its own, for whoever watches.

use std::fs::File;
use std::io::Write as _;

use serde_json::{Map, Value, json};

use crate::class::Class;
use crate::clock::{Nanos, seconds};
use crate::sys;

/// A line of at most this many bytes is written whole or not at all (`PIPE_BUF`).
const LONGEST_LINE_BYTES: usize = 4096;

/// Writes progress, or nothing.
#[derive(Debug, Default)]
pub struct Progress {
    file: Option<File>,
}

impl Progress {
    /// Progress into a file; none is silence.
    pub fn new(file: Option<File>) -> Self {
        Self { file }
    }

    /// Tells how the classes stand. A reader who is slow misses lines; the run never waits.
    pub fn tell(&mut self, second: u64, classes: &[Class<'_>], cpu: Nanos) {
        if self.file.is_none() {
            return;
        }
        let classes: Map<_, _> = classes
            .iter()
            .map(|class| (class.plan.name.clone(), of_class(class)))
            .collect();
        self.write(&json!({
            // Since the start of the run, warm-up included.
            "second": second,
            "cpu_seconds": seconds(cpu),
            "classes": classes,
        }));
    }

    /// Writes one line, if it can be written at once.
    pub fn write(&mut self, line: &Value) {
        let Some(file) = &mut self.file else { return };
        let mut text = line.to_string().into_bytes();
        text.push(b'\n');
        let fits = text.len() <= LONGEST_LINE_BYTES && sys::would_take_a_write(file);
        if fits && file.write_all(&text).is_err() {
            // The reader is gone.
            self.file = None;
        }
    }
}

/// A class's good and failed responses of the last second, and what is under way.
fn of_class(class: &Class<'_>) -> Value {
    let (requests, errors) = class.this_second;
    json!({
        "requests": requests,
        "errors": errors,
        "in_flight": class.in_flight,
        "pending": class.pending.len(),
    })
}
