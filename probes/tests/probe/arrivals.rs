//! The schedule holds whatever the server does, and the latency tells what waiting cost.

use std::io::Write as _;
use std::thread;
use std::time::Duration;

use crate::ground_truth::{
    Server, Then, class, closed, in_a_calm_moment, number, ok, plan, run, run_class, unless,
};
use nginx_tune_probe::engine::Engine;
use nginx_tune_probe::plan::Plan;
use nginx_tune_probe::progress::Progress;
use nginx_tune_probe::receive::Receiver;
use nginx_tune_probe::report::measurement;
use nginx_tune_probe::sys::Poller;
use serde_json::{Value, json};

const STALL_EVERY: Duration = Duration::from_secs(1);
const STALL: Duration = Duration::from_millis(200);

/// Answers at once, but stands still for the first fifth of every second.
///
/// The truth in closed form, whatever the number of connections: four fifths of the arrivals
/// find it awake, the others wait for between nothing and the whole stall, evenly spread. So for
/// q > 0.8 latency(q) = (q - 0.8) / 0.2 stalls: p90 half a stall, p99 0.95 and p99.9 0.995 of it.
fn stalling() -> Server {
    Server::start(|ask| {
        let into = Duration::from_nanos((ask.at.as_nanos() % STALL_EVERY.as_nanos()) as u64);
        if into < STALL {
            thread::sleep(STALL.saturating_sub(into));
        }
        ask.stream.write_all(&ok(1000)).ok();
        Then::Keep
    })
}

/// Runs four whole periods, 400 arrivals a second.
fn run_stalled(kind: &str, connections: usize) -> Value {
    let server = stalling();
    let mut plan = plan(&server);
    plan["classes"][0]["arrivals"] = json!({"kind": kind, "rate_per_second": 400});
    plan["classes"][0]["connections"] = json!(connections);
    plan["duration_seconds"] = json!(4);
    run_class(&plan)
}

/// Judges the truth of the stall. A probe that omits waiting requests has a p99 near zero; what
/// a busy machine adds lies above.
fn judge_stall(class: &Value) -> Result<(), String> {
    assert_eq!(class["errors"], json!({}));
    let stall = STALL.as_secs_f64();
    for (quantile, low, high) in [
        ("p50", 0.0, 0.2),
        ("p90", 0.4, 0.7),
        ("p99", 0.9, 1.2),
        ("p999", 0.95, 1.4),
    ] {
        let seen = number(class, &format!("response_seconds.{quantile}")) / stall;
        assert!(seen >= low, "{quantile}: {seen} stalls");
        unless(seen < high, || format!("{quantile}: {seen} stalls"))?;
    }
    Ok(())
}

#[test]
fn a_stalled_server_hides_no_arrival() {
    for connections in [20, 400] {
        in_a_calm_moment(|| {
            let class = run_stalled("constant", connections);
            assert_eq!(class["intended"], 1600);
            assert_eq!(class["requests"], 1600);
            judge_stall(&class)?;
            if connections == 400 {
                return unless(class["at_cap"] == 0, || format!("{class}"));
            }
            // Most arrivals of a stall waited for one of the 20 connections: their service
            // time hides what the response time shows.
            assert!(number(&class, "at_cap") > 100.0);
            let service = number(&class, "service_seconds.p90") / STALL.as_secs_f64();
            unless(service * 2.0 < 0.5, || format!("service: {service} stalls"))
        });
    }
}

#[test]
fn poisson_arrivals_see_the_same_stall() {
    in_a_calm_moment(|| {
        let class = run_stalled("poisson", 400);
        let count = number(&class, "intended");
        // Four standard deviations of a Poisson count of 1600.
        assert!((count - 1600.0).abs() < 160.0, "{count}");
        assert_eq!(number(&class, "requests"), count);
        judge_stall(&class)
    });
}

