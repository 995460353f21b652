use super::Answer;
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::http3::fault::Fault;
use crate::multiplexed::Head;
use crate::mutations::Mutations;
use crate::plan::Method;
use crate::protocol::End;
use crate::request::Request;

fn asked(method: Method) -> Answer {
    let mut exchange = Exchange::new(Request::new(0, 0, 0));
    exchange.response.expect(method);
    Answer::new(exchange)
}

fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = 0x4000 | payload.len() as u16;
    [&[kind][..], &length.to_be_bytes(), payload].concat()
}

/// Status 200, with the length of the body.
fn head(bytes: &str) -> Vec<u8> {
    let length = bytes.len() as u8;
    frame(
        1,
        &[b"\0\0\xd9\x54", &[length][..], bytes.as_bytes()].concat(),
    )
}

/// The end of a stream that arrives in pieces of a length, and the number of body bytes.
fn end_of(method: Method, stream: &[u8], piece: usize) -> Result<(End, u64), Fault> {
    let (mut answer, mut fields) = (asked(method), Head::default());
    let mut bytes = 0;
    for part in stream.chunks(piece) {
        bytes += answer.feed(part, 7, &mut fields)?;
    }
    let end = answer.end()?;
    assert_eq!(answer.exchange.response.body_bytes(), bytes);
    Ok((end, bytes))
}

#[test]
fn a_response_comes_in_pieces_of_any_size() {
    let interim = frame(1, b"\0\0\xff\x00"); // status 100
    let trailers = frame(1, b"\0\0\x23age\x017");
    let unknown = frame(0x21, b"whatever");
    let body = [
        frame(0, b"abc"),
        unknown.clone(),
        frame(0, b""),
        frame(0, b"de"),
    ]
    .concat();
    let stream = [interim, head("5"), body, trailers, unknown].concat();
    for piece in 1..=stream.len() {
        let ended = end_of(Method::Get, &stream, piece);
        assert_eq!(ended, Ok((End::Whole, 5)), "{piece}");
    }
}

#[test]
fn an_end_before_its_time_has_its_name() {
    let failed = |failure| Ok((End::Failed(failure), 0));
    assert_eq!(end_of(Method::Get, b"", 1), failed(Failure::Empty));
    assert_eq!(
        end_of(Method::Get, &head("5"), 9),
        failed(Failure::Truncated)
    );
    assert_eq!(end_of(Method::Head, &head("5"), 9), Ok((End::Whole, 0)));
    let longer = [head("1"), frame(0, b"ab")].concat();
    assert_eq!(
        end_of(Method::Get, &longer, 99),
        Ok((End::Failed(Failure::Parse), 2))
    );
    let cut = [head("5"), frame(0, b"abcde")].concat();
    for count in 1..cut.len() {
        let ended = end_of(Method::Get, &cut[..count], 99);
        let whole_frames = count == head("5").len();
        assert_eq!(
            ended == Err(Fault::Frame),
            !whole_frames,
            "{count}: {ended:?}"
        );
    }
}

#[test]
fn what_is_no_response_ends_the_connection() {
    for (stream, fault) in [
        (frame(0, b"a"), Fault::FrameUnexpected),
        (frame(4, b""), Fault::FrameUnexpected),
        (frame(7, b"\0"), Fault::FrameUnexpected),
        (frame(0xd, b"\0"), Fault::FrameUnexpected),
        (frame(3, b"\0"), Fault::FrameUnexpected),
        (frame(5, b"\0"), Fault::Id),
        (frame(2, b""), Fault::FrameUnexpected),
        (frame(1, b"\0\0"), Fault::Message),
        (frame(1, b"\0\0\xd1"), Fault::Message), // a method
        (frame(1, b"\0\0\xd9\xd9"), Fault::Message),
        (frame(1, b"\0\0\x5f\x09\x03101"), Fault::Message),
        (frame(1, b"\0\0\xc2\xd9"), Fault::Message), // age before the status
        (frame(1, b"\0\0\xff\xff\xff"), Fault::Compression),
        (
            [head("1"), head("1"), frame(0, b"a")].concat(),
            Fault::FrameUnexpected,
        ),
        (
            [head("1"), head("1"), head("1")].concat(),
            Fault::FrameUnexpected,
        ),
        (
            [head("0"), frame(0x21, b"").repeat(10_001)].concat(),
            Fault::ExcessiveLoad,
        ),
        (
            [head("0"), frame(0, b"").repeat(10_001)].concat(),
            Fault::ExcessiveLoad,
        ),
        (
            frame(1, b"\0\0\xff\x00").repeat(10_001),
            Fault::ExcessiveLoad,
        ),
    ] {
        let ended = end_of(Method::Get, &stream, 99);
        assert_eq!(
            ended,
            Err(fault),
            "{:02x?}",
            &stream[..stream.len().min(20)]
        );
    }
}

#[test]
fn mutated_streams_never_panic_and_cost_no_more_than_a_block() {
    let seeds = [
        [
            head("5"),
            frame(0, b"abc"),
            frame(0x21, b"xyz"),
            frame(0, b"de"),
        ]
        .concat(),
        [
            frame(1, b"\0\0\xff\x00"),
            head("300"),
            frame(0, &[b'z'; 300]),
        ]
        .concat(),
        frame(
            1,
            b"\0\0\xd9\x5f\x2d\x88\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f\xff\x23\x27\x00x-probe\x017",
        ),
    ];
    let mut some = Mutations::of("streams of answers", 20_000);
    let (mut faults, mut ends) = (0, 0);
    while some.again() {
        let stream = some.mutated(&seeds);
        let (mut answer, mut fields) = (asked(Method::Get), Head::default());
        let fed = some
            .pieces(&stream)
            .into_iter()
            .try_for_each(|part| answer.feed(part, 7, &mut fields).map(drop));
        match fed.and_then(|()| answer.end()) {
            Ok(_) => ends += 1,
            Err(_) => faults += 1,
        }
        assert!(fields.text.capacity() <= 256 * 1024, "{stream:02x?}");
        assert!(answer.kept_bytes() <= 65 * 1024, "{stream:02x?}");
    }
    assert!(faults > 100 && ends > 100 || some.is_alone());
}
