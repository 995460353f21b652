//! Servers of HTTP/2 and HTTP/3 that mean harm: each has its name among the failures, costs bounded memory
//! and time, and breaks nothing.

mod http2;
mod http3;

use std::fs;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::ground_truth::{command, number, start};
use serde_json::{Value, json};

/// A run that lasts longer than this has not ended by itself.
const HANGS: Duration = Duration::from_secs(120);

/// When requests are given up. What a busy machine does not show in the first time may show in the next.
const TIMEOUTS_SECONDS: [f64; 3] = [0.4, 3.0, 20.0];

/// What a hostile server may cost beyond what a good one does.
const MOST_MORE_KIB: u64 = 16 * 1024;

/// One for each request, and a few more.
const MOST_CONNECTIONS: f64 = 40.0;

/// Runs side by side.
const BESIDE: usize = 4;

struct Seen {
    class: Value,
    flags: String,
    peak_kib: u64,
}

/// 100 requests a second for 0.3 s on one connection, each given up in time.
fn seen(address: SocketAddr, protocol: &str, timeout_seconds: f64) -> Seen {
    let mut target = json!({"address": "127.0.0.1", "port": address.port()});
    if protocol == "http3" {
        target["tls"] = json!({"verify": false});
    }
    let plan = json!({
        "schema": "nginx-tune/loadplan/1",
        "target": target,
        "classes": [{
            "name": "c",
            "arrivals": {"kind": "constant", "rate_per_second": 100},
            "paths": {"kind": "fixed", "paths": ["/"]},
            "connections": 1,
            "timeout_seconds": timeout_seconds,
            protocol: {"streams": 100},
        }],
        "duration_seconds": 0.3,
        "drain_seconds": timeout_seconds + 2.0,
        "permit": {"ports": [address.port()]},
    });
    let mut child = start(&mut command(), &plan);
    let status = format!("/proc/{}/status", child.id());
    let (began, mut peak_kib) = (Instant::now(), 0);
    while child.try_wait().unwrap().is_none() {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let now = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        peak_kib = peak_kib.max(now.unwrap_or(0));
        if began.elapsed() > HANGS {
            child.kill().ok();
            panic!("it does not end");
        }
        thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors, "");
    let mut run: Value = serde_json::from_slice(&output.stdout).unwrap();
    Seen {
        flags: run["flags"].to_string(),
        class: run["classes"]["c"].take(),
        peak_kib,
    }
}

/// What is to come of a server: the failures that may be, `good` for requests that are answered, and words
/// of a flag. Where it errs before it is asked anything, requests wait for the next connection, some too long.
type Verdict = (&'static str, &'static [&'static str], &'static str);

/// Judges a run; all requests are somewhere, once.
fn judge((name, kinds, words): Verdict, seen: &Seen, good_kib: u64) -> Result<(), String> {
    let Seen {
        class,
        flags,
        peak_kib,
    } = seen;
    let errors = class["errors"].as_object().unwrap();
    let mut found: Vec<&str> = errors.keys().map(String::as_str).collect();
    let failed: f64 = errors.values().filter_map(Value::as_f64).sum();
    let requests = number(class, "requests");
    if requests > 0.0 {
        found.push("good");
    }
    let say = |what: &str| Err(format!("{name}: {what}: {found:?} {flags} {class}"));
    if (requests + failed + number(class, "censored") - 30.0).abs() > 0.1 {
        return say("not each of 30 requests once");
    }
    if found.is_empty() || found.iter().any(|kind| !kinds.contains(kind)) {
        return say("other failures");
    }
    if !flags.contains(words) {
        return say("no such flag");
    }
    // With pauses between: a server that always leaves is not dialled as fast as can be.
    if number(class, "connections_opened") > MOST_CONNECTIONS {
        return say("dialled again and again");
    }
    if *peak_kib > good_kib + MOST_MORE_KIB {
        return say(&format!("{peak_kib} KiB, {good_kib} with a good server"));
    }
    Ok(())
}

/// Tries all, some side by side.
fn judge_all<P: Sync>(table: &[(Verdict, P)], run: impl Fn(&P, f64) -> Seen + Sync) {
    let (good, _) = table.split_first().expect("the good server comes first");
    let good_kib = run(&good.1, TIMEOUTS_SECONDS[0]).peak_kib;
    assert!(good_kib > 1000, "{good_kib}");
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..BESIDE {
            scope.spawn(|| {
                while let Some((verdict, peer)) = table.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut why = Ok(());
                    for timeout_seconds in TIMEOUTS_SECONDS {
                        why = judge(*verdict, &run(peer, timeout_seconds), good_kib);
                        if why.is_ok() {
                            break;
                        }
                    }
                    wrong.lock().unwrap().extend(why.err());
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
