//! Servers of HTTP/2 and HTTP/3 that mean harm: each has its name among the failures, costs bounded memory
//! and time, and breaks nothing.

mod ground_truth;
#[path = "ground_truth/quic.rs"]
mod quic;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ground_truth::{command, number, start};
use quic::{GOOD, Grant, Peer, Quic, answer, control};
use quinn_proto::{Connection, Dir, StreamId, VarInt};
use serde_json::{Value, json};

/// A run that lasts longer than this has not ended by itself: 0.3 s of arrivals and 2 s of drain are asked.
const HANGS: Duration = Duration::from_secs(60);

/// What a hostile server may cost beyond what a good one does.
const MOST_MORE_KIB: u64 = 16 * 1024;

/// One for each request, and a few more.
const MOST_CONNECTIONS: f64 = 40.0;

/// Runs side by side.
const BESIDE: usize = 4;

struct Seen {
    class: Value,
    flags: String,
    peak_kib: u64,
}

/// 100 requests a second for 0.3 s on one connection, each given up after 0.4 s.
fn seen(address: SocketAddr, protocol: &str) -> Seen {
    let mut target = json!({"address": "127.0.0.1", "port": address.port()});
    if protocol == "http3" {
        target["tls"] = json!({"verify": false});
    }
    let plan = json!({
        "schema": "nginx-tune/loadplan/1",
        "target": target,
        "classes": [{
            "name": "c",
            "arrivals": {"kind": "constant", "rate_per_second": 100},
            "paths": {"kind": "fixed", "paths": ["/"]},
            "connections": 1,
            "timeout_seconds": 0.4,
            protocol: {"streams": 100},
        }],
        "duration_seconds": 0.3,
        "drain_seconds": 2,
        "permit": {"ports": [address.port()]},
    });
    let mut child = start(&mut command(), &plan);
    let status = format!("/proc/{}/status", child.id());
    let (began, mut peak_kib) = (Instant::now(), 0);
    while child.try_wait().unwrap().is_none() {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let now = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        peak_kib = peak_kib.max(now.unwrap_or(0));
        if began.elapsed() > HANGS {
            child.kill().ok();
            panic!("it does not end");
        }
        thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors, "");
    let mut run: Value = serde_json::from_slice(&output.stdout).unwrap();
    Seen {
        flags: run["flags"].to_string(),
        class: run["classes"]["c"].take(),
        peak_kib,
    }
}

