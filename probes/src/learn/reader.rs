//! The counting of a log's lines.

use std::collections::BTreeMap;
use std::hash::Hasher as _;

use siphasher::sip::SipHasher24;
use siphasher::sip128::{Hasher128 as _, SipHasher24 as SipHasher128};

use super::clock;
use super::extent::{Extent, MOST_BYTES};
use super::format::{Fields, Format};
use super::names::{CACHE, HTTP_3, METHODS, NONE, OTHER, PROTOCOLS, TLS, count, is_none, name_of};
use super::plan::{Plan, Slot};
use super::sample::{DataLine, Object, Request};
use super::tally::Tally;
use super::values::{before, milliseconds, number, path_of, split_request, status_code};

/// The longest line; longer ones are rejected.
pub(crate) const LONGEST_LINE_BYTES: usize = 1 << 16;
/// The longest text that can be a time.
const LONGEST_TIME: usize = 40;
/// The longest path whose location is looked up; a longer one is an attack.
const LONGEST_PATH: usize = 2048;
/// The number of rejected lines to note for each reason.
const NOTED_LINES: usize = 3;
/// The longest duration of a request: a week.
const LONGEST_REQUEST: i64 = 7 * 86_400_000;

/// The reason to reject a line.
type Refusal = &'static str;

/// A parser of a time.
type Clock = fn(&[u8]) -> Option<i64>;

/// Counts lines in a tally.
#[derive(Debug)]
pub(crate) struct Reader<'p> {
    plan: &'p Plan,
    format: Format,
    clocks: Vec<(Slot, Clock)>,
    has_status: bool,
    last_time: (Vec<u8>, i64),
    key: Vec<u8>,
    hasher: SipHasher24,
    log: Log,
    pub(crate) tally: Tally,
    /// Digests of the logs' lines; empty for an empty log.
    pub(crate) logs: Vec<String>,
    /// The first rejected lines for each reason, as the index of their log and their line number.
    pub(crate) first_lines: BTreeMap<Refusal, Vec<(usize, u64)>>,
}

/// The current log.
#[derive(Debug)]
struct Log {
    /// The host whose connection numbers it has.
    host: Vec<u8>,
    lines: u64,
    digest: SipHasher128,
}

impl<'p> Reader<'p> {
    pub(crate) fn new(plan: &'p Plan) -> Self {
        let clocks: [(Slot, Clock); 4] = [
            (Slot::Msec, clock::epoch_time),
            (Slot::TimeIso8601, clock::iso_time),
            (Slot::TimeLocal, clock::local_time),
            (Slot::Time, clock::any_time),
        ];
        Self {
            plan,
            format: Format::new(plan),
            clocks: clocks
                .into_iter()
                .filter(|(slot, _)| plan.tells(*slot))
                .collect(),
            has_status: plan.tells(Slot::Status),
            last_time: (Vec::new(), 0),
            key: Vec::new(),
            hasher: SipHasher24::new_with_key(&plan.key),
            log: Log::new(plan, Vec::new()),
            tally: Tally::new(plan),
            logs: Vec::new(),
            first_lines: BTreeMap::new(),
        }
    }

    /// Begins a log of a host.
    pub(crate) fn begin(&mut self, host: Vec<u8>) {
        self.log = Log::new(self.plan, host);
    }

    /// Ends a log.
    pub(crate) fn end(&mut self) {
        let digest = self.log.digest.finish128();
        let is_empty = self.log.lines == 0;
        self.logs.push(if is_empty {
            String::new()
        } else {
            format!("{:016x}{:016x}", digest.h1, digest.h2)
        });
    }

    /// Counts a line.
    pub(crate) fn add(&mut self, line: &[u8]) {
        self.tally.counts.lines += 1;
        self.log.lines += 1;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let hash = self.hasher.hash(line);
        self.log.digest.write_u64(hash);
        if let Err(reason) = self.read(line, hash) {
            count(&mut self.tally.counts.refused, reason);
            let noted = self.first_lines.entry(reason).or_default();
            if noted.len() < NOTED_LINES {
                noted.push((self.logs.len(), self.log.lines));
            }
        }
    }

