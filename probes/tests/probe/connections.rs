//! Which connection carries which request: those of an open loop in turn, or the last used; those
//! of a closed loop by their users.

use std::collections::HashMap;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::ground_truth::{
    Server, Then, await_that, in_a_calm_moment, number, ok, plan, run, run_class, run_raw, unless,
};
use serde_json::{Value, json};

type Counts = Arc<Mutex<HashMap<SocketAddr, u64>>>;

/// A server that counts the requests of each connection.
fn counting(then: impl Fn(u64) -> Then + Send + Sync + 'static) -> (Server, Counts) {
    let counts = Counts::default();
    let theirs = counts.clone();
    let server = Server::start(move |ask| {
        let peer = ask.stream.peer_addr().unwrap();
        *theirs.lock().unwrap().entry(peer).or_default() += 1;
        ask.stream.write_all(&ok(10)).ok();
        then(ask.earlier)
    });
    (server, counts)
}

/// The requests of each connection, the fewest first.
fn sorted(counts: &Counts) -> Vec<u64> {
    let mut each: Vec<_> = counts.lock().unwrap().values().copied().collect();
    each.sort_unstable();
    each
}

/// An open loop of so many connections.
fn open(server: &Server, rate: u64, connections: u64, how: &str) -> Value {
    let mut plan = plan(server);
    plan["duration_seconds"] = json!(1);
    let class = &mut plan["classes"][0];
    class["arrivals"] = json!({"kind": "constant", "rate_per_second": rate});
    class["connections"] = json!(connections);
    class["connection_use"] = json!(how);
    plan
}

#[test]
fn connections_that_are_held_are_used_in_turn() {
    in_a_calm_moment(|| {
        let (server, counts) = counting(|_| Then::Keep);
        let class = run_class(&open(&server, 400, 20, "turns"));
        assert_eq!(class["requests"], 400, "{class}");
        assert_eq!(class["connections_opened"], 20);
        let each = sorted(&counts);
        assert_eq!((each.len(), each.iter().sum::<u64>()), (20, 400));
        unless(each[0] >= 17 && each[19] <= 23, || format!("{each:?}"))
    });
}

#[test]
fn the_last_used_connections_carry_nearly_all_where_that_is_asked_for() {
    in_a_calm_moment(|| {
        let (server, counts) = counting(|_| Then::Keep);
        let class = run_class(&open(&server, 400, 20, "latest"));
        assert_eq!(class["requests"], 400, "{class}");
        let each = sorted(&counts);
        unless(each.len() < 20 && each[each.len() - 1] > 100, || {
            format!("{each:?}")
        })
    });
}

#[test]
fn they_are_open_before_there_is_anything_to_send() {
    let (server, _) = counting(|_| Then::Keep);
    let class = run_class(&open(&server, 3, 70, "turns"));
    assert_eq!(class["requests"], 3, "{class}");
    await_that(|| server.connections() >= 70);
    // Its handshake is over when a request comes.
    assert_eq!(class["connections_opened"], 70);
}

#[test]
fn there_may_be_more_than_are_held() {
    in_a_calm_moment(|| {
        // Each answer takes 50 ms, so 200 a second need ten connections: two are held.
        let (server, counts) = counting(|_| {
            thread::sleep(std::time::Duration::from_millis(50));
            Then::Keep
        });
        let mut plan = open(&server, 200, 40, "turns");
        plan["classes"][0]["held_connections"] = json!(2);
        let class = run_class(&plan);
        assert_eq!(class["requests"], 200, "{class}");
        let each = sorted(&counts);
        assert!((8..=40).contains(&each.len()), "{each:?}");
        // Those that came later are in the circle too.
        let is_even = class["at_cap"] == 0 && each[each.len() / 2] >= 5;
        unless(is_even, || format!("{each:?} {class}"))
    });
}

#[test]
fn one_that_the_server_closes_is_opened_again() {
    let (server, counts) = counting(|earlier| {
        if earlier == 4 {
            Then::Close
        } else {
            Then::Keep
        }
    });
    let class = run_class(&open(&server, 200, 10, "turns"));
    assert_eq!(class["errors"], json!({}), "{class}");
    assert_eq!(class["requests"], 200);
    assert!(sorted(&counts).into_iter().all(|count| count <= 5));
    let opened = number(&class, "connections_opened");
    assert!((40.0..=52.0).contains(&opened), "{opened}");
}

