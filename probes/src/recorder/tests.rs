//! Tests of the figures of a request, and of the second in which each counts.

use super::Recorder;
use crate::clock::{MILLISECOND, Nanos, SECOND};
use crate::failure::Failure;
use crate::latencies::Latencies;
use crate::request::{Reached, Request};

fn begun(first_byte: Nanos) -> Reached {
    Reached {
        sent: true,
        first_byte,
    }
}

fn request(intended: Nanos, sent: Nanos) -> Request {
    Request {
        sent,
        ..Request::new(0, 0, intended)
    }
}

#[test]
fn latency_counts_from_the_intended_start_and_service_from_the_send() {
    let mut recorder = Recorder::new(0..SECOND);
    let late = request(10 * MILLISECOND, 40 * MILLISECOND);
    recorder.succeeded(&late, 45 * MILLISECOND, 60 * MILLISECOND);
    assert_eq!(recorder.latencies.response.max(), Some(50 * MILLISECOND));
    assert_eq!(recorder.latencies.ttfb.max(), Some(35 * MILLISECOND));
    assert_eq!(recorder.latencies.service.max(), Some(20 * MILLISECOND));
}

#[test]
fn the_warm_up_is_cut_by_intended_time() {
    let mut recorder = Recorder::new(SECOND..2 * SECOND);
    let before = request(SECOND - 1, SECOND - 1);
    recorder.succeeded(&before, SECOND + 5, SECOND + 9);
    recorder.failed(&before, begun(0), Failure::Reset, SECOND + 9);
    assert_eq!((recorder.requests, recorder.failures.total()), (0, 0));
    let first = request(SECOND, SECOND);
    recorder.succeeded(&first, 3 * SECOND, 3 * SECOND);
    assert_eq!(recorder.requests, 1);
    let after = request(2 * SECOND, 2 * SECOND);
    recorder.succeeded(&after, 3 * SECOND, 3 * SECOND);
    assert_eq!(recorder.requests, 1);
}

#[test]
fn a_failure_is_no_success() {
    let mut recorder = Recorder::new(0..SECOND);
    recorder.failed(&request(5, 5), begun(0), Failure::Truncated, 10);
    assert_eq!(recorder.requests, 0);
    assert_eq!(recorder.latencies.response.count(), 0);
    assert_eq!(recorder.latencies.failed.count(), 1);
    assert_eq!(recorder.failures.of(Failure::Truncated), 1);
}

#[test]
fn a_request_whose_time_was_up_stands_at_its_age_and_is_no_success() {
    let mut recorder = Recorder::new(0..SECOND);
    // Sent without an answer; with the beginning of a response; without a connection in time.
    recorder.failed(&request(0, 1), begun(0), Failure::Timeout, SECOND);
    recorder.failed(&request(0, 1), begun(5), Failure::Timeout, SECOND + 2);
    let (late, kind) = (request(9, 9), Failure::ConnectTimeout);
    recorder.failed(&late, Reached::NOT_SENT, kind, SECOND + 9);
    let Latencies {
        response,
        ttfb,
        service,
        failed,
        ..
    } = &recorder.latencies;
    assert_eq!((response.count(), response.censored()), (3, 3));
    assert_eq!(response.censored_from(), Some(SECOND));
    assert_eq!((ttfb.count(), ttfb.censored()), (3, 2));
    assert_eq!((service.count(), service.censored()), (2, 2));
    assert_eq!((failed.count(), failed.censored()), (3, 0));
    assert_eq!((recorder.requests, recorder.unfinished), (0, 0));
    recorder.roll(2 * SECOND);
    let last = recorder.series.last();
    assert_eq!((last.errors, last.max), (3, Some(SECOND + 2)));
}

#[test]
fn the_unfinished_stand_at_their_age() {
    let mut recorder = Recorder::new(0..SECOND);
    // One sent a second ago, with its first byte; one that never got a connection.
    recorder.censor(&request(0, 2 * SECOND), begun(5 * SECOND / 2), 3 * SECOND);
    recorder.censor(&request(SECOND / 2, 0), Reached::NOT_SENT, 3 * SECOND);
    assert_eq!(
        (recorder.unfinished, recorder.unfinished_from),
        (2, 5 * SECOND / 2)
    );
    let Latencies {
        response,
        ttfb,
        service,
        ..
    } = &recorder.latencies;
    assert_eq!((response.censored(), response.max()), (2, Some(3 * SECOND)));
    assert_eq!(response.censored_from(), Some(5 * SECOND / 2));
    assert_eq!((ttfb.count(), ttfb.censored()), (2, 1));
    assert_eq!((service.count(), service.max()), (1, Some(SECOND)));
}

#[test]
fn the_series_has_every_second_and_goes_by_completion() {
    let mut recorder = Recorder::new(SECOND..4 * SECOND + SECOND / 2);
    let one = request(SECOND + 1, SECOND + 1);
    recorder.succeeded(&one, SECOND + 2, SECOND + 2);
    recorder.received(100, SECOND + 2);
    recorder.failed(&one, begun(0), Failure::Parse, 3 * SECOND + 1);
    recorder.received(7, 9 * SECOND);
    recorder.succeeded(&one, 9 * SECOND, 9 * SECOND);
    recorder.finish();
    let told: Vec<_> = recorder
        .series
        .seconds()
        .iter()
        .map(|second| (second.requests, second.bytes, second.errors))
        .collect();
    assert_eq!(told, [(1, 100, 0), (0, 0, 0), (0, 0, 1), (0, 0, 0)]);
    assert_eq!(recorder.bytes, 100);
}

#[test]
fn a_second_starts_with_the_measured_time() {
    let mut recorder = Recorder::new(3 * SECOND / 2..5 * SECOND / 2);
    for tenths in 0..30 {
        let moment = tenths * SECOND / 10;
        recorder.arrived(moment, moment + 7);
        recorder.succeeded(&request(moment, moment), moment, moment);
    }
    recorder.finish();
    assert_eq!(recorder.series.seconds().len(), 1);
    let told = recorder.series.seconds()[0];
    assert_eq!((told.scheduled, told.requests), (10, 10));
    assert_eq!(told.lateness_p99, Some(7));
}

#[test]
fn a_run_shorter_than_a_second_has_one() {
    let mut recorder = Recorder::new(0..SECOND / 2);
    recorder.finish();
    assert_eq!(recorder.series.seconds().len(), 1);
}

#[test]
fn a_run_that_is_cut_ends_its_last_second() {
    let mut recorder = Recorder::new(0..9 * SECOND);
    let one = request(SECOND + 1, SECOND + 1);
    recorder.succeeded(&one, SECOND + 2, SECOND + 2);
    recorder.cut(SECOND + 3);
    recorder.succeeded(&one, SECOND + 4, SECOND + 4);
    recorder.finish();
    let told: Vec<_> = recorder
        .series
        .seconds()
        .iter()
        .map(|second| second.requests)
        .collect();
    assert_eq!(told, [0, 1]);
}
