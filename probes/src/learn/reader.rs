//! Counts what the lines of a log say.

use std::collections::BTreeMap;

use super::clock;
use super::extent::{Extent, MOST_BYTES};
use super::format::{Fields, Format};
use super::names::{CACHE, HTTP_3, METHODS, NONE, Names, OTHER, PROTOCOLS, TLS, is_none, name_of};
use super::plan::{Plan, Slot};
use super::round_trips::RoundTrips;
use super::sample::{Request, Sample};
use super::sketch::{DistinctNumbers, ObjectTable};
use super::timeline::Timeline;
use super::values::{before, milliseconds, number, path_of, split_request, status_code};

/// Longer lines are refused.
pub(crate) const LONGEST_LINE_BYTES: usize = 1 << 16;
/// Requests of a connection that are told apart.
const MOST_NTH: usize = 1000;
/// A longer text is no time.
const LONGEST_TIME: usize = 40;
/// Lines that are named of those refused for one reason.
const NOTED_LINES: usize = 3;
/// A week; no request takes longer.
const LONGEST_REQUEST: i64 = 7 * 86_400_000;

/// Why a line cannot be used.
type Refusal = &'static str;

/// Reads a time.
type Clock = fn(&[u8]) -> Option<i64>;

/// Lines refused for one reason.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    pub(crate) lines: u64,
    pub(crate) first_lines: Vec<u64>,
}

