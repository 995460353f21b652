//! Messages over WebSockets to a server whose delays, ends and words are known.

#![allow(clippy::float_cmp)] // counts: exact in a double

mod ground_truth;
#[path = "ground_truth/websocket.rs"]
mod websocket;

use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ground_truth::{Ask, Server, Then, closed, number, plan, run, run_class, run_raw};
use ground_truth::{unless, within_four_tries};
use serde_json::{Value, json};
use websocket::{
    BINARY, CLOSE, CONTINUATION, FINAL, PING, PONG, TEXT, echo, frame, is_own_server, read_frame,
    switching,
};

/// 100 messages a second for 0.3 s on one connection, of 128 bytes unless changed.
fn messages(server: &Server) -> Value {
    let mut plan = plan(server);
    plan["classes"][0]["connections"] = json!(1);
    plan["classes"][0]["websocket"] = json!({});
    plan
}

/// A server that opens and then does this.
fn opening(serve: impl Fn(Ask<'_>) -> std::io::Result<()> + Send + Sync + 'static) -> Server {
    Server::start(move |ask| {
        let agreed = switching(ask.head);
        ask.stream.write_all(&agreed).ok();
        // It ends when the probe has gone: nothing is to be said of that.
        serve(ask).ok();
        Then::Close
    })
}

fn echoing() -> Server {
    opening(|ask| echo(ask.stream, |_, first, payload| Some(frame(first, payload))))
}

fn assert_good(class: &Value, count: f64) {
    assert_eq!(class["errors"], json!({}), "{class}");
    assert_eq!(number(class, "requests"), count, "{class}");
    assert_eq!(class["censored"], 0);
    assert_eq!(number(class, "websocket.early_ends"), 0.0, "{class}");
}

#[test]
fn messages_of_every_size_come_back() {
    if !is_own_server("messages_of_every_size_come_back") {
        return;
    }
    let server = echoing();
    for (bytes, text) in [(1, false), (125, true), (126, false), (65_536, true)] {
        let mut plan = messages(&server);
        plan["classes"][0]["websocket"] = json!({"message_bytes": bytes, "text": text});
        let class = run_class(&plan);
        assert_good(&class, 30.0);
        // On a busy machine the last ones may come after the measured time.
        assert!((1.0..=30.0).contains(&number(&class, "websocket.echoes")));
        assert_eq!(number(&class, "websocket.opening_seconds.count"), 1.0);
        assert_eq!(class["connections_opened"], 1);
        assert_eq!(class["stray"], 0);
    }
    let mut plan = messages(&server);
    plan["classes"][0]["connections"] = json!(8);
    plan["classes"][0]["arrivals"] = closed(16);
    plan["classes"][0]["websocket"] = json!({"messages": 2});
    let class = run_class(&plan);
    assert!(number(&class, "requests") > 100.0, "{class}");
    assert_eq!(class["errors"], json!({}), "{class}");
    assert_eq!(number(&class, "websocket.opened"), 8.0);
}

#[test]
fn delays_and_gaps_are_those_of_the_server_within_three_percent() {
    if !is_own_server("delays_and_gaps_are_those_of_the_server_within_three_percent") {
        return;
    }
    let seen: Arc<Mutex<Vec<(Instant, Instant)>>> = Arc::default();
    let own = seen.clone();
    let server = opening(move |ask| {
        echo(ask.stream, |number, first, payload| {
            let came = Instant::now();
            let late = number % 8 == 7;
            thread::sleep(Duration::from_millis(if late { 230 } else { 90 }));
            own.lock().unwrap().push((came, Instant::now()));
            Some(frame(first, payload))
        })
    });
    let mut plan = messages(&server);
    plan["classes"][0]["arrivals"]["rate_per_second"] = json!(4);
    plan["duration_seconds"] = json!(4);
    within_four_tries(|| {
        seen.lock().unwrap().clear();
        let class = run_class(&plan);
        assert_good(&class, 16.0);
        let truth = seen.lock().unwrap().clone();
        let delays: Vec<f64> = truth
            .iter()
            .map(|(came, sent)| (*sent - *came).as_secs_f64())
            .collect();
        let gaps = truth
            .windows(2)
            .map(|two| (two[1].1 - two[0].1).as_secs_f64());
        for (name, truth) in [
            ("response_seconds.mean", delays.iter().sum::<f64>() / 16.0),
            (
                "response_seconds.max",
                delays.iter().copied().fold(0.0, f64::max),
            ),
            (
                "websocket.gap_seconds.max",
                gaps.clone().fold(0.0, f64::max),
            ),
            ("websocket.gap_seconds.mean", gaps.sum::<f64>() / 15.0),
        ] {
            let got = number(&class, name);
            unless((got / truth - 1.0).abs() < 0.03, || {
                format!("{name}: {got}, in truth {truth}")
            })?;
        }
        Ok(())
    });
}

#[test]
fn what_a_stall_holds_up_is_sent_on_time_and_counts_from_when_it_was_due() {
    if !is_own_server("what_a_stall_holds_up_is_sent_on_time_and_counts_from_when_it_was_due") {
        return;
    }
    let arrived: Arc<Mutex<Vec<usize>>> = Arc::default();
    let seen = arrived.clone();
    let server = opening(move |ask| {
        echo(ask.stream, |number, first, payload| {
            if number == 20 {
                thread::sleep(Duration::from_millis(600));
            }
            seen.lock().unwrap().push(payload.len());
            Some(frame(first, payload))
        })
    });
    let mut plan = messages(&server);
    plan["duration_seconds"] = json!(1.0);
    within_four_tries(|| {
        arrived.lock().unwrap().clear();
        let class = run_class(&plan);
        assert_good(&class, 100.0);
        // 60 messages were due in the stall: the mean of their times is half of it.
        let mean = number(&class, "response_seconds.mean");
        unless((mean / 0.18 - 1.0).abs() < 0.1, || format!("mean {mean}"))?;
        let most = number(&class, "websocket.most_messages");
        unless((55.0..66.0).contains(&most), || format!("{most} at once"))?;
        let gap = number(&class, "websocket.gap_seconds.max");
        unless((0.59..0.7).contains(&gap), || format!("gap {gap}"))?;
        // But for what was due before the connection stood.
        unless(number(&class, "at_cap") < 10.0, || format!("{class}"))?;
        Ok(())
    });
    // With room for one they wait in the probe, and their times are the same.
    plan["classes"][0]["websocket"] = json!({"messages": 1});
    within_four_tries(|| {
        let class = run_class(&plan);
        assert_good(&class, 100.0);
        assert_eq!(number(&class, "websocket.most_messages"), 1.0);
        let mean = number(&class, "response_seconds.mean");
        unless((mean / 0.18 - 1.0).abs() < 0.1, || format!("mean {mean}"))
    });
}

#[test]
fn ends_are_told_apart_and_others_are_opened_in_their_place() {
    if !is_own_server("ends_are_told_apart_and_others_are_opened_in_their_place") {
        return;
    }
    for (name, last, then) in [
        ("closes", frame(FINAL | CLOSE, b"\x03\xe9moved"), Then::Keep),
        ("tcp_ends", Vec::new(), Then::Close),
        ("resets", Vec::new(), Then::Reset),
    ] {
        let then: Arc<Mutex<Then>> = Arc::new(Mutex::new(then));
        let said = last.clone();
        let server = Server::start(move |ask| {
            ask.stream.write_all(&switching(ask.head)).ok();
            let mut come = 0;
            let ended = echo(ask.stream, |number, first, payload| {
                come = number + 1;
                (number < 9).then(|| frame(first, payload))
            });
            if ended.is_ok() && come == 10 && !said.is_empty() {
                ask.stream.write_all(&said).ok();
                // The probe answers and leaves.
                let (first, payload) = read_frame(ask.stream).unwrap_or((0, Vec::new()));
                assert_eq!((first, &payload[..]), (FINAL | CLOSE, &b"\x03\xe9"[..]));
                return Then::Close;
            }
            match *then.lock().unwrap() {
                Then::Reset => Then::Reset,
                _ => Then::Close,
            }
        });
        let class = run_class(&messages(&server));
        assert_eq!(class["errors"], json!({"closed": 3}), "{name} {class}");
        assert_eq!(number(&class, "requests"), 27.0);
        let counts = &class["websocket"];
        // The last end may come after the measured time.
        let count = |value: &Value| value.as_f64().unwrap();
        let found = match name {
            "closes" => count(&counts["closes"]["1001"]),
            _ => count(&counts[name]),
        };
        assert!((2.0..=3.0).contains(&found), "{name} {class}");
        assert_eq!(count(&counts["early_ends"]), found, "{name} {class}");
        assert!((3.0..=4.0).contains(&number(&class, "websocket.opened")));
    }
}

#[test]
fn an_idle_websocket_that_is_ended_is_seen_and_fails_no_message() {
    if !is_own_server("an_idle_websocket_that_is_ended_is_seen_and_fails_no_message") {
        return;
    }
    // Ended a while after each echo, as a proxy does that has heard nothing for its time.
    let server = opening(|ask| {
        let mut stream = ask.stream.try_clone()?;
        echo(ask.stream, |number, first, payload| {
            if number > 0 {
                return None;
            }
            let answer = frame(first, payload);
            stream.write_all(&answer).ok();
            thread::sleep(Duration::from_millis(30));
            None
        })
    });
    let mut plan = messages(&server);
    plan["classes"][0]["arrivals"]["rate_per_second"] = json!(5);
    plan["duration_seconds"] = json!(1.0);
    let class = run_class(&plan);
    assert_eq!(class["errors"], json!({}), "{class}");
    assert_eq!(number(&class, "requests"), 5.0);
    assert!(number(&class, "websocket.tcp_ends") >= 4.0, "{class}");
    assert_eq!(
        number(&class, "websocket.early_ends"),
        number(&class, "websocket.tcp_ends")
    );
}

#[test]
fn a_refusal_is_a_failure_of_its_own() {
    if !is_own_server("a_refusal_is_a_failure_of_its_own") {
        return;
    }
    let server = Server::answering_and_closing("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
    let mut plan = messages(&server);
    plan["classes"][0]["timeout_seconds"] = json!(20);
    let class = run_class(&plan);
    assert_eq!(number(&class, "requests"), 0.0);
    let failed = number(&class, "errors.upgrade");
    assert_eq!(failed + number(&class, "censored"), 30.0, "{class}");
    assert!(failed >= 10.0, "{class}");
    let refused = number(&class, "websocket.refused.503");
    assert!(
        (2.0..20.0).contains(&refused),
        "not dialled as fast as can be: {class}"
    );
    assert_eq!(number(&class, "websocket.opened"), 0.0);
}

#[test]
fn messages_whose_time_was_up_are_failures_and_their_echoes_are_late() {
    if !is_own_server("messages_whose_time_was_up_are_failures_and_their_echoes_are_late") {
        return;
    }
    let server = opening(|ask| {
        echo(ask.stream, |number, first, payload| {
            if number == 10 {
                thread::sleep(Duration::from_millis(500));
            }
            Some(frame(first, payload))
        })
    });
    let mut plan = messages(&server);
    plan["duration_seconds"] = json!(1.0);
    plan["classes"][0]["timeout_seconds"] = json!(0.3);
    within_four_tries(|| {
        let class = run_class(&plan);
        let timeouts = number(&class, "errors.timeout");
        assert_eq!(number(&class, "requests") + timeouts, 100.0, "{class}");
        unless((18.0..24.0).contains(&timeouts), || format!("{class}"))?;
        unless(number(&class, "websocket.late") == timeouts, || {
            format!("{class}")
        })?;
        assert_eq!(
            class["errors"].as_object().unwrap().len(),
            1,
            "no other's echo: {class}"
        );
        Ok(())
    });
}

#[test]
fn parts_pings_pongs_and_greetings_are_taken_and_pings_are_answered() {
    if !is_own_server("parts_pings_pongs_and_greetings_are_taken_and_pings_are_answered") {
        return;
    }
    let pongs: Arc<Mutex<u64>> = Arc::default();
    let heard = pongs.clone();
    let server = opening(move |ask| {
        let greeting = frame(FINAL | TEXT, b"welcome");
        ask.stream.write_all(&greeting)?;
        echo(ask.stream, |_, first, payload| {
            if first & 0xf == PONG {
                assert_eq!(payload, b"there?");
                *heard.lock().unwrap() += 1;
                return Some(Vec::new());
            }
            assert_eq!((first, payload.len()), (FINAL | BINARY, 128));
            Some(
                [
                    frame(BINARY, &payload[..50]),
                    frame(FINAL | PING, b"there?"),
                    frame(CONTINUATION, b""),
                    frame(FINAL | PONG, b"unasked"),
                    frame(FINAL | CONTINUATION, &payload[50..]),
                ]
                .concat(),
            )
        })
    });
    let mut plan = messages(&server);
    // The greeting comes before anything is awaited.
    plan["warmup_seconds"] = json!(0.2);
    let class = run_class(&plan);
    assert_good(&class, 30.0);
    assert!(number(&class, "websocket.pings") >= 29.0, "{class}");
    assert!(number(&class, "websocket.fragmented") >= 29.0, "{class}");
    let pongs = *pongs.lock().unwrap();
    assert!(pongs >= 40, "{pongs}");
}

#[test]
fn another_message_is_a_failure() {
    if !is_own_server("another_message_is_a_failure") {
        return;
    }
    let server = opening(|ask| {
        echo(ask.stream, |number, first, payload| {
            let mut other = payload.to_vec();
            match number % 3 {
                0 => {}
                1 => other[100] ^= 1,
                _ => other.truncate(100),
            }
            Some(frame(first, &other))
        })
    });
    let class = run_class(&messages(&server));
    assert_eq!(class["errors"], json!({"echo": 20}), "{class}");
    assert_eq!(number(&class, "requests"), 10.0);
}

#[test]
fn threads_add_their_websockets() {
    if !is_own_server("threads_add_their_websockets") {
        return;
    }
    let server = echoing();
    let mut plan = messages(&server);
    plan["threads"] = json!(2);
    plan["classes"][0]["connections"] = json!(6);
    plan["duration_seconds"] = json!(1.0);
    let document = run(&plan);
    assert_eq!(document["generator"]["threads"], 2);
    let class = &document["classes"]["c"];
    assert_good(class, 100.0);
    assert_eq!(number(class, "websocket.opened"), 6.0);
    assert!(
        number(class, "websocket.echoes") > 50.0,
        "both threads': {class}"
    );
}

#[test]
fn a_server_that_is_not_ours_gets_no_packet() {
    // This process has no mark, and no permission opens it.
    let server = echoing();
    let mut plan = messages(&server);
    plan["permit"] =
        json!({"live": true, "ports": [server.address.port()], "hosts": ["127.0.0.1"]});
    let output = run_raw(&plan);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        errors.contains("sends messages") && errors.contains("whatever is allowed"),
        "{errors}"
    );
    assert_eq!(server.connections(), 0);
}

#[test]
fn what_does_not_go_with_messages_is_said() {
    let server = Server::answering("");
    for (field, value, word) in [
        ("http2", json!({}), "http2"),
        ("method", json!("HEAD"), "a method other than GET"),
        ("status", json!([200, 101]), "status"),
        ("keepalive", json!(false), "keepalive"),
        ("event_stream", json!({}), "event_stream"),
        (
            "read_bytes_per_second",
            json!(1000),
            "read_bytes_per_second",
        ),
        ("connection_use", json!("turns"), "connection_use"),
        ("headers", json!({"Upgrade": "h2c"}), "header Upgrade"),
        ("websocket", json!({"message_bytes": 0}), "message_bytes"),
        (
            "websocket",
            json!({"message_bytes": 1_048_577}),
            "message_bytes",
        ),
        ("websocket", json!({"messages": 0}), "websocket.messages"),
        ("websocket", json!({"size": 1}), "unknown"),
        (
            "paths",
            json!({"kind": "uniform", "paths": ["/", "/a"]}),
            "another kind than fixed",
        ),
    ] {
        let mut plan = messages(&server);
        plan["classes"][0][field] = value;
        let output = run_raw(&plan);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && errors.contains(word),
            "{field}: {errors}"
        );
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}
