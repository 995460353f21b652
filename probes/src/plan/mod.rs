//! The load plan: the requests, their times, and the limits of the run.
//!
//! It is checked once, when it is read, and the rest of the crate relies on that. An unknown field
//! is an error, so that an older probe never silently measures something else.

use std::collections::BTreeMap;
use std::iter;
use std::net::IpAddr;

use crate::clock::{Nanos, nanos};
use crate::error::Error;
use crate::fields::Read;

mod arrivals;
mod check;
mod family;
mod paths;
mod priority;
mod read;
mod speaks;
mod target;

pub use self::arrivals::{Arrivals, Gaps, Profile, Step};
pub use self::paths::{ByteRange, PathKind, Paths, Ranges, is_path};
pub use self::priority::{Priority, Tree};
pub use self::speaks::{Speaks, Streams};
pub use self::target::{Endpoint, ProxyProtocol, Target, Tls, TlsVersion};

/// The schema that a plan must name.
pub const SCHEMA: &str = "nginx-tune/loadplan/1";

/// The longest accepted path, header name or header value, in bytes.
const LONGEST_TEXT_BYTES: usize = 8_000;

/// A load measurement.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The server of classes that name no other.
    pub target: Target,
    /// The request classes.
    pub classes: Vec<Class>,
    /// The measured time, after the warm-up.
    pub duration_seconds: f64,
    /// Requests intended before this are sent but not recorded.
    pub warmup_seconds: f64,
    /// The time for unfinished requests after the last arrival.
    pub drain_seconds: f64,
    /// The seed of schedules and paths.
    pub seed: u64,
    /// This load host's share of the arrivals.
    pub stripe: Stripe,
    /// The number of engines side by side, each a thread with its part of the load.
    pub threads: usize,
    /// The CPUs to pin the probe to; empty for any.
    pub cpus: Vec<usize>,
    /// True to run with real-time priority, if that is allowed.
    pub realtime: bool,
    /// True to poll instead of sleeping shortly before an arrival.
    pub precise: bool,
    /// True to record a histogram of response times for each second.
    pub second_histograms: bool,
    /// The share of failed requests in three consecutive seconds that stops the run.
    pub abort_error_ratio: Option<f64>,
    /// Additional open connections without requests.
    pub idle_connections: usize,
    /// The start of the run in seconds since 1970 UTC; `None` for at once.
    pub start_at_unix_seconds: Option<f64>,
    /// The limits of the run.
    pub caps: Caps,
    /// The targets that the guard rails permit.
    pub permit: Permit,
    /// A digest, in hex, of the parts that are the same in the plans of all load hosts.
    pub digest: String,
}

/// A request class with its own connections.
#[derive(Debug, Clone)]
pub struct Class {
    /// The name in the results.
    pub name: String,
    /// The server, if it is not the plan's.
    pub target: Option<Target>,
    /// The due times of requests.
    pub arrivals: Arrivals,
    /// The requested objects.
    pub paths: Paths,
    /// The limit of connections; arrivals at the limit wait with their intended time.
    pub connections: usize,
    /// The class whose connections carry its requests; `None` for its own connections.
    pub connections_of: Option<String>,
    /// The choice of an idle connection in an open loop.
    pub connection_use: ConnectionUse,
    /// The number of connections held from the start if they are used in turn; `None` for all.
    pub held_connections: Option<usize>,
    /// Request method.
    pub method: Method,
    /// Additional request headers.
    pub headers: BTreeMap<String, String>,
    /// Expected statuses.
    pub status: Vec<u16>,
    /// The time limit from the intended start.
    pub timeout_seconds: f64,
    /// The number of requests that a connection serves.
    pub keepalive: Keepalive,
    /// The requested part of each object; `None` for the whole object.
    pub ranges: Option<Ranges>,
    /// The most bytes that a slow client reads per second; `None` for a fast client.
    pub read_bytes_per_second: Option<u64>,
    /// The scope of the pace; it matters only for connections that carry many requests at once.
    pub read_pace_of: PaceOf,
    /// The receive buffer of its sockets (`SO_RCVBUF`); `None` for the kernel's default.
    pub receive_buffer_bytes: Option<usize>,
    /// The share of responses whose body is compared with the local file.
    pub hash_ratio: f64,
    /// The protocol.
    pub speaks: Speaks,
    /// The priority of its requests; `None` to send none.
    pub priority: Option<Priority>,
}

/// The scope of a slow client's pace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PaceOf {
    /// The window of each stream, so that other streams of the connection stay fast.
    #[default]
    Stream,
    /// The window of the connection, and so all its streams together.
    Connection,
}

/// The default receive buffer of a slow client.
const SLOW_RECEIVE_BUFFER_BYTES: usize = 4096;

impl Class {
    /// The streams of its connections; `None` if a connection carries one request at a time.
    pub fn streams(&self) -> Option<Streams> {
        self.speaks.streams()
    }

    /// The number of connections held open, even without requests.
    pub fn held(&self) -> usize {
        if self.connections_of.is_some() {
            return 0;
        }
        if self.streams().is_some() {
            return self.connections;
        }
        match self.connection_use {
            ConnectionUse::Latest => 0,
            ConnectionUse::Turns => self.held_connections.unwrap_or(self.connections),
        }
    }

    /// The receive buffer of its sockets; `None` for the kernel's default.
    pub fn receive_buffer_bytes(&self) -> Option<usize> {
        // With streams, slow clients are slow by their windows.
        let slow = self
            .read_bytes_per_second
            .filter(|_| self.streams().is_none());
        self.receive_buffer_bytes
            .or(slow.map(|_| SLOW_RECEIVE_BUFFER_BYTES))
    }
}

