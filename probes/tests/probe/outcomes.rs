//! Each thing that a server can do to a request, and the one way in which it must be counted.

use std::io::Write as _;
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use crate::ground_truth::{
    Server, Then, assert_all_fail, assert_all_succeed, in_a_calm_moment, judge_bytes, number, ok,
    on_one_connection, plan, run_class,
};
use serde_json::{Value, json};

#[test]
fn a_short_body_is_truncated() {
    for sent in [0, 1, 500, 99_999] {
        let mut response = ok(100_000);
        response.truncate(response.len() - 100_000 + sent);
        let server = Server::answering_and_closing(response);
        in_a_calm_moment(|| {
            let class = assert_all_fail(&plan(&server), "truncated");
            assert_eq!(class["truncated"], 30);
            assert_eq!(class["statuses"], json!({"200": 30}));
            judge_bytes(&class, sent)
        });
    }
}

#[test]
fn a_head_or_a_chunked_body_that_breaks_off_is_truncated() {
    for response in [
        "HTTP/1.1 200 OK\r\nContent-Le",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    ] {
        let server = Server::answering_and_closing(response);
        assert_all_fail(&plan(&server), "truncated");
    }
}

#[test]
fn a_connection_closed_without_a_word_is_empty() {
    let server = Server::start(|_| Then::Close);
    let class = assert_all_fail(&plan(&server), "empty");
    assert_eq!(class["truncated"], 30);
}

#[test]
fn a_request_taken_and_not_answered_is_empty_on_a_kept_connection_too() {
    // Every second request of a connection is read and then the connection closed: this is no
    // race of a kept connection, the server took the request.
    let server = Server::start(|ask| {
        if ask.earlier == 1 {
            return Then::Close;
        }
        ask.stream.write_all(&ok(10)).unwrap();
        Then::Keep
    });
    let class = run_class(&on_one_connection(&server));
    assert_eq!(class["errors"], json!({"empty": 15}), "{class}");
    assert_eq!(class["requests"], 15);
    assert_eq!(class["retried"], 0);
}

#[test]
fn a_reset_is_a_reset() {
    let server = Server::start(|ask| {
        ask.stream.write_all(&ok(100)[..80]).unwrap();
        // The reset throws away what the probe has not read yet.
        thread::sleep(Duration::from_millis(20));
        Then::Reset
    });
    assert_all_fail(&plan(&server), "reset");
    let server = Server::start(|_| Then::Reset);
    assert_all_fail(&plan(&server), "reset");
}

#[test]
fn what_is_not_http_is_parse() {
    for response in [
        "hello\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nhello",
    ] {
        assert_all_fail(&plan(&Server::answering(response)), "parse");
    }
}

#[test]
fn an_unexpected_status_is_status() {
    let server = Server::answering("HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\nno");
    let class = assert_all_fail(&on_one_connection(&server), "status");
    assert_eq!(class["statuses"], json!({"500": 30}));
    assert_eq!(class["connections_opened"], 1);
    let mut expecting = plan(&server);
    expecting["classes"][0]["status"] = json!([200, 500]);
    assert_all_succeed(&expecting);
}

#[test]
fn another_length_than_the_file_has_is_length() {
    let server = Server::answering(ok(1000));
    let mut plan = plan(&server);
    plan["classes"][0]["paths"]["bytes"] = json!([1001]);
    assert_all_fail(&plan, "length");
    plan["classes"][0]["paths"]["bytes"] = json!([1000]);
    assert_all_succeed(&plan);
}

#[test]
fn no_answer_in_time_is_a_timeout() {
    let server = Server::start(|ask| {
        ask.stream.write_all(b"HTTP/1.1 200 OK\r\n").unwrap();
        Then::Keep
    });
    let mut plan = plan(&server);
    plan["classes"][0]["timeout_seconds"] = json!(2);
    let class = assert_all_fail(&plan, "timeout");
    assert!(number(&class, "failed_seconds.p50") >= 2.0);
    assert_eq!(class["response_seconds"]["censored"], 30);
    // Its first byte is known, the last one is not.
    assert_eq!(class["ttfb_seconds"]["censored"], Value::Null);
    assert_eq!(class["service_seconds"]["censored"], 30);
}

#[test]
fn a_tenth_that_is_never_answered_is_in_the_percentiles() {
    let asked = std::sync::atomic::AtomicU64::new(0);
    let server = Server::start(move |ask| {
        if asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % 10 != 9 {
            ask.stream.write_all(&ok(10)).unwrap();
        }
        Then::Keep
    });
    let mut plan = plan(&server);
    plan["classes"][0]["timeout_seconds"] = json!(2);
    let class = run_class(&plan);
    assert_eq!(class["errors"], json!({"timeout": 3}), "{class}");
    let response = &class["response_seconds"];
    assert_eq!(
        (&response["count"], &response["censored"]),
        (&30.into(), &3.into())
    );
    assert_eq!(response["at_least"], json!(["p99", "p999", "max"]));
    assert!(number(response, "p99") >= 2.0);
    assert!(number(&class, "service_seconds.p99") >= 1.0);
}

#[test]
fn nobody_listening_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server {
        address: listener.local_addr().unwrap(),
        connections: std::sync::Arc::default(),
        asked: std::sync::Arc::default(),
    };
    drop(listener);
    assert_all_fail(&plan(&server), "refused");
}

#[test]
fn an_unaccepted_handshake_is_a_connect_timeout() {
    // A full accept queue drops the SYN: a backlog of 1 holds two connections.
    let listener = socket_with_backlog_one();
    let address = listener.local_addr().unwrap();
    let fillers: Vec<_> = (0..2)
        .map(|_| std::net::TcpStream::connect(address).unwrap())
        .collect();
    let server = Server {
        address,
        connections: std::sync::Arc::default(),
        asked: std::sync::Arc::default(),
    };
    let mut plan = plan(&server);
    plan["classes"][0]["timeout_seconds"] = json!(0.3);
    let class = assert_all_fail(&plan, "connect_timeout");
    assert_eq!(class["ttfb_seconds"]["censored"], 30);
    // It was never sent.
    assert_eq!(class["service_seconds"]["count"], 0);
    drop(fillers);
}

fn socket_with_backlog_one() -> TcpListener {
    use std::os::fd::AsRawFd as _;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    #[allow(unsafe_code)]
    // SAFETY: no pointers; listening again only changes the backlog.
    let result = unsafe { libc::listen(listener.as_raw_fd(), 1) };
    assert_eq!(result, 0);
    listener
}
