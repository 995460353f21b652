//! Tests of windows, paces and priorities.

use super::{
    Manner, Multiplex, WINDOW, ask, asked, body, fed, head, one, plainly, settings, slow, with,
};
use crate::clock::{Nanos, SECOND};
use crate::exchange::Exchange;
use crate::http2::fault::Fault;
use crate::http2::frame;
use crate::http2::manner::Place;
use crate::http2::windows::{Window, slow_window};
use crate::plan::Method;
use crate::protocol::End;
use crate::protocol::Protocol as _;
use crate::request::Request;

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
    assert_eq!(carried.window.taken(), 9000);
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
    assert_eq!(carried.tally.window_stalls, 0);
}

#[test]
fn more_than_a_window_is_a_fault_and_nearly_all_of_it_a_stall() {
    let mut carried = with(2);
    fed(&mut carried, &[settings(9)]).expect("settings");
    ask(&mut carried, Method::Get, 0);
    carried.streams[0].window = Window::new(10_000);
    assert_eq!(
        fed(&mut carried, &[head(1, "90000"), body(1, 4_000, 0)]),
        Ok(vec![])
    );
    assert_eq!(carried.tally.window_stalls, 1);
    assert_eq!(
        fed(&mut carried, &[body(1, 6_001, 0)]),
        Err(Fault::FlowControl)
    );
}

/// Sends a request of a class in this manner.
fn ask_so(carried: &mut Multiplex, class: usize, manner: &Manner) {
    let mut exchange = Exchange::new(Request::new(0, 7, 0));
    exchange.class = class;
    exchange.response.expect(Method::Get);
    carried.unsent().clear();
    carried.ask(exchange, &[0x82], manner);
}

/// Feeds as much as the windows allow on a stream until `end`; returns the number of bytes.
fn sent_until(carried: &mut Multiplex, number: u32, first: u32, end: Nanos) -> u64 {
    let (mut open, mut sent, mut now) = (first, 0, 1);
    let mut ended = Vec::new();
    while now <= end + 1 {
        while open > 0 {
            let part = open.min(1000);
            let bytes = body(number, part as usize, 0);
            carried.feed(&bytes, now, &mut ended).expect("what it let");
            open -= part;
            sent += u64::from(part);
        }
        carried.unsent().clear();
        let next = carried.pace_windows(now);
        for frame in carried.unsent().chunks(13) {
            assert_eq!(frame[3], frame::WINDOW_UPDATE);
            open += u32::from_be_bytes(frame[9..].try_into().expect("four"));
        }
        if open == 0 {
            assert!(next > now, "it would never sleep");
            now = next;
        }
    }
    sent
}

#[test]
fn a_slow_stream_has_its_pace_and_others_of_the_connection_have_none() {
    let (rate, first) = (10_000, slow_window(10_000, WINDOW));
    let mut carried = slow(9, None, first);
    let opening = one(
        frame::SETTINGS,
        0,
        0,
        &[0, 2, 0, 0, 0, 0, 0, 4, 0, 0, 0x04, 0xe2],
    );
    assert!(
        carried.unsent()[24..].starts_with(&opening),
        "1,250 of a stream"
    );
    fed(&mut carried, &[settings(9)]).expect("settings");
    let slowly = Manner {
        window_bytes: first,
        bytes_per_second: Some(rate),
        place: None,
    };
    ask_so(&mut carried, 0, &slowly);
    assert_eq!(
        carried.unsent().len(),
        9 + 1,
        "of its window it is told nothing"
    );
    ask_so(&mut carried, 1, &plainly());
    let more = (WINDOW - first).to_be_bytes();
    assert!(
        carried
            .unsent()
            .ends_with(&one(frame::WINDOW_UPDATE, 0, 3, &more))
    );
    fed(&mut carried, &[head(1, "99999999"), head(3, "99999999")]).expect("heads");
    let sent = sent_until(&mut carried, 1, first, 60 * SECOND);
    let exact = u64::from(first) + 60 * rate;
    assert!((exact - rate / 50..=exact).contains(&sent), "{sent}");
    // The window of the other stream is enlarged at once, and never at a pace.
    carried.unsent().clear();
    let half = vec![body(3, 16_384, 0), body(3, 16_384, 0)];
    fed(&mut carried, &half).expect("its own window");
    let told = one(frame::WINDOW_UPDATE, 0, 3, &32_768_u32.to_be_bytes());
    assert!(carried.unsent().ends_with(&told));
    assert_eq!(carried.tally.window_stalls, 0);
}