/// The choice of an idle connection in an open loop. Users of a closed loop have their own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ConnectionUse {
    /// The one last used; if all are busy, another is opened. So there are as many as concurrent
    /// requests, and a few of them carry nearly all requests.
    #[default]
    Latest,
    /// Connections are held from the start and used in turn, the longest idle one first.
    Turns,
}

/// The number of requests that a connection serves before the probe closes it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Keepalive {
    /// One request.
    None,
    /// As many as the server allows.
    Forever,
    /// This number of requests.
    Requests(u64),
    /// A random number: it is closed after each request with this probability.
    Random(f64),
}

/// The request method. Neither has a body in the request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Method {
    /// The response has a body.
    #[default]
    Get,
    /// The response has no body.
    Head,
}

impl Method {
    /// The method in the request.
    pub fn text(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
        }
    }
}

/// Limits of the run.
#[derive(Debug, Clone)]
pub struct Caps {
    /// The total time of warm-up, measurement and drain.
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

/// The targets that the guard rails permit.
#[derive(Debug, Clone, Default)]
pub struct Permit {
    /// Ports of this host with servers that nginx-tune started.
    pub ports: Vec<u16>,
    /// True to permit any port of this host.
    pub live: bool,
    /// Addresses of other hosts.
    pub hosts: Vec<IpAddr>,
    /// Paths of sockets of servers that nginx-tune started.
    pub sockets: Vec<String>,
}

/// A load host's share of the arrivals.
#[derive(Debug, Clone, Copy)]
pub struct Stripe {
    /// The index of this load host.
    pub index: u64,
    /// The number of load hosts.
    pub count: u64,
    /// The index of the thread on this load host.
    pub thread: u64,
    /// The number of threads of this load host.
    pub threads: u64,
}

impl Default for Stripe {
    fn default() -> Self {
        Self::of(0, 1)
    }
}

impl Stripe {
    /// Load host `index` of `count`, with one thread.
    pub const fn of(index: u64, count: u64) -> Self {
        Self {
            index,
            count,
            thread: 0,
            threads: 1,
        }
    }

    /// Whether an arrival belongs to this thread of this host.
    pub fn owns(self, index: u64) -> bool {
        index % (self.count * self.threads) == self.first()
    }

    /// The index, over all hosts, of this thread's `nth` request (closed loop).
    pub fn global_index(self, nth: u64) -> u64 {
        nth * self.count * self.threads + self.first()
    }

    fn first(self) -> u64 {
        self.index + self.count * self.thread
    }

    /// This thread's share of this host's share of the users.
    pub fn share(self, users: usize) -> usize {
        self.part(part(users, self.index, self.count))
    }

    /// This thread's share of a quantity of its host.
    pub fn part(self, whole: usize) -> usize {
        part(whole, self.thread, self.threads)
    }
}

/// Part `index` of `count` nearly equal parts.
fn part(whole: usize, index: u64, count: u64) -> usize {
    let whole = whole as u64;
    (whole * (index + 1) / count - whole * index / count) as usize
}

impl Plan {
    /// Parses a plan in JSON.
    ///
    /// # Errors
    /// `Error::Plan` that names the wrong part.
    pub fn parse(json: &[u8]) -> Result<Self, Error> {
        let value = serde_json::from_slice(json)
            .map_err(|error| Error::Plan(format!("not a load plan: {error}")))?;
        let plan = Self::read(value, "")?;
        plan.check()?;
        Ok(plan)
    }

    /// The server of a class.
    pub fn target_of<'p>(&'p self, class: &'p Class) -> &'p Target {
        class.target.as_ref().unwrap_or(&self.target)
    }

    /// The servers of the plan and of its classes, the plan's own first.
    pub fn targets(&self) -> impl Iterator<Item = &Target> {
        iter::once(&self.target).chain(
            self.classes
                .iter()
                .filter_map(|class| class.target.as_ref()),
        )
    }

    /// The start and end of the measured time, from the start of the run.
    pub fn window(&self) -> std::ops::Range<Nanos> {
        nanos(self.warmup_seconds)..nanos(self.warmup_seconds + self.duration_seconds)
    }

    /// The plan of one thread: its part of the arrivals, users, connections and limits.
    #[must_use]
    pub fn of_thread(&self, thread: usize) -> Self {
        let mut plan = self.clone();
        let stripe = Stripe {
            thread: thread as u64,
            threads: self.threads as u64,
            ..self.stripe
        };
        plan.stripe = stripe;
        plan.idle_connections = stripe.part(self.idle_connections);
        plan.caps.requests = stripe.part(self.caps.requests as usize).max(1) as u64;
        plan.caps.bytes = stripe.part(self.caps.bytes as usize).max(1) as u64;
        for class in &mut plan.classes {
            class.connections = stripe.part(class.connections).max(1);
            class.held_connections = class.held_connections.map(|held| stripe.part(held));
            if class.arrivals.is_closed() && class.streams().is_none() {
                let users = stripe.share(class.arrivals.users());
                class.connections = class.connections.max(users);
            }
        }
        plan
    }

    /// The most concurrent connections.
    pub fn connections(&self) -> usize {
        let own = self.classes.iter().filter(|it| it.connections_of.is_none());
        own.fold(self.idle_connections, |sum, class| {
            sum.saturating_add(class.connections)
        })
    }
}

#[cfg(test)]
mod tests;
