//! The due times of requests in a plan.

use serde_json::Value;

use crate::error::Error;
use crate::fields::{Fields, Read};

/// The longest pause of a closed-loop user, and the longest step.
const LONGEST_SECONDS: f64 = 86_400.0;

/// The due times of requests.
#[derive(Debug, Clone, PartialEq)]
pub enum Arrivals {
    /// Closed loop: each user sends the next request after the answer to the last one.
    Closed {
        /// Concurrent requests.
        users: usize,
        /// The pause between a response and the user's next request.
        think_seconds: f64,
        /// The distribution of the pauses.
        gaps: Gaps,
    },
    /// Open loop: arrivals at a rate, whatever the server does.
    Open {
        /// The distribution of the gaps between arrivals.
        gaps: Gaps,
        /// The rate over all load hosts.
        rate: Profile,
    },
    /// Open loop: the recorded times of the class's manifest.
    Replay {
        /// Recorded seconds per second.
        speed: f64,
    },
}

/// The distribution of gaps between arrivals, or of pauses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gaps {
    /// Evenly.
    Constant,
    /// Exponential, each independent of all others.
    Poisson,
}

/// A rate over the time of a run, as steps and ramps. The last rate continues to the end.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// The steps from the start of the run; never empty.
    pub steps: Vec<Step>,
}

/// A time in which the rate is constant or changes linearly.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// The length of the step.
    pub seconds: f64,
    /// The rate at its start.
    pub from_per_second: f64,
    /// The rate at its end.
    pub to_per_second: f64,
}

impl Step {
    /// The expected number of arrivals in it.
    pub fn arrivals(&self) -> f64 {
        0.5 * (self.from_per_second + self.to_per_second) * self.seconds
    }
}

impl Profile {
    /// A constant rate.
    pub fn flat(rate_per_second: f64) -> Self {
        Self {
            steps: vec![Step {
                seconds: f64::INFINITY,
                from_per_second: rate_per_second,
                to_per_second: rate_per_second,
            }],
        }
    }

    /// The highest rate.
    pub fn peak_per_second(&self) -> f64 {
        let ends = |step: &Step| step.from_per_second.max(step.to_per_second);
        self.steps.iter().map(ends).fold(0.0, f64::max)
    }
}

impl Arrivals {
    /// The highest rate of an open loop; 0 if only the run shows it.
    pub fn peak_per_second(&self) -> f64 {
        match self {
            Self::Closed { .. } | Self::Replay { .. } => 0.0,
            Self::Open { rate, .. } => rate.peak_per_second(),
        }
    }

    /// Whether arrivals wait for responses.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Closed { .. })
    }

    /// The number of users of a closed loop.
    pub fn users(&self) -> usize {
        match *self {
            Self::Closed { users, .. } => users,
            Self::Open { .. } | Self::Replay { .. } => 0,
        }
    }

    /// Checks the arrivals; returns the fault.
    pub(super) fn check(&self) -> Result<(), String> {
        let good = match self {
            Self::Closed { think_seconds, .. } => (0.0..=3600.0).contains(think_seconds),
            Self::Open { .. } | Self::Replay { .. } => true,
        };
        if good {
            Ok(())
        } else {
            Err("think_seconds must be from 0 to 3600".into())
        }
    }
}

impl Read for Arrivals {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        let mut fields = Fields::of(value, place)?;
        let kind: String = fields.required("kind")?;
        let users: Option<usize> = fields.optional("users")?;
        let rate: Option<f64> = fields.optional("rate_per_second")?;
        let think: Option<f64> = fields.optional("think_seconds")?;
        let steps: Option<Vec<Step>> = fields.optional("steps")?;
        let gaps: Option<Gaps> = fields.optional("gaps")?;
        let speed: Option<f64> = fields.optional("speed")?;
        let flat = || {
            rate.filter(|rate| rate.is_finite() && *rate > 0.0)
                .map(Profile::flat)
                .ok_or_else(|| fields.wrong("rate_per_second", "must be above 0"))
        };
        let arrivals = match kind.as_str() {
            "closed" => Self::Closed {
                users: users.ok_or_else(|| fields.wrong("users", "is missing"))?,
                think_seconds: think.unwrap_or(0.0),
                gaps: gaps.unwrap_or(Gaps::Constant),
            },
            "constant" => Self::Open {
                gaps: Gaps::Constant,
                rate: flat()?,
            },
            "poisson" => Self::Open {
                gaps: Gaps::Poisson,
                rate: flat()?,
            },
            "steps" => {
                let steps = steps.unwrap_or_default();
                if steps.iter().all(|step| step.arrivals() <= 0.0) {
                    return Err(fields.wrong("steps", "must contain a rate above 0"));
                }
                Self::Open {
                    gaps: gaps.unwrap_or(Gaps::Poisson),
                    rate: Profile { steps },
                }
            }
            "replay" => Self::Replay {
                speed: Some(speed.unwrap_or(1.0))
                    .filter(|speed| (0.001..=1000.0).contains(speed))
                    .ok_or_else(|| fields.wrong("speed", "must lie between 0.001 and 1000"))?,
            },
            _ => {
                let kinds = "must be closed, constant, poisson, steps or replay";
                return Err(fields.wrong("kind", kinds));
            }
        };
        fields.end()?;
        Ok(arrivals)
    }
}

impl Read for Gaps {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        match value.as_str() {
            Some("constant") => Ok(Self::Constant),
            Some("poisson") => Ok(Self::Poisson),
            _ => Err(Error::Plan(format!("{place} must be constant or poisson"))),
        }
    }
}

impl Read for Step {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        let mut fields = Fields::of(value, place)?;
        let seconds: f64 = fields.required("seconds")?;
        if !(seconds > 0.0 && seconds <= LONGEST_SECONDS) {
            return Err(fields.wrong("seconds", "must be above 0 and at most a day"));
        }
        let from_per_second: f64 = fields.required("rate_per_second")?;
        let to_per_second = fields.or("to_rate_per_second", from_per_second)?;
        for (name, rate) in [
            ("rate_per_second", from_per_second),
            ("to_rate_per_second", to_per_second),
        ] {
            if !(rate.is_finite() && rate >= 0.0) {
                return Err(fields.wrong(name, "must be at least 0"));
            }
        }
        fields.end()?;
        Ok(Self {
            seconds,
            from_per_second,
            to_per_second,
        })
    }
}
