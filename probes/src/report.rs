//! The measurement as JSON: the parts of the document `nginx-tune/measurement/1` that the probe
//! knows.

use std::fs;

use serde_json::{Map, Value, json};

use crate::class::Class;
use crate::clock::{Nanos, seconds};
use crate::distribution::Distribution;
use crate::engine::Outcome;
use crate::failure::Failure;
use crate::plan::Plan;
use crate::protocol::{Datagrams, Tally};
use crate::recorder::{Recorder, Second};
use crate::surroundings::clock_source;
use crate::validity::flags;
use crate::workers::Share;

/// The measurement of a run.
pub fn measurement(plan: &Plan, outcome: &Outcome<'_>) -> Value {
    let mut lateness = Distribution::new();
    let mut receive_lag = Distribution::new();
    for class in &outcome.classes {
        lateness.add(&class.recorder.latencies.lateness);
        receive_lag.add(&class.recorder.receive_lag);
    }
    json!({
        "schema": "nginx-tune/measurement/1",
        "seed": plan.seed,
        "plan_digest": plan.digest,
        "stripe": {"index": plan.stripe.index, "count": plan.stripe.count},
        "started_unix_seconds": outcome.started_unix_seconds,
        "duration_seconds": seconds(outcome.measured),
        "classes": by_name(&outcome.classes, |class| of_class(class, outcome.measured)),
        "generator": {
            "version": env!("CARGO_PKG_VERSION"),
            "cpu_seconds": seconds(outcome.cpu),
            "cpu_ratio": outcome.cpu_ratio(),
            "threads": outcome.threads,
            "lateness_seconds": lateness.document(),
            "receive_lag_seconds": receive_lag.document(),
            "max_rss_bytes": peak_memory_bytes(),
            "host_busy_seconds": outcome.host.map(|host| host.busy_seconds),
            "host_cpu_seconds": outcome.host.map(|host| host.all_seconds),
            "steal_ratio": outcome.host.map(|host| host.steal_ratio()),
            "throttled_periods": outcome.host.map(|host| host.throttled_periods),
            "clock_source": clock_source(),
            "source_addresses": outcome.source_addresses,
            "start_skew_seconds": outcome.start_skew_seconds,
            "idle_connections": idle_connections(outcome),
        },
        "flags": flags(outcome),
        "series": series(&outcome.classes, plan.second_histograms),
    })
}

fn idle_connections(outcome: &Outcome<'_>) -> Option<Value> {
    let tally = &outcome.ballast;
    (tally.wanted > 0).then(|| {
        json!({
            "wanted": tally.wanted,
            "open": tally.open,
            "lost": tally.lost,
            "failed": tally.failed,
        })
    })
}

fn by_name(classes: &[Class<'_>], document: impl Fn(&Class<'_>) -> Value) -> Value {
    classes
        .iter()
        .map(|class| (class.plan.name.clone(), document(class)))
        .collect::<Map<_, _>>()
        .into()
}