#[test]
fn a_slow_connection_has_one_pace_for_all() {
    let mut carried = slow(9, Some(10_000), WINDOW);
    let opening = carried.unsent().len();
    assert_eq!(
        opening,
        24 + 9 + 12,
        "no more than the first window is told"
    );
    fed(&mut carried, &[settings(9)]).expect("settings");
    ask_so(&mut carried, 0, &plainly());
    fed(&mut carried, &[head(1, "99999999")]).expect("a head");
    // As for any stream.
    carried.streams[0].window = Window::new(1 << 30);
    let sent = sent_until(&mut carried, 1, WINDOW, 60 * SECOND);
    let exact = u64::from(WINDOW) + 60 * 10_000;
    // The initial window is used up. From then on, the window is that of a slow client, which is
    // smaller.
    let room = u64::from(slow_window(10_000, WINDOW));
    assert!((exact - room..=exact).contains(&sent), "{sent} {exact}");
    let all = vec![body(1, 2_000, 0)];
    assert_eq!(fed(&mut carried, &all), Err(Fault::FlowControl));
}

#[test]
fn streams_say_on_what_they_depend() {
    let mut carried = with(9);
    fed(&mut carried, &[settings(9)]).expect("settings");
    let manner = |weight, depends_on: &[usize], exclusive, apart| Manner {
        place: Some(Place {
            weight,
            depends_on: depends_on.to_vec(),
            exclusive,
            apart,
        }),
        ..plainly()
    };
    ask_so(&mut carried, 0, &manner(1, &[], false, false));
    let flags = frame::END_STREAM | frame::END_HEADERS;
    let prioritized = flags | frame::PRIORITIZED;
    let first = one(frame::HEADERS, prioritized, 1, &[0, 0, 0, 0, 0, 0x82]);
    assert_eq!(carried.unsent()[..], first);
    ask_so(&mut carried, 0, &manner(16, &[], false, false));
    // Exclusively on the newest stream of the class: 3; the new stream is 5.
    ask_so(&mut carried, 1, &manner(256, &[0], true, false));
    let third = one(frame::HEADERS, prioritized, 5, &[0x80, 0, 0, 3, 255, 0x82]);
    assert_eq!(carried.unsent()[..], third);
    ask_so(&mut carried, 2, &manner(220, &[1, 2], false, true));
    let apart = [
        one(frame::HEADERS, flags, 7, &[0x82]),
        one(frame::PRIORITY, 0, 7, &[0, 0, 0, 5, 219]),
    ];
    assert_eq!(carried.unsent()[..], apart.concat());
    // A stream cannot depend on an ended one, which a server may have forgotten.
    let over = [head(5, "0"), body(5, 0, 1), head(7, "0"), body(7, 0, 1)];
    fed(&mut carried, &over).expect("answers");
    ask_so(&mut carried, 2, &manner(220, &[1, 2], false, true));
    let last = one(frame::PRIORITY, 0, 9, &[0, 0, 0, 0, 219]);
    assert!(carried.unsent().ends_with(&last));
}

#[test]
fn a_block_that_fills_a_frame_leaves_room_for_where_it_stands() {
    let mut carried = with(9);
    fed(&mut carried, &[settings(9)]).expect("settings");
    carried.unsent().clear();
    let manner = Manner {
        place: Some(Place {
            weight: 1,
            depends_on: vec![],
            exclusive: false,
            apart: false,
        }),
        ..plainly()
    };
    let exchange = Exchange::new(Request::new(0, 7, 0));
    carried.ask(exchange, &[0x82; 16_384], &manner);
    let sent = carried.unsent();
    assert_eq!(sent[..4], [0, 0x40, 0, frame::HEADERS], "16,384 bytes");
    assert_eq!(sent[9 + 16_384..][..4], [0, 0, 5, frame::CONTINUATION]);
    assert_eq!(sent.len(), 9 + 16_384 + 9 + 5);
}