/// What is to come of a server: the failures that may be, `good` for requests that are answered, and words
/// of a flag. Where it errs before it is asked anything, requests wait for the next connection, some too long.
type Verdict = (&'static str, &'static [&'static str], &'static str);

/// Judges a run; all requests are somewhere, once.
fn judge((name, kinds, words): Verdict, seen: &Seen, good_kib: u64) -> Result<(), String> {
    let Seen {
        class,
        flags,
        peak_kib,
    } = seen;
    let errors = class["errors"].as_object().unwrap();
    let mut found: Vec<&str> = errors.keys().map(String::as_str).collect();
    let failed: f64 = errors.values().filter_map(Value::as_f64).sum();
    let requests = number(class, "requests");
    if requests > 0.0 {
        found.push("good");
    }
    let say = |what: &str| Err(format!("{name}: {what}: {found:?} {flags} {class}"));
    if (requests + failed + number(class, "censored") - 30.0).abs() > 0.1 {
        return say("not each of 30 requests once");
    }
    if found.is_empty() || found.iter().any(|kind| !kinds.contains(kind)) {
        return say("other failures");
    }
    if !flags.contains(words) {
        return say("no such flag");
    }
    // With pauses between: a server that always leaves is not dialled as fast as can be.
    if number(class, "connections_opened") > MOST_CONNECTIONS {
        return say("dialled again and again");
    }
    if *peak_kib > good_kib + MOST_MORE_KIB {
        return say(&format!("{peak_kib} KiB, {good_kib} with a good server"));
    }
    Ok(())
}

/// Tries all, some side by side.
fn judge_all<P: Sync>(table: &[(Verdict, P)], run: impl Fn(&P) -> Seen + Sync) {
    let (good, _) = table.split_first().expect("the good server comes first");
    let good_kib = run(&good.1).peak_kib;
    assert!(good_kib > 1000, "{good_kib}");
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..BESIDE {
            scope.spawn(|| {
                while let Some((verdict, peer)) = table.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(why) = judge(*verdict, &run(peer), good_kib) {
                        wrong.lock().unwrap().push(why);
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

// HTTP/2, without TLS.

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&head, payload].concat()
}

fn good(stream: u32) -> Vec<u8> {
    [
        frame(HEADERS, END_HEADERS, stream, b"\x88\x0f\x0d\x014"),
        frame(DATA, END_STREAM, stream, b"good"),
    ]
    .concat()
}

/// What a server does to a connection.
enum Http2 {
    /// Says something first, and to each request something.
    Says(Vec<u8>, fn(u32) -> Vec<u8>),
    /// The same, and half closes the connection then.
    SaysAndShuts(Vec<u8>, fn(u32) -> Vec<u8>),
    /// Says the first after SETTINGS and a request, then the second for ever, and reads nothing more.
    Floods(Vec<u8>, Vec<u8>),
    /// Says so much, one byte at a time, and then answers.
    Drips(Vec<u8>),
}

impl Http2 {
    /// Serves for as long as the probe is there.
    fn serve(&self, stream: &mut TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        match self {
            Self::Says(first, reply) => {
                stream.write_all(first)?;
                requests(stream, |stream, number| stream.write_all(&reply(number)))
            }
            Self::SaysAndShuts(first, reply) => {
                stream.write_all(first)?;
                requests(stream, |stream, number| {
                    stream.write_all(&reply(number))?;
                    stream.shutdown(std::net::Shutdown::Write)
                })
            }
            Self::Floods(first, part) => {
                stream.write_all(&frame(SETTINGS, 0, 0, b""))?;
                let flood = part.repeat(1 + 65_536 / part.len());
                requests(stream, |stream, _| {
                    stream.write_all(first)?;
                    loop {
                        stream.write_all(&flood)?;
                    }
                })
            }
            Self::Drips(first) => {
                for byte in first {
                    stream.write_all(&[*byte])?;
                    thread::sleep(Duration::from_micros(200));
                }
                requests(stream, |stream, number| stream.write_all(&good(number)))
            }
        }
    }
}

/// Calls for each request until the client has gone.
fn requests(
    stream: &mut TcpStream,
    mut asked: impl FnMut(&mut TcpStream, u32) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let mut preface = [0; 24];
    stream.read_exact(&mut preface)?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload)?;
        if head[3] == HEADERS {
            let number = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            asked(stream, number)?;
        }
    }
}

fn seen_over_http2(peer: &Http2) -> Seen {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let ended = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for stream in listener.incoming() {
                if ended.load(Ordering::Relaxed) > 0 {
                    break;
                }
                let mut stream = stream.unwrap();
                // It ends when the probe has gone: nothing is to be said of that.
                scope.spawn(move || drop(peer.serve(&mut stream)));
            }
        });
        let seen = seen(address, "http2");
        ended.store(1, Ordering::Relaxed);
        TcpStream::connect(address).unwrap();
        seen
    })
}

