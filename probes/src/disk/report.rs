//! The run as JSON: the document `nginx-tune/diskrun/1`.

use serde_json::{Value, json};

use super::{Done, Outcome, Plan};
use crate::clock::{Nanos, seconds};
use crate::distribution::Distribution;

/// A read that takes more than this many times the median is an outlier.
const OUTLIER_FACTOR: u64 = 10;

/// The document of a run.
pub fn document(plan: &Plan, outcome: &Outcome) -> Value {
    json!({
        "schema": "nginx-tune/diskrun/1",
        "seed": plan.seed,
        "files": outcome.target.files(),
        "file_bytes": outcome.target.bytes(),
        "bytes": outcome.bytes,
        "device_bytes": outcome.device_bytes,
        "steps": outcome.steps.iter().map(of_step).collect::<Vec<_>>(),
        "flags": outcome.flags,
    })
}

fn of_step(done: &Done) -> Value {
    json!({
        "kind": done.step.kind.name(),
        "read_bytes": done.step.read_bytes,
        "depth": done.step.depth,
        "skipped": done.skipped.clone().unwrap_or_default(),
        "seconds": seconds(done.measured),
        "reads": done.tally.reads(),
        "reads_per_second": done.reads_per_second(),
        "bytes_per_second": done.bytes_per_second(),
        "interval_reads_per_second": done.rates(),
        "latency_seconds": done.tally.latency.document(),
        "outliers": outliers(&done.tally.latency),
        "errors": done.tally.errors,
        "unfinished": done.unfinished,
        "cpu_ratio": done.cpu_ratio,
    })
}

/// Reads that took more than ten times the median.
fn outliers(latency: &Distribution) -> u64 {
    let median: Option<Nanos> = latency.quantile(0.5);
    median.map_or(0, |median| latency.count_above(OUTLIER_FACTOR * median))
}