#[test]
fn an_arrival_that_meets_none_open_takes_one_along_and_its_failure_with_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut server = Server::answering(ok(1));
    server.address = listener.local_addr().unwrap();
    drop(listener);
    let class = run_class(&open(&server, 50, 10, "turns"));
    assert_eq!(class["errors"], json!({"refused": 50}), "{class}");
    assert_eq!(class["service_seconds"]["count"], 0);
}

#[test]
fn a_server_that_closes_what_nobody_has_used_is_not_flooded() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut server = Server::answering(ok(1));
    server.address = listener.local_addr().unwrap();
    let accepted = Arc::new(AtomicU64::new(0));
    let theirs = accepted.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            theirs.fetch_add(1, Ordering::Relaxed);
            drop(stream);
        }
    });
    let class = run_class(&open(&server, 10, 10, "turns"));
    assert_eq!(class["requests"], 0);
    let accepted = accepted.load(Ordering::Relaxed);
    // Without a pause it would be tens of thousands.
    assert!(accepted < 300, "{accepted}");
}

#[test]
fn a_user_owns_its_connection() {
    let (server, counts) = counting(|_| Then::Keep);
    let mut plan = plan(&server);
    plan["duration_seconds"] = json!(2);
    let class = &mut plan["classes"][0];
    class["arrivals"] = json!({"kind": "closed", "users": 60, "think_seconds": 0.4});
    class["connections"] = json!(60);
    let class = run_class(&plan);
    assert_eq!(class["connections_opened"], 60, "{class}");
    let each = sorted(&counts);
    assert_eq!(each.len(), 60);
    // Each of them asks as often as its user is ready: no more than 2 s / 0.4 s, and the first.
    assert!(each[59] <= 6, "{each:?}");
}

#[test]
fn a_user_whose_connection_is_gone_opens_the_next_one() {
    let (server, counts) = counting(|_| Then::Close);
    let mut plan = plan(&server);
    plan["duration_seconds"] = json!(1);
    let class = &mut plan["classes"][0];
    class["arrivals"] = json!({"kind": "closed", "users": 5, "think_seconds": 0.02});
    class["connections"] = json!(5);
    let class = run_class(&plan);
    assert_eq!(class["errors"], json!({}), "{class}");
    assert!(sorted(&counts).into_iter().all(|count| count == 1));
    assert!(number(&class, "requests") >= 10.0, "{class}");
}

#[test]
fn each_stripe_holds_connections_of_its_own() {
    let (server, _) = counting(|_| Then::Keep);
    let mut plan = open(&server, 40, 8, "turns");
    plan["stripe"] = json!({"index": 1, "count": 2});
    assert_eq!(run(&plan)["classes"]["c"]["connections_opened"], 8);
}

#[test]
fn what_contradicts_itself_is_refused() {
    let server = Server::answering(ok(1));
    let mut closed = open(&server, 1, 5, "turns");
    closed["classes"][0]["arrivals"] = json!({"kind": "closed", "users": 5});
    let mut closing = open(&server, 1, 5, "turns");
    closing["classes"][0]["keepalive"] = json!(false);
    let unknown = open(&server, 1, 5, "random");
    let mut more = open(&server, 1, 5, "turns");
    more["classes"][0]["held_connections"] = json!(6);
    for (plan, words) in [
        (closed, "each user has a connection"),
        (closing, "keeps its connections"),
        (unknown, "must be latest or turns"),
        (more, "held_connections"),
    ] {
        let output = run_raw(&plan);
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(words), "{said}");
    }
}

/// A body that only the end of its connection ends is as late as that end, which comes in an
/// event of its own.
#[test]
fn the_end_of_a_connection_has_its_own_time() {
    let server = Server::start(|ask| {
        let head = b"HTTP/1.0 200 OK\r\n\r\nwhat there is";
        ask.stream.write_all(head).ok();
        thread::sleep(Duration::from_millis(50));
        Then::Close
    });
    let class = run_class(&plan(&server));
    assert_eq!(number(&class, "requests"), 30.0);
    assert!(number(&class, "service_seconds.p50") >= 0.045, "{class}");
    assert!(number(&class, "response_seconds.p50") >= 0.045, "{class}");
}

/// Users who wait between requests wait after a failure too: a server in trouble is not asked more.
#[test]
fn users_think_after_a_failure_too() {
    let server = Server::answering("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n");
    let mut plan = plan(&server);
    plan["classes"][0]["arrivals"] = json!({"kind": "closed", "users": 2, "think_seconds": 0.2});
    plan["duration_seconds"] = json!(0.5);
    let class = run_class(&plan);
    assert_eq!(number(&class, "requests"), 0.0);
    assert!(server.asked().len() <= 6, "{}", server.asked().len());
}