#[test]
fn every_arrival_is_accounted_for_once() {
    // A mixed bag: some well answered, some cut short, some refused an answer for good.
    let server = Server::start(|ask| {
        match ask.path {
            "/short" => {
                ask.stream.write_all(&ok(100)[..60]).ok();
                return Then::Close;
            }
            "/never" => thread::sleep(Duration::from_secs(5)),
            _ => {
                ask.stream.write_all(&ok(100)).ok();
            }
        }
        Then::Keep
    });
    let mut plan = plan(&server);
    plan["classes"][0]["paths"] = json!({
        "kind": "uniform", "paths": ["/good", "/good2", "/good3", "/short", "/never"],
    });
    plan["classes"][0]["connections"] = json!(300);
    plan["duration_seconds"] = json!(1);
    plan["drain_seconds"] = json!(0.3);
    plan["warmup_seconds"] = json!(0.25);
    plan["seed"] = json!(3);
    let measurement = run(&plan);
    let class = &measurement["classes"]["c"];
    assert_eq!(class["intended"], 100, "{class}");
    let sum =
        number(class, "requests") + number(class, "errors.truncated") + number(class, "censored");
    assert_eq!(sum, 100.0);
    assert!(number(class, "censored") > 5.0);
    assert!(number(class, "errors.truncated") > 5.0);
    // The unfinished stand in the response times at their age, at least the drain's length.
    assert!(number(class, "censored_from_seconds") >= 0.3);
    assert!(number(class, "response_seconds.p99") >= 0.3);
    let count = number(class, "response_seconds.count");
    assert_eq!(count, number(class, "requests") + number(class, "censored"));
    let flags = measurement["flags"].to_string();
    assert!(flags.contains("censored: c: "), "{flags}");
    assert_eq!(measurement["series"].as_array().unwrap().len(), 1);
}

#[test]
fn at_the_cap_an_arrival_waits_with_its_intended_time() {
    let server = Server::start(|ask| {
        thread::sleep(Duration::from_millis(20));
        ask.stream.write_all(&ok(1)).ok();
        Then::Keep
    });
    let mut plan = plan(&server);
    plan["classes"][0]["connections"] = json!(1);
    let measurement = run(&plan);
    let class = &measurement["classes"]["c"];
    assert_eq!(class["requests"], 30);
    assert_eq!(class["connections_opened"], 1);
    assert!(number(class, "at_cap") > 20.0);
    assert!(number(class, "max_pending") > 5.0);
    // 30 arrivals at 10-ms gaps, served at 20-ms gaps: the last waits for about 300 ms.
    assert!(number(class, "response_seconds.max") > 3.0 * number(class, "service_seconds.p50"));
    assert!(number(class, "response_seconds.max") > 0.25);
    let flags = measurement["flags"].to_string();
    assert!(flags.contains("at_cap: c: "), "{flags}");
}

#[test]
fn a_blocked_class_does_not_delay_another() {
    let server = Server::start(|ask| {
        if ask.path == "/cold" {
            thread::sleep(Duration::from_millis(800));
        }
        ask.stream.write_all(&ok(1)).ok();
        Then::Keep
    });
    let mut plan = plan(&server);
    let mut cold = class("cold");
    cold["arrivals"] = closed(4);
    cold["connections"] = json!(4);
    cold["paths"]["paths"] = json!(["/cold"]);
    plan["classes"].as_array_mut().unwrap().push(cold);
    plan["duration_seconds"] = json!(1);
    in_a_calm_moment(|| {
        let measurement = run(&plan);
        let (hot, cold) = (
            &measurement["classes"]["c"],
            &measurement["classes"]["cold"],
        );
        assert_eq!(hot["requests"], 100);
        // Each user once, and a second time where the first answer came before the end.
        assert!((4.0..=8.0).contains(&number(cold, "requests")), "{cold}");
        let blocked = number(cold, "response_seconds.p50");
        assert!(blocked >= 0.8);
        let p99 = number(hot, "response_seconds.p99");
        unless(p99 < 0.1 * blocked, || format!("{p99} beside {blocked}"))
    });
}

