//! Reasons other than lateness that degrade a result: wrong content, exhausted ports, missing idle
//! connections.
//!
//! Each flag is a fixed word, a colon and a sentence, as in `validity`.

use crate::class::Class;
use crate::engine::Outcome;
use crate::failure::Failure;
use crate::guard::local_ports;

/// Failures by which the server sent something other than the expected content.
const WRONG_CONTENT: [(Failure, &str); 3] = [
    (Failure::Length, "differ in length from the file"),
    (Failure::Range, "contain another part than requested"),
    (Failure::Hash, "differ from the file"),
];

/// The flags of a run.
pub fn flags(outcome: &Outcome<'_>) -> Vec<String> {
    let mut flags: Vec<String> = outcome
        .classes
        .iter()
        .flat_map(|class| of_class(class, outcome.source_addresses))
        .collect();
    let ballast = &outcome.ballast;
    if ballast.open < ballast.wanted {
        flags.push(format!(
            "idle_connections: {} of {} were open at the end; {} were closed by the server, {} \
             attempts failed",
            ballast.open, ballast.wanted, ballast.lost, ballast.failed
        ));
    }
    flags
}

fn of_class(class: &Class<'_>, addresses: u64) -> Vec<String> {
    let failures = &class.recorder.failures;
    let name = &class.plan.name;
    let mut flags: Vec<String> = WRONG_CONTENT
        .into_iter()
        .filter(|&(kind, _)| failures.of(kind) > 0)
        .map(|(kind, what)| {
            let count = failures.of(kind);
            format!("{}: {name}: {count} responses {what}", kind.name())
        })
        .collect();
    let without_port = failures.of(Failure::LocalPorts);
    if without_port > 0 {
        flags.push(format!(
            "local_ports: {name}: {without_port} requests found none of the {} local ports free \
             (net.ipv4.ip_local_port_range) on {addresses} addresses; a closed connection may \
             hold its port for a minute",
            local_ports()
        ));
    }
    let without_descriptor = failures.of(Failure::Descriptors);
    if without_descriptor > 0 {
        flags.push(format!(
            "descriptors: {name}: {without_descriptor} requests found no free descriptor \
             (ulimit -n)"
        ));
    }
    flags
}
