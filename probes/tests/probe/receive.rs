//! Every byte of a response over a real socket: however it is cut, delayed or damaged, it is
//! counted as what it is, and no byte of another response is taken.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use crate::ground_truth::{
    Server, Then, closed, in_a_calm_moment, number, ok, plan, run, run_class, unless,
};
use nginx_tune_probe::chance::{Chance, Purpose};
use nginx_tune_probe::engine::Engine;
use nginx_tune_probe::plan::Plan;
use nginx_tune_probe::progress::Progress;
use nginx_tune_probe::receive::Receiver;
use nginx_tune_probe::report::measurement;
use nginx_tune_probe::sys::Poller;
use serde_json::{Value, json};

/// Longer than the probe needs to read what came before.
const A_MOMENT: Duration = Duration::from_millis(1);

/// A plan of eight users who ask for each of so many numbered paths, at least once.
fn each_of(server: &Server, count: usize) -> Value {
    let mut plan = plan(server);
    let paths: Vec<String> = (0..count).map(|number| format!("/{number}")).collect();
    plan["classes"][0]["arrivals"] = closed(8);
    plan["classes"][0]["paths"] = json!({"kind": "once", "paths": paths});
    plan["classes"][0]["connections"] = json!(8);
    plan["caps"] = json!({"requests": count + 8});
    plan["duration_seconds"] = json!(30);
    plan["drain_seconds"] = json!(5);
    plan
}

fn number_of(path: &str) -> usize {
    path[1..].parse().unwrap()
}

const RESPONSES: [(&[u8], usize); 4] = [
    (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 5),
    (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nA: b\r\n\r\n",
        5,
    ),
    (
        b"HTTP/1.1 103 Early\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
        1,
    ),
    (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", 0),
];

#[test]
fn a_response_may_be_cut_anywhere() {
    for (response, body) in RESPONSES {
        let server = Server::start(move |ask| {
            let (one, two) = response.split_at(number_of(ask.path) + 1);
            for part in [one, two] {
                ask.stream.write_all(part).unwrap();
                thread::sleep(A_MOMENT);
            }
            Then::Keep
        });
        let cuts = response.len() - 1;
        let mut plan = each_of(&server, cuts);
        plan["classes"][0]["status"] = json!([200, 304]);
        plan["classes"][0]["paths"]["bytes"] = json!(vec![body; cuts]);
        let class = run_class(&plan);
        assert_eq!(class["errors"], json!({}), "{class}");
        assert_eq!(class["stray"], 0);
        assert!(number(&class, "connections_opened") <= 8.0);
        assert!(number(&class, "requests") >= cuts as f64);
        // A response without a body has a first byte too.
        assert_eq!(class["ttfb_seconds"]["count"], class["requests"]);
    }
}

#[test]
fn heads_and_bodies_of_any_length_are_told_apart() {
    // Around the lengths of the reads: the first of 4 KiB, discards from 4 KiB, 64 KiB, 1 MiB.
    let heads = [1, 100, 3_990, 4_051, 4_052, 4_053, 8_192, 16_384];
    let bodies = [
        0, 1, 4_000, 4_095, 4_096, 4_097, 65_536, 1_048_575, 1_048_576, 1_048_577,
    ];
    let cases: Vec<(usize, usize)> = heads
        .iter()
        .flat_map(|&head| bodies.map(|body| (head, body)))
        .collect();
    let lengths: Vec<usize> = cases.iter().map(|&(_, body)| body).collect();
    let server = Server::start(move |ask| {
        let (head, body) = cases[number_of(ask.path)];
        let filler = "a".repeat(head);
        let mut response =
            format!("HTTP/1.1 200 OK\r\nX: {filler}\r\nContent-Length: {body}\r\n\r\n")
                .into_bytes();
        response.resize(response.len() + body, b'x');
        ask.stream.write_all(&response).ok();
        Then::Keep
    });
    let mut plan = each_of(&server, lengths.len());
    plan["classes"][0]["paths"]["bytes"] = json!(lengths);
    let class = run_class(&plan);
    assert_eq!(class["errors"], json!({}), "{class}");
    assert_eq!(class["stray"], 0);
    assert!(number(&class, "requests") >= lengths.len() as f64);
}

#[test]
fn one_byte_behind_a_body_of_any_length_is_seen_at_once() {
    let bodies = [1, 4_000, 4_096, 100_000, 1_048_575, 1_048_576];
    let server = Server::start(move |ask| {
        let mut response = ok(bodies[number_of(ask.path)]);
        response.push(b'H');
        ask.stream.write_all(&response).ok();
        Then::Keep
    });
    let mut plan = each_of(&server, bodies.len());
    plan["classes"][0]["arrivals"] = json!({"kind": "constant", "rate_per_second": 100});
    plan["duration_seconds"] = json!(0.3);
    plan["caps"] = json!({});
    plan["classes"][0]["paths"]["bytes"] = json!(bodies);
    let class = run_class(&plan);
    // Were it left in a socket, the next response on that connection would not be HTTP.
    assert_eq!(class["errors"], json!({}), "{class}");
    assert_eq!(class["requests"], 30);
    assert_eq!(class["connections_opened"], 30);
    assert_eq!(class["stray"], 30);
}

/// Whatever a server makes of its responses: no panic, no hang, each request counted once.
#[test]
fn damaged_responses_are_counted_once_each() {
    let chance = Chance::new(23, "damage over sockets", Purpose::Path);
    let server = Server::start(move |ask| {
        let number = number_of(ask.path) as u64;
        let mut draw = number * 100;
        let mut below = |count: usize| {
            draw += 1;
            chance.below(draw, count as u64) as usize
        };
        let mut bytes = RESPONSES[below(3)].0.to_vec();
        for _ in 0..below(4) {
            let at = below(bytes.len());
            match below(5) {
                0 => bytes[at] = below(256) as u8,
                1 => bytes[at] ^= 1 << below(8),
                2 => drop(bytes.remove(at)),
                3 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, b"0f\r\n :;-"[below(8)]),
            }
        }
        let (one, two) = bytes.split_at(below(bytes.len() + 1));
        ask.stream.write_all(one).ok();
        ask.stream.write_all(two).ok();
        // What is cut short would otherwise wait for the timeout.
        if below(2) == 0 {
            Then::Close
        } else {
            Then::Reset
        }
    });
    let mut plan = plan(&server);
    let paths: Vec<String> = (0..400).map(|number| format!("/{number}")).collect();
    plan["classes"][0]["paths"] = json!({"kind": "once", "paths": paths});
    plan["classes"][0]["arrivals"] = json!({"kind": "constant", "rate_per_second": 400});
    plan["classes"][0]["connections"] = json!(400);
    plan["duration_seconds"] = json!(1);
    let class = run_class(&plan);
    let failed: f64 = class["errors"]
        .as_object()
        .unwrap()
        .values()
        .map(|count| count.as_f64().unwrap())
        .sum();
    assert_eq!(class["intended"], 400);
    assert_eq!(class["censored"], 0, "{class}");
    assert_eq!(number(&class, "requests") + failed, 400.0, "{class}");
    assert!(
        number(&class, "requests") > 20.0 && failed > 100.0,
        "{class}"
    );
    for kind in class["errors"].as_object().unwrap().keys() {
        let known = ["parse", "truncated", "empty", "reset", "status"];
        assert!(known.contains(&kind.as_str()), "{class}");
    }
}

