//! The load plan: what to ask for, when, and what the run may not pass.
//!
//! Validated once, on reading; the rest of the crate trusts it. A field that this version does
//! not know is an error, so that an older probe never silently measures something else.

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

/// Bytes of the longest path, header name or value that is accepted.
const LONGEST_TEXT_BYTES: usize = 8_000;

/// One load measurement.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The server that is asked by classes that name no other.
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
    /// Engines side by side, each a thread with its part of the load.
    pub threads: usize,
    /// CPUs to pin the probe to; empty leaves it alone.
    pub cpus: Vec<usize>,
    /// Run ahead of ordinary processes where that is allowed.
    pub realtime: bool,
    /// Do not sleep shortly before an arrival is due.
    pub precise: bool,
    /// Give the histogram of each second's response times too.
    pub second_histograms: bool,
    /// Stop when more than this share of the requests failed in three seconds running.
    pub abort_error_ratio: Option<f64>,
    /// Connections beside those of the classes that stay open and ask nothing.
    pub idle_connections: usize,
    /// When the run starts, in seconds since 1970 UTC; none starts at once.
    pub start_at_unix_seconds: Option<f64>,
    /// Bounds of the run.
    pub caps: Caps,
    /// Targets that the guard rails let through.
    pub permit: Permit,
    /// What is alike in the plans of all load hosts of one measurement, as a number in hex.
    pub digest: String,
}

/// One request class with its own connections.
#[derive(Debug, Clone)]
pub struct Class {
    /// Name in the results.
    pub name: String,
    /// The server that is asked in the place of the plan's.
    pub target: Option<Target>,
    /// When requests are due.
    pub arrivals: Arrivals,
    /// What is asked for.
    pub paths: Paths,
    /// Cap on connections; arrivals at the cap wait with their intended time.
    pub connections: usize,
    /// The class whose connections its requests go over, in the place of its own.
    pub connections_of: Option<String>,
    /// Which idle connection an open loop takes.
    pub connection_use: ConnectionUse,
    /// How many of them are held from the start, where they are used in turn; none holds all.
    pub held_connections: Option<usize>,
    /// Request method.
    pub method: Method,
    /// More request headers.
    pub headers: BTreeMap<String, String>,
    /// Expected statuses.
    pub status: Vec<u16>,
    /// From the intended start.
    pub timeout_seconds: f64,
    /// How many requests a connection serves.
    pub keepalive: Keepalive,
    /// Which part of each object is asked for; none for all of it.
    pub ranges: Option<Ranges>,
    /// Most bytes that are read in a second: a slow client.
    pub read_bytes_per_second: Option<u64>,
    /// What is read so slowly; of connections that carry one request at a time the two are one.
    pub read_pace_of: PaceOf,
    /// Receive buffer of its sockets (`SO_RCVBUF`); none leaves it to the kernel.
    pub receive_buffer_bytes: Option<usize>,
    /// Share of the responses whose body is compared with the local file.
    pub hash_ratio: f64,
    /// What it speaks.
    pub speaks: Speaks,
    /// How urgent its answers are; none says nothing of it.
    pub priority: Option<Priority>,
}

/// What a slow client gives back slowly.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PaceOf {
    /// The window of each stream: others of the connection are as fast as ever.
    #[default]
    Stream,
    /// That of the connection, and so all streams on it together.
    Connection,
}

/// Receive buffer of a slow client, unless its plan says another.
const SLOW_RECEIVE_BUFFER_BYTES: usize = 4096;

impl Class {
    /// How its connections carry many requests at once; none carries one at a time.
    pub fn streams(&self) -> Option<Streams> {
        self.speaks.streams()
    }

    /// How many connections are held open, whether there is something to send or not.
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

    /// The receive buffer of its sockets; none leaves it to the kernel.
    pub fn receive_buffer_bytes(&self) -> Option<usize> {
        // Windows are what is slow where there are streams.
        let slow = self
            .read_bytes_per_second
            .filter(|_| self.streams().is_none());
        self.receive_buffer_bytes
            .or(slow.map(|_| SLOW_RECEIVE_BUFFER_BYTES))
    }
}

