//! Logs read back by the public library.

use std::fs::{self, File};

use super::{HistogramLog, Intervals, Part, tag};
use crate::clock::{MILLISECOND, SECOND};
use crate::latencies::Latencies;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

#[test]
fn the_intervals_add_up_to_the_total() {
    let path = std::env::temp_dir().join(format!("probe-log-{}.hlog", std::process::id()));
    let file = File::create(&path).unwrap();
    let names = vec!["hot".into(), "co ld".into()];
    let (log, mut feeds) = HistogramLog::start(file, names, 1).unwrap();
    let mut feed = feeds.pop().unwrap();
    let mut current: Vec<Latencies> = vec![Latencies::default(), Latencies::default()];
    let mut all = Latencies::default();
    for second in 1..=5_u64 {
        for value in 0..1000 {
            current[0].response.record(value * second * 977);
            all.response.record(value * second * 977);
        }
        current[1].ttfb.record_at_least(second * MILLISECOND);
        feed.cut(second * SECOND, second * SECOND, current.iter_mut());
    }
    let totals = feed.finish(6 * SECOND, current);
    log.finish().unwrap();
    assert_eq!(totals[0].response.text(), all.response.text());
    assert_eq!(totals[0].response.max(), all.response.max());
    assert_eq!(totals[1].ttfb.censored(), 5);

    let text = fs::read(&path).unwrap();
    fs::remove_file(path).unwrap();
    let mut sum = Histogram::<u64>::new(3).unwrap();
    let mut end = 0.0;
    for entry in IntervalLogIterator::new(&text) {
        if let LogEntry::Interval(line) = entry.unwrap() {
            let name = line.tag().unwrap().as_str().to_owned();
            assert!(
                ["hot.response", "co_ld.ttfb"].contains(&name.as_str()),
                "{name}"
            );
            if name == "hot.response" {
                assert!((line.start_timestamp().as_secs_f64() - end).abs() < 1e-6);
                end += line.duration().as_secs_f64();
                let bytes = STANDARD.decode(line.encoded_histogram()).unwrap();
                let part: Histogram<u64> =
                    Deserializer::new().deserialize(&mut &bytes[..]).unwrap();
                sum.add(part).unwrap();
            }
        }
    }
    assert_eq!(sum.len(), 5000);
    assert_eq!(sum.value_at_quantile(0.99), {
        let told = all.response.quantile(0.99).unwrap();
        sum.highest_equivalent(told)
    });
}

/// Lines of a log as (start, length, values) in whole seconds.
fn lines(output: &[u8]) -> Vec<(u64, u64, u64)> {
    let mut found = Vec::new();
    for entry in IntervalLogIterator::new(output) {
        if let LogEntry::Interval(line) = entry.unwrap() {
            let bytes = STANDARD.decode(line.encoded_histogram()).unwrap();
            let part: Histogram<u64> = Deserializer::new().deserialize(&mut &bytes[..]).unwrap();
            let (start, length) = (line.start_timestamp(), line.duration());
            found.push((start.as_secs(), length.as_secs(), part.len()));
        }
    }
    found
}

fn part(thread: usize, second: u64, values: u64, is_last: bool) -> Part {
    let mut latencies = Latencies::default();
    for _ in 0..values {
        latencies.response.record(MILLISECOND);
    }
    Part {
        thread,
        boundary: second * SECOND,
        end: second * SECOND,
        is_last,
        classes: vec![latencies],
    }
}

#[test]
fn the_threads_parts_of_a_second_are_one_line() {
    let mut output = Vec::new();
    let mut intervals = Intervals::new(&mut output, vec!["c".into()], 3);
    for (thread, second, values, is_last) in [
        (0, 1, 1, false),
        (1, 1, 10, false),
        // Ahead of the others, whose first second is not there yet.
        (0, 2, 2, false),
        (2, 1, 100, false),
        // Thread 1 was not cut at the end of second 2.
        (2, 2, 200, false),
        (0, 3, 3, false),
        (1, 3, 50, true),
        (2, 3, 300, false),
        // Thread 1 has ended.
        (2, 4, 400, true),
        (0, 4, 4, false),
        (0, 5, 5, true),
    ] {
        intervals.add(&part(thread, second, values, is_last));
    }
    intervals.finish().unwrap();
    assert_eq!(
        lines(&output),
        [(0, 1, 111), (1, 2, 555), (3, 1, 404), (4, 1, 5)]
    );
}

#[test]
fn a_tag_has_no_comma_and_no_space() {
    assert_eq!(tag("a,b c\n"), "a_b_c_");
}
