//! Tests of responses as servers write them: complete, truncated and damaged.

use super::{NotHttp, Response};
use crate::chance::{Chance, Purpose};
use crate::failure::Failure;
use crate::mutations::Mutations;
use crate::plan::Method;

/// Every visible property of a response.
#[derive(Debug, PartialEq)]
struct Seen {
    complete: bool,
    status: u16,
    body_bytes: u64,
    keeps_connection: bool,
    left_over: usize,
}

fn feed(method: Method, pieces: &[&[u8]]) -> Result<Seen, NotHttp> {
    let mut response = Response::new();
    response.expect(method);
    let mut left_over = 0;
    for piece in pieces {
        left_over += piece.len() - response.feed(piece)?;
    }
    Ok(Seen {
        complete: response.is_complete(),
        status: response.status(),
        body_bytes: response.body_bytes(),
        keeps_connection: response.keeps_connection(),
        left_over,
    })
}

const GOOD: [(&[u8], u64, bool); 10] = [
    (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 5, true),
    (b"HTTP/1.1 200 OK\r\ncontent-length:5\r\nConnection: close\r\n\r\nhello", 5, false),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 0, true),
    (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", 5, false),
    (b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 2\r\n\r\nhi", 2, true),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 5, true),
    (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n00a;x=\"y\"\r\n0123456789\r\n1 \r\nz\r\n000\r\nA: b\r\nC: d\r\n\r\n",
        11,
        true,
    ),
    (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\nContent-Length: 9\r\n\r\n1\r\nh\r\n0\r\n\r\n",
        1,
        false,
    ),
    (b"HTTP/1.1 204 No Content\r\n\r\n", 0, true),
    (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
        1,
        true,
    ),
];

#[test]
fn a_response_is_the_same_wherever_it_is_split() {
    for (bytes, body_bytes, keeps_connection) in GOOD {
        let mut stream = bytes.to_vec();
        stream.extend_from_slice(b"HTTP/1.1");
        let whole = feed(Method::Get, &[&stream]).unwrap();
        assert!(whole.complete);
        assert_eq!(whole.body_bytes, body_bytes);
        assert_eq!(whole.keeps_connection, keeps_connection);
        assert_eq!(
            whole.left_over,
            8,
            "of {:?}",
            String::from_utf8_lossy(bytes)
        );
        for at in 1..stream.len() {
            let (one, two) = stream.split_at(at);
            assert_eq!(
                feed(Method::Get, &[one, two]).unwrap(),
                whole,
                "split at {at}"
            );
        }
        let single: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(feed(Method::Get, &single).unwrap(), whole);
    }
}

/// Damaged responses: the result is the same however the bytes are split, and no byte is taken that
/// was not fed.
#[test]
fn damage_is_judged_alike_wherever_it_is_split() {
    let chance = Chance::new(11, "damage", Purpose::Path);
    let mut draw = 0;
    let mut below = |count: usize| {
        draw += 1;
        chance.below(draw, count as u64) as usize
    };
    for _ in 0..20_000 {
        let mut bytes = GOOD[below(GOOD.len())].0.to_vec();
        for _ in 0..=below(3) {
            let at = below(bytes.len());
            match below(4) {
                0 => bytes[at] = below(256) as u8,
                1 => bytes[at] ^= 1 << below(8),
                2 => drop(bytes.remove(at)),
                _ => bytes.insert(at, b"0f\r\n :;-"[below(8)]),
            }
        }
        let whole = feed(Method::Get, &[&bytes]);
        let (one, two) = bytes.split_at(below(bytes.len() + 1));
        assert_eq!(feed(Method::Get, &[one, two]), whole, "{bytes:?}");
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(feed(Method::Get, &single), whole, "{bytes:?}");
    }
}

#[test]
fn a_long_body_behind_a_split_head_is_no_part_of_the_head() {
    let mut stream = b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n".to_vec();
    stream.resize(stream.len() + 200_000, b'x');
    for at in [1, 20, 42] {
        let (one, two) = stream.split_at(at);
        let seen = feed(Method::Get, &[one, two]).unwrap();
        assert!(seen.complete);
        assert_eq!(seen.body_bytes, 200_000);
    }
}

#[test]
fn payload_may_be_skipped_up_to_its_end_and_no_further() {
    let mut response = Response::new();
    response
        .feed(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")
        .unwrap();
    assert_eq!(response.payload_ahead(), 6);
    response.skip_payload(6);
    assert!(response.is_complete());
    assert_eq!(response.payload_ahead(), 0);

    response.expect(Method::Get);
    response
        .feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\nabc")
        .unwrap();
    assert_eq!(response.payload_ahead(), 13);
    response.skip_payload(13);
    assert_eq!(response.payload_ahead(), 0);
    assert_eq!(response.feed(b"\r\n0\r\n\r\nHTTP"), Ok(7));
    assert!(response.is_complete());
    assert_eq!(response.body_bytes(), 16);
}

#[test]
fn the_worker_is_a_number_or_nothing() {
    let mut response = Response::new();
    for (value, worker) in [("4711", Some(4711)), ("-", None), ("", None), ("1e9", None)] {
        response.expect(Method::Get);
        let head = format!("HTTP/1.1 204 x\r\nX-Probe-Worker: {value}\r\n\r\n");
        response.feed(head.as_bytes()).unwrap();
        assert_eq!(response.worker(), worker, "{value}");
    }
}

#[test]
fn head_and_not_modified_have_no_body_whatever_they_declare() {
    let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    assert!(feed(Method::Head, &[bytes]).unwrap().complete);
    let bytes = b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n";
    assert!(feed(Method::Get, &[bytes]).unwrap().complete);
}

#[test]
fn junk_is_refused_and_why_is_told() {
    let chunked =
        |rest: &str| format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{rest}");
    let fields = |rest: &str| format!("HTTP/1.1 200 OK\r\n{rest}\r\n\r\n");
    let long = fields(&format!("A: {}", "a".repeat(70_000)));
    let many = fields(&vec!["A: b"; 129].join("\r\n"));
    let line = chunked(&format!("1;{}", "x".repeat(20_000)));
    for (text, why) in [
        ("hello".into(), "byte 0x68 (h) at offset 0 of the head"),
        (
            "HTTP/2 200 OK\r\n\r\n".into(),
            "byte 0x32 (2) at offset 5 of the head",
        ),
        (
            "HTTP/1.1 2x0 OK\r\n\r\n".into(),
            "byte 0x78 (x) at offset 10 of the head",
        ),
        (
            "\x15\x03\x03".into(),
            "byte 0x15 at offset 0 of the head: the server speaks TLS there",
        ),
        (
            "\0\0\x18".into(),
            "byte 0x00 at offset 0 of the head: the server may speak HTTP/2 there",
        ),
        (fields("A\0: b"), "byte 0x00 at offset 18 of the head"),
        (fields("A: b\x01"), "byte 0x01 at offset 21 of the head"),
        (
            "HTTP/1.1 101 Switching\r\n\r\n".into(),
            "status 101, which was not requested",
        ),
        (
            fields("Content-Length: -1"),
            "a Content-Length that is not a number",
        ),
        (
            fields("Content-Length: +1"),
            "a Content-Length that is not a number",
        ),
        (
            fields("Content-Length: 1, 1"),
            "a Content-Length that is not a number",
        ),
        (
            fields("Content-Length: 99999999999999999999"),
            "a Content-Length that is not a number",
        ),
        (
            fields("Content-Length: 1\r\nContent-Length: 2"),
            "two Content-Length fields that differ",
        ),
        (chunked("\r\n"), "byte 0x0d at offset 0 of the chunked body"),
        (
            chunked("x\r\n"),
            "byte 0x78 (x) at offset 0 of the chunked body",
        ),
        (chunked("1\n"), "byte 0x0a at offset 1 of the chunked body"),
        (
            chunked("1\r\nabc"),
            "byte 0x62 (b) at offset 4 of the chunked body",
        ),
        (
            chunked("11111111111111111\r\n"),
            "a chunk whose size or line is too long, at offset 16 of the chunked body",
        ),
        (
            line,
            "a chunk whose size or line is too long, at offset 16386 of the chunked body",
        ),
        (long, "a head of more than 65536 bytes"),
        (many, "more than 128 header fields"),
    ] {
        let told = feed(Method::Get, &[text.as_bytes()]).map_err(|why| why.to_string());
        assert_eq!(told, Err(why.into()), "{:?}", text.get(..80));
        let pieces: Vec<&[u8]> = text.as_bytes().chunks(7).collect();
        let told = feed(Method::Get, &pieces).map_err(|why| why.to_string());
        assert_eq!(told, Err(why.into()), "{:?} in pieces", text.get(..80));
    }
}

#[test]
fn a_compressed_body_has_a_length_of_its_own() {
    for (coding, fault) in [
        ("gzip", None),
        ("br", None),
        ("identity", Some(Failure::Length)),
        ("", Some(Failure::Length)),
        ("identity, deflate", None),
    ] {
        let mut response = Response::new();
        let text =
            format!("HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\nContent-Length: 2\r\n\r\nhi");
        response.feed(text.as_bytes()).unwrap();
        assert!(response.is_complete());
        assert_eq!(response.fault(&[200], Some(9)), fault, "{coding:?}");
        // The next response on the connection is not compressed just because this one was.
        response.expect(Method::Get);
        response
            .feed(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
            .unwrap();
        assert_eq!(response.fault(&[200], Some(9)), Some(Failure::Length));
    }
}

#[test]
fn an_early_end_is_told_by_kind() {
    let mut response = Response::new();
    assert_eq!(response.end(), Some(Failure::Empty));
    for (bytes, failure) in [
        (
            b"HTTP/1.1 200 OK\r\nConte".as_slice(),
            Some(Failure::Truncated),
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
            Some(Failure::Truncated),
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
            Some(Failure::Truncated),
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
            Some(Failure::Truncated),
        ),
        (b"HTTP/1.1 200 OK\r\n\r\nhell", None),
    ] {
        response.expect(Method::Get);
        response.feed(bytes).unwrap();
        assert_eq!(
            response.end(),
            failure,
            "{:?}",
            String::from_utf8_lossy(bytes)
        );
    }
    assert!(response.is_complete());
}

#[test]
fn a_complete_response_is_judged_by_status_and_length() {
    let mut response = Response::new();
    response
        .feed(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
        .unwrap();
    assert_eq!(response.fault(&[200], None), None);
    assert_eq!(response.fault(&[200], Some(5)), None);
    assert_eq!(response.fault(&[200], Some(6)), Some(Failure::Length));
    assert_eq!(response.fault(&[206], Some(5)), Some(Failure::Status));
    response.expect(Method::Head);
    response
        .feed(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
        .unwrap();
    assert_eq!(response.fault(&[200], Some(5)), None);
    assert_eq!(response.fault(&[200], Some(6)), Some(Failure::Length));
}

#[test]
fn mutated_responses_are_the_same_wherever_they_are_split() {
    let seeds: Vec<&[u8]> = GOOD.iter().map(|(bytes, ..)| *bytes).collect();
    let mut some = Mutations::of("responses of HTTP/1", 20_000);
    let (mut faults, mut ends) = (0, 0);
    while some.again() {
        let bytes = some.mutated(&seeds);
        let pieces = some.pieces(&bytes);
        let whole = feed(Method::Get, &[&bytes]).ok();
        let split = feed(Method::Get, &pieces).ok();
        assert_eq!(split, whole, "{:?}", bytes.escape_ascii().to_string());
        match whole {
            Some(seen) => ends += u32::from(seen.complete),
            None => faults += 1,
        }
    }
    assert!(faults > 100 && ends > 100 || some.is_alone());
}
