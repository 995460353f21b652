//! The load plan: what to ask for, when, and what the run may not pass.
//!
//! Validated once, on reading; the rest of the crate trusts it. A field that this version does
//! not know is an error, so that an older probe never silently measures something else.

use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, SocketAddr};

use serde_json::Value;

use crate::clock::{Nanos, nanos};
use crate::error::Error;
use crate::fields::{Fields, Read};

/// The schema that a plan must name.
pub const SCHEMA: &str = "nginx-tune/loadplan/1";

/// Bytes of the longest path, header name or value that is accepted.
const LONGEST_TEXT_BYTES: usize = 8_000;

/// One load measurement.
#[derive(Debug)]
pub struct Plan {
    /// The server that is asked.
    pub target: Target,
    /// The request classes.
    pub classes: Vec<Class>,
    /// Measured time, after the warm-up.
    pub duration_seconds: f64,
    /// Requests intended before this are sent but not recorded.
    pub warmup_seconds: f64,
    /// Time that unfinished requests get after the last arrival.
    pub drain_seconds: f64,
    /// Seed of schedules and paths.
    pub seed: u64,
    /// This load host's share.
    pub stripe: Stripe,
    /// CPUs to pin the probe to; empty leaves it alone.
    pub cpus: Vec<usize>,
    /// Stop when more than this share of the requests failed in three seconds running.
    pub abort_error_ratio: Option<f64>,
    /// Bounds of the run.
    pub caps: Caps,
    /// Targets that the guard rails let through.
    pub permit: Permit,
}

/// The one server address that is asked.
#[derive(Debug)]
pub struct Target {
    /// Address; names are resolved by the caller, once.
    pub address: IpAddr,
    /// TCP port.
    pub port: u16,
    /// `Host` header.
    pub host: String,
}

/// One request class with its own connections.
#[derive(Debug)]
pub struct Class {
    /// Name in the results.
    pub name: String,
    /// When requests are due.
    pub arrivals: Arrivals,
    /// What is asked for.
    pub paths: Paths,
    /// Cap on connections; arrivals at the cap wait with their intended time.
    pub connections: usize,
    /// Request method.
    pub method: Method,
    /// More request headers.
    pub headers: BTreeMap<String, String>,
    /// Expected statuses.
    pub status: Vec<u16>,
    /// From the intended start.
    pub timeout_seconds: f64,
    /// Whether a connection serves more than one request.
    pub keepalive: bool,
}

/// Request method: only those that change nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Method {
    /// With body.
    #[default]
    Get,
    /// Without body.
    Head,
}

impl Method {
    /// The method as it is sent.
    pub fn text(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
        }
    }
}

/// When requests are due.
#[derive(Debug, Clone)]
pub enum Arrivals {
    /// Closed loop: each of the users sends the next request when the last is answered.
    Closed {
        /// Requests in flight at once.
        users: usize,
    },
    /// Open loop at even gaps.
    Constant {
        /// Rate of all load hosts together.
        rate_per_second: f64,
    },
    /// Open loop at exponential gaps.
    Poisson {
        /// Mean rate of all load hosts together.
        rate_per_second: f64,
    },
}

impl Arrivals {
    /// The rate of an open loop; 0 for a closed one.
    pub fn rate_per_second(&self) -> f64 {
        match *self {
            Self::Closed { .. } => 0.0,
            Self::Constant { rate_per_second } | Self::Poisson { rate_per_second } => {
                rate_per_second
            }
        }
    }

    /// Whether arrivals wait for responses.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Closed { .. })
    }
}

/// How a path is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathKind {
    /// The one path.
    Fixed,
    /// Any path, all alike.
    Uniform,
    /// By popularity: the path of rank k with weight k^-exponent.
    Zipf,
    /// Each path once in shuffled order, then over again.
    Once,
}

/// What is asked for.
#[derive(Debug)]
pub struct Paths {
    /// How a path is chosen.
    pub kind: PathKind,
    /// The paths, for Zipf in order of popularity.
    pub paths: Vec<String>,
    /// Zipf exponent.
    pub exponent: Option<f64>,
    /// Expected body length per path.
    pub bytes: Option<Vec<u64>>,
}

