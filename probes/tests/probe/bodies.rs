//! Parts of objects, and bodies beside the local files that they should be.

use std::io::Write as _;

use crate::ground_truth::{Server, Temporary, Then, number, ok, plan, run, run_class};
use serde_json::json;

/// A server of `/object`, 1000 different bytes, that gives the parts that are asked for.
fn partial(wrong: bool) -> Server {
    Server::start(move |ask| {
        let body: Vec<u8> = (0..1000_u32).map(|i| (i * 7 % 251) as u8).collect();
        let line = ask
            .head
            .lines()
            .find_map(|l| l.strip_prefix("Range: bytes="));
        let (first, last) = line.and_then(|range| range.split_once('-')).unwrap();
        let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
        let last = last.min(999);
        let told = if wrong { first + 1 } else { first };
        let head = format!(
            "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {told}-{}/1000\r\n\
             Content-Length: {}\r\n\r\n",
            if wrong { last + 1 } else { last },
            last - first + 1
        );
        ask.stream.write_all(head.as_bytes()).ok();
        ask.stream.write_all(&body[first..=last]).ok();
        Then::Keep
    })
}

#[test]
fn parts_are_asked_for_and_checked() {
    let body: Vec<u8> = (0..1000_u32).map(|i| (i * 7 % 251) as u8).collect();
    let file = Temporary::new("object", &body);
    for range in [
        json!({"kind": "fixed", "first": 5, "last": 104}),
        json!({"kind": "fixed", "last": 5000}),
        json!({"kind": "random", "bytes": 100}),
    ] {
        let server = partial(false);
        let mut plan = plan(&server);
        plan["classes"][0]["range"] = range.clone();
        plan["classes"][0]["hash_ratio"] = json!(1);
        plan["classes"][0]["paths"] =
            json!({"kind": "fixed", "paths": ["/object"], "bytes": [1000], "files": [file.name()]});
        let measurement = run(&plan);
        let class = &measurement["classes"]["c"];
        assert_eq!(class["errors"], json!({}), "{range}");
        assert_eq!(class["requests"], 30);
        assert_eq!(class["statuses"], json!({"206": 30}));
        assert_eq!(
            class["bodies"],
            json!({"compared": 30, "differing": 0, "unread": 0})
        );
    }
    let server = partial(true);
    let mut plan = plan(&server);
    plan["classes"][0]["range"] = json!({"kind": "fixed", "first": 5, "last": 104});
    let measurement = run(&plan);
    assert_eq!(measurement["classes"]["c"]["errors"], json!({"range": 30}));
    let flags = measurement["flags"].to_string();
    assert!(flags.contains("range: c: 30 responses"), "{flags}");
}

#[test]
fn a_server_that_ignores_the_range_fails_by_its_status() {
    let server = Server::answering(ok(1000));
    let mut plan = plan(&server);
    plan["classes"][0]["range"] = json!({"kind": "fixed", "first": 5, "last": 104});
    let class = run_class(&plan);
    assert_eq!(class["errors"], json!({"status": 30}));
}

#[test]
fn one_flipped_byte_is_a_hash_failure() {
    let mut body = vec![b'x'; 200_000];
    let good = Temporary::new("good", &body);
    body[150_000] = b'y';
    let bad = Temporary::new("flipped", &body);
    let chunked = |size: usize| {
        let mut bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        bytes.extend(format!("{size:x}\r\n").bytes());
        bytes.resize(bytes.len() + size, b'x');
        bytes.extend(b"\r\n0\r\n\r\n");
        bytes
    };
    for response in [ok(200_000), chunked(200_000)] {
        let server = Server::answering(response);
        let mut plan = plan(&server);
        plan["classes"][0]["paths"] = json!({
            "kind": "once",
            "paths": ["/good", "/bad", "/gone", "/not-compared"],
            "files": [good.name(), bad.name(), "/no/such/file", ""],
        });
        plan["classes"][0]["arrivals"] = json!({"kind": "constant", "rate_per_second": 400});
        plan["duration_seconds"] = json!(0.5);
        plan["classes"][0]["hash_ratio"] = json!(0);
        let measurement = run(&plan);
        let class = &measurement["classes"]["c"];
        // The first of each file, however small the ratio; more where answers were under way.
        assert!(number(class, "bodies.differing") >= 1.0);
        assert!(number(class, "bodies.unread") >= 1.0);
        assert!(number(class, "bodies.compared") >= 2.0);
        assert!(number(class, "bodies.compared") <= 100.0);
        let wrong = number(class, "errors.hash");
        assert_eq!(number(class, "bodies.differing"), wrong);
        assert_eq!(number(class, "requests") + wrong, 200.0);
        let flag = measurement["flags"].to_string();
        assert!(flag.contains("hash: c: "), "{flag}");
    }
}
