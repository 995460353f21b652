//! The tally: only sums, maxima and samples by hash. So tallies of parts add up to exactly the
//! tally of the whole, in any order.

use std::collections::BTreeMap;
use std::iter::zip;

use serde::{Deserialize, Serialize};

use super::names::Names;
use super::plan::Plan;
use super::round_trips::RoundTrips;
use super::sample::{DataLine, Fault, Object, Request, Sample, add_each, gaps_of, keys_of};
use super::timeline::{Seconds, Timeline};

/// The most connection numbers to keep.
const MOST_CONNECTIONS: usize = 1 << 13;
/// The most requests of a connection that are counted by their number.
const MOST_NTH: usize = 1000;

/// The sums over lines.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) lines: u64,
    pub(crate) refused: Names,
    pub(crate) requests: u64,
    pub(crate) unreadable_requests: u64,
    pub(crate) methods: Names,
    /// Requests by status code.
    pub(crate) statuses: BTreeMap<u16, u64>,
    pub(crate) protocols: Names,
    pub(crate) tls: Names,
    pub(crate) cache_statuses: Names,
    pub(crate) upstream_requests: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) data_requests: u64,
    pub(crate) data_bytes: u64,
    pub(crate) partial_requests: u64,
    pub(crate) timed_requests: u64,
    pub(crate) busy_milliseconds: u64,
    pub(crate) numbered_requests: u64,
    pub(crate) nth_requests: Vec<u64>,
    pub(crate) later_requests: u64,
    pub(crate) round_trips: RoundTrips,
}

impl Counts {
    /// Counts a request that is the nth of its connection.
    pub(crate) fn add_nth(&mut self, nth: usize) {
        if nth > MOST_NTH {
            self.later_requests += 1;
            return;
        }
        if nth > self.nth_requests.len() {
            self.nth_requests.resize(nth, 0);
        }
        self.nth_requests[nth - 1] += 1;
    }

    fn merge(&mut self, other: Self) -> Result<(), Fault> {
        for (own, theirs) in [
            (&mut self.lines, other.lines),
            (&mut self.requests, other.requests),
            (&mut self.unreadable_requests, other.unreadable_requests),
            (&mut self.upstream_requests, other.upstream_requests),
            (&mut self.sent_bytes, other.sent_bytes),
            (&mut self.data_requests, other.data_requests),
            (&mut self.data_bytes, other.data_bytes),
            (&mut self.partial_requests, other.partial_requests),
            (&mut self.timed_requests, other.timed_requests),
            (&mut self.busy_milliseconds, other.busy_milliseconds),
            (&mut self.numbered_requests, other.numbered_requests),
            (&mut self.later_requests, other.later_requests),
        ] {
            *own = own.saturating_add(theirs);
        }
        for (own, theirs) in [
            (&mut self.refused, other.refused),
            (&mut self.methods, other.methods),
            (&mut self.protocols, other.protocols),
            (&mut self.tls, other.tls),
            (&mut self.cache_statuses, other.cache_statuses),
        ] {
            add_each(own, theirs);
        }
        add_each(&mut self.statuses, other.statuses);
        self.round_trips.merge(other.round_trips);
        if other.nth_requests.len() > MOST_NTH {
            return Err("too many requests of a connection");
        }
        if other.nth_requests.len() > self.nth_requests.len() {
            self.nth_requests.resize(other.nth_requests.len(), 0);
        }
        for (own, theirs) in zip(&mut self.nth_requests, other.nth_requests) {
            *own = own.saturating_add(theirs);
        }
        Ok(())
    }
}

/// Everything that is kept of a log.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) counts: Counts,
    pub(crate) timeline: Timeline,
    pub(crate) connections: Sample<()>,
    pub(crate) objects: Sample<Object>,
    pub(crate) data_lines: Sample<DataLine>,
    pub(crate) manifest: Sample<Request>,
    pub(crate) places: Sample<Request>,
}

