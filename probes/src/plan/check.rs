//! What must hold for a plan that was read.

use std::collections::HashSet;

use super::{Arrivals, Class, LONGEST_TEXT_BYTES, PathKind, Paths, Plan, Stripe};
use crate::error::Error;

/// Longest pause of a closed-loop user.
const LONGEST_THINK_SECONDS: f64 = 3600.0;

impl Plan {
    /// Checks the plan against itself and its caps.
    pub(super) fn check(&self) -> Result<(), Error> {
        require(self.target.port != 0, || "port 0 cannot be asked".into())?;
        require(is_field_value(&self.target.host), || {
            "target.host is no header value".into()
        })?;
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
        require(!self.classes.is_empty(), || {
            "a plan needs at least one class".into()
        })?;
        let mut names = HashSet::new();
        for class in &self.classes {
            require(names.insert(class.name.as_str()), || {
                format!("class {:?} stands twice", class.name)
            })?;
            class
                .check(self.stripe)
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
            .map(|c| c.arrivals.rate_per_second())
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
        if let Arrivals::Closed {
            users,
            think_seconds,
        } = self.arrivals
        {
            ensure(
                (0.0..=LONGEST_THINK_SECONDS).contains(&think_seconds),
                "think_seconds must be from 0 to 3600",
            )?;
            let users = stripe.share(users);
            ensure(users >= 1, "has fewer users than there are load hosts")?;
            ensure(
                self.connections >= users,
                "has more users than connections: they would wait for each other",
            )?;
        }
        ensure(
            self.timeout_seconds.is_finite() && self.timeout_seconds > 0.0,
            "timeout_seconds must be above 0",
        )?;
        ensure(!self.status.is_empty(), "expects no status at all")?;
        for (name, value) in &self.headers {
            ensure(is_token(name), "has a header name that is no token")?;
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
        self.paths.check()
    }
}

impl Paths {
    fn check(&self) -> Result<(), String> {
        let ensure = |good: bool, message: &str| {
            if good {
                Ok(())
            } else {
                Err(message.to_owned())
            }
        };
        ensure(!self.paths.is_empty(), "has no paths")?;
        ensure(
            u32::try_from(self.paths.len()).is_ok(),
            "has too many paths",
        )?;
        ensure(
            self.kind != PathKind::Fixed || self.paths.len() == 1,
            "is of kind fixed and has more than one path",
        )?;
        if let Some(bad) = self.paths.iter().find(|path| !is_path(path)) {
            return Err(format!("has a path that cannot be sent as it is: {bad:?}"));
        }
        if self.kind == PathKind::Zipf {
            ensure(
                self.exponent.is_some_and(|s| s.is_finite() && s >= 0.0),
                "is of kind zipf and needs an exponent of 0 or more",
            )?;
        }
        ensure(
            self.bytes
                .as_ref()
                .is_none_or(|b| b.len() == self.paths.len()),
            "has a length list (bytes) of another size than its paths",
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

/// Origin form of RFC 9112 §3.2.1, already percent-encoded.
fn is_path(text: &str) -> bool {
    text.starts_with('/')
        && text.len() <= LONGEST_TEXT_BYTES
        && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// RFC 9110 §5.6.2.
fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= LONGEST_TEXT_BYTES
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// RFC 9110 §5.5, without the obsolete bytes.
fn is_field_value(text: &str) -> bool {
    text.len() <= LONGEST_TEXT_BYTES
        && text
            .bytes()
            .all(|byte| byte == b'\t' || byte == b' ' || byte.is_ascii_graphic())
}
