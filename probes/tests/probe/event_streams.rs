//! Bodies that are watched while they come, of a server whose pace is known.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::ground_truth::{
    Server, Then, closed, in_a_calm_moment, number, plan, run_class, unless,
};
use nginx_tune_probe::clock::Nanos;
use nginx_tune_probe::sys::monotonic;
use serde_json::{Value, json};

const HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
const LAST: &[u8] = b"0\r\n\r\n";

fn event(sent: Nanos) -> String {
    format!("data: {{\"sent_ns\":{sent},\"token\":\"word\"}}\n\n")
}

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

/// A plan of so many users, each with one stream after the other. Those that have not begun when the
/// measured time ends have ten seconds more.
fn streams(server: &Server, users: u64, seconds: f64) -> Value {
    let mut value = plan(server);
    value["classes"][0]["arrivals"] = closed(users);
    value["classes"][0]["event_stream"] = json!({"stamp": "\"sent_ns\":"});
    value["duration_seconds"] = json!(seconds);
    value["drain_seconds"] = json!(10);
    value
}

/// A plan of one stream whose end is that of the run, however slow the machine is: the next request is the
/// last one.
fn one_stream(server: &Server) -> Value {
    let mut value = streams(server, 1, 30.0);
    value["caps"] = json!({"requests": 2});
    value
}

/// Sends stamped events for ever, so many in a chunk, each so long after it was stamped.
fn endless(stream: &mut TcpStream, pause: Duration, held: Duration, in_a_chunk: usize) {
    stream.write_all(HEAD).ok();
    loop {
        let text: String = (0..in_a_chunk).map(|_| event(monotonic())).collect();
        thread::sleep(held);
        if stream.write_all(chunk(&text).as_bytes()).is_err() {
            return;
        }
        thread::sleep(pause);
    }
}

#[test]
fn gaps_and_delays_are_those_of_the_server_within_three_percent() {
    let written: Arc<Mutex<Vec<(Nanos, Nanos)>>> = Arc::default();
    let seen = written.clone();
    let server = Server::start(move |ask| {
        ask.stream.write_all(HEAD).ok();
        for number in 0..40_u64 {
            let stamp = monotonic();
            // Each tenth event is late, and each is held back before it is sent.
            thread::sleep(Duration::from_millis(if number % 10 == 9 {
                60
            } else {
                20
            }));
            seen.lock().unwrap().push((stamp, monotonic()));
            let text = chunk(&event(stamp));
            ask.stream.write_all(text.as_bytes()).ok();
        }
        ask.stream.write_all(LAST).ok();
        thread::sleep(Duration::from_secs(60));
        Then::Close
    });
    in_a_calm_moment(|| {
        written.lock().unwrap().clear();
        let class = run_class(&one_stream(&server));
        let truth = written.lock().unwrap().clone();
        assert_eq!(class["errors"], json!({}), "{class}");
        assert_eq!(number(&class, "event_stream.events"), 40.0);
        assert_eq!(number(&class, "event_stream.whole"), 1.0);
        assert_eq!(number(&class, "event_stream.events_ahead"), 0.0);
        let sent: Vec<Nanos> = truth.iter().map(|(_, sent)| *sent).collect();
        let gap = (sent[39] - sent[0]) as f64 / 39.0 / 1e9;
        let delays = truth.iter().map(|(stamp, sent)| (sent - stamp) as f64);
        let delay = delays.sum::<f64>() / 40.0 / 1e9;
        let longest = sent.windows(2).map(|two| two[1] - two[0]).max().unwrap() as f64 / 1e9;
        for (name, truth) in [
            ("gap_seconds.mean", gap),
            ("gap_seconds.max", longest),
            ("event_delay_seconds.mean", delay),
        ] {
            let got = number(&class, &format!("event_stream.{name}"));
            unless((got / truth - 1.0).abs() < 0.03, || {
                format!("{name}: {got}, in truth {truth}")
            })?;
        }
        unless(number(&class, "event_stream.pieces") == 40.0, || {
            format!("{class}")
        })
    });
}

