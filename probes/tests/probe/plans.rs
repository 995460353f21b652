//! What a class asks for and how it treats its connections, as a server sees it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::ground_truth::{
    Server, Temporary, Then, await_that, class, closed, in_a_calm_moment, number, ok, plan, run,
    run_class, run_raw, unless,
};
use serde_json::{Value, json};

/// 200 requests, 5 ms apart, each for a path of its own.
fn manifest(name: &str) -> Temporary {
    let mut text = String::from("{\"schema\":\"nginx-tune/manifest/1\",\"requests\":200}\n");
    for number in 0..200 {
        let offset = f64::from(number) * 0.005;
        text += &json!({"offset_seconds": offset, "path": format!("/{number}"), "bytes": 10})
            .to_string();
        text.push('\n');
    }
    Temporary::new(name, text)
}

fn replay(server: &Server, file: &Temporary, speed: f64) -> Value {
    let mut plan = plan(server);
    plan["classes"][0]["arrivals"] = json!({"kind": "replay", "speed": speed});
    plan["classes"][0]["paths"] = json!({"kind": "manifest", "manifest": file.name()});
    plan["duration_seconds"] = json!(30);
    plan
}

#[test]
fn a_replay_asks_for_what_was_recorded_and_ends_with_it() {
    let server = Server::answering(ok(10));
    let file = manifest("whole");
    let began = Instant::now();
    let measurement = run(&replay(&server, &file, 2.0));
    assert!(began.elapsed() < Duration::from_secs(25));
    let class = &measurement["classes"]["c"];
    assert_eq!(class["intended"], 200);
    assert_eq!(class["requests"], 200);
    assert!(!measurement["flags"].to_string().contains("stopped"));
    // Half of the recorded second, and what the last answer took.
    let seconds = number(&measurement, "duration_seconds");
    assert!((0.49..25.0).contains(&seconds), "{seconds}");
    let mut asked = server.asked();
    asked.sort_by_key(|path| path[1..].parse::<u32>().unwrap());
    let expected: Vec<String> = (0..200).map(|number| format!("/{number}")).collect();
    assert_eq!(asked, expected);
}

#[test]
fn the_stripes_of_a_replay_share_its_requests() {
    let file = manifest("stripes");
    let mut all = Vec::new();
    for index in 0..3 {
        let server = Server::answering(ok(10));
        let mut plan = replay(&server, &file, 10.0);
        plan["stripe"] = json!({"index": index, "count": 3});
        let class = run_class(&plan);
        assert!((66..=67).contains(&server.asked().len()));
        assert_eq!(number(&class, "requests") as usize, server.asked().len());
        all.extend(server.asked());
    }
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 200);
}

#[test]
fn a_rate_can_ask_for_the_paths_of_a_manifest_over_and_over() {
    let server = Server::answering(ok(10));
    let file = manifest("cycle");
    let mut plan = replay(&server, &file, 1.0);
    plan["classes"][0]["arrivals"] = json!({"kind": "constant", "rate_per_second": 1000});
    plan["classes"][0]["connections"] = json!(1);
    plan["duration_seconds"] = json!(0.5);
    let class = run_class(&plan);
    assert_eq!(class["errors"], json!({}));
    let asked = server.asked();
    assert_eq!(asked.len(), 500);
    assert!(
        asked
            .iter()
            .enumerate()
            .all(|(i, path)| path[1..] == (i % 200).to_string())
    );
}