#[test]
fn servers_of_http2_that_mean_harm_have_their_names() {
    let settings = || frame(SETTINGS, 0, 0, b"");
    let setting = |name: u8, value: u32| {
        let payload = [&[0, name][..], &value.to_be_bytes()].concat();
        frame(SETTINGS, 0, 0, &payload)
    };
    let says = |reply| Http2::Says(frame(SETTINGS, 0, 0, b""), reply);
    let floods = |part| Http2::Floods(Vec::new(), part);
    let idle = "frames without end";
    let bomb = |_| {
        // An entry of 4,000 bytes, and 60 times its number.
        let entry = [
            &b"\x88\x40\x01a\x7f\xa1\x1e"[..],
            &[b'x'; 4000],
            &[0xbe; 60],
        ]
        .concat();
        frame(HEADERS, END_HEADERS, 1, &entry)
    };
    let begin = frame(HEADERS, 0, 1, b"\x88");
    #[rustfmt::skip]
    let table: Vec<(Verdict, Http2)> = vec![
        (("a good one", &["good"], ""), says(good)),
        (("SETTINGS", &["parse"], idle), floods(settings())),
        (("PING", &["parse"], idle), floods(frame(PING, 0, 0, b"12345678"))),
        (("acknowledgements", &["parse"], idle), floods(frame(PING, 1, 0, b"12345678"))),
        (("resets of a stream", &["parse", "reset", "timeout"], idle), floods(frame(RST_STREAM, 0, 1, b"\0\0\0\x02"))),
        (("resets of no stream", &["parse"], "out of place"), floods(frame(RST_STREAM, 0, 999, b"\0\0\0\x02"))),
        (("windows", &["parse"], idle), floods(frame(WINDOW_UPDATE, 0, 999, b"\0\0\0\x01"))),
        (("too large a window", &["parse"], "the largest that there may be"), floods(frame(WINDOW_UPDATE, 0, 1, b"\x7f\xff\xff\xff"))),
        (("empty parts of a block", &["parse"], idle), Http2::Floods(begin.clone(), frame(CONTINUATION, 0, 1, b""))),
        (("long parts of a block", &["parse"], "more header fields"), Http2::Floods(begin, frame(CONTINUATION, 0, 1, &[0; 16_000]))),
        (("interim answers", &["parse"], idle), floods(frame(HEADERS, END_HEADERS, 1, b"\x08\x03103"))),
        (("empty parts of a body", &["parse"], idle), Http2::Floods(frame(HEADERS, END_HEADERS, 1, b"\x88"), frame(DATA, 0, 1, b""))),
        (("filling without a body", &["parse"], idle), Http2::Floods(frame(HEADERS, END_HEADERS, 1, b"\x88"), frame(DATA, PADDED, 1, &[&[200][..], &[0; 200]].concat()))),
        (("a body without end", &["timeout"], ""), Http2::Floods(frame(HEADERS, END_HEADERS, 1, b"\x88"), frame(DATA, 0, 1, &[0; 16_000]))),
        (("GOAWAY", &["parse", "reset", "timeout"], ""), floods(frame(GOAWAY, 0, 0, &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]))),
        (("frames that nobody knows", &["parse"], idle), floods(frame(0x77, 0, 0, b""))),
        (("a header bomb", &["parse"], "more header fields"), says(bomb)),
        (("a table that is not there", &["parse"], "decompressed"), says(|n| frame(HEADERS, END_HEADERS, n, b"\x88\xbe"))),
        (("a larger table than was given", &["parse"], "decompressed"), says(|n| frame(HEADERS, END_HEADERS, n, b"\x3f\xe2\x1f\x88"))),
        (("a frame longer than was allowed", &["parse"], "longer than was allowed"), says(|n| frame(DATA, 0, n, &vec![0; 16_385]))),
        (("a window of zero for ever", &["good"], ""), Http2::Says(setting(4, 0), good)),
        (("no streams at all", &["timeout"], ""), Http2::Says(setting(3, 0), good)),
        (("no table", &["good"], ""), Http2::Says(setting(1, 0), good)),
        (("a window beyond all", &["parse", "timeout"], "window"), Http2::Says(setting(4, 1 << 31), good)),
        (("all refused", &["reset"], ""), says(|n| frame(RST_STREAM, 0, n, b"\0\0\0\x07"))),
        (("leaves each time", &["reset", "timeout"], ""), says(|_| frame(GOAWAY, 0, 0, &[0; 8]))),
        (("closes each time", &["empty", "reset", "timeout"], ""), Http2::SaysAndShuts(settings(), |_| Vec::new())),
        (("half closed behind a head", &["truncated", "empty", "timeout"], ""), Http2::SaysAndShuts(settings(), |n| frame(HEADERS, END_HEADERS, n, b"\x88"))),
        (("cut short", &["truncated"], ""), says(|n| [frame(HEADERS, END_HEADERS, n, b"\x88\x0f\x0d\x019"), frame(DATA, END_STREAM, n, b"four")].concat())),
        (("silent", &["timeout"], ""), says(|_| Vec::new())),
        (("silent from the beginning", &["timeout"], ""), Http2::Says(Vec::new(), |_| Vec::new())),
        (("one byte at a time", &["good"], ""), Http2::Drips(frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 9].repeat(20)))),
    ];
    judge_all(&table, seen_over_http2);
}

// HTTP/3.

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
        (("a pushed answer", &["parse"], "number of a stream"), answers(|it, id| answer(it, id, b"\x05\x04\0\0\0\xd1", false))),
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
        (("ends inside a frame", &["parse"], "without its end"), answers(|it, id| answer(it, id, &GOOD[..11], true))),
        (("ends without a word", &["empty"], ""), answers(|it, id| answer(it, id, b"", true))),
    ];
    judge_all(&table, |start| {
        let server = start();
        seen(server.address, "http3")
    });
}
