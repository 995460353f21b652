//! Tests of protocol violations.

use super::{WINDOW, ask, asked, body, fed, head, one, settings, slow, with};
use crate::http2::fault::Fault;
use crate::http2::frame;
use crate::mutations::Mutations;
use crate::plan::Method;
use crate::protocol::End;
use crate::protocol::Protocol as _;

#[test]
fn what_is_no_http_2_says_which() {
    let ping = || one(frame::PING, 0, 0, b"12345678");
    for (part, fault) in [
        (b"HTTP/1.1 400 Bad Request\r\n".to_vec(), Fault::Http1),
        (ping(), Fault::Preface),
        (one(frame::SETTINGS, frame::ACK, 0, b""), Fault::Preface),
    ] {
        assert_eq!(fed(&mut with(1), &[part]), Err(fault));
    }
    for (part, fault) in [
        (one(frame::SETTINGS, 0, 0, b"12345"), Fault::FrameSize),
        (one(frame::SETTINGS, 0, 1, b""), Fault::Protocol),
        (
            one(frame::SETTINGS, 0, 0, b"\0\x04\x80\0\0\0"),
            Fault::Window,
        ),
        (one(frame::PING, 0, 0, b"1"), Fault::FrameSize),
        (one(frame::GOAWAY, 0, 0, b"1"), Fault::FrameSize),
        (one(frame::RST_STREAM, 0, 1, b"1"), Fault::FrameSize),
        (one(frame::RST_STREAM, 0, 5, b"1234"), Fault::Protocol),
        (one(frame::WINDOW_UPDATE, 0, 0, b"1"), Fault::FrameSize),
        (one(frame::PRIORITY, 0, 1, b"1"), Fault::FrameSize),
        (
            one(frame::PUSH_PROMISE, 4, 1, b"\0\0\0\x02\x82"),
            Fault::Protocol,
        ),
        (head(2, "1"), Fault::Protocol),
        (head(5, "1"), Fault::Protocol),
        (body(5, 1, 0), Fault::Protocol),
        (body(1, 1, 0), Fault::Protocol),
        (
            one(frame::HEADERS, frame::END_HEADERS, 1, b"\x80"),
            Fault::Compression,
        ),
        (
            one(frame::HEADERS, frame::END_HEADERS, 1, b"\x82"),
            Fault::Protocol,
        ),
        (
            one(frame::HEADERS, frame::END_HEADERS, 1, b"\x08\x03abc"),
            Fault::Protocol,
        ),
        (
            one(frame::HEADERS, frame::END_HEADERS, 1, b""),
            Fault::Protocol,
        ),
    ] {
        let mut carried = asked();
        assert_eq!(
            fed(&mut carried, std::slice::from_ref(&part)),
            Err(fault),
            "{part:?}"
        );
        let code = *carried.unsent().last().expect("the server is told");
        assert_eq!(u32::from(code), fault.code());
    }
}

#[test]
fn floods_end() {
    for part in [
        one(frame::PING, 0, 0, b"12345678"),
        one(frame::SETTINGS, 0, 0, b""),
        one(frame::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
        one(0x77, 0, 0, b""),
        body(1, 0, 0),
    ] {
        let mut carried = asked();
        fed(&mut carried, &[head(1, "9")]).expect("a head");
        let flood = part.repeat(10_001);
        assert_eq!(fed(&mut carried, &[flood]), Err(Fault::Flood));
        assert!(carried.unsent().len() < 300_000);
    }
    let mut carried = asked();
    let first = one(frame::HEADERS, 0, 1, b"\x88");
    let more = one(frame::CONTINUATION, 0, 1, &[0; 16_000]);
    let flood = [
        first,
        more.clone(),
        more.clone(),
        more.clone(),
        more.clone(),
        more,
    ];
    assert_eq!(fed(&mut carried, &flood), Err(Fault::TooManyFields));
}

/// Each round is a connection with a few frames in a row. It either fails or does not, each request
/// ends once, and never more is buffered than the bound.
#[test]
fn mutated_frames_break_nothing() {
    let mut some = Mutations::of("frames", 8_000);
    let (mut faults, mut whole) = (0, 0);
    while some.again() {
        let seeds = [
            settings(100),
            head(1, "30"),
            one(frame::HEADERS, 0, 3, b"\x88\x40\x01a\x01b"),
            one(
                frame::CONTINUATION,
                frame::END_HEADERS,
                3,
                b"\xbe\x0f\x0d\x019",
            ),
            body(1, 20, 0),
            one(frame::DATA, frame::PADDED, 3, b"\x021234\0\0"),
            one(
                frame::HEADERS,
                frame::END_HEADERS | frame::PADDED | frame::PRIORITIZED,
                1,
                b"\x01\0\0\0\0\x10\x88\0",
            ),
            one(frame::PING, 0, 0, b"12345678"),
            one(frame::RST_STREAM, 0, 3, &[0, 0, 0, 7]),
            one(frame::WINDOW_UPDATE, 0, 1, &[0, 0, 1, 0]),
            body(1, 10, frame::END_STREAM),
            one(frame::GOAWAY, 0, 0, &[0; 8]),
            [
                head(1, "30"),
                body(1, 20, 0),
                body(1, 10, frame::END_STREAM),
            ]
            .concat(),
        ];
        // Every other connection has paced windows.
        let pace = (some.below(2) == 0).then_some(100);
        let mut carried = slow(2, pace, WINDOW);
        let limit = settings(some.below(200) as u8);
        fed(&mut carried, &[limit]).expect("settings");
        while carried.has_room() {
            ask(&mut carried, Method::Get, 10);
        }
        let (asked, mut ended) = (carried.streams.len(), Vec::new());
        for _ in 0..=some.below(12) {
            let bytes = some.mutated(&seeds);
            let fed = some
                .pieces(&bytes)
                .into_iter()
                .try_for_each(|piece| carried.feed(piece, 1, &mut ended).map(drop));
            carried.pace_windows(1 + some.below(1 << 40) as u64);
            let kept = carried.unsent().len()
                + carried.block.as_ref().map_or(0, |it| it.2.capacity())
                + carried.reader.kept_bytes()
                + carried.head.text.capacity();
            assert!(kept < 1 << 20, "{kept} bytes kept of {bytes:02x?}");
            if fed.is_err() {
                faults += 1;
                break;
            }
        }
        whole += ended.iter().filter(|it| it.end == End::Whole).count();
        assert_eq!(ended.len() + carried.take_all().len(), asked);
    }
    assert!(faults > 100 && whole > 100 || some.is_alone());
}
