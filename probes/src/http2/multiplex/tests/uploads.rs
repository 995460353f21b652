//! Bodies of requests.

use super::{Multiplex, asked, body, fed, head, one, plainly, with};
use crate::exchange::Exchange;
use crate::http2::fault::Fault;
use crate::http2::frame;
use crate::multiplexed::End;
use crate::plan::{Method, Upload};
use crate::request::Request;

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
    carried.open(exchange, &[0x83], &plainly());
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
    carried.note_handed_over(7);
    let uploads = carried.exchanges_mut().filter_map(|it| it.upload.as_mut());
    let untold: Vec<_> = uploads.map(|it| it.take_untold()).collect();
    assert_eq!(untold, [35_535, 30_000]);
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
    carried.note_handed_over(1);
    let uploading: Vec<_> = carried.exchanges().map(Exchange::is_uploading).collect();
    assert_eq!(uploading, [true, false]);
    let ended = fed(&mut carried, &[head(1, "0"), body(1, 0, frame::END_STREAM)]);
    assert_eq!(ended, Ok(vec![(1, End::Whole)]));
    assert_eq!(
        *carried.unsent(),
        one(frame::RST_STREAM, 0, 1, &[0, 0, 0, 8])
    );
}
