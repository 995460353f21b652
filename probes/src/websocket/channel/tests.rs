use super::{Channel, MOST_IDLE_FRAMES, Over};
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::multiplexed::{self, Ended};
use crate::mutations::Mutations;
use crate::plan::WebSocket;
use crate::request::Request;
use crate::websocket::{End, Fault, Opening};

const YES: &[u8] = b"HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\
    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// A WebSocket that stands, and has so many messages on their way.
fn standing(plan: WebSocket, messages: u64) -> Channel {
    let opening = Opening::new(
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        *b"the sample nonce",
        None,
    );
    let mut channel = Channel::new(plan, opening, 1);
    channel.unsent().clear();
    assert!(!channel.is_settled() && !channel.has_room());
    assert_eq!(channel.feed(YES, 1, &mut Vec::new()), Ok(0));
    assert!(channel.is_settled() && channel.has_room());
    (0..messages).for_each(|index| channel.open(Exchange::new(Request::new(0, index, 1))));
    channel
}

fn plan(message_bytes: u64) -> WebSocket {
    WebSocket {
        message_bytes,
        text: false,
        messages: 4,
    }
}

/// The payloads of the client's frames that are to be sent, and their opcodes.
fn said(channel: &mut Channel) -> Vec<(u8, Vec<u8>)> {
    let out = std::mem::take(channel.unsent());
    let (mut rest, mut found) = (&out[..], Vec::new());
    while let [first, second, tail @ ..] = rest {
        assert_eq!(
            (first & 0xf0, second & 0x80),
            (0x80, 0x80),
            "whole and masked"
        );
        let (length, tail) = match second & 0x7f {
            126 => (usize::from(tail[0]) << 8 | usize::from(tail[1]), &tail[2..]),
            few => (usize::from(few), tail),
        };
        let (mask, tail) = tail.split_at(4);
        let (payload, tail) = tail.split_at(length);
        let bytes = payload.iter().zip(mask.iter().cycle());
        found.push((first & 0xf, bytes.map(|(byte, key)| byte ^ key).collect()));
        rest = tail;
    }
    found
}

fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let length = payload.len();
    let head = match length {
        0..126 => vec![first, length as u8],
        _ => vec![first, 126, (length >> 8) as u8, length as u8],
    };
    [&head, payload].concat()
}

fn ends(ended: &[Ended]) -> Vec<multiplexed::End> {
    ended.iter().map(|it| it.end).collect()
}

#[test]
fn echoes_are_of_the_oldest_message_whatever_stands_between() {
    for bytes in [1, 20, 125, 126, 300] {
        let mut channel = standing(plan(bytes), 2);
        let sent = said(&mut channel);
        assert_eq!(sent.len(), 2);
        assert_ne!(sent[0].1, sent[1].1);
        let (own, tail) = sent[0].1.split_at(bytes as usize / 2);
        // In parts, of which one is empty, with a ping and a pong between; then the next.
        let answer = [
            frame(0x02, own),
            frame(0x89, b"there?"),
            frame(0x00, b""),
            frame(0x8a, b"nobody asked"),
            frame(0x80, tail),
            frame(0x82, &sent[1].1),
        ]
        .concat();
        for cut in 0..answer.len() {
            let mut channel = standing(plan(bytes), 2);
            said(&mut channel);
            let mut ended = Vec::new();
            let count = channel.feed(&answer[..cut], 5, &mut ended).unwrap()
                + channel.feed(&answer[cut..], 6, &mut ended).unwrap();
            assert_eq!(count, 2 * bytes);
            assert_eq!(ends(&ended), [multiplexed::End::Echo; 2], "cut at {cut}");
            assert_eq!(said(&mut channel), [(0xa, b"there?".to_vec())]);
            let (news, gap) = channel.take_news(7);
            assert_eq!((news.echoes, news.pings, news.fragmented), (2, 1, 1));
            assert_eq!(gap, None, "the first ones");
            assert_eq!(news.most_messages, 2);
        }
    }
}

