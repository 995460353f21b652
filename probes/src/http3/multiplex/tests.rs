use std::thread;
use std::time::{Duration, Instant};

use super::pair::{Pair, Say};
use crate::failure::Failure;
use crate::http3::fault::Fault;
use crate::mutations::Mutations;
use crate::plan::Streams;
use crate::protocol::{End, Protocol as _};

const SETTINGS: &[u8] = b"\0\x04\x00";

/// Status 200 and a body of three bytes, complete.
const GOOD: &[u8] = b"\x01\x06\0\0\xd9\x54\x013\x00\x03abc";

fn pair(most_streams: u8) -> Pair {
    let mut pair = Pair::new(most_streams, Streams::default(), b"h3");
    assert!(pair.client.is_settled());
    pair.say(&[Say::Control(SETTINGS.to_vec())]).expect("good");
    pair
}

/// The ends of ended requests, by the index of the request.
fn ends(pair: &mut Pair) -> Vec<(u64, End)> {
    let mut ends: Vec<_> = pair
        .ended
        .drain(..)
        .map(|ended| (ended.exchange.request.index, ended.end))
        .collect();
    ends.sort_unstable_by_key(|&(number, _)| number);
    ends
}

#[test]
fn a_request_is_sent_and_its_answer_counted() {
    let mut pair = pair(3);
    assert_eq!(pair.client.tally.peer_limit, Some(3));
    pair.ask(1);
    pair.talk().expect("good");
    let said: Vec<_> = pair
        .requests
        .iter()
        .map(|(_, bytes)| bytes.as_slice())
        .collect();
    assert_eq!(said, [super::CONTROL, b"\x01\x08\0\0\xd1\xd7\x50\x01a\xc1"]);
    assert_eq!(pair.say(&[Say::Bytes(0, GOOD.to_vec())]), Ok(3));
    assert!(pair.ended.is_empty(), "its stream goes on");
    pair.say(&[Say::End(0)]).expect("good");
    assert_eq!(ends(&mut pair), [(0, End::Whole)]);
    let (tally, traffic) = (pair.client.tally, pair.client.quic.datagrams());
    assert_eq!(
        (tally.streams, tally.most_streams, tally.window_stalls),
        (1, 1, 0)
    );
    assert_eq!(traffic.lost_packets, 0);
    assert!(traffic.sent > 0 && traffic.received > 0);
}

#[test]
fn no_more_streams_are_opened_than_the_server_takes() {
    let mut pair = pair(2);
    for round in 0..5 {
        pair.ask(2);
        assert!(!pair.client.has_room());
        pair.talk().expect("good");
        for number in [2 * round, 2 * round + 1] {
            let answer = [Say::Bytes(number, GOOD.to_vec()), Say::End(number)];
            pair.say(&answer).expect("good");
        }
        assert_eq!(ends(&mut pair).len(), 2, "{round}");
    }
}

#[test]
fn streams_that_end_before_their_time_have_their_names() {
    let mut pair = pair(9);
    pair.ask(5);
    pair.talk().expect("good");
    let head = GOOD[..8].to_vec();
    let says = [
        Say::Reset(0, 0x10b),
        Say::Reset(1, 0x102),
        Say::Bytes(2, head.clone()),
        Say::Bytes(3, head),
        Say::End(3),
        Say::End(4),
    ];
    pair.say(&says).expect("good");
    pair.say(&[Say::Reset(2, 0x102)]).expect("good");
    assert_eq!(
        ends(&mut pair),
        [
            (0, End::Refused),
            (1, End::Failed(Failure::Reset)),
            (2, End::Failed(Failure::Truncated)),
            (3, End::Failed(Failure::Truncated)),
            (4, End::Failed(Failure::Empty)),
        ]
    );
    let tally = pair.client.tally;
    assert_eq!((tally.refused, tally.resets), (1, 2));
}

#[test]
fn requests_from_the_number_of_a_goaway_on_were_not_looked_at() {
    let mut pair = pair(9);
    pair.ask(3);
    pair.talk().expect("good");
    pair.say(&[Say::Control(b"\x07\x01\x04".to_vec())])
        .expect("good");
    assert_eq!(ends(&mut pair), [(1, End::Unseen), (2, End::Unseen)]);
    assert!(pair.client.is_leaving() && !pair.client.is_done() && !pair.client.has_room());
    assert_eq!(pair.stopped, [0x10c, 0x10c], "the server is told");
    let answer = [Say::Bytes(0, GOOD.to_vec()), Say::End(0)];
    pair.say(&answer).expect("good");
    assert_eq!(ends(&mut pair), [(0, End::Whole)]);
    assert!(pair.client.is_done());
    let tally = pair.client.tally;
    assert_eq!((tally.goaways, tally.refused), (1, 2));
}

