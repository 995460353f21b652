//! Flags of a degraded result, in which the probe and not the server may have caused the figures.
//!
//! Each flag is a fixed word, a colon and a sentence.

use crate::class::Class;
use crate::clock::{MILLISECOND, Nanos, seconds};
use crate::doubts;
use crate::engine::Outcome;
use crate::surroundings::{clock_source, is_fast};

/// The share of a CPU above which the probe may have been the limit.
const MOST_CPU_RATIO: f64 = 0.8;

/// The lateness that is never flagged. On a machine with shared CPUs, a woken thread sometimes
/// waits for a scheduler slice, so less than a millisecond means nothing.
const LATENESS_FLOOR: Nanos = MILLISECOND;

/// The largest lateness (p99) as a share of a class's own p99. Latency from the intended start
/// includes lateness: above one half, the tail is more the probe's than the server's. If probe and
/// server share two CPUs, a limit of a tenth would flag every run.
const MOST_LATENESS_RATIO: f64 = 0.5;

/// The least share of arrivals that must get a connection.
const LEAST_DISPATCHED_RATIO: f64 = 0.999;

/// The largest share of arrivals that may wait at the connection limit.
const MOST_AT_CAP_RATIO: f64 = 0.001;

/// The largest share of arrivals that may be unfinished at the end.
const MOST_CENSORED_RATIO: f64 = 0.0001;

/// The largest share of the CPUs' time that a hypervisor may take.
const MOST_STEAL_RATIO: f64 = 0.02;

/// The most times per second that another process may take the CPU of a precise probe.
const MOST_PREEMPTIONS_PER_SECOND: f64 = 10.0;

/// The reasons why a result is degraded; none when it is valid.
pub fn flags(outcome: &Outcome<'_>) -> Vec<String> {
    let mut flags: Vec<String> = outcome.stopped_by.iter().cloned().collect();
    let cpu_ratio = outcome.cpu_ratio();
    // A precise run polls, so its CPU time means nothing.
    let each = cpu_ratio / outcome.threads.max(1) as f64;
    if each > MOST_CPU_RATIO && !outcome.is_precise {
        flags.push(format!(
            "generator_cpu: the probe used {:.0} % of a CPU{}",
            each * 100.0,
            if outcome.threads > 1 {
                " for each of its threads"
            } else {
                ""
            }
        ));
    }
    let preemptions = outcome.preempted as f64 / seconds(outcome.measured.max(1));
    if outcome.is_precise && preemptions > MOST_PREEMPTIONS_PER_SECOND {
        flags.push(format!(
            "precise: no CPU was free: {preemptions:.0} times a second another process took the \
             probe's"
        ));
    }
    let faults = outcome.faults.iter();
    flags.extend(faults.map(|(word, fault)| format!("{word}: {fault}")));
    for class in &outcome.classes {
        if class.is_open_loop() {
            flags.extend(class_flags(class));
        }
        if let Some(why) = class.not_http {
            flags.push(format!("not_http: {}: first {why}", class.plan.name));
        }
        if let Some(streams) = class.recorder.streams {
            // One request in a hundred waited for the probe, not for the server.
            if streams.window_stalls * 100 > streams.streams {
                flags.push(format!(
                    "window: {}: what the probe lets the server send had run out, or nearly, {} \
                     times in {} requests",
                    class.plan.name, streams.window_stalls, streams.streams
                ));
            }
        }
        let dropped = class.recorder.datagrams.map_or(0, |it| it.dropped);
        if dropped > 0 {
            flags.push(format!(
                "udp_drops: {}: {dropped} datagrams found the buffer of the probe's socket full: the \
                 server takes them for losses of the network",
                class.plan.name
            ));
        }
        let stalls = class.recorder.ack_stall_suspects;
        if stalls > 0 {
            flags.push(format!(
                "ack_stalls: {}: pauses of 35 to 60 ms inside a response, as from delayed \
                 acknowledgements: {stalls}",
                class.plan.name
            ));
        }
    }
    flags.extend(host_flags(outcome));
    flags
}

/// The flags about the probe's host.
fn host_flags(outcome: &Outcome<'_>) -> Vec<String> {
    let mut flags = Vec::new();
    if let Some(host) = &outcome.host {
        if host.steal_ratio() > MOST_STEAL_RATIO {
            flags.push(format!(
                "steal: the hypervisor took {:.1} % of the CPUs' time",
                host.steal_ratio() * 100.0
            ));
        }
        if host.throttled_periods > 0 {
            flags.push(format!(
                "throttled: a control group of the probe ran out of CPU time in {} periods",
                host.throttled_periods
            ));
        }
    }
    let clock = clock_source();
    if !is_fast(&clock) {
        flags.push(format!(
            "clock: reading the clock {clock:?} takes a system call"
        ));
    }
    flags.extend(doubts::flags(outcome));
    flags
}

/// The flags of an open-loop class. In a closed loop nothing is late or waits, and unfinished
/// requests at the end are normal.
fn class_flags(class: &Class<'_>) -> Vec<String> {
    let record = &class.recorder;
    let name = &class.plan.name;
    let mut flags = Vec::new();
    let late = record.latencies.lateness.quantile(0.99).unwrap_or(0);
    // Without answers, there is no latency that it could distort.
    let p99 = record.latencies.response.quantile(0.99);
    let spoilt = p99.filter(|&p99| late as f64 > MOST_LATENESS_RATIO * p99 as f64);
    if let Some(p99) = spoilt.filter(|_| late > LATENESS_FLOOR) {
        flags.push(format!(
            "lateness: {name}: the probe released arrivals up to {:.2} ms late (p99) where the \
             response p99 is {:.2} ms",
            seconds(late) * 1e3,
            seconds(p99) * 1e3
        ));
    }
    let share = |part: u64| part as f64 / record.intended.max(1) as f64;
    let mut flag = |word: &str, part: u64, what: &str| {
        flags.push(format!(
            "{word}: {name}: {part} of {} arrivals {what}",
            record.intended
        ));
    };
    let undispatched = record.intended - record.dispatched.min(record.intended);
    if record.intended > 0 && share(undispatched) > 1.0 - LEAST_DISPATCHED_RATIO {
        flag("not_sent", undispatched, "were never sent");
    }
    if share(record.at_cap) > MOST_AT_CAP_RATIO {
        flag(
            "at_cap",
            record.at_cap,
            "waited for a connection of the probe",
        );
    }
    if share(record.unfinished) > MOST_CENSORED_RATIO {
        flag("censored", record.unfinished, "were unanswered at the end");
    }
    flags
}