#[test]
fn a_closed_loop_keeps_its_users_busy_and_its_service_time_is_its_response_time() {
    let server = Server::start(|ask| {
        thread::sleep(Duration::from_millis(10));
        ask.stream.write_all(&ok(1)).ok();
        Then::Keep
    });
    let mut plan = plan(&server);
    plan["classes"][0]["arrivals"] = closed(5);
    plan["duration_seconds"] = json!(1);
    in_a_calm_moment(|| {
        let class = run_class(&plan);
        let requests = number(&class, "requests");
        assert!(requests <= 500.0, "{requests}");
        assert_eq!(class["connections_opened"], 5);
        assert_eq!(class["at_cap"], 0);
        assert_eq!(number(&class, "intended"), requests);
        let (response, service) = (
            number(&class, "response_seconds.mean"),
            number(&class, "service_seconds.mean"),
        );
        // Fewer by what a busy machine oversleeps.
        unless(
            requests >= 200.0 && (response / service - 1.0).abs() < 0.05,
            || format!("{requests}: {response} {service}"),
        )
    });
}

#[test]
fn a_user_whose_requests_fail_backs_off() {
    let server = Server::start(|_| Then::Close);
    let mut plan = plan(&server);
    plan["classes"][0]["arrivals"] = closed(2);
    plan["duration_seconds"] = json!(1);
    let class = run_class(&plan);
    // 1 + 2 + 4 … + 64 ms, then every 100 ms: 7 and 9 or so requests for each user, fewer where each takes long.
    let failed = number(&class, "errors.empty");
    assert!((4.0..=36.0).contains(&failed), "{failed}");
}

#[test]
fn a_seed_gives_the_same_requests_in_the_same_order() {
    let asked = |kind: &str, seed: u64| {
        let server = Server::answering(ok(1));
        let mut plan = plan(&server);
        let paths: Vec<String> = (0..20).map(|number| format!("/{number}")).collect();
        plan["classes"][0]["paths"] = json!({"kind": kind, "paths": paths, "exponent": 0.9});
        plan["classes"][0]["connections"] = json!(1);
        plan["seed"] = json!(seed);
        run(&plan);
        server.asked()
    };
    for kind in ["uniform", "zipf", "once"] {
        let first = asked(kind, 1);
        assert_eq!(first.len(), 30);
        assert_eq!(first, asked(kind, 1));
        assert_ne!(first, asked(kind, 2));
    }
}

#[test]
fn the_series_adds_up_and_the_warm_up_is_left_out() {
    let server = Server::answering(ok(100));
    let mut plan = plan(&server);
    plan["warmup_seconds"] = json!(0.5);
    plan["duration_seconds"] = json!(1.5);
    in_a_calm_moment(|| {
        server.asked.lock().unwrap().clear();
        let measurement = run(&plan);
        let class = &measurement["classes"]["c"];
        assert_eq!(class["intended"], 150);
        assert_eq!(class["requests"], 150);
        assert_eq!(server.asked().len(), 200);
        let series = measurement["series"].as_array().unwrap();
        assert_eq!(series.len(), 2);
        let sum: f64 = series
            .iter()
            .map(|point| number(point, "classes.c.requests"))
            .sum();
        assert!((number(class, "requests_per_second") - 100.0).abs() < 0.1);
        // One may be intended in the window and done after it, and the other way round.
        unless((sum - 150.0).abs() <= 3.0, || format!("{sum}"))
    });
}

#[test]
fn the_timer_of_older_kernels_keeps_the_schedule_too() {
    let server = Server::answering(ok(100));
    let mut value = plan(&server);
    value["classes"][0]["arrivals"] = json!({"kind": "poisson", "rate_per_second": 500});
    value["duration_seconds"] = json!(1);
    let plan = Plan::parse(value.to_string().as_bytes()).unwrap();
    let run = |precise: bool, discards: bool| {
        let poller = Poller::new(precise).unwrap();
        let receiver = Receiver::new(discards, true);
        let engine = Engine::new(&plan, poller, receiver, Progress::default()).unwrap();
        measurement(&plan, &engine.run().unwrap())
    };
    in_a_calm_moment(|| {
        let (new, old) = (run(true, true), run(false, false));
        for measurement in [&new, &old] {
            let class = &measurement["classes"]["c"];
            assert_eq!(class["errors"], json!({}));
            assert_eq!(class["requests"], class["intended"]);
        }
        assert_eq!(
            new["classes"]["c"]["intended"],
            old["classes"]["c"]["intended"]
        );
        // Half of the arrivals are released within a millisecond: no timer of whole milliseconds.
        let late = number(&old, "generator.lateness_seconds.p50");
        unless(late < 0.001, || format!("{late}"))
    });
}
