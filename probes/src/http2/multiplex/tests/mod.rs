//! Tests of the bytes of a server, in pieces of any size, and of the ended streams.

mod faults;
mod streams;
mod windows;

use super::Multiplex;
use crate::exchange::Exchange;
use crate::http2::fault::Fault;
use crate::http2::frame;
use crate::http2::manner::{Manner, Windows};
use crate::plan::{Method, Streams};
use crate::protocol::{End, Ended};
use crate::request::Request;

const WINDOW: u32 = 65_535;

fn with(streams: usize) -> Multiplex {
    slow(streams, None, WINDOW)
}

/// The same with a pace for the whole connection, and stream windows of `stream_bytes`.
fn slow(streams: usize, bytes_per_second: Option<u64>, stream_bytes: u32) -> Multiplex {
    let plan = Streams {
        streams,
        stream_window_bytes: WINDOW,
        connection_window_bytes: 2 * WINDOW,
    };
    let windows = Windows {
        stream_bytes,
        bytes_per_second,
        are_paced: true,
    };
    Multiplex::of(plan, windows)
}

/// A request without a pace or priority.
fn plainly() -> Manner {
    Manner {
        window_bytes: WINDOW,
        bytes_per_second: None,
        place: None,
    }
}

fn one(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::begin(payload.len(), kind, flags, stream, &mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

/// The first frame of a server, with its limit of streams.
fn settings(limit: u8) -> Vec<u8> {
    one(frame::SETTINGS, 0, 0, &[0, 3, 0, 0, 0, limit])
}

/// Status 200 with a body of `bytes`, none of which has been sent.
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
    exchange.response.expect(method);
    carried.ask(exchange, &[0x82], &plainly());
}

/// Feeds all parts; returns the end of each stream, by the index of its request.
fn fed(carried: &mut Multiplex, parts: &[Vec<u8>]) -> Result<Vec<(u64, End)>, Fault> {
    let mut ended: Vec<Ended> = Vec::new();
    for part in parts {
        carried.feed(part, 1, &mut ended)?;
    }
    let of = |it: Ended| (it.exchange.request.index, it.end);
    Ok(ended.into_iter().map(of).collect())
}

/// A connection with two requests.
fn asked() -> Multiplex {
    let mut carried = with(2);
    assert_eq!(fed(&mut carried, &[settings(100)]), Ok(vec![]));
    ask(&mut carried, Method::Get, 10);
    ask(&mut carried, Method::Get, 11);
    carried
}
