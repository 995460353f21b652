//! The checks of a parsed plan.

use std::collections::HashSet;

use super::{
    Arrivals, Class, ConnectionUse, Keepalive, LONGEST_TEXT_BYTES, PathKind, Plan, Stripe,
};
use crate::error::Error;

/// The most threads; more are no faster on any existing machine.
const MOST_THREADS: usize = 256;

impl Plan {
    /// Checks the plan's consistency and its limits.
    pub(super) fn check(&self) -> Result<(), Error> {
        for target in self.targets() {
            target.check().map_err(Error::Plan)?;
            require(is_field_value(&target.host), || {
                "target.host is not a valid header value".into()
            })?;
        }
        for (name, value, least) in [
            ("duration_seconds", self.duration_seconds, 0.001),
            ("warmup_seconds", self.warmup_seconds, 0.0),
            ("drain_seconds", self.drain_seconds, 0.0),
        ] {
            require(value.is_finite() && value >= least, || {
                format!("{name} must be at least {least}")
            })?;
        }
        require(
            self.stripe.count >= 1 && self.stripe.index < self.stripe.count,
            || "stripe.index must be below stripe.count".into(),
        )?;
        require(
            self.abort_error_ratio
                .is_none_or(|r| (0.0..=1.0).contains(&r)),
            || "abort_error_ratio must lie between 0 and 1".into(),
        )?;
        require(
            self.start_at_unix_seconds.is_none_or(f64::is_finite),
            || "start_at_unix_seconds must be a time".into(),
        )?;
        require((1..=MOST_THREADS).contains(&self.threads), || {
            format!("threads must lie between 1 and {MOST_THREADS}")
        })?;
        for class in &self.classes {
            let least = class.held_connections.unwrap_or(class.connections);
            let is_free = class.arrivals.is_closed() && class.streams().is_none();
            require(is_free || least >= self.threads, || {
                format!(
                    "class {:?} has {least} connections for {} threads: fewer than one each",
                    class.name, self.threads
                )
            })?;
        }
        require(!self.classes.is_empty(), || {
            "a plan needs at least one class".into()
        })?;
        let mut names = HashSet::new();
        for class in &self.classes {
            require(names.insert(class.name.as_str()), || {
                format!("class {:?} appears twice", class.name)
            })?;
            class
                .check(self.stripe)
                .and_then(|()| class.speaks.check(class, self.target_of(class)))
                .and_then(|()| self.check_family(class))
                .map_err(|message| Error::Plan(format!("class {:?}: {message}", class.name)))?;
        }
        self.check_caps()
    }

    fn check_caps(&self) -> Result<(), Error> {
        let caps = &self.caps;
        let seconds = self.warmup_seconds + self.duration_seconds + self.drain_seconds;
        require(seconds <= caps.seconds, || {
            format!(
                "warm-up, duration and drain are {seconds} s together, above the cap of {} s",
                caps.seconds
            )
        })?;
        let rate: f64 = self
            .classes
            .iter()
            .map(|c| c.arrivals.peak_per_second())
            .sum();
        require(rate <= caps.rate_per_second, || {
            format!(
                "{rate} requests a second are above the cap of {}",
                caps.rate_per_second
            )
        })?;
        let connections = self.connections();
        require(connections <= caps.connections, || {
            format!(
                "{connections} connections are above the cap of {}",
                caps.connections
            )
        })
    }
}

impl Class {
    fn check(&self, stripe: Stripe) -> Result<(), String> {
        let ensure = |good: bool, message: &str| {
            if good {
                Ok(())
            } else {
                Err(message.to_owned())
            }
        };
        ensure(!self.name.is_empty(), "needs a name")?;
        ensure(self.connections >= 1, "needs at least one connection")?;
        self.arrivals.check()?;
        if self.arrivals.is_closed() {
            let users = stripe.share(self.arrivals.users());
            ensure(users >= 1, "has fewer users than there are load hosts")?;
            let streams = self.streams().map_or(1, |them| them.streams);
            ensure(
                self.connections.saturating_mul(streams) >= users,
                "has more users than connections: they would wait for each other",
            )?;
        }
        let takes_turns = self.connection_use == ConnectionUse::Turns;
        ensure(
            !(takes_turns && self.arrivals.is_closed()),
            "is a closed loop, where each user has a connection: connection_use needs a rate",
        )?;
        ensure(
            !(takes_turns && self.keepalive == Keepalive::None),
            "both keeps its connections (connection_use turns) and closes them (keepalive false)",
        )?;
        ensure(
            self.held_connections
                .is_none_or(|held| takes_turns && (1..=self.connections).contains(&held)),
            "needs connection_use turns for held_connections, and at least as many connections",
        )?;
        ensure(
            !matches!(self.arrivals, Arrivals::Replay { .. })
                || self.paths.kind == PathKind::Manifest,
            "is a replay and needs paths of kind manifest",
        )?;
        ensure(
            (0.0..=1.0).contains(&self.hash_ratio),
            "hash_ratio must lie between 0 and 1",
        )?;
        ensure(
            self.read_bytes_per_second != Some(0) && self.receive_buffer_bytes != Some(0),
            "read_bytes_per_second and receive_buffer_bytes must be above 0",
        )?;
        ensure(
            self.timeout_seconds.is_finite() && self.timeout_seconds > 0.0,
            "timeout_seconds must be above 0",
        )?;
        ensure(!self.status.is_empty(), "expects no status at all")?;
        for (name, value) in &self.headers {
            ensure(is_token(name), "has a header name that is not a token")?;
            ensure(
                is_field_value(value),
                "has a header value with control characters",
            )?;
            ensure(
                !["connection", "content-length", "transfer-encoding"]
                    .contains(&name.to_ascii_lowercase().as_str()),
                "has a header that the probe itself sets or may not send",
            )?;
        }
        if let Some(priority) = &self.priority {
            priority.check(self)?;
        }
        self.paths.check(self.ranges)
    }
}

fn require(good: bool, message: impl FnOnce() -> String) -> Result<(), Error> {
    if good {
        Ok(())
    } else {
        Err(Error::Plan(message()))
    }
}

/// Whether a text is a token (RFC 9110 §5.6.2).
fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= LONGEST_TEXT_BYTES
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// Whether a text is a field value (RFC 9110 §5.5), without obsolete bytes.
fn is_field_value(text: &str) -> bool {
    text.len() <= LONGEST_TEXT_BYTES
        && text
            .bytes()
            .all(|byte| byte == b'\t' || byte == b' ' || byte.is_ascii_graphic())
}
