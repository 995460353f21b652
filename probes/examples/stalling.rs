//! Answers HTTP/2 (without TLS) or HTTP/3 at once, but stands still for a part of the time: the truth that
//! `benchmarks/conformance.py` holds streams to.
//!
//! Usage: `stalling http2|http3 STALL EVERY`, in seconds. It prints its port, stands still at the start of
//! every EVERY seconds, for the first time one period after the first that it hears, and ends with its
//! standard input.

#[path = "../tests/probe/ground_truth/quic.rs"]
mod quic;

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use quic::{GOOD, Peer, Quic, answer};
use quinn_proto::{Connection, StreamId};

/// Status 200 and a body of four bytes, whole, but for the numbers of the streams.
const HEAD: &[u8] = b"\0\0\x05\x01\x04\0\0\0\0\x88\x0f\x0d\x014";
const BODY: &[u8] = b"\0\0\x04\0\x01\0\0\0\0good";

/// When it stands still.
#[derive(Clone)]
struct Stalls {
    stall: Duration,
    every: Duration,
    start: Arc<Mutex<Option<Instant>>>,
}

impl Stalls {
    /// Waits until no stall is on.
    fn wait(&self) {
        let start = {
            let mut start = self.start.lock().expect("no panic");
            *start.get_or_insert_with(Instant::now)
        };
        let into = (start.elapsed() + self.stall).as_nanos() % self.every.as_nanos();
        let into = Duration::from_nanos(into as u64);
        if let Some(left) = self.stall.checked_sub(into) {
            thread::sleep(left);
        }
    }
}

impl Peer for Stalls {
    fn pause(&mut self) {
        self.wait();
    }

    fn asked(&mut self, connection: &mut Connection, stream: StreamId) {
        answer(connection, stream, GOOD, true);
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let protocol = arguments.next();
    let mut seconds = || {
        let text = arguments.next().expect("STALL EVERY");
        Duration::from_secs_f64(text.parse().expect("seconds"))
    };
    let stalls = Stalls {
        stall: seconds(),
        every: seconds(),
        start: Arc::default(),
    };
    let (address, _server) = match protocol.as_deref() {
        Some("http2") => (serve_http2(stalls), None),
        Some("http3") => {
            let server = Quic::start(stalls);
            (server.address, Some(server))
        }
        _ => panic!("http2 or http3"),
    };
    println!("{}", address.port());
    io::stdin().read_to_end(&mut Vec::new()).expect("an end");
}

fn serve_http2(stalls: Stalls) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let stalls = stalls.clone();
            // It ends when the client has gone.
            thread::spawn(move || drop(serve(stream, &stalls)));
        }
    });
    address
}

/// Answers requests; of other frames nothing is of interest.
fn serve(mut stream: TcpStream, stalls: &Stalls) -> io::Result<()> {
    stream.set_nodelay(true)?;
    // SETTINGS that ask for nothing.
    stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0])?;
    stream.read_exact(&mut [0; 24])?;
    let (mut buffer, mut piece, mut said) = (Vec::new(), vec![0; 65_536], Vec::new());
    loop {
        let count = stream.read(&mut piece)?;
        if count == 0 {
            return Ok(());
        }
        stalls.wait();
        buffer.extend_from_slice(&piece[..count]);
        let mut rest = buffer.as_slice();
        while let [a, b, c, kind, _, stream @ ..] = rest {
            let end = 9 + u32::from_be_bytes([0, *a, *b, *c]) as usize;
            if rest.len() < end {
                break;
            }
            if *kind == 1 {
                for part in [HEAD, BODY] {
                    let begin = said.len();
                    said.extend_from_slice(part);
                    said[begin + 5..begin + 9].copy_from_slice(&stream[..4]);
                }
            }
            rest = &rest[end..];
        }
        let taken = buffer.len() - rest.len();
        buffer.drain(..taken);
        stream.write_all(&said)?;
        said.clear();
    }
}
