//! The disk plan: the files, the kinds of reads, and the limits of the run.

use serde_json::Value;

use crate::error::Error;
use crate::fields::{Fields, Read};

/// The schema that a plan must name.
pub(super) const SCHEMA: &str = "nginx-tune/diskplan/1";

/// Offsets and lengths of reads are multiples of this, as `O_DIRECT` requires on any disk with
/// sectors of 512 or 4096 bytes.
pub(super) const ALIGNMENT_BYTES: u64 = 4096;

const LARGEST_READ_BYTES: u64 = 16 << 20;
const DEEPEST: usize = 1024;
const LONGEST_SECONDS: f64 = 3600.0;
const MOST_PATHS: usize = 1 << 16;
const MOST_STEPS: usize = 1 << 10;

/// A disk measurement.
#[derive(Debug)]
pub struct Plan {
    /// Regular files or block devices.
    pub paths: Vec<String>,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// The seed of the offsets.
    pub seed: u64,
    /// The time limit for opening the files; those opened within it are read.
    pub open_seconds: f64,
    /// A deeper step is skipped if a read would take longer than this.
    pub most_wait_seconds: f64,
    /// The limits of the run.
    pub caps: Caps,
}

/// Reads of one kind at one depth.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The order of the offsets.
    pub kind: Kind,
    /// The size of a read in bytes.
    pub read_bytes: u64,
    /// Concurrent reads.
    pub depth: usize,
    /// Reads that start before this are not counted.
    pub warmup_seconds: f64,
    /// Measured time after the warm-up.
    pub seconds: f64,
}

/// The order of the offsets of reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Random offsets over all files.
    Random,
    /// Each read after the last one, beginning with the largest file.
    Sequential,
}

impl Kind {
    /// The name in plans and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Sequential => "sequential",
        }
    }
}

/// The limits of a run.
#[derive(Debug)]
pub struct Caps {
    /// The time of all steps together.
    pub seconds: f64,
    /// Bytes read; reads in progress at the limit may exceed it.
    pub bytes: u64,
}

impl Default for Caps {
    fn default() -> Self {
        Self {
            seconds: 60.0,
            bytes: 64 << 30,
        }
    }
}

impl Plan {
    /// The plan in a JSON text.
    ///
    /// # Errors
    /// `Error::Plan` that names the wrong part.
    pub fn parse(json: &[u8]) -> Result<Self, Error> {
        let value = serde_json::from_slice(json)
            .map_err(|error| Error::Plan(format!("not a disk plan: {error}")))?;
        let plan = Self::read(value, "")?;
        plan.check()?;
        Ok(plan)
    }

    fn check(&self) -> Result<(), Error> {
        require((1..=MOST_PATHS).contains(&self.paths.len()), || {
            format!("a plan needs 1 to {MOST_PATHS} paths")
        })?;
        require((1..=MOST_STEPS).contains(&self.steps.len()), || {
            format!("a plan needs 1 to {MOST_STEPS} steps")
        })?;
        for (name, value) in [
            ("open_seconds", self.open_seconds),
            ("most_wait_seconds", self.most_wait_seconds),
            ("caps.seconds", self.caps.seconds),
        ] {
            require(value > 0.0 && value <= LONGEST_SECONDS, || {
                format!("{name} must be above 0 and at most {LONGEST_SECONDS}")
            })?;
        }
        for (number, step) in self.steps.iter().enumerate() {
            step.check()
                .map_err(|message| Error::Plan(format!("steps[{number}]: {message}")))?;
        }
        let total: f64 = self
            .steps
            .iter()
            .map(|s| s.warmup_seconds + s.seconds)
            .sum();
        require(total <= self.caps.seconds, || {
            format!(
                "the steps take {total:.1} s, above the cap of {} s",
                self.caps.seconds
            )
        })
    }
}

impl Step {
    fn check(&self) -> Result<(), String> {
        let ensure = |good: bool, message: String| if good { Ok(()) } else { Err(message) };
        ensure(
            self.read_bytes % ALIGNMENT_BYTES == 0
                && (1..=LARGEST_READ_BYTES).contains(&self.read_bytes),
            format!(
                "read_bytes must be a multiple of {ALIGNMENT_BYTES} up to {LARGEST_READ_BYTES}"
            ),
        )?;
        ensure(
            (1..=DEEPEST).contains(&self.depth),
            format!("depth must lie between 1 and {DEEPEST}"),
        )?;
        ensure(
            self.kind == Kind::Random || self.depth == 1,
            "a sequential step has depth 1".into(),
        )?;
        ensure(
            self.seconds > 0.0 && self.seconds <= LONGEST_SECONDS,
            "seconds must be above 0".into(),
        )?;
        ensure(
            (0.0..=LONGEST_SECONDS).contains(&self.warmup_seconds),
            "warmup_seconds must be 0 or more".into(),
        )
    }
}

