//! Servers of WebSocket, without TLS.

use std::io::Write as _;
use std::net::TcpStream;

use crate::{Seen, Verdict, judge_all, seen_over_tcp, websocket};

/// What a server does to a connection.
enum Channel {
    /// Answers the opening so, and says nothing more.
    Answers(fn(&str) -> Vec<u8>),
    /// Opens, and answers each message so.
    Says(fn(&[u8]) -> Vec<u8>),
    /// Opens, and after the first message says the first once and then the second for ever, and reads
    /// nothing more.
    Floods(Vec<u8>, Vec<u8>),
    /// Says the second for ever in answer to the opening, after the first.
    FloodsAtOnce(&'static str, &'static str),
    /// Opens, echoes, and ends the connection after each message.
    Leaves,
    /// All that it says comes one byte at a time.
    Drips,
}

impl Channel {
    fn serve(&self, stream: &mut TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let head = websocket::read_head(stream)?;
        match self {
            Self::Answers(answer) => {
                stream.write_all(&answer(&head))?;
                std::io::copy(stream, &mut std::io::sink()).map(drop)
            }
            Self::Says(reply) => {
                stream.write_all(&websocket::switching(&head))?;
                websocket::echo(stream, |_, _, payload| Some(reply(payload)))
            }
            Self::Floods(first, part) => {
                stream.write_all(&websocket::switching(&head))?;
                websocket::read_frame(stream)?;
                stream.write_all(first)?;
                let flood = part.repeat(1 + 65_536 / part.len());
                loop {
                    stream.write_all(&flood)?;
                }
            }
            Self::FloodsAtOnce(first, part) => {
                stream.write_all(first.as_bytes())?;
                loop {
                    stream.write_all(part.as_bytes())?;
                }
            }
            Self::Leaves => {
                stream.write_all(&websocket::switching(&head))?;
                websocket::read_frame(stream).map(drop)
            }
            Self::Drips => {
                let mut out = websocket::switching(&head);
                loop {
                    for byte in out {
                        stream.write_all(&[byte])?;
                    }
                    let (first, payload) = websocket::read_frame(stream)?;
                    out = websocket::frame(first, &payload);
                }
            }
        }
    }
}

fn seen_over_websocket(peer: &Channel) -> Seen {
    // It ends when the probe has gone: nothing is to be said of that.
    seen_over_tcp("websocket", |stream| drop(peer.serve(stream)))
}