#[test]
fn a_constant_delay_is_told_as_it_is() {
    for millis in [0, 1, 10, 100] {
        let delay = Duration::from_millis(millis);
        in_a_calm_moment(|| {
            let server = Server::start(move |ask| {
                thread::sleep(delay);
                ask.stream.write_all(&ok(100)).ok();
                Then::Keep
            });
            let measurement = run(&plan(&server));
            let class = &measurement["classes"]["c"];
            let p50 = number(class, "response_seconds.p50");
            let late = number(&measurement, "generator.lateness_seconds.p50");
            assert!(p50 >= delay.as_secs_f64(), "{p50}");
            // A sleep of the server's own may last longer; most do not by much.
            let beyond = p50 - delay.as_secs_f64() - late;
            unless(beyond < 0.002, || format!("{millis} ms: {beyond} s beyond"))
        });
    }
}

#[test]
fn the_kernel_tells_when_the_first_byte_came() {
    let server = Server::start(|ask| {
        thread::sleep(Duration::from_millis(20));
        let response = ok(100_000);
        ask.stream.write_all(&response[..60]).ok();
        thread::sleep(Duration::from_millis(40));
        ask.stream.write_all(&response[60..]).ok();
        Then::Keep
    });
    let measurement = run(&plan(&server));
    let class = &measurement["classes"]["c"];
    assert_eq!(class["errors"], json!({}));
    // At this rate of every response, but for the first ones, before the kernel stamps.
    let all = number(class, "requests");
    assert!(
        number(class, "arrival_seconds.count") >= 0.8 * all,
        "{class}"
    );
    let arrival = number(class, "arrival_seconds.p50");
    // After the server's wait and before the rest of the body came.
    assert!(arrival >= 0.02, "{class}");
    assert!(
        arrival <= number(class, "service_seconds.p50") - 0.03,
        "{class}"
    );
    let lag = &measurement["generator"]["receive_lag_seconds"];
    assert_eq!(lag["count"], class["arrival_seconds"]["count"]);
}