#[test]
fn an_echo_that_differs_is_told_from_one_that_does_not() {
    let mut channel = standing(plan(20), 4);
    let sent = said(&mut channel);
    let mut other = sent[0].1.clone();
    other[19] ^= 1;
    let answer = [
        frame(0x82, &other),
        frame(0x81, &sent[1].1),
        frame(0x82, &sent[2].1[..19]),
        frame(0x82, &[&sent[3].1[..], b"more"].concat()),
    ]
    .concat();
    let mut ended = Vec::new();
    channel.feed(&answer, 5, &mut ended).unwrap();
    assert_eq!(ends(&ended), [multiplexed::End::Failed(Failure::Echo); 4]);
    assert!(channel.has_room());
    channel
        .feed(&frame(0x81, b"welcome"), 5, &mut ended)
        .unwrap();
    assert_eq!(channel.take_news(5).0.unasked, 1);
}

#[test]
fn what_was_given_up_keeps_its_place_until_its_echo_comes() {
    let mut channel = standing(plan(20), 3);
    let sent = said(&mut channel);
    let given_up = channel.give_up(|exchange| exchange.request.index < 2);
    assert_eq!(given_up.len(), 2);
    assert_eq!(channel.exchanges().count(), 1);
    let mut ended = Vec::new();
    let all: Vec<u8> = sent.iter().flat_map(|(_, it)| frame(0x82, it)).collect();
    channel.feed(&all, 9, &mut ended).unwrap();
    assert_eq!(ended[0].exchange.request.index, 2);
    assert_eq!(ends(&ended), [multiplexed::End::Echo]);
    let (news, _) = channel.take_news(9);
    assert_eq!((news.late, news.echoes), (2, 1));
    // One that answers nothing is of no use any more.
    let mut channel = standing(plan(20), 4);
    assert!(!channel.has_room() && !channel.is_done());
    channel.give_up(|exchange| exchange.request.index < 3);
    assert!(!channel.is_done());
    channel.give_up(|_| true);
    assert!(channel.is_done());
    assert_eq!(channel.is_silent(), Some(End::Silent));
}

#[test]
fn gaps_lie_between_messages_and_a_silence_is_of_one_that_is_awaited() {
    let mut channel = standing(plan(20), 3);
    let sent = said(&mut channel);
    assert_eq!(channel.silence(4), None, "nothing has come yet");
    channel
        .feed(&frame(0x82, &sent[0].1), 5, &mut Vec::new())
        .unwrap();
    assert_eq!(channel.take_news(5).1, None);
    assert_eq!(channel.take_news(6).1, None, "nothing has come since");
    assert_eq!(channel.silence(8), Some(3));
    let both = [frame(0x82, &sent[1].1), frame(0x82, &sent[2].1)].concat();
    channel.feed(&both, 9, &mut Vec::new()).unwrap();
    assert_eq!(channel.take_news(9).1, Some(4));
    assert_eq!(channel.silence(20), None, "nothing is awaited");
}

#[test]
fn a_close_frame_is_answered_and_its_code_kept() {
    for (payload, code) in [
        (&b""[..], 1005),
        (b"\x03\xe9gone", 1001),
        (b"\x0f\xa0", 4000),
    ] {
        let mut channel = standing(plan(20), 1);
        said(&mut channel);
        let over = channel.feed(&frame(0x88, payload), 5, &mut Vec::new());
        assert_eq!(over, Err(Over::Closed));
        assert_eq!(channel.end(Failure::Closed), End::Close(code));
        let answer = payload[..payload.len().min(2)].to_vec();
        assert_eq!(said(&mut channel), [(8, answer)]);
        assert!(!channel.has_room());
        channel.leave();
        assert!(!channel.has_unsent(), "it was said already");
    }
    let mut channel = standing(plan(20), 0);
    channel.leave();
    assert_eq!(said(&mut channel), [(8, b"\x03\xe8".to_vec())]);
    assert_eq!(channel.end(Failure::Empty), End::Tcp);
    assert_eq!(channel.end(Failure::Reset), End::Reset);
}