/// Which idle connection an open loop takes. The users of a closed loop own theirs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ConnectionUse {
    /// The one last used; one more is opened when all are busy. So there are as many as there are
    /// requests at once, and a few of them carry nearly all.
    #[default]
    Latest,
    /// They are held open from the start and used in turn, the longest idle first.
    Turns,
}

/// How many requests a connection serves before the probe closes it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Keepalive {
    /// One.
    None,
    /// As many as the server lets it.
    Forever,
    /// So many.
    Requests(u64),
    /// After each it is closed with this probability.
    Random(f64),
}

/// Request method. None of them has a body: that would change what is asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Method {
    /// Its response has a body.
    #[default]
    Get,
    /// Its response has none.
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

/// Bounds that the run cannot pass.
#[derive(Debug, Clone)]
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
#[derive(Debug, Clone, Default)]
pub struct Permit {
    /// Ports of this host where servers listen that nginx-tune started.
    pub ports: Vec<u16>,
    /// Any port of this host.
    pub live: bool,
    /// Addresses of other hosts.
    pub hosts: Vec<IpAddr>,
    /// Paths of sockets where servers listen that nginx-tune started.
    pub sockets: Vec<String>,
}

/// A load host's share of the arrivals.
#[derive(Debug, Clone, Copy)]
pub struct Stripe {
    /// Which load host this is, from 0.
    pub index: u64,
    /// How many there are.
    pub count: u64,
    /// Which thread of this load host, from 0.
    pub thread: u64,
    /// How many threads it has.
    pub threads: u64,
}

impl Default for Stripe {
    fn default() -> Self {
        Self::of(0, 1)
    }
}

impl Stripe {
    /// Load host `index` of `count`, which has one thread.
    pub const fn of(index: u64, count: u64) -> Self {
        Self {
            index,
            count,
            thread: 0,
            threads: 1,
        }
    }

    /// Whether an arrival is this host's and this thread's.
    pub fn owns(self, index: u64) -> bool {
        index % (self.count * self.threads) == self.first()
    }

    /// The number, among all hosts', of this thread's request `nth` (closed loop).
    pub fn global_index(self, nth: u64) -> u64 {
        nth * self.count * self.threads + self.first()
    }

    fn first(self) -> u64 {
        self.index + self.count * self.thread
    }

    /// This host's share of a number of users; this thread's of that.
    pub fn share(self, users: usize) -> usize {
        self.part(part(users, self.index, self.count))
    }

    /// This thread's part of what its host has.
    pub fn part(self, whole: usize) -> usize {
        part(whole, self.thread, self.threads)
    }
}

/// Part `index` of `count` parts as alike as can be.
fn part(whole: usize, index: u64, count: u64) -> usize {
    let whole = whole as u64;
    (whole * (index + 1) / count - whole * index / count) as usize
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

    /// The server that a class asks.
    pub fn target_of<'p>(&'p self, class: &'p Class) -> &'p Target {
        class.target.as_ref().unwrap_or(&self.target)
    }

    /// Every server that may be asked, the plan's own first.
    pub fn targets(&self) -> impl Iterator<Item = &Target> {
        iter::once(&self.target).chain(
            self.classes
                .iter()
                .filter_map(|class| class.target.as_ref()),
        )
    }

    /// When the measured time starts and ends, from the start of the run.
    pub fn window(&self) -> std::ops::Range<Nanos> {
        nanos(self.warmup_seconds)..nanos(self.warmup_seconds + self.duration_seconds)
    }

    /// The plan of one of its threads: its part of the arrivals, users, connections and caps.
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

    /// Connections that there may be at once.
    pub fn connections(&self) -> usize {
        let own = self.classes.iter().filter(|it| it.connections_of.is_none());
        own.fold(self.idle_connections, |sum, class| {
            sum.saturating_add(class.connections)
        })
    }
}

#[cfg(test)]
mod tests;
