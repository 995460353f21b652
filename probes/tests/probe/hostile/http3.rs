//! Servers of HTTP/3.

use std::time::Instant;

use quinn_proto::{Connection, Dir, StreamId, VarInt};

use super::{Verdict, judge_all, seen};
use crate::ground_truth::quic::{GOOD, Grant, Peer, Quic, answer, control};

/// A server that says something on its control stream and to each request.
struct Says(&'static [u8], fn(&mut Connection, StreamId));

impl Peer for Says {
    fn begun(&mut self, connection: &mut Connection) {
        control(connection, self.0);
    }

    fn asked(&mut self, connection: &mut Connection, stream: StreamId) {
        self.1(connection, stream);
    }
}

/// One that says a thing for ever: on its control stream, or behind the head of an answer.
struct Floods(&'static [u8], Option<&'static [u8]>, Option<StreamId>);

impl Peer for Floods {
    fn begun(&mut self, connection: &mut Connection) {
        self.2 = control(connection, b"\0\x04\0").filter(|_| self.1.is_none());
    }

    fn asked(&mut self, connection: &mut Connection, stream: StreamId) {
        if let Some(head) = self.1 {
            answer(connection, stream, head, false);
            self.2 = Some(stream);
        }
    }

    fn turn(&mut self, connection: &mut Connection) -> bool {
        if let Some(stream) = self.2 {
            let flood = self.0.repeat(2000);
            let mut rest = flood.as_slice();
            // Whole ones alone: the next go on where these ended.
            while let Ok(count) = connection.send_stream(stream).write(rest) {
                rest = &rest[count..];
                if rest.is_empty() {
                    return true;
                }
            }
        }
        false
    }
}

/// One that opens streams of a kind that nobody knows, and resets them, for ever.
struct OpensStreams;

impl Peer for OpensStreams {
    fn turn(&mut self, connection: &mut Connection) -> bool {
        let mut has_any = false;
        while let Some(id) = connection.streams().open(Dir::Uni) {
            connection.send_stream(id).write(b"\x40\x55junk").ok();
            connection.send_stream(id).reset(VarInt::from_u32(1)).ok();
            has_any = true;
        }
        has_any
    }
}

/// One that lets a client send little.
struct Grants(Grant);

impl Peer for Grants {
    fn grant(&self) -> Grant {
        self.0
    }

    fn asked(&mut self, connection: &mut Connection, stream: StreamId) {
        answer(connection, stream, GOOD, true);
    }
}

/// One that answers datagrams by others.
struct Instead(fn(&[u8]) -> Vec<Vec<u8>>);

impl Peer for Instead {
    fn instead(&mut self, datagram: &[u8]) -> Option<Vec<Vec<u8>>> {
        Some(self.0(datagram))
    }
}

/// One that asks for another first datagram each time.
struct Retries;

impl Peer for Retries {
    fn retries(&self) -> bool {
        true
    }
}

/// One that has forgotten each connection once it is asked something, or is dead from then on.
struct Forgets {
    is_asked: bool,
    dies: bool,
}

impl Peer for Forgets {
    fn asked(&mut self, _: &mut Connection, _: StreamId) {
        self.is_asked = true;
    }

    fn forgets(&mut self) -> bool {
        !self.dies && std::mem::take(&mut self.is_asked)
    }

    fn is_dead(&self) -> bool {
        self.dies && self.is_asked
    }
}

/// The numbers of both ends in the first datagram of a client (RFC 8999 §5.1).
fn numbers(datagram: &[u8]) -> Option<(&[u8], &[u8])> {
    if datagram.first()? & 0x80 == 0 {
        return None;
    }
    let (&length, rest) = datagram.get(5..)?.split_first()?;
    let (server, rest) = rest.split_at_checked(usize::from(length))?;
    let (&length, rest) = rest.split_first()?;
    Some((server, rest.get(..usize::from(length))?))
}

/// That another version be spoken, one of these (RFC 8999 §6).
fn other_versions(datagram: &[u8], versions: &[u32]) -> Vec<Vec<u8>> {
    let Some((server, client)) = numbers(datagram) else {
        return Vec::new();
    };
    let mut said = vec![0xc0, 0, 0, 0, 0, client.len() as u8];
    said.extend_from_slice(client);
    said.push(server.len() as u8);
    said.extend_from_slice(server);
    for version in versions {
        said.extend_from_slice(&version.to_be_bytes());
    }
    vec![said]
}

/// Junk, some of it behind the head of a packet for this client.
fn junk(datagram: &[u8]) -> Vec<Vec<u8>> {
    let Some((server, client)) = numbers(datagram) else {
        return Vec::new();
    };
    let of = |first: u8, length: usize| {
        let mut junk = vec![first, 0, 0, 0, 1, client.len() as u8];
        junk.extend_from_slice(client);
        junk.push(server.len() as u8);
        junk.extend_from_slice(server);
        junk.resize(junk.len() + length, first ^ 0x5a);
        junk
    };
    let kinds = [0xc0, 0xd0, 0xe0, 0xf0, 0xff, 0x40, 0x7f];
    let lengths = [0, 1, 5, 20, 60, 1100, 1400];
    kinds
        .iter()
        .flat_map(|kind| lengths.map(|length| of(*kind, length)))
        .chain([vec![], vec![0], vec![0xff; 2000]])
        .collect()
}

fn close(connection: &mut Connection, code: u32) {
    let why = bytes::Bytes::from_static(&[b'y'; 1000]);
    connection.close(Instant::now(), VarInt::from_u32(code), why);
}

#[test]
fn servers_of_http3_that_mean_harm_have_their_names() {
    type Start = Box<dyn Fn() -> Quic + Sync>;
    let says = |first, reply| -> Start { Box::new(move || Quic::start(Says(first, reply))) };
    let settings: &[u8] = b"\0\x04\0";
    let answers = |reply| says(settings, reply);
    let first = |first| says(first, |_, _| {});
    let floods = |part, head| -> Start { Box::new(move || Quic::start(Floods(part, head, None))) };
    let instead = |reply| -> Start { Box::new(move || Quic::start(Instead(reply))) };
    let grants = |grant| -> Start { Box::new(move || Quic::start(Grants(grant))) };
    let forgets = |dies| -> Start {
        Box::new(move || {
            Quic::start(Forgets {
                is_asked: false,
                dies,
            })
        })
    };
    let head = Some(&GOOD[..8]);
    let some = Grant::default();
    #[rustfmt::skip]
    let table: Vec<(Verdict, Start)> = vec![
        (("a good one", &["good"], ""), answers(|it, id| answer(it, id, GOOD, true))),
        (("another version", &["tls", "timeout"], "quic: "), instead(|it| other_versions(it, &[0x1a2a_3a4a]))),
        (("a version that was asked for", &["connect_timeout", "timeout"], "quic: no answer"), instead(|it| other_versions(it, &[1, 2]))),
        (("no versions", &["tls", "connect_timeout", "timeout"], "quic: "), instead(|it| other_versions(it, &[]))),
        (("Retry for ever", &["connect_timeout", "timeout"], "quic: "), Box::new(|| Quic::start(Retries))),
        (("junk", &["connect_timeout", "timeout"], "quic: no answer"), instead(junk)),
        (("what was said comes back", &["connect_timeout", "timeout", "tls"], "quic: "), instead(|it| vec![it.to_vec(); 3])),
        (("forgets each connection", &["reset", "timeout"], ""), forgets(false)),
        (("is dead after the handshake", &["timeout"], ""), forgets(true)),
        (("silent after the handshake", &["timeout"], ""), answers(|_, _| {})),
        (("no streams at all", &["timeout"], ""), grants(Grant { streams: 0, ..some })),
        (("a window of zero of each stream", &["timeout"], ""), grants(Grant { stream_bytes: 0, ..some })),
        (("a window of zero for ever", &["timeout"], ""), grants(Grant { connection_bytes: 0, ..some })),
        (("SETTINGS", &["parse", "timeout"], "out of place"), floods(b"\x04\0", None)),
        (("frames that nobody knows", &["parse", "timeout"], "empty frames"), floods(b"\x21\0", None)),
        (("GOAWAY", &["parse", "timeout"], ""), floods(b"\x07\x01\x04", None)),
        (("frames of HTTP/2", &["parse", "timeout"], "out of place"), floods(b"\x06\x08pingping", None)),
        (("interim answers", &["parse"], "empty frames"), floods(b"\x01\x04\0\0\xff\x00", Some(b""))),
        (("empty parts of a body", &["parse"], "empty frames"), floods(b"\0\0", head)),
        (("frames between parts of a body", &["parse"], "empty frames"), floods(b"\x21\0", head)),
        (("streams of no known kind", &["timeout"], ""), Box::new(|| Quic::start(OpensStreams))),
        (("a table that is not there", &["parse"], "decompressed"), answers(|it, id| answer(it, id, b"\x01\x03\0\0\x80", true))),
        (("a block that waits for a table", &["parse"], "decompressed"), answers(|it, id| answer(it, id, b"\x01\x04\x03\x81\x10\x11", true))),
        (("a table is filled", &["parse"], "table"), says(settings, |it, _| { control(it, b"\x02\x3f\xe1\x1f\x40\x01a\x01b"); })),
        (("blocks are acknowledged", &["parse"], "table"), says(settings, |it, _| { control(it, b"\x03\x80"); })),
        (("a header bomb", &["parse"], "more header fields"), answers(|it, id| {
            // A name of 57 bytes from the table, 60,000 times.
            let block = [&b"\0\0\xd9"[..], &b"\xff\x17".repeat(30_000)].concat();
            let length = (0x8000_0000_u32 | block.len() as u32).to_be_bytes();
            answer(it, id, &[&[1][..], &length, &block].concat(), true);
        })),
        (("a block longer than is read", &["parse"], "more header fields"), answers(|it, id| answer(it, id, b"\x01\x80\x10\0\0", false))),
        (("a pushed answer", &["parse"], "id of a stream"), answers(|it, id| answer(it, id, b"\x05\x04\0\0\0\xd1", false))),
        (("no settings", &["parse", "timeout"], "no SETTINGS"), first(b"\0\x21\0")),
        (("the control stream ends", &["parse"], "end of a stream"), says(settings, |it, _| {
            if let Some(id) = control(it, b"\x02") { it.send_stream(id).finish().ok(); }
        })),
        (("all refused", &["reset"], ""), answers(|it, id| drop(it.send_stream(id).reset(VarInt::from_u32(0x10b))))),
        (("all reset", &["reset"], ""), answers(|it, id| drop(it.send_stream(id).reset(VarInt::from_u32(0x102))))),
        (("leaves each time", &["reset", "timeout"], ""), says(b"\0\x04\0\x07\x01\0", |_, _| {})),
        (("closes each time", &["empty", "timeout"], ""), answers(|it, _| close(it, 0x100))),
        (("closes with an error each time", &["reset", "timeout"], "quic: "), answers(|it, _| close(it, 0x102))),
        (("cut short", &["truncated"], ""), answers(|it, id| answer(it, id, b"\x01\x06\0\0\xd9\x54\x019\0\x04four", true))),
        (("ends behind a part", &["truncated"], ""), answers(|it, id| {
            answer(it, id, &GOOD[..8], false);
            answer(it, id, b"\0\x03abc\0\0", true);
        })),
        (("ends inside a frame", &["parse"], "a truncated one"), answers(|it, id| answer(it, id, &GOOD[..11], true))),
        (("ends without a word", &["empty"], ""), answers(|it, id| answer(it, id, b"", true))),
    ];
    judge_all(&table, |start, timeout_seconds| {
        let server = start();
        seen(server.address, "http3", timeout_seconds)
    });
}