#[test]
fn what_is_no_http3_ends_the_connection_and_the_server_is_told_why() {
    for (says, fault, code) in [
        (
            vec![Say::Bytes(0, b"\x00\x01a".to_vec())],
            Fault::FrameUnexpected,
            0x105,
        ),
        (
            vec![Say::Bytes(0, b"\x01\x02".to_vec()), Say::End(0)],
            Fault::Frame,
            0x106,
        ),
        (
            vec![Say::Control(SETTINGS[1..].to_vec())],
            Fault::FrameUnexpected,
            0x105,
        ),
        (
            vec![Say::Bytes(0, b"\x01\x03\0\0\x80".to_vec())],
            Fault::Compression,
            0x200,
        ),
    ] {
        let mut pair = pair(1);
        pair.ask(1);
        pair.talk().expect("good");
        assert_eq!(pair.say(&says), Err(fault), "{says:?}");
        assert_eq!(pair.closed, Some(code), "{says:?}");
        assert_eq!(pair.client.take_all().len(), 1, "what was under way stays");
    }
}

#[test]
fn what_came_before_the_end_of_a_connection_counts() {
    for (code, failure) in [(0x100, Failure::Empty), (0x102, Failure::Reset)] {
        let mut pair = pair(9);
        pair.ask(2);
        pair.talk().expect("good");
        let answer = [Say::Bytes(0, GOOD.to_vec()), Say::End(0)];
        pair.say(&answer).expect("good");
        pair.say(&[Say::Close(code)]).expect("good");
        assert_eq!(ends(&mut pair), [(0, End::Whole)]);
        assert_eq!(pair.client.lost(), Some(failure));
        assert_eq!(pair.client.reason(Failure::Tls).is_some(), code != 0x100);
        assert_eq!(pair.client.take_all().len(), 1);
    }
}

#[test]
fn a_server_of_something_else_is_named() {
    let mut pair = Pair::new(9, Streams::default(), b"other");
    assert!(!pair.client.is_settled());
    assert_eq!(pair.client.lost(), Some(Failure::Tls));
    let why = pair.client.reason(Failure::Tls).expect("a reason").1;
    assert!(why.contains("handshake failed"), "{why}");
}

#[test]
fn requests_are_given_up_and_late_answers_are_nobodys() {
    let mut pair = pair(9);
    pair.ask(2);
    pair.talk().expect("good");
    let given_up = pair.client.give_up(|exchange| exchange.request.index == 0);
    assert_eq!(given_up.len(), 1);
    let both = [0, 1].map(|number| Say::Bytes(number, GOOD.to_vec()));
    pair.say(&both).expect("good");
    assert_eq!(pair.stopped, [0x10c]);
    pair.say(&[Say::End(1)]).expect("good");
    assert_eq!(ends(&mut pair), [(1, End::Whole)]);
}

#[test]
fn a_window_that_runs_low_is_counted() {
    let body = 300_000;
    let small = Streams {
        streams: 1,
        stream_window_bytes: 65_535,
        connection_window_bytes: 1 << 20,
    };
    for (plan, low) in [(small, true), (Streams::default(), false)] {
        let mut pair = Pair::new(1, plan, b"h3");
        pair.ask(1);
        pair.talk().expect("good");
        let mut stream = b"\x01\x03\0\0\xd9\x00\x80".to_vec();
        stream.extend_from_slice(&(body as u32).to_be_bytes()[1..]);
        pair.say(&[Say::Bytes(0, stream)]).expect("good");
        let mut came = 0;
        while came < body {
            let part = (body - came).min(60_000);
            let whole = came + part;
            came += pair
                .say(&[Say::Bytes(0, vec![b'x'; part as usize])])
                .expect("good");
            // The server spreads packets over its round-trip time: on a slow machine some come
            // later.
            let end = Instant::now() + Duration::from_secs(20);
            while came < whole {
                assert!(Instant::now() < end, "{came} of {whole}");
                thread::sleep(Duration::from_millis(1));
                came += pair.talk().expect("good");
            }
        }
        pair.say(&[Say::End(0)]).expect("good");
        assert_eq!(ends(&mut pair), [(0, End::Whole)]);
        assert_eq!(pair.client.tally.window_stalls > 0, low, "{plan:?}");
    }
}

#[test]
fn mutated_words_of_a_server_never_panic() {
    // Each round makes a connection with a handshake: as many rounds as for frames would take
    // hours.
    let mut some = Mutations::of("words of a server", 300);
    let mut faults = 0;
    while some.again() {
        let mut pair = Pair::new(4, Streams::default(), b"h3");
        pair.ask(3);
        let _ = pair.talk();
        let (mut control, mut answers) = (SETTINGS.to_vec(), GOOD.repeat(1 + some.below(2)));
        for _ in 0..some.below(4) {
            some.change(&mut answers);
        }
        control.extend_from_slice(b"\x07\x01\x08\x21\x01a");
        some.change(&mut control);
        let mut says = vec![
            Say::Control(control),
            Say::Bytes(0, answers.clone()),
            Say::Bytes(1, answers),
            Say::End(0),
            Say::Reset(1, some.below(0x300) as u32),
            Say::Close(some.below(0x300) as u32),
        ];
        for _ in 0..some.below(6) {
            let place = some.below(says.len());
            says.swap(0, place);
        }
        for say in says {
            if pair.say(&[say]).is_err() {
                faults += 1;
                break;
            }
        }
        let (left, ended) = (pair.client.take_all().len(), pair.ended.len());
        assert_eq!(left + ended, 3, "each request is somewhere, once");
    }
    assert!(faults > 10 || some.is_alone(), "{faults}");
}