    fn read(&mut self, line: &[u8], hash: u64) -> Result<(), Refusal> {
        if line.is_empty() {
            return Err("empty");
        }
        if line.len() > LONGEST_LINE_BYTES {
            return Err("too_long");
        }
        if self.format.is_json() {
            let text = String::from_utf8_lossy(line);
            let fields = self.format.read_json(&text).ok_or("format")?;
            self.count(&fields, hash)
        } else {
            let fields = self.format.read_text(line).ok_or("format")?;
            self.count(&fields, hash)
        }
    }

    fn count(&mut self, fields: &Fields, hash: u64) -> Result<(), Refusal> {
        if is_own(fields.or_empty(Slot::UserAgent)) {
            return Err("own");
        }
        let end = self.end_of(fields)?;
        let status = self.status_of(fields)?;
        let sent = sent_of(fields)?;
        let counts = &mut self.tally.counts;
        counts.requests += 1;
        counts.sent_bytes = counts.sent_bytes.saturating_add(sent as u64);
        if let Some(status) = status {
            *counts.statuses.entry(status as u16).or_default() += 1;
        }
        let duration = milliseconds(fields.or_empty(Slot::RequestTime))
            .filter(|&duration| duration <= LONGEST_REQUEST);
        if let Some(end) = end {
            self.tally.timeline.add(end, duration);
            if let Some(duration) = duration {
                counts.timed_requests += 1;
                counts.busy_milliseconds = counts.busy_milliseconds.saturating_add(duration as u64);
            }
        }
        self.count_connection(fields);

        let raw = fields.get(Slot::Request).map(|raw| self.format.text(raw));
        let line = raw.as_deref().and_then(split_request);
        if raw.is_some() && line.is_none() {
            self.tally.counts.unreadable_requests += 1;
        }
        let method = fields
            .get(Slot::Method)
            .or(line.as_ref().map(|line| line.method));
        let protocol = fields
            .get(Slot::Protocol)
            .or(line.as_ref().map(|line| line.protocol))
            .or(fields.get(Slot::Http3).map(|told| {
                // Empty for all other places, as the line does not show which of these it was.
                if is_none(told) {
                    OTHER.as_bytes()
                } else {
                    HTTP_3
                }
            }));
        if let Some(method) = method {
            count(&mut self.tally.counts.methods, name_of(method, &METHODS));
        }
        if let Some(protocol) = protocol.filter(|protocol| !is_none(protocol)) {
            let known = PROTOCOLS
                .iter()
                .find(|(name, _)| name.as_bytes() == protocol);
            let name = known.map_or(OTHER, |(_, short)| short);
            count(&mut self.tally.counts.protocols, name);
        }
        let written = fields
            .get(Slot::RequestUri)
            .map(|target| self.format.text(target));
        let decoded = fields.get(Slot::Uri).map(|target| self.format.text(target));
        let target = written
            .as_deref()
            .or(line.as_ref().map(|line| line.target))
            .or(decoded.as_deref());
        let Some(path) = target.and_then(|target| path_of(target, self.plan.with_query)) else {
            return Ok(());
        };
        let server = self
            .format
            .text(fields.or_empty(Slot::Server))
            .to_ascii_lowercase();
        let server: &[u8] = if is_none(&server) { b"" } else { &server };
        let is_data =
            matches!(status, None | Some(200 | 206)) && method.is_none_or(|m| m == b"GET");
        let seen = Seen {
            hash,
            end: end.unwrap_or_default(),
            duration: duration.unwrap_or_default(),
            status,
            sent,
            is_data,
            server,
            path,
        };
        self.keep(&seen, fields);
        Ok(())
    }

    /// Counts the object of a request, and keeps the request if it is in a sample.
    fn keep(&mut self, seen: &Seen, fields: &Fields) {
        let (mut key, mut extent) = (0, Extent::default());
        if seen.is_data {
            self.key.clear();
            if !seen.server.is_empty() {
                self.key.extend_from_slice(seen.server);
                self.key.push(0);
            }
            self.key.extend_from_slice(seen.path);
            key = self.hasher.hash(&self.key);
            extent = Extent::of(fields, &self.format, seen.status, seen.sent);
            let size = extent.size.max(extent.at_least);
            let tally = &mut self.tally;
            tally.counts.data_requests += 1;
            tally.counts.data_bytes = tally.counts.data_bytes.saturating_add(seen.sent as u64);
            tally.counts.partial_requests += u64::from(seen.status == Some(206));
            tally.objects.add(key, Object { requests: 1, size });
            let line = DataLine {
                times: 1,
                object: key,
                size,
            };
            tally.data_lines.add(seen.hash, line);
        }
        let request = |server: &[u8], path: &[u8]| Request {
            times: 1,
            end: seen.end,
            duration: seen.duration,
            object: key,
            sent: seen.sent,
            size: extent.size,
            range: extent.range,
            server: String::from_utf8_lossy(server).into(),
            path: String::from_utf8_lossy(path).into(),
        };
        let path = before(seen.path, b'?'); // A query is private.
        if seen.is_data && self.tally.manifest.wants(seen.hash) {
            let kept = if self.plan.keeps_paths { path } else { b"" };
            self.tally.manifest.add(seen.hash, request(b"", kept));
        }
        if self.tally.places.wants(seen.hash) && path.len() <= LONGEST_PATH {
            self.tally.places.add(seen.hash, request(seen.server, path));
        }
    }