#[test]
fn events_that_were_gathered_come_in_one_piece() {
    let server = Server::start(|ask| {
        endless(
            ask.stream,
            Duration::from_millis(20),
            Duration::from_millis(100),
            5,
        );
        Then::Close
    });
    in_a_calm_moment(|| {
        let class = run_class(&streams(&server, 4, 1.0));
        let events = number(&class, "event_stream.events");
        let pieces = number(&class, "event_stream.pieces");
        let delay = number(&class, "event_stream.event_delay_seconds.p50");
        unless(events >= 5.0 * 4.0 && events == 5.0 * pieces, || {
            format!("{class}")
        })?;
        unless((0.1..0.11).contains(&delay), || format!("{delay}"))
    });
}

#[test]
fn the_end_of_the_measured_time_ends_streams_and_they_have_not_failed() {
    let server = Server::start(|ask| {
        endless(
            ask.stream,
            Duration::from_millis(20),
            Duration::from_millis(0),
            1,
        );
        Then::Close
    });
    let mut value = streams(&server, 20, 3.0);
    // That it is longer than any request may take is no matter.
    value["classes"][0]["timeout_seconds"] = json!(2);
    let class = run_class(&value);
    assert_eq!(class["errors"], json!({}), "{class}");
    assert_eq!(class["censored"], 0);
    assert_eq!(class["requests"], 0);
    assert_eq!(class["statuses"], json!({"200": 20}));
    assert_eq!(number(&class, "event_stream.cut"), 20.0);
    assert_eq!(number(&class, "event_stream.most_open"), 20.0);
    assert_eq!(number(&class, "event_stream.early_ends"), 0.0);
    assert_eq!(
        number(&class, "event_stream.first_body_seconds.count"),
        20.0
    );
    assert_eq!(class["ack_stall_suspects"], 0);
}

#[test]
fn a_silence_at_the_end_is_told_as_a_lower_bound() {
    let server = Server::start(|ask| {
        ask.stream.write_all(HEAD).ok();
        for _ in 0..5 {
            let text = chunk(&event(monotonic()));
            ask.stream.write_all(text.as_bytes()).ok();
            thread::sleep(Duration::from_millis(20));
        }
        thread::sleep(Duration::from_secs(60));
        Then::Close
    });
    let class = run_class(&streams(&server, 3, 2.0));
    let gap = &class["event_stream"]["gap_seconds"];
    assert_eq!(gap["censored"], 3, "{class}");
    assert!(gap["at_least"].as_array().unwrap().contains(&json!("max")));
    assert!(number(gap, "max") > 0.5);
}

#[test]
fn a_body_that_does_not_begin_is_a_lower_bound_and_its_time_can_be_up() {
    let server = Server::start(|ask| {
        ask.stream.write_all(HEAD).ok();
        thread::sleep(Duration::from_secs(60));
        Then::Close
    });
    let mut value = streams(&server, 2, 0.5);
    value["drain_seconds"] = json!(0.1);
    let class = run_class(&value);
    // On a busy machine the time is over before the second one begins.
    let begun = number(&class, "intended");
    assert!((1.0..=2.0).contains(&begun), "{class}");
    let first = &class["event_stream"]["first_body_seconds"];
    assert_eq!(number(first, "censored"), begun, "{class}");
    assert_eq!(number(&class, "censored"), begun);
    assert_eq!(number(&class, "event_stream.begun"), 0.0);
    // The time of the first streams is up when no more begin.
    value["classes"][0]["timeout_seconds"] = json!(0.4);
    value["duration_seconds"] = json!(0.2);
    value["drain_seconds"] = json!(10);
    let class = run_class(&value);
    assert_eq!(
        class["errors"],
        json!({"timeout": class["intended"]}),
        "{class}"
    );
}