#[test]
fn what_is_no_websocket_is_told_apart_and_the_server_is_told() {
    let long = frame(0x02, &vec![b'x'; 60_000]);
    let flood = frame(0x89, b"").repeat(MOST_IDLE_FRAMES as usize + 1);
    let empty = [
        frame(0x02, b""),
        frame(0x00, b"").repeat(MOST_IDLE_FRAMES as usize),
    ]
    .concat();
    #[rustfmt::skip]
    let table: [(Vec<u8>, Fault, u16); 10] = [
        (frame(0x80, b"of none"), Fault::Fragment, 1002),
        ([frame(0x02, b"a"), frame(0x82, b"b")].concat(), Fault::Fragment, 1002),
        (frame(0x88, b"1"), Fault::CloseCode, 1002),
        (frame(0x88, b"\x03\xed"), Fault::CloseCode, 1002),
        (frame(0x88, b"\x00\x01"), Fault::CloseCode, 1002),
        ([long, frame(0x00, &[b'x'; 6_000])].concat(), Fault::Oversized, 1009),
        (vec![0x82, 127, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], Fault::Oversized, 1009),
        (flood, Fault::Flood, 1008),
        (empty, Fault::Flood, 1008),
        (vec![0x82, 0x80], Fault::Masked, 1002),
    ];
    for (bytes, fault, code) in table {
        let mut channel = standing(plan(20), 1);
        said(&mut channel);
        let over = channel.feed(&bytes, 5, &mut Vec::new());
        assert_eq!(over, Err(Over::Fault(fault)), "{:02x?}", &bytes[..2]);
        assert_eq!(channel.end(Failure::Parse), End::Fault);
        let said = said(&mut channel);
        assert_eq!(said.last(), Some(&(8, code.to_be_bytes().to_vec())));
        assert_eq!(channel.take_all().len(), 1);
    }
}

#[test]
fn a_server_that_reads_nothing_does_not_fill_the_memory() {
    let mut channel = standing(plan(20), 1);
    let echo = {
        let sent = said(&mut channel);
        frame(0x82, &sent[0].1)
    };
    channel.feed(&echo, 2, &mut Vec::new()).unwrap();
    for _ in 0..50 {
        let pings = frame(0x89, &[b'p'; 125]).repeat(1000);
        // A greeting in between: it does carry something.
        let answer = [pings, frame(0x81, b"hello")].concat();
        channel.feed(&answer, 3, &mut Vec::new()).unwrap();
    }
    let unsent = channel.unsent().len();
    assert!((256 << 10..260 << 10).contains(&unsent), "{unsent}");
    assert!(
        !channel.has_room(),
        "a message waits with its intended time"
    );
}

#[test]
fn mutated_words_of_a_server_break_nothing() {
    let mut sent = standing(plan(300), 3);
    let sent = said(&mut sent);
    let echo = |number: usize| frame(0x82, &sent[number].1);
    let parts = [
        frame(0x02, &sent[0].1[..100]),
        frame(0x00, &sent[0].1[100..200]),
        frame(0x80, &sent[0].1[200..]),
    ]
    .concat();
    let seeds = [
        [echo(0), echo(1), echo(2)].concat(),
        [parts, frame(0x89, b"ping"), echo(1)].concat(),
        [echo(0), frame(0x88, b"\x03\xe8bye")].concat(),
        [frame(0x8a, b""), frame(0x81, b"welcome"), echo(0)].concat(),
    ];
    let mut some = Mutations::of("words of WebSockets", 20_000);
    let (mut good, mut wrong, mut closed) = (0, 0, 0);
    while some.again() {
        let bytes = some.mutated(&seeds);
        let mut channel = standing(plan(300), 3);
        said(&mut channel);
        let mut ended = Vec::new();
        let mut over = None;
        for piece in some.pieces(&bytes) {
            if let Err(found) = channel.feed(piece, 5, &mut ended) {
                over = Some(found);
                break;
            }
        }
        // Each message is somewhere, once.
        assert_eq!(ended.len() + channel.take_all().len(), 3, "{bytes:02x?}");
        assert!(
            channel.unsent().len() <= 6 * bytes.len() + 200,
            "{bytes:02x?}"
        );
        good += ends(&ended)
            .iter()
            .filter(|it| **it == multiplexed::End::Echo)
            .count();
        wrong += usize::from(matches!(over, Some(Over::Fault(_))));
        closed += usize::from(over == Some(Over::Closed));
    }
    assert!(good > 1000 && wrong > 1000 && closed > 100 || some.is_alone());
}
