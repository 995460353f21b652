//! Tests of the ends of streams.

use super::{ask, asked, body, fed, head, one, settings, with};
use crate::failure::Failure;
use crate::http2::fault::Fault;
use crate::http2::frame;
use crate::plan::Method;
use crate::protocol::End;
use crate::protocol::Protocol as _;

#[test]
fn the_client_says_who_it_is_and_waits_for_the_server() {
    let mut carried = with(2);
    assert!(
        carried
            .unsent()
            .starts_with(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x0c\x04")
    );
    assert!(
        carried
            .unsent()
            .ends_with(b"\0\0\x04\x08\0\0\0\0\0\0\0\xff\xff")
    );
    assert!(!carried.has_room());
    carried.unsent().clear();
    assert_eq!(fed(&mut carried, &[settings(1)]), Ok(vec![]));
    assert!(carried.has_room());
    assert_eq!(
        carried.unsent()[..],
        one(frame::SETTINGS, frame::ACK, 0, b"")
    );
    ask(&mut carried, Method::Get, 0);
    assert!(!carried.has_room(), "the server takes one at once");
    assert_eq!(fed(&mut carried, &[settings(9)]), Ok(vec![]));
    ask(&mut carried, Method::Get, 1);
    assert!(!carried.has_room(), "the plan has two at once");
    assert_eq!(carried.tally.peer_limit, Some(9));
}

#[test]
fn responses_come_in_any_order() {
    let parts = [
        head(3, "4"),
        head(1, "3"),
        body(3, 2, 0),
        body(1, 3, frame::END_STREAM),
        body(3, 2, 0),
        one(
            frame::HEADERS,
            frame::END_HEADERS | frame::END_STREAM,
            3,
            b"\0\x01a\x01b",
        ),
    ];
    let mut carried = asked();
    assert_eq!(
        fed(&mut carried, &parts),
        Ok(vec![(10, End::Whole), (11, End::Whole)])
    );
    assert_eq!(carried.tally.most_streams, 2);
}

#[test]
fn what_frames_end_before_the_body_does_is_cut_short() {
    let reset = |code: u8| one(frame::RST_STREAM, 0, 1, &[0, 0, 0, code]);
    let failed = |failure| vec![(10, End::Failed(failure))];
    for (parts, ended) in [
        (
            vec![head(1, "4"), body(1, 3, frame::END_STREAM)],
            failed(Failure::Truncated),
        ),
        (
            vec![head(1, "4"), body(1, 5, frame::END_STREAM)],
            failed(Failure::Parse),
        ),
        (
            vec![head(1, "4"), body(1, 3, 0), reset(2)],
            failed(Failure::Truncated),
        ),
        (vec![reset(2)], failed(Failure::Reset)),
        (vec![reset(7)], vec![(10, End::Refused)]),
    ] {
        assert_eq!(fed(&mut asked(), &parts), Ok(ended));
    }
}

#[test]
fn a_head_alone_has_no_body() {
    let mut carried = with(2);
    assert_eq!(fed(&mut carried, &[settings(100)]), Ok(vec![]));
    ask(&mut carried, Method::Head, 5);
    let mut answer = head(1, "4000");
    answer[4] |= frame::END_STREAM;
    assert_eq!(fed(&mut carried, &[answer]), Ok(vec![(5, End::Whole)]));
}

#[test]
fn what_the_server_did_not_look_at_before_it_left_was_not_seen() {
    let mut carried = asked();
    let last_is_one = one(
        frame::GOAWAY,
        0,
        0,
        &[0, 0, 0, 1, 0, 0, 0, 0, b'b', b'y', b'e'],
    );
    assert_eq!(
        fed(&mut carried, &[last_is_one.clone(), last_is_one]),
        Ok(vec![(11, End::Unseen)])
    );
    assert!(!carried.has_room() && !carried.is_done());
    let rest = [head(1, "1"), body(1, 1, frame::END_STREAM)];
    assert_eq!(fed(&mut carried, &rest), Ok(vec![(10, End::Whole)]));
    assert!(carried.is_done());
    assert_eq!((carried.tally.goaways, carried.tally.refused), (1, 1));
}

#[test]
fn a_block_may_come_in_parts_with_nothing_between() {
    let first = one(frame::HEADERS, 0, 1, b"\x88\x0f\x0d");
    let rest = one(frame::CONTINUATION, frame::END_HEADERS, 1, b"\x010");
    let end = body(1, 0, frame::END_STREAM);
    let ended = fed(&mut asked(), &[first.clone(), rest.clone(), end.clone()]);
    assert_eq!(ended, Ok(vec![(10, End::Whole)]));
    let ping = one(frame::PING, 0, 0, b"12345678");
    assert_eq!(
        fed(&mut asked(), &[first.clone(), ping]),
        Err(Fault::Protocol)
    );
    assert_eq!(fed(&mut asked(), &[first, end]), Err(Fault::Protocol));
    assert_eq!(fed(&mut asked(), &[rest]), Err(Fault::Protocol));
}

#[test]
fn an_interim_answer_is_none() {
    let early = one(frame::HEADERS, frame::END_HEADERS, 1, b"\x08\x03103");
    let parts = [early.clone(), head(1, "0"), body(1, 0, frame::END_STREAM)];
    assert_eq!(fed(&mut asked(), &parts), Ok(vec![(10, End::Whole)]));
    let mut last = early;
    last[4] |= frame::END_STREAM;
    assert_eq!(fed(&mut asked(), &[last]), Err(Fault::Protocol));
}

#[test]
fn pings_are_answered_and_what_is_not_known_is_passed_over() {
    let mut carried = asked();
    carried.unsent().clear();
    let parts = [
        one(frame::PING, 0, 0, b"abcdefgh"),
        one(frame::PING, frame::ACK, 0, b"abcdefgh"),
        one(frame::PRIORITY, 0, 1, b"12345"),
        one(frame::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
        one(0x77, 0xff, 9, b"?"),
    ];
    assert_eq!(fed(&mut carried, &parts), Ok(vec![]));
    assert_eq!(
        carried.unsent()[..],
        one(frame::PING, frame::ACK, 0, b"abcdefgh")
    );
}
