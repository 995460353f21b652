//! What a plan says of connections over QUIC that change the port they come from.

use serde_json::Value;

use crate::clock::{NEVER, Nanos, nanos};
use crate::error::Error;
use crate::fields::{Fields, Read};

/// No NAT forgets its clients more often, and none so seldom that a run would show it.
const SECONDS: std::ops::RangeInclusive<f64> = 0.01..=3600.0;

/// How a connection changes its port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MigrationKind {
    /// As a NAT does it to a client that knows nothing of it: the same numbers of the connection.
    Rebinding,
    /// As a client does it that goes to another network: with another number (RFC 9000 §9.5).
    Migration,
}

/// When connections change the port that they come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migration {
    /// How.
    pub kind: MigrationKind,
    /// After so long, each connection at a moment of its own; `NEVER` where time does not matter.
    pub every: Nanos,
    /// After so many requests on a connection; `u64::MAX` where they do not matter.
    pub every_requests: u64,
}

impl Read for Migration {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        let mut fields = Fields::of(value, place)?;
        let kind: String = fields.or("kind", "rebinding".into())?;
        let kind = match kind.as_str() {
            "rebinding" => MigrationKind::Rebinding,
            "migration" => MigrationKind::Migration,
            _ => return Err(fields.wrong("kind", "must be rebinding or migration")),
        };
        let every: Option<f64> = fields.optional("every_seconds")?;
        let every_requests: Option<u64> = fields.optional("every_requests")?;
        if every.is_some_and(|seconds| !SECONDS.contains(&seconds)) {
            return Err(fields.wrong("every_seconds", "must be from 0.01 to 3600"));
        }
        if every_requests == Some(0) {
            return Err(fields.wrong("every_requests", "must be above 0"));
        }
        if every.is_none() && every_requests.is_none() {
            return Err(fields.wrong("every_seconds", "or every_requests must be given"));
        }
        fields.end()?;
        Ok(Self {
            kind,
            every: every.map_or(NEVER, nanos),
            every_requests: every_requests.unwrap_or(u64::MAX),
        })
    }
}