#[test]
fn servers_of_websocket_that_mean_harm_have_their_names() {
    use crate::websocket::{
        BINARY, CLOSE, CONTINUATION, FINAL, PING, PONG, TEXT, frame, switching,
    };
    if !websocket::is_own_server("websockets::servers_of_websocket_that_mean_harm_have_their_names")
    {
        return;
    }
    let says = Channel::Says;
    let floods = |part: Vec<u8>| Channel::Floods(Vec::new(), part);
    let idle = "frames without end";
    let begin = frame(BINARY, b"");
    #[rustfmt::skip]
    let table: Vec<(Verdict, Channel)> = vec![
        (("a good one", &["good"], ""), says(|text| frame(FINAL | BINARY, text))),
        (("one byte at a time", &["good"], ""), Channel::Drips),
        (("pings", &["parse", "timeout"], idle), floods(frame(FINAL | PING, b"there?"))),
        (("pongs", &["parse", "timeout"], idle), floods(frame(FINAL | PONG, b""))),
        (("empty parts", &["parse", "timeout"], idle), Channel::Floods(begin.clone(), frame(CONTINUATION, b""))),
        (("empty messages", &["echo", "parse", "timeout"], idle), floods(frame(FINAL | BINARY, b""))),
        (("parts without end", &["parse"], "longer than any"), Channel::Floods(begin.clone(), frame(CONTINUATION, b"x"))),
        (("long parts without end", &["parse"], "longer than any"), Channel::Floods(begin, frame(CONTINUATION, &vec![0; 60_000]))),
        (("a frame of 2^62 bytes", &["parse"], "longer than any"), says(|_| [&[FINAL | BINARY, 127, 0x40][..], &[0; 7]].concat())),
        (("a frame beyond all", &["parse"], "as short as it can be"), says(|_| [&[FINAL | BINARY, 127, 0x80][..], &[0; 7]].concat())),
        (("a long way to say a length", &["parse"], "as short as it can be"), says(|_| vec![FINAL | BINARY, 126, 0, 9])),
        (("masked", &["parse"], "masked"), says(|_| vec![FINAL | BINARY, 0x81, 1, 2, 3, 4, 5])),
        (("an opcode that nobody knows", &["parse"], "opcode"), says(|_| frame(FINAL | 3, b""))),
        (("another one", &["parse"], "opcode"), says(|_| frame(FINAL | 0xb, b""))),
        (("compressed though nobody asked", &["parse"], "reserved bit"), says(|text| frame(FINAL | 0x40 | BINARY, text))),
        (("a ping in parts", &["parse"], "control frame"), says(|_| frame(PING, b""))),
        (("a long ping", &["parse"], "control frame"), says(|_| frame(FINAL | PING, &[0; 126]))),
        (("a part of nothing", &["parse"], "part of no message"), says(|text| frame(FINAL | CONTINUATION, text))),
        (("a message in a message", &["parse"], "part of no message"), says(|text| frame(BINARY, text).repeat(2))),
        (("a close of one byte", &["parse"], "code that may not be sent"), says(|_| frame(FINAL | CLOSE, b"1"))),
        (("a close with 1006", &["parse"], "code that may not be sent"), says(|_| frame(FINAL | CLOSE, b"\x03\xee"))),
        (("closes each time", &["closed", "timeout"], ""), says(|_| frame(FINAL | CLOSE, b"\x03\xe8"))),
        (("closes and says more", &["closed", "timeout"], ""), says(|text| [frame(FINAL | CLOSE, b""), frame(FINAL | BINARY, text)].concat())),
        (("leaves each time", &["closed", "timeout"], ""), Channel::Leaves),
        (("other messages without end", &["echo", "timeout"], ""), floods(frame(FINAL | TEXT, &[b'x'; 128]))),
        (("another message", &["echo"], ""), says(|_| frame(FINAL | BINARY, &[b'x'; 128]))),
        (("silent", &["timeout"], ""), says(|_| Vec::new())),
        (("silent from the beginning", &["connect_timeout", "timeout"], ""), Channel::Answers(|_| Vec::new())),
        (("refuses", &["upgrade", "timeout"], ""), Channel::Answers(|_| b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n".to_vec())),
        (("200 in the place of 101", &["upgrade", "timeout"], ""), Channel::Answers(|_| b"HTTP/1.1 200 Yes\r\n\r\n".to_vec())),
        (("another accept", &["parse", "timeout"], "Sec-WebSocket-Accept"), Channel::Answers(|_| switching("Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="))),
        (("101 to another protocol", &["parse", "timeout"], "101 without Upgrade"), Channel::Answers(|_| b"HTTP/1.1 101 Yes\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n".to_vec())),
        (("an extension", &["parse", "timeout"], "not asked for"), Channel::Answers(|head| [&b"HTTP/1.1 101 Yes\r\nSec-WebSocket-Extensions: permessage-deflate\r\n"[..], &switching(head)[34..]].concat())),
        (("no HTTP", &["parse", "timeout"], "no head of HTTP/1.1"), Channel::Answers(|_| vec![0xff; 100])),
        (("a head without end", &["parse", "timeout"], "no head of HTTP/1.1"), Channel::FloodsAtOnce("HTTP/1.1 101 Yes\r\n", "Name: value\r\n")),
        (("interim answers", &["parse", "timeout"], idle), Channel::FloodsAtOnce("", "HTTP/1.1 100 Continue\r\n\r\n")),
    ];
    judge_all(&table, seen_over_websocket);
}