fn of_class(class: &Class<'_>, measured: Nanos) -> Value {
    let record = &class.recorder;
    let latencies = &record.latencies;
    let per_second = |count: u64| {
        if measured == 0 {
            0.0
        } else {
            count as f64 / seconds(measured)
        }
    };
    let errors: Map<_, _> = Failure::ALL
        .into_iter()
        .filter(|&kind| record.failures.of(kind) > 0)
        .map(|kind| (kind.name().to_owned(), record.failures.of(kind).into()))
        .collect();
    let statuses: Map<_, _> = record
        .statuses
        .iter()
        .map(|(status, &count)| (status.to_string(), count.into()))
        .collect();
    let mut document = json!({
        "requests": record.requests,
        "requests_per_second": per_second(record.requests),
        "bytes": record.bytes,
        "bytes_per_second": per_second(record.bytes),
        "users": (!class.is_open_loop()).then(|| class.users()),
        "intended": record.intended,
        "truncated": record.failures.of(Failure::Truncated) + record.failures.of(Failure::Empty),
        "censored": record.unfinished,
        "censored_from_seconds": (record.unfinished > 0).then(|| seconds(record.unfinished_from)),
        "errors": errors,
        "statuses": statuses,
        "response_seconds": latencies.response.document(),
        "ttfb_seconds": latencies.ttfb.document(),
        "service_seconds": latencies.service.document(),
        "failed_seconds": latencies.failed.document(),
        "lateness_seconds": latencies.lateness.document(),
        "connections_opened": record.connections_opened,
        "arrival_seconds": record.arrival.document(),
        "connect_seconds": record.connect.document(),
        "tls_seconds": record.secure.document(),
        "round_trip_seconds": record.round_trip.document(),
        "tls_resumed": record.tls_resumed,
        "tls_sessions": tls_sessions(record),
        "syn_retries": record.syn_retries,
        "retransmits": record.retransmits,
        "retried": record.retried,
        "stray": record.stray,
        "workers": by_worker(record.workers.shares(), |share| share.requests.into()),
        "worker_shares": by_worker(record.workers.shares(), of_worker),
        "ack_stall_suspects": record.ack_stall_suspects,
        "at_cap": record.at_cap,
        "max_pending": record.max_pending,
        "bodies": class.compared.map(|bodies| json!({
            "compared": bodies.compared,
            "differing": bodies.differing,
            "unread": bodies.unread,
        })),
    });
    if let Some(streams) = &record.streams {
        document[class.plan.speaks.name()] = of_streams(streams, record.datagrams.as_ref());
    }
    document
}

fn of_streams(streams: &Tally, datagrams: Option<&Datagrams>) -> Value {
    let mut document = json!({
        "streams": streams.streams,
        "most_streams": streams.most_streams,
        "mean_streams": streams.mean_streams(),
        "peer_limit": streams.peer_limit,
        "goaways": streams.goaways,
        "refused": streams.refused,
        "resets": streams.resets,
        "window_stalls": streams.window_stalls,
    });
    if let Some(datagrams) = datagrams {
        document["handshakes"] = datagrams.handshakes.into();
        document["datagrams_sent"] = datagrams.sent.into();
        document["datagrams_received"] = datagrams.received.into();
        document["lost_packets"] = datagrams.lost_packets.into();
        document["dropped_datagrams"] = datagrams.dropped.into();
    }
    document
}

fn tls_sessions(record: &Recorder) -> Vec<Value> {
    let sessions = record.tls_sessions.iter();
    sessions
        .map(|(agreed, count)| {
            json!({
                "version": agreed.version.name(),
                "cipher": agreed.cipher,
                "connections": count,
            })
        })
        .collect()
}

fn by_worker(shares: &[Share], document: impl Fn(&Share) -> Value) -> Value {
    shares
        .iter()
        .map(|share| (share.worker.to_string(), document(share)))
        .collect::<Map<_, _>>()
        .into()
}

fn of_worker(share: &Share) -> Value {
    json!({
        "requests": share.requests,
        "connections": share.connections,
        "response_seconds": share.response.document(),
    })
}

fn series(classes: &[Class<'_>], has_histograms: bool) -> Vec<Value> {
    let seconds = classes
        .iter()
        .map(|class| class.recorder.series.seconds().len());
    (0..seconds.max().unwrap_or(0))
        .map(|second| {
            let point = |class: &Class<'_>| {
                let series = &class.recorder.series;
                let mut point = of_second(series.seconds().get(second));
                if let Some(text) = series.histogram(second).filter(|_| has_histograms) {
                    point["histogram"] = text.into();
                }
                point
            };
            json!({"second": second, "classes": by_name(classes, point)})
        })
        .collect()
}

fn of_second(second: Option<&Second>) -> Value {
    second.map_or_else(
        || json!({}),
        |second| {
            json!({
                "requests": second.requests,
                "bytes": second.bytes,
                "errors": second.errors,
                "p50": second.p50.map(seconds),
                "p99": second.p99.map(seconds),
                "max": second.max.map(seconds),
            })
        },
    )
}

/// The peak of resident memory. `ru_maxrss` starts with the peak of the process that forked this
/// one, so it is not used. Source: `proc_pid_status(5)`, `VmHWM`.
fn peak_memory_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|text| text.trim().strip_suffix(" kB")?.parse::<u64>().ok())
        .map_or(0, |kibibytes| kibibytes * 1024)
}