/// A server that holds back the end of each response until its beginning is acknowledged, as
/// Nagle's algorithm does.
fn holding_back() -> Server {
    Server::start(|ask| {
        ask.stream.set_nodelay(false).unwrap();
        let response = ok(1_000);
        for part in response.chunks(520) {
            ask.stream.write_all(part).ok();
        }
        Then::Keep
    })
}

fn run_acknowledging(quickly: bool) -> Value {
    let server = holding_back();
    let mut plan = plan(&server);
    plan["classes"][0]["arrivals"] = closed(1);
    plan["duration_seconds"] = json!(1.5);
    let plan = Plan::parse(plan.to_string().as_bytes()).unwrap();
    let receiver = Receiver::new(true, quickly);
    let poller = Poller::new(true).unwrap();
    let engine = Engine::new(&plan, poller, receiver, Progress::default()).unwrap();
    measurement(&plan, &engine.run().unwrap())
}

#[test]
fn a_delayed_acknowledgement_is_not_taken_for_the_servers_latency() {
    in_a_calm_moment(|| {
        let delayed = run_acknowledging(false);
        let class = &delayed["classes"]["c"];
        assert_eq!(class["errors"], json!({}));
        let suspects = number(class, "ack_stall_suspects");
        let p99 = number(class, "response_seconds.p99");
        unless(suspects > 5.0 && p99 > 0.035, || format!("unseen: {class}"))?;
        let flags = delayed["flags"].to_string();
        assert!(flags.contains("ack_stalls: c: "), "{flags}");

        let prompt = run_acknowledging(true);
        let class = &prompt["classes"]["c"];
        let p99 = number(class, "response_seconds.p99");
        let few = number(class, "ack_stall_suspects") * 10.0 < suspects;
        unless(few && p99 < 0.015, || format!("still there: {class}"))
    });
}

#[test]
fn a_request_that_is_sent_again_keeps_its_intended_time() {
    // Takes the second request of a connection, lets it lie for a while, and resets.
    let wait = Duration::from_millis(60);
    let server = Server::start(move |ask| {
        ask.stream.write_all(&ok(5)).unwrap();
        ask.stream.peek(&mut [0]).ok();
        thread::sleep(wait);
        Then::Close
    });
    let mut plan = plan(&server);
    plan["classes"][0]["arrivals"] = closed(1);
    plan["duration_seconds"] = json!(1);
    let class = run_class(&plan);
    assert_eq!(class["errors"], json!({}), "{class}");
    let retried = number(&class, "retried");
    assert!(retried >= 2.0, "{class}");
    assert!(retried >= number(&class, "requests") - 2.0);
    assert!(number(&class, "response_seconds.p50") >= wait.as_secs_f64());
    // From the second send.
    assert!(number(&class, "service_seconds.p50") < number(&class, "response_seconds.p50"));
}

#[test]
fn a_connection_that_is_closed_while_idle_costs_no_arrival() {
    let server = Server::start(|ask| {
        ask.stream.write_all(&ok(5)).unwrap();
        thread::sleep(A_MOMENT);
        Then::Close
    });
    let class = run_class(&plan(&server));
    assert_eq!(class["errors"], json!({}), "{class}");
    assert_eq!(class["requests"], 30);
    assert_eq!(class["intended"], 30);
    assert!(number(&class, "connections_opened") >= 30.0);
}

#[test]
fn a_handshake_that_was_asked_for_again_is_counted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    shorten_backlog(&listener);
    let address = listener.local_addr().unwrap();
    // They fill the accept queue: the kernel drops what comes next.
    let fillers: Vec<_> = (0..2)
        .map(|_| std::net::TcpStream::connect(address).unwrap())
        .collect();
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(400));
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                while matches!(stream.read(&mut [0; 1_000]), Ok(count) if count > 0) {
                    stream.write_all(&ok(5)).ok();
                }
            });
        }
    });
    let server = Server {
        address,
        connections: std::sync::Arc::default(),
        asked: std::sync::Arc::default(),
    };
    let mut plan = plan(&server);
    plan["duration_seconds"] = json!(0.05);
    plan["drain_seconds"] = json!(10);
    let class = run_class(&plan);
    assert_eq!(class["errors"], json!({}), "{class}");
    // A kernel asks again after a second; one such is enough to be seen.
    assert!(number(&class, "syn_retries") >= 1.0, "{class}");
    assert!(number(&class, "connect_seconds.max") >= 0.9, "{class}");
    assert!(number(&class, "retransmits") >= number(&class, "syn_retries"));
    drop(fillers);
}

fn shorten_backlog(listener: &TcpListener) {
    use std::os::fd::AsRawFd as _;
    #[allow(unsafe_code)]
    // SAFETY: no pointers; listening again only changes the backlog.
    let result = unsafe { libc::listen(listener.as_raw_fd(), 1) };
    assert_eq!(result, 0);
}