/// Bounds that the run cannot pass.
#[derive(Debug)]
pub struct Caps {
    /// Warm-up, measured time and drain together.
    pub seconds: f64,
    /// Body bytes received.
    pub bytes: u64,
    /// Requests sent.
    pub requests: u64,
    /// Connections of all classes together.
    pub connections: usize,
    /// Open-loop rate of all classes together.
    pub rate_per_second: f64,
}

impl Default for Caps {
    fn default() -> Self {
        Self {
            seconds: 600.0,
            bytes: 1 << 42,
            requests: 100_000_000,
            connections: 4096,
            rate_per_second: 200_000.0,
        }
    }
}

/// Targets that the guard rails let through.
#[derive(Debug, Default)]
pub struct Permit {
    /// Ports of this host where servers listen that nginx-tune started.
    pub ports: Vec<u16>,
    /// Any port of this host.
    pub live: bool,
    /// Addresses of other hosts.
    pub hosts: Vec<IpAddr>,
}

/// A load host's share of the arrivals.
#[derive(Debug, Clone, Copy)]
pub struct Stripe {
    /// Which load host this is, from 0.
    pub index: u64,
    /// How many there are.
    pub count: u64,
}

impl Default for Stripe {
    fn default() -> Self {
        Self { index: 0, count: 1 }
    }
}

impl Stripe {
    /// Whether an arrival is this host's.
    pub fn owns(self, index: u64) -> bool {
        index % self.count == self.index
    }

    /// The number, among all hosts', of this host's request `nth` (closed loop).
    pub fn global_index(self, nth: u64) -> u64 {
        nth * self.count + self.index
    }

    /// This host's share of a number of users.
    pub fn share(self, users: usize) -> usize {
        let users = users as u64;
        (users * (self.index + 1) / self.count - users * self.index / self.count) as usize
    }
}

impl Plan {
    /// The plan in a JSON text.
    ///
    /// # Errors
    /// `Error::Plan` that says which part is wrong.
    pub fn parse(json: &[u8]) -> Result<Self, Error> {
        let value = serde_json::from_slice(json)
            .map_err(|error| Error::Plan(format!("not a load plan: {error}")))?;
        let plan = Self::read(value, "")?;
        plan.check()?;
        Ok(plan)
    }

    /// The address that is asked.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(self.target.address, self.target.port)
    }

    /// When the measured time starts and ends, from the start of the run.
    pub fn window(&self) -> std::ops::Range<Nanos> {
        nanos(self.warmup_seconds)..nanos(self.warmup_seconds + self.duration_seconds)
    }

    fn check(&self) -> Result<(), Error> {
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

    /// Connections that all classes may have together.
    pub fn connections(&self) -> usize {
        self.classes
            .iter()
            .fold(0, |sum, class| sum.saturating_add(class.connections))
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
        if let Arrivals::Closed { users } = self.arrivals {
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

impl Read for Plan {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        let Value::Object(_) = value else {
            return Err(Error::Plan("not a load plan: no JSON object".into()));
        };
        let mut fields = Fields::of(value, place)?;
        let schema: String = fields.or("schema", "none".into())?;
        require(schema == SCHEMA, || {
            format!("expected a document of schema {SCHEMA}, found {schema:?}")
        })?;
        let plan = Self {
            target: fields.required("target")?,
            classes: fields.required("classes")?,
            duration_seconds: fields.required("duration_seconds")?,
            warmup_seconds: fields.or("warmup_seconds", 0.0)?,
            drain_seconds: fields.or("drain_seconds", 5.0)?,
            seed: fields.or("seed", 1)?,
            stripe: fields.or("stripe", Stripe::default())?,
            cpus: fields.or("cpus", Vec::new())?,
            abort_error_ratio: fields.optional("abort_error_ratio")?,
            caps: fields.or("caps", Caps::default())?,
            permit: fields.or("permit", Permit::default())?,
        };
        fields.end()?;
        Ok(plan)
    }
}

impl Read for Target {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        let mut fields = Fields::of(value, place)?;
        let target = Self {
            address: fields.parsed("address", "an IP address")?,
            port: fields.required("port")?,
            host: fields.or("host", "localhost".into())?,
        };
        fields.end()?;
        Ok(target)
    }
}

impl Read for Class {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        let mut fields = Fields::of(value, place)?;
        let class = Self {
            name: fields.required("name")?,
            arrivals: fields.required("arrivals")?,
            paths: fields.required("paths")?,
            connections: fields.required("connections")?,
            method: fields.or("method", Method::Get)?,
            headers: fields.or("headers", BTreeMap::new())?,
            status: fields.or("status", vec![200])?,
            timeout_seconds: fields.or("timeout_seconds", 30.0)?,
            keepalive: fields.or("keepalive", true)?,
        };
        fields.end()?;
        Ok(class)
    }
}