fn require(good: bool, message: impl FnOnce() -> String) -> Result<(), Error> {
    if good {
        Ok(())
    } else {
        Err(Error::Plan(message()))
    }
}

impl Read for Plan {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        let Value::Object(_) = value else {
            return Err(Error::Plan("not a disk plan: no JSON object".into()));
        };
        let mut fields = Fields::of(value, place)?;
        let schema: String = fields.or("schema", "none".into())?;
        require(schema == SCHEMA, || {
            format!("expected a document of schema {SCHEMA}, found {schema:?}")
        })?;
        let plan = Self {
            paths: fields.required("paths")?,
            steps: fields.required("steps")?,
            seed: fields.or("seed", 1)?,
            open_seconds: fields.or("open_seconds", 2.0)?,
            most_wait_seconds: fields.or("most_wait_seconds", 0.7)?,
            caps: fields.or("caps", Caps::default())?,
        };
        fields.end()?;
        Ok(plan)
    }
}

impl Read for Step {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        let mut fields = Fields::of(value, place)?;
        let step = Self {
            kind: fields.or("kind", Kind::Random)?,
            read_bytes: fields.required("read_bytes")?,
            depth: fields.or("depth", 1)?,
            warmup_seconds: fields.or("warmup_seconds", 0.0)?,
            seconds: fields.required("seconds")?,
        };
        fields.end()?;
        Ok(step)
    }
}

impl Read for Kind {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        let name = String::read(value, place)?;
        [Self::Random, Self::Sequential]
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| Error::Plan(format!("{place} must be random or sequential")))
    }
}

impl Read for Caps {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        let mut fields = Fields::of(value, place)?;
        let default = Self::default();
        let caps = Self {
            seconds: fields.or("seconds", default.seconds)?,
            bytes: fields.or("bytes", default.bytes)?,
        };
        fields.end()?;
        Ok(caps)
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, Plan};
    use serde_json::{Value, json};

    fn plan() -> Value {
        json!({
            "schema": "nginx-tune/diskplan/1",
            "paths": ["/srv/a"],
            "steps": [{"read_bytes": 4096, "seconds": 0.5}],
        })
    }

    #[test]
    fn a_small_plan_is_filled_with_defaults() {
        let plan = Plan::parse(plan().to_string().as_bytes()).unwrap();
        assert_eq!((plan.steps[0].kind, plan.steps[0].depth), (Kind::Random, 1));
        assert_eq!(plan.seed, 1);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (words, field, value) in [
            (
                "nginx-tune/diskplan/1",
                "/schema",
                json!("nginx-tune/loadplan/1"),
            ),
            ("paths", "/paths", json!([])),
            ("steps", "/steps", json!([])),
            (
                "steps[0].read_bytes is missing",
                "/steps/0",
                json!({"seconds": 1}),
            ),
            ("multiple of 4096", "/steps/0/read_bytes", json!(5000)),
            ("multiple of 4096", "/steps/0/read_bytes", json!(0)),
            ("multiple of 4096", "/steps/0/read_bytes", json!(1 << 30)),
            ("depth", "/steps/0/depth", json!(0)),
            ("depth", "/steps/0/depth", json!(1_000_000)),
            ("random or sequential", "/steps/0/kind", json!("write")),
            (
                "a sequential step has depth 1",
                "/steps/0",
                sequential_at_depth_2(),
            ),
            ("seconds must be above 0", "/steps/0/seconds", json!(0)),
            ("above the cap of 60 s", "/steps/0/seconds", json!(61)),
            ("open_seconds", "/open_seconds", json!(-1)),
            ("unknown to this version", "/steps/0", unknown_field()),
        ] {
            let mut plan = plan();
            plan["steps"][0]["depth"] = json!(1);
            plan["steps"][0]["kind"] = json!("random");
            plan["open_seconds"] = json!(1);
            *plan.pointer_mut(field).unwrap() = value;
            let message = Plan::parse(plan.to_string().as_bytes())
                .unwrap_err()
                .to_string();
            assert!(message.contains(words), "{message:?} lacks {words:?}");
        }
        assert!(
            Plan::parse(b"[]")
                .unwrap_err()
                .to_string()
                .contains("no JSON object")
        );
    }

    fn unknown_field() -> Value {
        json!({"read_bytes": 4096, "seconds": 1, "write": true})
    }

    fn sequential_at_depth_2() -> Value {
        json!({"kind": "sequential", "depth": 2, "read_bytes": 4096, "seconds": 1})
    }
}
