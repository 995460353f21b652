//! Servers of HTTP/2, without TLS.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::{Seen, Verdict, judge_all, seen};

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

/// The result that the probe gives for a server.
fn seen_over_http2(peer: &Http2, timeout_seconds: f64) -> Seen {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for stream in listener.incoming() {
                if ended.load(Ordering::Relaxed) {
                    break;
                }
                let mut stream = stream.unwrap();
                // It ends when the probe has gone: nothing is to be said of that.
                scope.spawn(move || drop(peer.serve(&mut stream)));
            }
        });
        let seen = seen(address, "http2", timeout_seconds);
        ended.store(true, Ordering::Relaxed);
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
    let idle = "an endless sequence";
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
        (("too large a window", &["parse"], "beyond the maximum"), floods(frame(WINDOW_UPDATE, 0, 1, b"\x7f\xff\xff\xff"))),
        (("empty parts of a block", &["parse"], idle), Http2::Floods(begin.clone(), frame(CONTINUATION, 0, 1, b""))),
        (("long parts of a block", &["parse"], "longer header fields"), Http2::Floods(begin, frame(CONTINUATION, 0, 1, &[0; 16_000]))),
        (("interim answers", &["parse"], idle), floods(frame(HEADERS, END_HEADERS, 1, b"\x08\x03103"))),
        (("empty parts of a body", &["parse"], idle), Http2::Floods(frame(HEADERS, END_HEADERS, 1, b"\x88"), frame(DATA, 0, 1, b""))),
        (("filling without a body", &["parse"], idle), Http2::Floods(frame(HEADERS, END_HEADERS, 1, b"\x88"), frame(DATA, PADDED, 1, &[&[200][..], &[0; 200]].concat()))),
        (("a body without end", &["timeout"], ""), Http2::Floods(frame(HEADERS, END_HEADERS, 1, b"\x88"), frame(DATA, 0, 1, &[0; 16_000]))),
        (("GOAWAY", &["parse", "reset", "timeout"], ""), floods(frame(GOAWAY, 0, 0, &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]))),
        (("frames that nobody knows", &["parse"], idle), floods(frame(0x77, 0, 0, b""))),
        (("a header bomb", &["parse"], "longer header fields"), says(bomb)),
        (("a table that is not there", &["parse"], "decompressed"), says(|n| frame(HEADERS, END_HEADERS, n, b"\x88\xbe"))),
        (("a larger table than was given", &["parse"], "decompressed"), says(|n| frame(HEADERS, END_HEADERS, n, b"\x3f\xe2\x1f\x88"))),
        (("a frame longer than allowed", &["parse"], "longer than allowed"), says(|n| frame(DATA, 0, n, &vec![0; 16_385]))),
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