impl Read for Method {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        match value.as_str() {
            Some("GET") => Ok(Self::Get),
            Some("HEAD") => Ok(Self::Head),
            _ => Err(Error::Plan(format!("{place} must be GET or HEAD"))),
        }
    }
}

impl Read for Arrivals {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        let mut fields = Fields::of(value, place)?;
        let kind: String = fields.required("kind")?;
        let users: Option<usize> = fields.optional("users")?;
        let rate: Option<f64> = fields.optional("rate_per_second")?;
        let arrivals = match kind.as_str() {
            "closed" => Self::Closed {
                users: users.ok_or_else(|| fields.wrong("users", "is missing"))?,
            },
            "constant" | "poisson" => {
                let rate_per_second = rate
                    .filter(|rate| rate.is_finite() && *rate > 0.0)
                    .ok_or_else(|| fields.wrong("rate_per_second", "must be above 0"))?;
                if kind == "constant" {
                    Self::Constant { rate_per_second }
                } else {
                    Self::Poisson { rate_per_second }
                }
            }
            _ => return Err(fields.wrong("kind", "must be closed, constant or poisson")),
        };
        fields.end()?;
        Ok(arrivals)
    }
}

impl Read for Paths {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        let mut fields = Fields::of(value, place)?;
        let kind: String = fields.required("kind")?;
        let paths = Self {
            kind: match kind.as_str() {
                "fixed" => PathKind::Fixed,
                "uniform" => PathKind::Uniform,
                "zipf" => PathKind::Zipf,
                "once" => PathKind::Once,
                _ => return Err(fields.wrong("kind", "must be fixed, uniform, zipf or once")),
            },
            paths: fields.required("paths")?,
            exponent: fields.optional("exponent")?,
            bytes: fields.optional("bytes")?,
        };
        fields.end()?;
        Ok(paths)
    }
}

impl Read for Caps {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        let default = Self::default();
        let mut fields = Fields::of(value, place)?;
        let caps = Self {
            seconds: fields.or("seconds", default.seconds)?,
            bytes: fields.or("bytes", default.bytes)?,
            requests: fields.or("requests", default.requests)?,
            connections: fields.or("connections", default.connections)?,
            rate_per_second: fields.or("rate_per_second", default.rate_per_second)?,
        };
        fields.end()?;
        Ok(caps)
    }
}

impl Read for Permit {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        let mut fields = Fields::of(value, place)?;
        let hosts: Vec<String> = fields.or("hosts", Vec::new())?;
        let permit = Self {
            ports: fields.or("ports", Vec::new())?,
            live: fields.or("live", false)?,
            hosts: hosts
                .iter()
                .map(|host| host.parse())
                .collect::<Result<_, _>>()
                .map_err(|_| fields.wrong("hosts", "must hold IP addresses"))?,
        };
        fields.end()?;
        Ok(permit)
    }
}

impl Read for Stripe {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        let mut fields = Fields::of(value, place)?;
        let stripe = Self {
            index: fields.or("index", 0)?,
            count: fields.or("count", 1)?,
        };
        fields.end()?;
        Ok(stripe)
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

#[cfg(test)]
mod tests {
    use super::{Arrivals, Plan, Stripe};
    use serde_json::{Value, json};

    fn plan() -> Value {
        json!({
            "schema": "nginx-tune/loadplan/1",
            "target": {"address": "127.0.0.1", "port": 8080, "host": "localhost"},
            "classes": [{
                "name": "hot",
                "arrivals": {"kind": "closed", "rate_per_second": null, "users": 4},
                "paths": {"kind": "fixed", "paths": ["/a"], "exponent": null, "bytes": null},
                "connections": 4,
            }],
            "duration_seconds": 1,
        })
    }

