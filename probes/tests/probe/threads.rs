//! Engines side by side are one run: one schedule, one histogram, one end.

use std::io::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use crate::ground_truth::{
    Server, Then, await_that, command, in_a_calm_moment, number, ok, plan, run, run_class, run_raw,
    start, unless,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use serde_json::{Value, json};

/// 300 arrivals a second for eight paths for half a second, on so many threads.
fn load(server: &Server, threads: u64) -> Value {
    let mut plan = plan(server);
    plan["threads"] = json!(threads);
    plan["duration_seconds"] = json!(0.5);
    let class = &mut plan["classes"][0];
    let paths: Vec<_> = (0..8).map(|number| format!("/{number}")).collect();
    class["arrivals"] = json!({"kind": "poisson", "rate_per_second": 300});
    class["paths"] = json!({"kind": "uniform", "paths": paths});
    plan
}

fn sorted(mut paths: Vec<String>) -> Vec<String> {
    paths.sort_unstable();
    paths
}

#[test]
fn the_arrivals_are_those_of_one_thread() {
    let alone = Server::answering(ok(10));
    let whole = run_class(&load(&alone, 1));
    assert!(number(&whole, "requests") > 100.0);
    for threads in [2, 3] {
        let server = Server::answering(ok(10));
        let class = run_class(&load(&server, threads));
        for count in ["requests", "intended", "errors"] {
            assert_eq!(class[count], whole[count], "{threads}: {count}");
        }
        let response = &class["response_seconds"];
        assert_eq!(response["count"], whole["requests"], "{threads}");
        assert_eq!(sorted(server.asked()), sorted(alone.asked()), "{threads}");
    }
    // Threads of two load hosts, too.
    let server = Server::answering(ok(10));
    for index in 0..2 {
        let mut plan = load(&server, 3);
        plan["stripe"] = json!({"index": index, "count": 2});
        run(&plan);
    }
    assert_eq!(sorted(server.asked()), sorted(alone.asked()));
}

#[test]
fn a_stall_is_in_the_quantiles_of_all_and_of_each_second() {
    in_a_calm_moment(|| {
        // Everybody waits from 0.4 to 0.9 s: half a second of two.
        let server = Server::start(|ask| {
            let (from, to) = (Duration::from_millis(400), Duration::from_millis(900));
            if ask.at >= from && ask.at < to {
                thread::sleep(to.saturating_sub(ask.at));
            }
            ask.stream.write_all(&ok(10)).ok();
            Then::Keep
        });
        let mut plan = load(&server, 2);
        plan["duration_seconds"] = json!(2);
        plan["classes"][0]["arrivals"] = json!({"kind": "constant", "rate_per_second": 300});
        plan["classes"][0]["connections"] = json!(400);
        let told = run(&plan);
        let class = &told["classes"]["c"];
        assert_eq!(class["requests"], 600, "{class}");
        assert_eq!(told["generator"]["threads"], 2);
        let series = told["series"].as_array().unwrap();
        let seconds: Vec<_> = series.iter().map(|point| &point["classes"]["c"]).collect();
        let sum: f64 = seconds
            .iter()
            .map(|second| number(second, "requests"))
            .sum();
        unless(sum >= 595.0, || format!("{sum} in the series"))?;
        let p99 = number(class, "response_seconds.p99");
        unless((0.44..0.6).contains(&p99), || format!("p99 {p99}"))?;
        let [first, second] = [number(seconds[0], "p99"), number(seconds[1], "p99")];
        unless((0.44..0.6).contains(&first) && second < 0.2, || {
            format!("p99 of the seconds {first} {second}")
        })
    });
}

#[test]
fn users_and_connections_are_dealt_to_the_threads() {
    let server = Server::answering(ok(10));
    let mut plan = load(&server, 3);
    plan["duration_seconds"] = json!(1.5);
    let class = &mut plan["classes"][0];
    class["arrivals"] = json!({"kind": "closed", "users": 7, "think_seconds": 0.01});
    class["connections"] = json!(7);
    plan["idle_connections"] = json!(5);
    let told = run(&plan);
    assert_eq!(told["classes"]["c"]["connections_opened"], 7, "{told}");
    assert_eq!(told["classes"]["c"]["users"], 7);
    assert_eq!(told["generator"]["idle_connections"]["open"], 5);
    let mut held = load(&server, 3);
    held["duration_seconds"] = json!(1.5);
    held["classes"][0]["connections"] = json!(10);
    held["classes"][0]["connection_use"] = json!("turns");
    assert_eq!(run_class(&held)["connections_opened"], 10);
}

#[test]
fn one_that_reaches_a_cap_stops_all() {
    let server = Server::answering(ok(10));
    let mut plan = load(&server, 2);
    plan["duration_seconds"] = json!(20);
    plan["caps"] = json!({"requests": 100});
    let begun = Instant::now();
    let told = run(&plan);
    assert!(begun.elapsed() < Duration::from_secs(18));
    // A busy server may read the last of them after the probe has gone.
    await_that(|| server.asked().len() >= 50);
    let sent = server.asked().len();
    assert!(sent <= 100, "{sent}");
    let flag = told["flags"][0].as_str().unwrap();
    assert!(flag.starts_with("stopped: the cap of"), "{flag}");
}

#[test]
fn a_signal_ends_all_and_the_result_is_printed() {
    for threads in [1, 3] {
        ends_with_a_signal(threads);
    }
}

fn ends_with_a_signal(threads: u64) {
    let server = Server::answering(ok(10));
    let mut plan = load(&server, threads);
    plan["duration_seconds"] = json!(60);
    let child = start(&mut command(), &plan);
    await_that(|| server.asked().len() >= 100);
    let begun = Instant::now();
    #[allow(unsafe_code)]
    // SAFETY: no pointers; the child is ours and not waited for yet.
    let result = unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    assert_eq!(result, 0);
    let output = child.wait_with_output().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert_eq!(output.status.code(), Some(130));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["flags"][0], "interrupted");
    let requests = number(&told["classes"]["c"], "requests");
    assert!(requests >= 50.0, "{requests}");
}

#[test]
fn what_cannot_be_dealt_is_refused() {
    let server = Server::answering(ok(1));
    let mut few = load(&server, 3);
    few["classes"][0]["connections"] = json!(2);
    for (plan, words) in [
        (few, "2 connections for 3 threads"),
        (load(&server, 0), "threads must lie between 1"),
        (load(&server, 1000), "threads must lie between 1"),
    ] {
        let output = run_raw(&plan);
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn the_histograms_of_all_seconds_hold_what_all_threads_recorded() {
    let server = Server::answering(ok(10));
    let mut plan = load(&server, 3);
    plan["duration_seconds"] = json!(2.5);
    plan["second_histograms"] = json!(true);
    let output = run_raw(&plan);
    assert!(output.status.success());
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let seconds = told["series"].as_array().unwrap();
    assert_eq!(seconds.len(), 3);
    for second in seconds {
        let point = &second["classes"]["c"];
        let text = point["histogram"].as_str().unwrap();
        let bytes = STANDARD.decode(text).unwrap();
        let part: Histogram<u64> = Deserializer::new().deserialize(&mut &bytes[..]).unwrap();
        assert_eq!(part.len() as f64, number(point, "requests"));
    }
}