    fn end_of(&mut self, fields: &Fields) -> Result<Option<i64>, Refusal> {
        let found = self
            .clocks
            .iter()
            .find_map(|(slot, read)| fields.get(*slot).map(|text| (text, read)));
        let Some((text, read)) = found else {
            return if self.clocks.is_empty() {
                Ok(None)
            } else {
                Err("time")
            };
        };
        if text == self.last_time.0 {
            return Ok(Some(self.last_time.1)); // lines of the same second
        }
        let moment = read(text)
            .filter(|_| text.len() <= LONGEST_TIME)
            .ok_or("time")?;
        self.last_time.0.clear();
        self.last_time.0.extend_from_slice(text);
        self.last_time.1 = moment;
        Ok(Some(moment))
    }

    fn status_of(&self, fields: &Fields) -> Result<Option<usize>, Refusal> {
        if !self.has_status {
            return Ok(None);
        }
        status_code(fields.or_empty(Slot::Status))
            .map(Some)
            .ok_or("status")
    }

    fn count_connection(&mut self, fields: &Fields) {
        let counts = &mut self.tally.counts;
        if let Some(tls) = fields.get(Slot::SslProtocol) {
            let name = if is_none(tls) {
                NONE
            } else {
                name_of(tls, &TLS)
            };
            count(&mut counts.tls, name);
        } else if let Some(scheme) = fields.get(Slot::Scheme) {
            let name = if scheme == b"https" { "tls" } else { NONE };
            count(&mut counts.tls, name);
        }
        if let Some(cache) = fields.get(Slot::CacheStatus) {
            let name = if is_none(cache) {
                NONE
            } else {
                name_of(cache, &CACHE)
            };
            count(&mut counts.cache_statuses, name);
        }
        counts.upstream_requests += u64::from(!is_none(fields.or_empty(Slot::Upstream)));
        if let Some(microseconds) = number(fields.or_empty(Slot::RoundTrip)) {
            counts.round_trips.add(microseconds);
        }
        if let Some(nth) = number(fields.or_empty(Slot::ConnectionRequests)).filter(|&nth| nth > 0)
        {
            counts.add_nth(nth as usize);
        }
        if let Some(connection) = number(fields.or_empty(Slot::Connection)) {
            counts.numbered_requests += 1;
            self.key.clear();
            self.key.extend_from_slice(&connection.to_le_bytes());
            self.key
                .extend_from_slice(fields.get(Slot::Host).unwrap_or(&self.log.host));
            self.tally.connections.add(self.hasher.hash(&self.key), ());
        }
    }
}

impl Log {
    fn new(plan: &Plan, host: Vec<u8>) -> Self {
        Self {
            host,
            lines: 0,
            digest: SipHasher128::new_with_key(&plan.key),
        }
    }
}

/// A request for a path.
#[derive(Debug)]
struct Seen<'a> {
    /// The hash of its line.
    hash: u64,
    end: i64,
    duration: i64,
    status: Option<usize>,
    sent: i64,
    is_data: bool,
    server: &'a [u8],
    path: &'a [u8],
}

/// Whether the request is from nginx-tune: `apply`, `rollback` and canaries, or the load probe.
fn is_own(agent: &[u8]) -> bool {
    agent == b"nginx-tune" || agent.starts_with(b"nginx-tune-probe/")
}

fn sent_of(fields: &Fields) -> Result<i64, Refusal> {
    let text = fields.or_empty(Slot::Bytes);
    if is_none(text) {
        return Ok(0);
    }
    number(text)
        .filter(|&sent| sent <= MOST_BYTES)
        .ok_or("bytes")
}