#[test]
fn a_manifest_that_turns_bad_ends_the_run_and_says_where() {
    let server = Server::answering(ok(10));
    let file = manifest("bad");
    let mut text = fs::read_to_string(&file.0).unwrap();
    text.push_str("{\"offset_seconds\": 1.2, \"path\": \"no slash\"}\n");
    fs::write(&file.0, text).unwrap();
    let measurement = run(&replay(&server, &file, 5.0));
    let flags = measurement["flags"].to_string();
    assert!(
        flags.contains("line 202: has a path that cannot be sent"),
        "{flags}"
    );
    assert!(number(&measurement, "classes.c.requests") >= 100.0);
    let whole = manifest("capped");
    let mut capped = replay(&server, &whole, 1.0);
    capped["caps"] = json!({"rate_per_second": 50});
    let measurement = run(&capped);
    let flags = measurement["flags"].to_string();
    assert!(
        flags.contains("passes the cap of 50 requests a second"),
        "{flags}"
    );
    let missing = Temporary::new("missing", "");
    let output = run_raw(&replay(&server, &missing, 1.0));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn steps_give_each_second_its_rate() {
    let server = Server::answering(ok(10));
    let mut plan = plan(&server);
    plan["classes"][0]["arrivals"] = json!({"kind": "steps", "gaps": "constant", "steps": [
        {"seconds": 1, "rate_per_second": 100},
        {"seconds": 1, "rate_per_second": 100, "to_rate_per_second": 500},
    ]});
    plan["duration_seconds"] = json!(2);
    let class = run_class(&plan);
    assert!((number(&class, "intended") - 400.0).abs() <= 1.0);
    assert_eq!(class["requests"], class["intended"]);
}

/// How many requests each connection of a run served.
fn served(policy: &Value) -> (Vec<u64>, Value) {
    let counts: Arc<Mutex<BTreeMap<u16, u64>>> = Arc::default();
    let seen = counts.clone();
    let server = Server::start(move |ask| {
        let port = ask.stream.peer_addr().unwrap().port();
        *seen.lock().unwrap().entry(port).or_default() += 1;
        ask.stream.write_all(&ok(1)).ok();
        Then::Keep
    });
    let mut plan = plan(&server);
    plan["classes"][0]["connections"] = json!(1);
    plan["classes"][0]["arrivals"] = json!({"kind": "constant", "rate_per_second": 400});
    plan["duration_seconds"] = json!(0.5);
    for (key, value) in policy.as_object().unwrap() {
        plan["classes"][0][key] = value.clone();
    }
    let class = run_class(&plan);
    let counts = counts.lock().unwrap().values().copied().collect();
    (counts, class)
}

#[test]
fn connections_are_kept_as_long_as_the_plan_says() {
    for (policy, opened) in [
        (json!({}), 1),
        (json!({"keepalive": false}), 200),
        (json!({"keepalive_requests": 1}), 200),
        (json!({"keepalive_requests": 2}), 100),
        (json!({"keepalive_requests": 7}), 29),
        (json!({"keepalive_requests": 100}), 2),
        (json!({"close_probability": 1.0}), 200),
    ] {
        let (counts, class) = served(&policy);
        assert_eq!(class["requests"], 200, "{policy}");
        assert_eq!(class["errors"], json!({}), "{policy}");
        assert_eq!(class["connections_opened"], opened, "{policy}");
        assert_eq!(counts.iter().sum::<u64>(), 200);
    }
    let (_, class) = served(&json!({"close_probability": 0.1}));
    // One in ten of 200, four standard deviations either way.
    let opened = number(&class, "connections_opened");
    assert!((4.0..=38.0).contains(&opened), "{opened}");
    assert_eq!(class["requests"], 200);
}

#[test]
fn a_slow_client_reads_no_faster_than_it_was_told() {
    let server = Server::start(|ask| {
        let body = if ask.path == "/slow" { 20_000 } else { 100 };
        ask.stream.write_all(&ok(body)).ok();
        Then::Keep
    });
    let mut plan = plan(&server);
    plan["classes"][0]["arrivals"] = closed(2);
    plan["classes"][0]["paths"]["paths"] = json!(["/slow"]);
    plan["classes"][0]["read_bytes_per_second"] = json!(20_000);
    plan["classes"].as_array_mut().unwrap().push(class("quick"));
    plan["duration_seconds"] = json!(1.2);
    plan["drain_seconds"] = json!(0.2);
    let measurement = run(&plan);
    let (slow, quick) = (
        &measurement["classes"]["c"],
        &measurement["classes"]["quick"],
    );
    // 1.2 s of two clients at 20 kB/s; the first read comes without a rest.
    let bytes = number(slow, "bytes");
    assert!(bytes <= 50_000.0, "{bytes}");
    assert!(bytes >= 10_000.0, "{bytes}");
    assert_eq!(quick["requests"], 120);
    assert!(number(slow, "response_seconds.max") >= 0.9);
    assert!(number(quick, "response_seconds.p50") < 0.5);
}

#[test]
fn a_slow_client_does_not_rest_after_a_header_as_after_a_whole_read() {
    let server = Server::start(|ask| {
        let answer = ok(1_000);
        let header = if ask.path == "/pieces" {
            answer.len() - 1_000
        } else {
            0
        };
        ask.stream.set_nodelay(true).ok();
        ask.stream.write_all(&answer[..header]).ok();
        std::thread::sleep(std::time::Duration::from_millis(1));
        ask.stream.write_all(&answer[header..]).ok();
        Then::Keep
    });
    let mut plan = plan(&server);
    plan["classes"]
        .as_array_mut()
        .unwrap()
        .push(class("pieces"));
    for (number, path) in ["/whole", "/pieces"].into_iter().enumerate() {
        plan["classes"][number]["arrivals"] = closed(1);
        plan["classes"][number]["paths"]["paths"] = json!([path]);
        plan["classes"][number]["read_bytes_per_second"] = json!(80_000);
    }
    in_a_calm_moment(|| {
        let measurement = run(&plan);
        let answered = |name: &str| number(&measurement["classes"][name], "requests");
        // Either is read at once; with a rest of 20 ms after the header there were one for twenty.
        let (whole, pieces) = (answered("c"), answered("pieces"));
        unless(pieces > whole / 4.0, || format!("{pieces} beside {whole}"))
    });
}

#[test]
fn idle_connections_stay_open_and_are_opened_again() {
    let server = Server::answering(ok(1));
    let mut plan = plan(&server);
    plan["idle_connections"] = json!(100);
    plan["warmup_seconds"] = json!(1.5);
    let measurement = run(&plan);
    let idle = &measurement["generator"]["idle_connections"];
    assert_eq!(
        *idle,
        json!({"wanted": 100, "open": 100, "lost": 0, "failed": 0})
    );
    assert!(
        !measurement["flags"]
            .to_string()
            .contains("idle_connections")
    );
    let opened = number(&measurement, "classes.c.connections_opened") as u64;
    await_that(|| server.connections() >= 100 + opened);
    assert_eq!(server.connections(), 100 + opened);

    // Nobody there: said so, and not tried a thousand times a second.
    drop(server);
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = nobody.local_addr().unwrap().port();
    drop(nobody);
    plan["target"]["port"] = json!(port);
    plan["permit"] = json!({"ports": [port]});
    let measurement = run(&plan);
    let failed = number(&measurement, "generator.idle_connections.failed");
    assert!((1.0..1000.0).contains(&failed), "{failed}");
    let flags = measurement["flags"].to_string();
    assert!(
        flags.contains("idle_connections: 0 of 100 were open"),
        "{flags}"
    );
}

#[test]
fn a_class_may_ask_a_server_of_its_own() {
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = heads.clone();
    let other = Server::start(move |ask| {
        seen.lock().unwrap().push(ask.head.to_owned());
        ask.stream.write_all(&ok(7)).unwrap();
        Then::Keep
    });
    let server = Server::answering(ok(1));
    let mut plan = plan(&server);
    let mut elsewhere = class("elsewhere");
    let port = other.address.port();
    elsewhere["target"] = json!({"address": "127.0.0.1", "port": port, "host": "b.example"});
    plan["classes"] = json!([class("c"), elsewhere]);
    plan["permit"] = json!({"ports": [server.address.port(), port]});
    let classes = &run(&plan)["classes"];
    for (name, bytes) in [("c", 1.0), ("elsewhere", 7.0)] {
        let class = &classes[name];
        assert_eq!(class["errors"], json!({}), "{class}");
        // What came after the measured time does not count.
        let bodies = number(class, "bytes") / bytes;
        assert!(
            bodies > 0.0 && bodies <= number(class, "requests"),
            "{class}"
        );
        assert_eq!(bodies.fract(), 0.0, "{class}");
    }
    let heads = heads.lock().unwrap();
    assert!(
        heads.iter().all(|head| head.contains("b.example")),
        "{heads:?}"
    );
}

fn unix_seconds() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs_f64()
}