/// What was counted so far.
#[derive(Debug)]
pub(crate) struct Reader<'p> {
    plan: &'p Plan,
    format: Format,
    clocks: Vec<(Slot, Clock)>,
    has_status: bool,
    last_time: (Vec<u8>, i64),
    key: Vec<u8>,
    pub(crate) lines: u64,
    pub(crate) refused: BTreeMap<Refusal, Refused>,
    pub(crate) requests: u64,
    pub(crate) unreadable: u64,
    pub(crate) methods: Names,
    pub(crate) statuses: Vec<u64>,
    pub(crate) protocols: Names,
    pub(crate) tls: Names,
    pub(crate) cache: Names,
    pub(crate) upstream: u64,
    pub(crate) sent: u64,
    pub(crate) data_requests: u64,
    pub(crate) data_bytes: u64,
    pub(crate) partial: u64,
    pub(crate) objects: ObjectTable,
    pub(crate) timeline: Timeline,
    pub(crate) connections: DistinctNumbers,
    pub(crate) numbered: u64,
    pub(crate) nth: Vec<u64>,
    pub(crate) later: u64,
    pub(crate) round_trips: RoundTrips,
    pub(crate) manifest: Sample,
    pub(crate) places: Sample,
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
            lines: 0,
            refused: BTreeMap::new(),
            requests: 0,
            unreadable: 0,
            methods: Names::new(),
            statuses: vec![0; 1000],
            protocols: Names::new(),
            tls: Names::new(),
            cache: Names::new(),
            upstream: 0,
            sent: 0,
            data_requests: 0,
            data_bytes: 0,
            partial: 0,
            objects: ObjectTable::new(plan.most_objects, plan.most_heavy),
            timeline: Timeline::default(),
            connections: DistinctNumbers::default(),
            numbered: 0,
            nth: vec![0; MOST_NTH],
            later: 0,
            round_trips: RoundTrips::default(),
            manifest: Sample::new(plan.most_requests),
            places: Sample::new(plan.most_places),
        }
    }

    /// Counts a line.
    pub(crate) fn add(&mut self, line: &[u8]) {
        self.lines += 1;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if let Err(reason) = self.read(line) {
            let refused = self.refused.entry(reason).or_default();
            refused.lines += 1;
            if refused.first_lines.len() < NOTED_LINES {
                refused.first_lines.push(self.lines);
            }
        }
    }

    fn read(&mut self, line: &[u8]) -> Result<(), Refusal> {
        if line.is_empty() {
            return Err("empty");
        }
        if line.len() > LONGEST_LINE_BYTES {
            return Err("too_long");
        }
        if self.format.is_json() {
            let text = String::from_utf8_lossy(line);
            let fields = self.format.read_json(&text).ok_or("format")?;
            self.count(&fields)
        } else {
            let fields = self.format.read_text(line).ok_or("format")?;
            self.count(&fields)
        }
    }

    fn count(&mut self, fields: &Fields) -> Result<(), Refusal> {
        if is_own(fields.or_empty(Slot::UserAgent)) {
            return Err("own");
        }
        let end = self.end_of(fields)?;
        let status = self.status_of(fields)?;
        let sent = sent_of(fields)?;
        self.requests += 1;
        self.sent = self.sent.saturating_add(sent as u64);
        if let Some(status) = status {
            self.statuses[status] += 1;
        }
        self.count_connection(fields);
        let duration = milliseconds(fields.or_empty(Slot::RequestTime))
            .filter(|&duration| duration <= LONGEST_REQUEST);
        let is_in_time = end.is_none_or(|end| self.timeline.add(end, duration));

        let raw = fields.get(Slot::Request).map(|raw| self.format.text(raw));
        let line = raw.as_deref().and_then(split_request);
        if raw.is_some() && line.is_none() {
            self.unreadable += 1;
        }
        let method = fields
            .get(Slot::Method)
            .or(line.as_ref().map(|line| line.method));
        let protocol = fields
            .get(Slot::Protocol)
            .or(line.as_ref().map(|line| line.protocol))
            .or(fields.get(Slot::Http3).map(|told| {
                // Empty for all others: which of these it was nobody says.
                if is_none(told) {
                    OTHER.as_bytes()
                } else {
                    HTTP_3
                }
            }));
        if let Some(method) = method {
            *self.methods.entry(name_of(method, &METHODS)).or_default() += 1;
        }
        if let Some(protocol) = protocol.filter(|protocol| !is_none(protocol)) {
            let known = PROTOCOLS
                .iter()
                .find(|(name, _)| name.as_bytes() == protocol);
            *self
                .protocols
                .entry(known.map_or(OTHER, |(_, short)| short))
                .or_default() += 1;
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
        let (mut key, mut extent) = (0, Extent::default());
        if is_data {
            self.key.clear();
            if !server.is_empty() {
                self.key.extend_from_slice(server);
                self.key.push(0);
            }
            self.key.extend_from_slice(path);
            key = hash(&self.key);
            extent = Extent::of(fields, &self.format, status, sent);
            self.data_requests += 1;
            self.data_bytes = self.data_bytes.saturating_add(sent as u64);
            self.partial += u64::from(status == Some(206));
            self.objects.add(key, extent.size.max(extent.at_least));
        }
        if is_in_time {
            let seen = Seen {
                end: end.unwrap_or_default(),
                duration: duration.unwrap_or_default(),
                object: key,
                sent,
                extent,
                is_data,
            };
            self.sample(&seen, server, path);
        }
        Ok(())
    }

    /// Keeps a request where it is one of those that are kept.
    fn sample(&mut self, seen: &Seen, server: &[u8], path: &[u8]) {
        let in_manifest = seen.is_data && self.manifest.wants(self.lines);
        let in_places = self.places.wants(self.lines);
        if !in_manifest && !in_places {
            return;
        }
        // A query is nobody's business.
        let path: Box<str> = String::from_utf8_lossy(before(path, b'?')).into();
        let request = |server: Box<str>, path: Box<str>| Request {
            number: self.lines,
            stretch: self.timeline.stretch(),
            end: seen.end,
            duration: seen.duration,
            object: seen.object,
            sent: seen.sent,
            size: seen.extent.size,
            range: seen.extent.range,
            server,
            path,
        };
        if in_manifest {
            let kept = if self.plan.keeps_paths {
                path.clone()
            } else {
                Box::default()
            };
            self.manifest.add(request(Box::default(), kept));
        }
        if in_places {
            let server = String::from_utf8_lossy(server).into();
            self.places.add(request(server, path));
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
            return Ok(Some(self.last_time.1)); // lines of one second
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
        if let Some(tls) = fields.get(Slot::SslProtocol) {
            let name = if is_none(tls) {
                NONE
            } else {
                name_of(tls, &TLS)
            };
            *self.tls.entry(name).or_default() += 1;
        } else if let Some(scheme) = fields.get(Slot::Scheme) {
            let name = if scheme == b"https" { "tls" } else { NONE };
            *self.tls.entry(name).or_default() += 1;
        }
        if let Some(cache) = fields.get(Slot::CacheStatus) {
            let name = if is_none(cache) {
                NONE
            } else {
                name_of(cache, &CACHE)
            };
            *self.cache.entry(name).or_default() += 1;
        }
        self.upstream += u64::from(!is_none(fields.or_empty(Slot::Upstream)));
        if let Some(connection) = number(fields.or_empty(Slot::Connection)) {
            self.numbered += 1;
            self.connections.add(connection as u64);
        }
        if let Some(microseconds) = number(fields.or_empty(Slot::RoundTrip)) {
            self.round_trips.add(microseconds);
        }
        match number(fields.or_empty(Slot::ConnectionRequests)) {
            None | Some(0) => {}
            Some(nth) => match self.nth.get_mut(nth as usize - 1) {
                Some(count) => *count += 1,
                None => self.later += 1,
            },
        }
    }
}

/// What a sample keeps of a request.
#[derive(Debug)]
struct Seen {
    end: i64,
    duration: i64,
    object: u64,
    sent: i64,
    extent: Extent,
    is_data: bool,
}

/// Whether nginx-tune asked: `apply`, `rollback` and canaries, or the load probe.
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

/// The `BLAKE2b` digest of eight bytes.
fn hash(text: &[u8]) -> u64 {
    let digest = blake2b_simd::Params::new().hash_length(8).hash(text);
    digest
        .as_bytes()
        .iter()
        .fold(0, |key, &byte| key << 8 | u64::from(byte))
}
