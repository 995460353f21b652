//! What the server sees of the schedule, and what the probe sees of the server's delays.
//!
//! On a machine that is busy with other things a measurement may be spoilt: it is made again, and what is
//! held against it is wide. Exact counts are exact at the first time.

use std::io::{Read as _, Write as _};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::ground_truth::{
    Server, Then, class, closed, command, in_a_calm_moment, number, ok, plan, run, run_class,
    start, unless,
};
use nginx_tune_probe::plan::Plan;
use nginx_tune_probe::schedule::Schedule;
use serde_json::{Value, json};

#[test]
fn the_server_sees_the_arrivals_of_the_schedule() {
    for kind in ["constant", "poisson"] {
        let arrived: Arc<Mutex<Vec<Duration>>> = Arc::default();
        let seen = arrived.clone();
        let server = Server::start(move |ask| {
            seen.lock().unwrap().push(ask.at);
            ask.stream.write_all(&ok(1)).ok();
            Then::Keep
        });
        let mut value = plan(&server);
        value["classes"][0]["arrivals"] = json!({"kind": kind, "rate_per_second": 50});
        value["duration_seconds"] = json!(2);
        let parsed = Plan::parse(value.to_string().as_bytes()).unwrap();
        let due: Vec<f64> = Schedule::new(&parsed.classes[0].arrivals, 1, "c", parsed.stripe)
            .unwrap()
            .map(|arrival| arrival.due as f64 / 1e9)
            .take_while(|due| *due < 2.0)
            .collect();
        in_a_calm_moment(|| {
            arrived.lock().unwrap().clear();
            assert_eq!(number(&run_class(&value), "intended"), due.len() as f64);
            let mut seen: Vec<f64> = arrived
                .lock()
                .unwrap()
                .iter()
                .map(Duration::as_secs_f64)
                .collect();
            seen.sort_by(f64::total_cmp);
            assert_eq!(seen.len(), due.len(), "{kind}");
            // How late each came, beside the one that came least late.
            let mut late: Vec<f64> = seen.iter().zip(&due).map(|(at, due)| at - due).collect();
            late.sort_by(f64::total_cmp);
            let median = late[late.len() / 2] - late[0];
            // A quarter of the mean gap.
            unless(median < 0.005, || {
                format!("{kind}: half came {median} s late or more")
            })
        });
    }
}

#[test]
fn a_tail_of_known_weight_and_length_is_recovered() {
    // One path in twenty takes 100 ms.
    let server = Server::start(|ask| {
        if ask.path == "/0" {
            thread::sleep(Duration::from_millis(100));
        }
        ask.stream.write_all(&ok(1)).ok();
        Then::Keep
    });
    let mut plan = plan(&server);
    let paths: Vec<String> = (0..20).map(|number| format!("/{number}")).collect();
    plan["classes"][0]["paths"] = json!({"kind": "once", "paths": paths});
    plan["classes"][0]["arrivals"] = json!({"kind": "poisson", "rate_per_second": 400});
    plan["duration_seconds"] = json!(1);
    in_a_calm_moment(|| {
        let class = run_class(&plan);
        assert_eq!(class["errors"], json!({}));
        let quantile = |name: &str| number(&class, &format!("response_seconds.{name}"));
        // Exactly 5 % lie in the tail: p99 there, p90 far from it.
        assert!(quantile("p99") >= 0.0999);
        unless(quantile("p90") < 0.05 && quantile("p99") < 0.2, || {
            format!("{class}")
        })
    });
}

#[test]
fn a_class_that_is_blocked_for_two_seconds_leaves_the_other_alone() {
    let began = Instant::now();
    let server = Server::start(move |ask| {
        let into = began.elapsed().as_secs_f64() % 3.0;
        if ask.path == "/cold" && into < 2.0 {
            thread::sleep(Duration::from_secs_f64(2.0 - into));
        }
        ask.stream.write_all(&ok(1)).ok();
        Then::Keep
    });
    let alone = plan(&server);
    let mut mixed = plan(&server);
    let mut cold = class("cold");
    cold["arrivals"] = closed(8);
    cold["connections"] = json!(8);
    cold["paths"]["paths"] = json!(["/cold"]);
    mixed["classes"].as_array_mut().unwrap().push(cold);
    in_a_calm_moment(|| {
        let length = |mut plan: Value| {
            plan["duration_seconds"] = json!(3);
            plan["classes"][0]["arrivals"]["rate_per_second"] = json!(200);
            run(&plan)
        };
        let (before, during) = (length(alone.clone()), length(mixed.clone()));
        assert_eq!(during["classes"]["c"]["requests"], 600);
        let p99 = |run: &Value| number(run, "classes.c.response_seconds.p99");
        let blocked = number(&during, "classes.cold.response_seconds.max");
        assert!(blocked > 0.5, "{blocked}");
        // In one shared pool the two seconds would be the hot class's tail.
        unless(p99(&during) < p99(&before) + 0.1 * blocked, || {
            format!("{} beside {}", p99(&during), p99(&before))
        })
    });
}

#[test]
fn a_signal_ends_the_waiting_for_the_start() {
    let server = Server::answering(ok(1));
    let mut plan = plan(&server);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    plan["start_at_unix_seconds"] = json!(now.as_secs_f64() + 600.0);
    plan["idle_connections"] = json!(5);
    let mut child = start(&mut command(), &plan);
    // Signals are caught before the waiting begins; until then one is deadly.
    let blocked = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let line = status
            .lines()
            .find_map(|l| l.strip_prefix("SigBlk:"))
            .unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap() & 2 != 0
    };
    while !blocked() {
        thread::sleep(Duration::from_millis(5));
    }
    let id = child.id().to_string();
    std::process::Command::new("kill")
        .args(["-INT", &id])
        .status()
        .unwrap();
    let mut text = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let measurement: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(measurement["flags"][0], "interrupted");
    assert_eq!(measurement["classes"]["c"]["intended"], 0);
    assert_eq!(server.connections(), 0);
}