impl Tally {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            counts: Counts::default(),
            timeline: Timeline::new(plan.most_seconds),
            connections: Sample::new(MOST_CONNECTIONS),
            objects: Sample::new(plan.most_objects),
            data_lines: Sample::new(plan.most_lines),
            manifest: Sample::new(plan.most_requests),
            places: Sample::new(plan.most_places),
        }
    }

    /// The tally in its stored form.
    pub(crate) fn written(&self) -> Written {
        let (level, rows) = self.objects.rows();
        let objects = Objects {
            level,
            gaps: gaps_of(rows.iter().map(|row| row.0)),
            requests: rows.iter().map(|row| row.1.requests).collect(),
            sizes: rows.iter().map(|row| row.1.size).collect(),
        };
        let (level, rows) = self.data_lines.rows();
        let data_lines = DataLines {
            level,
            gaps: gaps_of(rows.iter().map(|row| row.0)),
            times: rows.iter().map(|row| row.1.times).collect(),
            objects: rows.iter().map(|row| row.1.object).collect(),
            sizes: rows.iter().map(|row| row.1.size).collect(),
        };
        let (level, rows) = self.connections.rows();
        let connections = Connections {
            level,
            gaps: gaps_of(rows.iter().map(|row| row.0)),
        };
        Written {
            counts: self.counts.clone(),
            seconds: self.timeline.seconds(),
            connections,
            objects,
            data_lines,
            manifest: Requests::of(&self.manifest),
        }
    }

    /// Adds a stored tally.
    ///
    /// # Errors
    /// The fault of the stored tally.
    pub(crate) fn merge(&mut self, other: Written, places: Requests) -> Result<(), Fault> {
        self.counts.merge(other.counts)?;
        self.timeline.merge(&other.seconds)?;
        let Connections { level, gaps } = other.connections;
        let seen = keys_of(&gaps)?.into_iter().map(|hash| (hash, ()));
        self.connections.merge(level, seen)?;
        let Objects {
            level,
            gaps,
            requests,
            sizes,
        } = other.objects;
        if [requests.len(), sizes.len()] != [gaps.len(); 2] {
            return Err("objects with columns of different lengths");
        }
        let values = zip(requests, sizes).map(|(requests, size)| Object { requests, size });
        self.objects.merge(level, zip(keys_of(&gaps)?, values))?;
        let DataLines {
            level,
            gaps,
            times,
            objects,
            sizes,
        } = other.data_lines;
        if [times.len(), objects.len(), sizes.len()] != [gaps.len(); 3] {
            return Err("lines with columns of different lengths");
        }
        let values = zip(zip(times, objects), sizes).map(|((times, object), size)| DataLine {
            times,
            object,
            size,
        });
        self.data_lines.merge(level, zip(keys_of(&gaps)?, values))?;
        self.manifest
            .merge(other.manifest.level, other.manifest.requests.into_iter())?;
        self.places.merge(places.level, places.requests.into_iter())
    }
}

/// The stored form of a tally: samples as columns, sorted by hash, with the hashes as the first one
/// and the gaps between neighbours.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Written {
    counts: Counts,
    seconds: Seconds,
    connections: Connections,
    objects: Objects,
    data_lines: DataLines,
    manifest: Requests,
}

#[derive(Debug, Serialize, Deserialize)]
struct Connections {
    level: u32,
    gaps: Vec<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Objects {
    level: u32,
    gaps: Vec<u64>,
    requests: Vec<u64>,
    sizes: Vec<i64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct DataLines {
    level: u32,
    gaps: Vec<u64>,
    times: Vec<u64>,
    objects: Vec<u64>,
    sizes: Vec<i64>,
}

/// Requests that are kept with all their fields, each with the hash of its line.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Requests {
    level: u32,
    requests: Vec<(u64, Request)>,
}

impl Requests {
    pub(crate) fn of(sample: &Sample<Request>) -> Self {
        let (level, rows) = sample.rows();
        Self {
            level,
            requests: rows
                .into_iter()
                .map(|(hash, request)| (hash, request.clone()))
                .collect(),
        }
    }
}