    fn error(change: impl FnOnce(&mut Value)) -> String {
        let mut value = plan();
        change(&mut value);
        Plan::parse(value.to_string().as_bytes())
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn a_small_plan_is_filled_with_defaults() {
        let plan = Plan::parse(plan().to_string().as_bytes()).unwrap();
        assert_eq!(plan.classes[0].status, [200]);
        assert!(plan.classes[0].keepalive);
        assert_eq!(plan.seed, 1);
        assert!(matches!(
            plan.classes[0].arrivals,
            Arrivals::Closed { users: 4 }
        ));
    }

    type Case = (&'static str, Box<dyn Fn(&mut Value)>);

    #[test]
    #[allow(clippy::too_many_lines)] // one table
    fn what_is_wrong_is_named() {
        let cases: Vec<Case> = vec![
            (
                "expected a document of schema",
                Box::new(|p| p["schema"] = json!("other/1")),
            ),
            (
                "surprise is unknown",
                Box::new(|p| p["surprise"] = json!(1)),
            ),
            (
                "classes[0].method must be GET or HEAD",
                Box::new(|p| p["classes"][0]["method"] = json!("POST")),
            ),
            (
                "target.address must be an IP address",
                Box::new(|p| p["target"]["address"] = json!("example.org")),
            ),
            ("at least one class", Box::new(|p| p["classes"] = json!([]))),
            (
                "classes[0].arrivals.users is missing",
                Box::new(|p| p["classes"][0]["arrivals"]["users"] = json!(null)),
            ),
            (
                "more users than",
                Box::new(|p| p["classes"][0]["connections"] = json!(3)),
            ),
            (
                "cannot be sent",
                Box::new(|p| p["classes"][0]["paths"]["paths"] = json!(["/a b"])),
            ),
            (
                "cannot be sent",
                Box::new(|p| p["classes"][0]["paths"]["paths"] = json!(["/\r\n"])),
            ),
            (
                "more than one path",
                Box::new(|p| {
                    p["classes"][0]["paths"]["paths"] = json!(["/a", "/b"]);
                }),
            ),
            (
                "length list",
                Box::new(|p| p["classes"][0]["paths"]["bytes"] = json!([1, 2])),
            ),
            (
                "exponent",
                Box::new(|p| p["classes"][0]["paths"]["kind"] = json!("zipf")),
            ),
            (
                "control characters",
                Box::new(|p| {
                    p["classes"][0]["headers"] = json!({"X-A": "a\r\nX-B: b"});
                }),
            ),
            (
                "no token",
                Box::new(|p| p["classes"][0]["headers"] = json!({"X A": "a"})),
            ),
            (
                "itself sets",
                Box::new(|p| {
                    p["classes"][0]["headers"] = json!({"Connection": "upgrade"});
                }),
            ),
            (
                "duration_seconds",
                Box::new(|p| p["duration_seconds"] = json!(0)),
            ),
            (
                "above the cap of 600 s",
                Box::new(|p| p["duration_seconds"] = json!(601)),
            ),
            (
                "above the cap of 4096",
                Box::new(|p| p["classes"][0]["connections"] = json!(5000)),
            ),
            (
                "above the cap of 200000",
                Box::new(|p| {
                    p["classes"][0]["arrivals"] =
                        json!({"kind": "poisson", "rate_per_second": 2e5 + 1.0});
                }),
            ),
            (
                "rate_per_second must be above 0",
                Box::new(|p| {
                    p["classes"][0]["arrivals"] =
                        json!({"kind": "constant", "rate_per_second": -1});
                }),
            ),
            (
                "stands twice",
                Box::new(|p| {
                    let class = p["classes"][0].clone();
                    p["classes"].as_array_mut().unwrap().push(class);
                }),
            ),
        ];
        for (words, change) in cases {
            let message = error(&*change);
            assert!(message.contains(words), "{message:?} lacks {words:?}");
        }
        let junk = Plan::parse(b"{").unwrap_err().to_string();
        assert!(junk.contains("not a load plan"), "{junk}");
    }

    #[test]
    fn users_are_dealt_out_completely() {
        for users in [3, 10, 11] {
            let dealt: usize = (0..3)
                .map(|index| Stripe { index, count: 3 }.share(users))
                .sum();
            assert_eq!(dealt, users);
        }
    }
}