#[test]
fn an_early_end_is_told_apart_from_a_slow_stream_and_a_whole_one() {
    let close = b"HTTP/1.1 200 OK\r\n\r\n";
    let good = chunk("data: [DONE]\n\n");
    for (head, body, then, early, kind) in [
        (HEAD, "5\r\nda", Then::Close, true, "truncated"),
        (HEAD, "5\r\nda", Then::Reset, true, "reset"),
        (
            HEAD,
            "4\r\ndata\r\n0\r\n\r\n",
            Then::Keep,
            true,
            "truncated",
        ),
        (&close[..], "data: 1\n\n", Then::Close, true, "truncated"),
        (&close[..], "data: [DONE]\n\n", Then::Close, false, ""),
        (HEAD, &format!("{good}0\r\n\r\n"), Then::Keep, false, ""),
    ] {
        let then = Arc::new(Mutex::new(Some(then)));
        let (head, body) = (head.to_vec(), body.to_owned());
        let server = Server::start(move |ask| {
            let Some(then) = then.lock().unwrap().take() else {
                thread::sleep(Duration::from_secs(60));
                return Then::Close;
            };
            ask.stream.write_all(&head).ok();
            thread::sleep(Duration::from_millis(50));
            ask.stream.write_all(body.as_bytes()).ok();
            thread::sleep(Duration::from_millis(150));
            then
        });
        let mut value = one_stream(&server);
        value["classes"][0]["event_stream"] = json!({"end": "[DONE]"});
        let class = run_class(&value);
        let ends = number(&class, "event_stream.early_ends");
        assert_eq!(ends, f64::from(u8::from(early)), "{class}");
        assert_eq!(number(&class, "event_stream.whole"), 1.0 - ends, "{class}");
        if early {
            assert_eq!(class["errors"], json!({kind: 1}), "{class}");
        } else {
            assert_eq!(class["errors"], json!({}), "{class}");
        }
    }
}

#[test]
fn an_endless_answer_of_another_status_has_failed() {
    let server = Server::start(|ask| {
        let head = b"HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n";
        ask.stream.write_all(head).ok();
        thread::sleep(Duration::from_secs(60));
        Then::Close
    });
    let class = run_class(&streams(&server, 2, 1.0));
    assert_eq!(
        class["errors"],
        json!({"status": class["intended"]}),
        "{class}"
    );
    assert_eq!(number(&class, "event_stream.cut"), 0.0);
}

#[test]
fn threads_add_what_they_saw() {
    let server = Server::start(|ask| {
        endless(
            ask.stream,
            Duration::from_millis(20),
            Duration::from_millis(0),
            1,
        );
        Then::Close
    });
    let mut value = streams(&server, 6, 2.0);
    value["threads"] = json!(2);
    let class = run_class(&value);
    assert_eq!(number(&class, "event_stream.cut"), 6.0, "{class}");
    assert_eq!(number(&class, "event_stream.begun"), 6.0);
    let gaps = number(&class, "event_stream.gap_seconds.count");
    assert_eq!(gaps, number(&class, "event_stream.pieces") - 6.0);
}

#[test]
fn a_long_poll_is_measured_from_when_it_is_answered_and_its_timeouts_are_counted() {
    // Held for 0.3 s; each fifth of a client for longer than a poll may take.
    let server = Server::start(|ask| {
        let late = ask.earlier % 5 == 4;
        thread::sleep(Duration::from_millis(if late { 900 } else { 300 }));
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnews";
        ask.stream.write_all(answer).ok();
        Then::Keep
    });
    let mut value = streams(&server, 4, 3.0);
    value["classes"][0]["event_stream"] = json!({});
    value["classes"][0]["timeout_seconds"] = json!(0.6);
    in_a_calm_moment(|| {
        let run = crate::ground_truth::run(&value);
        let class = &run["classes"]["c"];
        let timeouts = class["errors"]["timeout"].as_u64().unwrap_or(0);
        let errors = class["errors"].as_object().unwrap();
        assert!(errors.keys().all(|kind| kind == "timeout"), "{class}");
        // Each client has four answers and then a timeout, in 1.8 s and a pause.
        unless((4..=8).contains(&timeouts), || format!("{class}"))?;
        let held = number(class, "event_stream.first_body_seconds.p50");
        unless((held / 0.3 - 1.0).abs() < 0.03, || format!("held {held}"))?;
        assert_eq!(number(class, "event_stream.early_ends"), 0.0);
        assert_eq!(
            number(class, "event_stream.first_body_seconds.censored"),
            timeouts as f64
        );
        let flags = run["flags"].to_string();
        assert!(!flags.contains("ack_stalls"), "{flags}");
        unless(!flags.contains("lateness"), || flags)
    });
}
