//! Each way in which a server can answer well, and that the probe takes it so.

use std::io::Write as _;
use std::thread;
use std::time::Duration;

use crate::ground_truth::{
    Server, Then, assert_all_succeed, closed, in_a_calm_moment, judge_bytes, number, ok,
    on_one_connection, plan, run_class, unless,
};
use serde_json::json;

#[test]
fn every_framing_is_understood() {
    let mut chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for size in [1, 70_000, 5_000] {
        chunked.extend_from_slice(format!("{size:x}\r\n").as_bytes());
        chunked.resize(chunked.len() + size, b'x');
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\nTrailer: x\r\n\r\n");
    let server = Server::answering(chunked);
    in_a_calm_moment(|| {
        let class = assert_all_succeed(&on_one_connection(&server));
        assert_eq!(class["connections_opened"], 1);
        judge_bytes(&class, 75_001)
    });

    let until_close = [b"HTTP/1.0 200 OK\r\n\r\n".as_slice(), &vec![b'x'; 200_000]].concat();
    let server = Server::answering_and_closing(until_close);
    in_a_calm_moment(|| {
        let class = assert_all_succeed(&plan(&server));
        assert_eq!(class["connections_opened"], 30);
        judge_bytes(&class, 200_000)
    });

    let mut no_content = plan(&Server::answering("HTTP/1.1 204 No Content\r\n\r\n"));
    no_content["classes"][0]["status"] = json!([204]);
    no_content["classes"][0]["paths"]["bytes"] = json!([5]);
    let class = assert_all_succeed(&no_content);
    assert_eq!(class["ttfb_seconds"]["count"], 30);

    let server = Server::answering("HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n");
    let mut head = plan(&server);
    head["classes"][0]["method"] = json!("HEAD");
    head["classes"][0]["paths"]["bytes"] = json!([999_999]);
    let class = assert_all_succeed(&head);
    assert_eq!(class["bytes"], 0);
}

#[test]
fn a_response_that_trickles_in_byte_by_byte_is_whole() {
    let server = Server::start(|ask| {
        for byte in ok(40) {
            ask.stream.write_all(&[byte]).unwrap();
        }
        Then::Keep
    });
    assert_all_succeed(&plan(&server));
}

#[test]
fn large_bodies_are_counted_to_the_byte_and_not_one_byte_more_is_taken() {
    let size = 3_000_000;
    let mut response = ok(size);
    response.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    let server = Server::answering(response);
    let mut plan = plan(&server);
    plan["classes"][0]["paths"]["bytes"] = json!([size]);
    in_a_calm_moment(|| {
        let class = run_class(&plan);
        // The bytes behind each body are still there and are seen: as nobody's, or as the start
        // of an answer to a request that was faster. The last may come after the end.
        let parse = class["errors"]["parse"].as_f64().unwrap_or(0.0);
        assert_eq!(number(&class, "requests") + parse, 30.0, "{class}");
        judge_bytes(&class, size)?;
        let opened = number(&class, "connections_opened");
        unless(number(&class, "stray") + parse >= opened - 1.0, || {
            format!("{class}")
        })
    });
}

#[test]
fn bytes_behind_a_response_are_never_taken_for_the_next_one() {
    // A whole answer of another length in the same segment: it must not answer anything.
    let server = Server::answering([ok(10), ok(20)].concat());
    let mut plan = plan(&server);
    plan["classes"][0]["paths"]["bytes"] = json!([10]);
    let class = assert_all_succeed(&plan);
    assert_eq!(class["stray"], 30);
    assert_eq!(class["connections_opened"], 30);
}

#[test]
fn connection_close_is_honoured() {
    let response = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
    let class = assert_all_succeed(&plan(&Server::answering(response)));
    assert_eq!(class["connections_opened"], 30);
    let server = Server::answering(ok(2));
    let mut without_keepalive = plan(&server);
    without_keepalive["classes"][0]["keepalive"] = json!(false);
    let class = assert_all_succeed(&without_keepalive);
    assert_eq!(class["connections_opened"], 30);
    assert_eq!(server.connections(), 30);
}

#[test]
fn a_keepalive_limit_costs_no_request() {
    for limit in [1, 2, 7] {
        let server = Server::start(move |ask| {
            let last = ask.earlier + 1 == limit;
            let connection = if last { "close" } else { "keep-alive" };
            let response =
                format!("HTTP/1.1 200 OK\r\nConnection: {connection}\r\nContent-Length: 0\r\n\r\n");
            ask.stream.write_all(response.as_bytes()).unwrap();
            if last { Then::Close } else { Then::Keep }
        });
        let class = assert_all_succeed(&on_one_connection(&server));
        assert_eq!(class["connections_opened"], 30_u64.div_ceil(limit));
        assert_eq!(class["retried"], 0);
    }
}

#[test]
fn a_race_with_the_closing_server_is_retried_on_a_new_connection() {
    // Closes after each response without saying so. The one user sends the next request at
    // once, into the closed connection.
    let server = Server::answering_and_closing(ok(5));
    let mut plan = plan(&server);
    plan["classes"][0]["arrivals"] = closed(1);
    let class = run_class(&plan);
    assert_eq!(class["errors"], json!({}), "{class}");
    // Whether the close was seen in time or the request was sent again: each got its own.
    assert!(number(&class, "connections_opened") >= number(&class, "requests"));
    // The same, closed with the next request unread: a reset.
    let server = Server::start(|ask| {
        ask.stream.write_all(&ok(5)).unwrap();
        Then::CloseUnread
    });
    plan["target"]["port"] = json!(server.address.port());
    plan["permit"]["ports"] = json!([server.address.port()]);
    let class = run_class(&plan);
    assert_eq!(class["errors"], json!({}), "{class}");
    assert!(number(&class, "retried") >= number(&class, "requests") - 2.0);
}

#[test]
fn first_byte_and_last_byte_are_told_apart() {
    let server = Server::start(|ask| {
        thread::sleep(Duration::from_millis(30));
        let response = ok(100);
        ask.stream.write_all(&response[..60]).unwrap();
        thread::sleep(Duration::from_millis(60));
        ask.stream.write_all(&response[60..]).unwrap();
        Then::Keep
    });
    in_a_calm_moment(|| {
        let class = assert_all_succeed(&plan(&server));
        let ttfb = number(&class, "ttfb_seconds.p50");
        let transfer = number(&class, "response_seconds.p50") - ttfb;
        assert!(ttfb >= 0.03, "{class}");
        unless(transfer >= 0.055 && ttfb < transfer, || format!("{class}"))
    });
}

#[test]
fn long_requests_are_sent_whole() {
    let server = Server::start(|ask| {
        let length = ask.head.len();
        ask.stream.write_all(&ok(length)).unwrap();
        Then::Keep
    });
    let mut plan = plan(&server);
    let path = format!("/{}", "a".repeat(7_000));
    plan["classes"][0]["paths"]["paths"] = json!([path]);
    plan["classes"][0]["headers"] = json!({"X-Long": "b".repeat(8_000), "user-agent": "me"});
    let expected = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\nX-Long: {}\r\nuser-agent: me\r\n\r\n",
        "b".repeat(8_000)
    );
    in_a_calm_moment(|| {
        let class = run_class(&plan);
        assert_eq!(class["errors"], json!({}));
        judge_bytes(&class, expected.len())
    });
}

#[test]
fn a_user_who_thinks_pauses_between_response_and_request() {
    let server = Server::start(|ask| {
        ask.stream.write_all(&ok(5)).unwrap();
        Then::Keep
    });
    let mut plan = plan(&server);
    plan["duration_seconds"] = json!(1.0);
    plan["classes"][0]["arrivals"] = json!({"kind": "closed", "users": 2, "think_seconds": 0.1});
    in_a_calm_moment(|| {
        let class = run_class(&plan);
        // Two users, a tenth of a second apart at the least: never more than 22 in a second.
        let requests = number(&class, "requests");
        assert!((2.0..=22.0).contains(&requests), "{class}");
        // The pause is no part of any latency.
        unless(number(&class, "response_seconds.p50") < 0.1, || {
            format!("{class}")
        })
    });
}