#[test]
fn several_hosts_start_at_one_moment_and_make_one_load() {
    let arrived: Arc<Mutex<Vec<(String, Duration)>>> = Arc::default();
    let seen = arrived.clone();
    let server = Server::start(move |ask| {
        seen.lock().unwrap().push((ask.path.to_owned(), ask.at));
        ask.stream.write_all(&ok(1)).ok();
        Then::Keep
    });
    let plans = |start_at: f64| {
        [0, 1].map(|index| {
            let mut plan = plan(&server);
            plan["classes"][0]["paths"]["paths"] = json!([format!("/{index}")]);
            plan["classes"][0]["arrivals"] = json!({"kind": "constant", "rate_per_second": 40});
            plan["duration_seconds"] = json!(1);
            plan["stripe"] = json!({"index": index, "count": 2});
            plan["start_at_unix_seconds"] = json!(start_at);
            plan
        })
    };
    in_a_calm_moment(|| {
        arrived.lock().unwrap().clear();
        let runs: Vec<Value> = plans(unix_seconds() + 2.0)
            .map(|plan| thread::spawn(move || run(&plan)))
            .into_iter()
            .map(|run| run.join().unwrap())
            .collect();
        for run in &runs {
            assert_eq!(number(run, "classes.c.requests"), 20.0);
            let skew = number(run, "generator.start_skew_seconds");
            assert!((0.0..2.0).contains(&skew), "{skew}");
        }
        let mut arrived = arrived.lock().unwrap().clone();
        arrived.sort_by_key(|(_, at)| *at);
        assert_eq!(arrived.len(), 40);
        // The two take turns. A busy machine may swap neighbours, not most of them.
        let turns = arrived
            .windows(2)
            .filter(|pair| pair[0].0 != pair[1].0)
            .count();
        unless(turns >= 20, || format!("{turns}"))
    });
}

#[test]
fn a_start_that_has_passed_or_never_comes_is_refused() {
    let server = Server::answering(ok(1));
    let mut plan = plan(&server);
    for (start, words) in [(-60.0, "s ago"), (9000.0, "s ahead")] {
        plan["start_at_unix_seconds"] = json!(unix_seconds() + start);
        let output = run_raw(&plan);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(words), "{errors}");
    }
    assert_eq!(server.connections(), 0);
}

#[test]
fn redirects_are_not_followed() {
    let other = Server::answering(ok(1));
    let location = other.address;
    let server = Server::answering(format!(
        "HTTP/1.1 302 Found\r\nLocation: http://{location}/\r\nContent-Length: 0\r\n\r\n"
    ));
    let mut plan = plan(&server);
    plan["permit"]["ports"] = json!([server.address.port(), location.port()]);
    let class = run_class(&plan);
    assert_eq!(class["errors"], json!({"status": 30}));
    assert_eq!(class["statuses"], json!({"302": 30}));
    assert_eq!(other.connections(), 0);
}
