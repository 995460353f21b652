//! The measured time by second.
//!
//! Answers and bytes count in the second in which they arrive, arrivals and sends in their own. One
//! second starts exactly with the measured time. Seconds of the warm-up are reported and then
//! dropped.

use std::ops::Range;

use crate::clock::{Nanos, SECOND};
use crate::distribution::Distribution;

/// The most seconds for which memory is reserved before the run.
const MOST_SECONDS_AHEAD: usize = 24 * 3600;

/// The figures of one second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Second {
    /// Arrivals (closed loop: requests started).
    pub scheduled: u64,
    /// Requests that got a connection.
    pub sent: u64,
    /// Complete, correct responses.
    pub requests: u64,
    /// Body bytes.
    pub bytes: u64,
    /// Failures.
    pub errors: u64,
    /// Median response time; here and below, requests that exceeded their time limit count with
    /// their age.
    pub p50: Option<Nanos>,
    /// 99th percentile of the response time.
    pub p99: Option<Nanos>,
    /// Longest response time.
    pub max: Option<Nanos>,
    /// 99th percentile of the time from the intended start to the release by the loop.
    pub lateness_p99: Option<Nanos>,
}

/// The seconds of a measured time.
#[derive(Debug)]
pub struct Series {
    window: Range<Nanos>,
    seconds: Vec<Second>,
    last: Second,
    current: Second,
    span: Range<Nanos>,
    latency: Distribution,
    lateness: Distribution,
    /// The response times of each second, if they are kept.
    each: Option<Vec<Vec<(Nanos, u32)>>>,
}

impl Series {
    pub(super) fn new(window: Range<Nanos>) -> Self {
        let seconds = (window.end - window.start).div_ceil(SECOND);
        Self {
            span: 0..first_second_end(window.start).min(window.end),
            window,
            seconds: room_for(seconds),
            last: Second::default(),
            current: Second::default(),
            latency: Distribution::new(),
            lateness: Distribution::new(),
            each: None,
        }
    }

    /// Keeps the response times of each second too.
    pub(super) fn keep_each(&mut self) {
        self.each = Some(Vec::new());
    }

    /// Adds the seconds of another thread.
    pub(super) fn add(&mut self, other: &Self) {
        let seconds = self.seconds.len().max(other.seconds.len());
        self.seconds.resize(seconds, Second::default());
        let own = self.each.get_or_insert_default();
        own.resize(seconds, Vec::new());
        let none = Vec::new();
        for (second, theirs) in other.seconds.iter().enumerate() {
            let steps = other.each.as_ref().and_then(|each| each.get(second));
            let steps = steps.unwrap_or(&none);
            let mut all = Distribution::new();
            all.add_steps(&own[second], self.seconds[second].max.unwrap_or(0));
            all.add_steps(steps, theirs.max.unwrap_or(0));
            own[second] = all.steps().collect();
            let sum = &mut self.seconds[second];
            sum.scheduled += theirs.scheduled;
            sum.sent += theirs.sent;
            sum.requests += theirs.requests;
            sum.bytes += theirs.bytes;
            sum.errors += theirs.errors;
            (sum.p50, sum.p99) = (all.quantile(0.5), all.quantile(0.99));
            sum.max = all.max();
            sum.lateness_p99 = sum.lateness_p99.max(theirs.lateness_p99);
        }
    }

    /// The histogram of a second's response times as text; `None` if these were not kept.
    pub fn histogram(&self, second: usize) -> Option<String> {
        let steps = self.each.as_ref()?.get(second)?;
        let mut all = Distribution::new();
        all.add_steps(steps, 0);
        Some(all.text())
    }

    /// The seconds of the measured time that are over.
    pub fn seconds(&self) -> &[Second] {
        &self.seconds
    }

    /// The last second that is over, also of the warm-up.
    pub fn last(&self) -> &Second {
        &self.last
    }

    /// Ends the measured time earlier than planned; a later end has no effect.
    pub(super) fn cut(&mut self, end: Nanos) {
        self.window.end = end;
        self.span.end = self.span.end.min(end.max(self.span.start));
    }

    pub(super) fn scheduled(&mut self) {
        self.current.scheduled += 1;
    }

    pub(super) fn released(&mut self, lateness: Nanos) {
        self.lateness.record(lateness);
    }

    pub(super) fn sent(&mut self) {
        self.current.sent += 1;
    }

    pub(super) fn received(&mut self, bytes: u64, now: Nanos) {
        self.roll(now);
        self.current.bytes += bytes;
    }

    pub(super) fn succeeded(&mut self, response: Nanos, now: Nanos) {
        self.roll(now);
        self.current.requests += 1;
        self.latency.record(response);
    }

    /// Records a failure; `at_least` is the age of a request that exceeded its time limit.
    pub(super) fn failed(&mut self, at_least: Option<Nanos>, now: Nanos) {
        self.roll(now);
        self.current.errors += 1;
        if let Some(age) = at_least {
            self.latency.record(age);
        }
    }

    /// Ends the seconds that are over by `now`.
    pub(super) fn roll(&mut self, now: Nanos) {
        while now >= self.span.end {
            self.close_second();
        }
    }

    /// Ends the last, partial second with the measured time.
    pub(super) fn finish(&mut self) {
        self.roll(self.window.end);
    }

    fn close_second(&mut self) {
        self.current.p50 = self.latency.quantile(0.5);
        self.current.p99 = self.latency.quantile(0.99);
        self.current.max = self.latency.max();
        self.current.lateness_p99 = self.lateness.quantile(0.99);
        let steps = self.each.is_some().then(|| self.latency.steps().collect());
        self.latency.clear();
        self.lateness.clear();
        let Range { start, end } = self.span;
        if self.window.contains(&start) && start < end {
            self.seconds.push(self.current);
            if let (Some(each), Some(steps)) = (&mut self.each, steps) {
                each.push(steps);
            }
        }
        self.last = std::mem::take(&mut self.current);
        // Arrivals after the measured time belong to no second.
        let next = match end + SECOND {
            next if end < self.window.end => next.min(self.window.end),
            next => next,
        };
        self.span = end..next;
    }
}

/// An empty series with reserved memory, so that memory does not grow during a run.
fn room_for(seconds: u64) -> Vec<Second> {
    let mut series = vec![Second::default(); (seconds as usize).min(MOST_SECONDS_AHEAD)];
    // Zeroed memory is not allocated before it is written.
    for second in &mut series {
        second.requests = std::hint::black_box(1);
    }
    series.clear();
    series
}

/// The end of the first second of a run, which is partial if the warm-up is not whole seconds: a
/// second starts with the measured time.
pub fn first_second_end(window_start: Nanos) -> Nanos {
    match window_start % SECOND {
        0 => SECOND,
        part => part,
    }
}
