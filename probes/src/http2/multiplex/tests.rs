use super::Multiplex;
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::http2::fault::Fault;
use crate::http2::frame;
use crate::multiplexed::{End, Ended};
use crate::mutations::Mutations;
use crate::plan::{Method, Streams, Upload};
use crate::request::Request;

const WINDOW: u32 = 65_535;

fn with(streams: usize) -> Multiplex {
    Multiplex::new(Streams {
        streams,
        stream_window_bytes: WINDOW,
        connection_window_bytes: 2 * WINDOW,
        ..Streams::default()
    })
}

fn one(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::begin(payload.len(), kind, flags, stream, &mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

/// What a server says first: it takes so many streams.
fn settings(limit: u8) -> Vec<u8> {
    one(frame::SETTINGS, 0, 0, &[0, 3, 0, 0, 0, limit])
}

/// Status 200 with a body of so many bytes, none of which has come.
fn head(stream: u32, bytes: &str) -> Vec<u8> {
    let mut block = vec![0x88, 0x0f, 13, bytes.len() as u8];
    block.extend_from_slice(bytes.as_bytes());
    one(frame::HEADERS, frame::END_HEADERS, stream, &block)
}

fn body(stream: u32, bytes: usize, flags: u8) -> Vec<u8> {
    one(frame::DATA, flags, stream, &vec![b'x'; bytes])
}

fn ask(carried: &mut Multiplex, method: Method, index: u64) {
    let mut exchange = Exchange::new(Request::new(0, index, 0));
    exchange.begin(method);
    carried.open(exchange, &[0x82]);
}

/// Feeds all; how each stream ended, by the number of its request.
fn fed(carried: &mut Multiplex, parts: &[Vec<u8>]) -> Result<Vec<(u64, End)>, Fault> {
    let mut ended: Vec<Ended> = Vec::new();
    for part in parts {
        carried.feed(part, 1, &mut ended)?;
    }
    let of = |it: Ended| (it.exchange.request.index, it.end);
    Ok(ended.into_iter().map(of).collect())
}

/// One that has asked twice.
fn asked() -> Multiplex {
    let mut carried = with(2);
    assert_eq!(fed(&mut carried, &[settings(100)]), Ok(vec![]));
    ask(&mut carried, Method::Get, 10);
    ask(&mut carried, Method::Get, 11);
    carried
}

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
    assert_eq!(carried.tally().peer_limit, Some(9));
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
    assert_eq!(carried.tally().most_streams, 2);
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
    assert_eq!((carried.tally().goaways, carried.tally().refused), (1, 1));
}

#[test]
fn what_was_given_up_may_still_come_and_counts_for_the_window() {
    let mut carried = asked();
    assert_eq!(
        carried
            .give_up(|exchange| exchange.request.index == 10)
            .len(),
        1
    );
    assert!(
        carried
            .unsent()
            .ends_with(&one(frame::RST_STREAM, 0, 1, &[0, 0, 0, 8]))
    );
    let late = [
        head(1, "9000"),
        body(1, 9000, frame::END_STREAM),
        head(3, "0"),
        body(3, 0, 1),
    ];
    assert_eq!(fed(&mut carried, &late), Ok(vec![(11, End::Whole)]));
    assert_eq!(carried.taken_bytes, 9000);
}

#[test]
fn windows_open_again_when_half_is_taken() {
    let mut carried = asked();
    let half = vec![body(1, 16_000, 0), body(1, 16_000, 0), body(1, 1_000, 0)];
    assert_eq!(fed(&mut carried, &[head(1, "200000")]), Ok(vec![]));
    carried.unsent().clear();
    assert_eq!(fed(&mut carried, &half), Ok(vec![]));
    let told = one(frame::WINDOW_UPDATE, 0, 1, &33_000_u32.to_be_bytes());
    assert_eq!(
        carried.unsent()[..],
        told,
        "the stream's; of the connection it is a quarter"
    );
    carried.unsent().clear();
    assert_eq!(fed(&mut carried, &half), Ok(vec![]));
    let both = one(frame::WINDOW_UPDATE, 0, 0, &66_000_u32.to_be_bytes());
    assert!(carried.unsent().starts_with(&both));
    assert_eq!(carried.tally().window_stalls, 0);
}

#[test]
fn more_than_a_window_is_a_fault_and_nearly_all_of_it_a_stall() {
    let mut carried = with(2);
    carried.plan.stream_window_bytes = 10_000;
    fed(&mut carried, &[settings(9)]).expect("settings");
    ask(&mut carried, Method::Get, 0);
    assert_eq!(
        fed(&mut carried, &[head(1, "90000"), body(1, 4_000, 0)]),
        Ok(vec![])
    );
    assert_eq!(carried.tally().window_stalls, 1);
    assert_eq!(
        fed(&mut carried, &[body(1, 6_001, 0)]),
        Err(Fault::FlowControl)
    );
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

/// Each round is a connection with a few frames behind each other: some fault or none, each request once,
/// and never more kept than is bounded.
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
        let mut carried = with(2);
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

/// Asks with a body of so many bytes, as fast as it may go.
fn send(carried: &mut Multiplex, index: u64, bytes: u64) {
    let mut exchange = Exchange::new(Request::new(0, index, 0));
    exchange.begin(Method::Post);
    let plan = Upload {
        bytes: vec![bytes],
        bytes_per_second: 0,
        chunked: false,
        expect_continue: false,
    };
    exchange.upload = Some(Box::new(crate::upload::Upload::new(bytes, &plan, 0)));
    carried.open(exchange, &[0x83]);
}

/// Lengths and flags of the DATA frames that go now, by their streams, and that all is taken away.
fn sent_bodies(carried: &mut Multiplex) -> Vec<(u32, usize, u8)> {
    let mut found = Vec::new();
    loop {
        carried.fill(1);
        let mut rest = carried.unsent().as_slice();
        if rest.is_empty() {
            return found;
        }
        while let [a, b, c, kind, flags, d, e, f, g, tail @ ..] = rest {
            let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            if *kind == frame::DATA {
                found.push((u32::from_be_bytes([*d, *e, *f, *g]), length, *flags));
            }
            rest = &tail[length..];
        }
        let count = carried.unsent().len();
        carried.sent(count);
    }
}

fn more(stream: u32, bytes: u32) -> Vec<u8> {
    one(frame::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

/// A server that takes so much of a stream at first.
fn first_window(bytes: u32) -> Vec<u8> {
    let mut payload = vec![0, 4];
    payload.extend_from_slice(&bytes.to_be_bytes());
    one(frame::SETTINGS, 0, 0, &payload)
}

fn bytes_of(found: &[(u32, usize, u8)], stream: u32) -> usize {
    let own = found.iter().filter(|(number, ..)| *number == stream);
    own.map(|(_, length, _)| length).sum()
}

#[test]
fn bodies_go_as_far_as_both_windows_let_them() {
    let mut carried = with(4);
    assert_eq!(fed(&mut carried, &[first_window(40_000)]), Ok(vec![]));
    carried.unsent().clear();
    send(&mut carried, 1, 100_000);
    send(&mut carried, 2, 30_000);
    // Each 40,000, both together 65,535 of the connection's.
    let found = sent_bodies(&mut carried);
    assert_eq!(bytes_of(&found, 1) + bytes_of(&found, 3), 65_535);
    assert!(found.iter().all(|(_, length, _)| *length <= 16_384));
    assert_eq!(bytes_of(&found, 3), 30_000, "each has its turn");
    assert_eq!(found.iter().filter(|(.., flags)| *flags == 1).count(), 1);
    assert_eq!(carried.take_sent_body(7), 65_535);
    assert!(carried.has_unsent(), "the rest waits for word of a window");
    let mut handed_over = carried.exchanges().map(Exchange::is_uploading);
    assert_eq!(
        (handed_over.next(), handed_over.next()),
        (Some(true), Some(false))
    );
    drop(handed_over);
    // Room on the connection alone gives the stream no more than its own.
    assert_eq!(fed(&mut carried, &[more(0, 1 << 20)]), Ok(vec![]));
    let found = sent_bodies(&mut carried);
    assert_eq!(bytes_of(&found, 1), 40_000 - 35_535);
    // A smaller first window is owed, and a larger one is room at once (RFC 9113 §6.9.2).
    assert_eq!(
        fed(&mut carried, &[first_window(10_000), more(1, 30_000)]),
        Ok(vec![])
    );
    assert!(
        bytes_of(&sent_bodies(&mut carried), 1) == 0,
        "30,000 were owed"
    );
    assert_eq!(fed(&mut carried, &[first_window(90_000)]), Ok(vec![]));
    let found = sent_bodies(&mut carried);
    assert_eq!(bytes_of(&found, 1), 60_000);
    assert_eq!(
        found.last().map(|(.., flags)| *flags),
        Some(frame::END_STREAM)
    );
}

#[test]
fn a_window_that_grows_by_nothing_or_too_far_is_a_fault() {
    for (updates, fault) in [
        (vec![more(0, 0)], Fault::Protocol),
        (vec![more(0, 0x7fff_ffff)], Fault::Window),
        (vec![more(1, 0x7fff_ffff)], Fault::Window),
    ] {
        let mut carried = asked();
        assert_eq!(fed(&mut carried, &updates), Err(fault));
    }
    let mut carried = asked();
    // Of a stream that is over it says nothing.
    assert_eq!(fed(&mut carried, &[more(77, 0x7fff_ffff)]), Ok(vec![]));
}

#[test]
fn what_is_answered_before_its_body_has_gone_is_reset_and_an_empty_body_ends_with_its_head() {
    let mut carried = with(4);
    assert_eq!(fed(&mut carried, &[first_window(100)]), Ok(vec![]));
    carried.unsent().clear();
    send(&mut carried, 1, 5_000);
    send(&mut carried, 2, 0);
    assert_eq!(bytes_of(&sent_bodies(&mut carried), 1), 100);
    carried.take_sent_body(1);
    let uploading: Vec<_> = carried.exchanges().map(Exchange::is_uploading).collect();
    assert_eq!(uploading, [true, false]);
    let ended = fed(&mut carried, &[head(1, "0"), body(1, 0, frame::END_STREAM)]);
    assert_eq!(ended, Ok(vec![(1, End::Whole)]));
    assert_eq!(
        *carried.unsent(),
        one(frame::RST_STREAM, 0, 1, &[0, 0, 0, 8])
    );
}
