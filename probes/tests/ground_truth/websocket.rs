//! The server's side of a WebSocket, by hand: what it says is the test's.

// Each test file uses a part of it.
#![allow(dead_code, unreachable_pub, missing_docs)]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest;

const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

pub const CONTINUATION: u8 = 0;
pub const TEXT: u8 = 1;
pub const BINARY: u8 = 2;
pub const CLOSE: u8 = 8;
pub const PING: u8 = 9;
pub const PONG: u8 = 10;

/// The last frame of a message.
pub const FINAL: u8 = 0x80;

/// Whether this process has the mark of a lab, so that messages may be sent to it. Where it has not, the
/// test is run again in one that has.
pub fn is_own_server(test: &str) -> bool {
    if std::env::var_os("NGINX_TUNE_LAB").is_some() {
        return true;
    }
    let again = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env("NGINX_TUNE_LAB", mark())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&again.stdout);
    let errors = String::from_utf8_lossy(&again.stderr);
    assert!(again.status.success(), "{said}{errors}");
    assert!(said.contains("1 passed"), "{said}");
    false
}

/// As a lab's: whose it is, and which process made it, by its start.
fn mark() -> String {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, rest) = stat.rsplit_once(')').unwrap();
    let started = rest.split_whitespace().nth(19).unwrap();
    let user = std::fs::metadata("/proc/self").unwrap().uid();
    format!("{user}-{}-{started}-0", std::process::id())
}

/// The `Sec-WebSocket-Accept` of a request's key.
pub fn accept(head: &str) -> String {
    let key = head
        .lines()
        .find_map(|line| line.strip_prefix("Sec-WebSocket-Key: "))
        .unwrap_or_default();
    let text = format!("{key}{GUID}");
    STANDARD.encode(digest::digest(
        &digest::SHA1_FOR_LEGACY_USE_ONLY,
        text.as_bytes(),
    ))
}

/// 101, as it has to be.
pub fn switching(head: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {}\r\n\r\n",
        accept(head)
    )
    .into_bytes()
}

/// A frame of a server.
pub fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let length = payload.len();
    let mut frame = vec![first];
    match length {
        0..126 => frame.push(length as u8),
        126..0x1_0000 => {
            frame.push(126);
            frame.extend_from_slice(&(length as u16).to_be_bytes());
        }
        _ => {
            frame.push(127);
            frame.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(payload);
    frame
}

/// The head of a request.
pub fn read_head(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// The next frame of a client, which has to be masked: its first byte and its payload.
pub fn read_frame(stream: &mut TcpStream) -> std::io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 2];
    stream.read_exact(&mut head)?;
    assert!(head[1] & 0x80 != 0, "a client masks");
    let length = match head[1] & 0x7f {
        126 => {
            let mut bytes = [0; 2];
            stream.read_exact(&mut bytes)?;
            u64::from(u16::from_be_bytes(bytes))
        }
        127 => {
            let mut bytes = [0; 8];
            stream.read_exact(&mut bytes)?;
            u64::from_be_bytes(bytes)
        }
        few => u64::from(few),
    };
    let mut mask = [0; 4];
    stream.read_exact(&mut mask)?;
    let mut payload = vec![0; length as usize];
    stream.read_exact(&mut payload)?;
    for (byte, key) in payload.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= key;
    }
    Ok((head[0], payload))
}

/// Echoes messages by `answer`, given each one's number on the connection and its frame, until the client
/// leaves or `answer` says so by none.
pub fn echo(
    stream: &mut TcpStream,
    mut answer: impl FnMut(u64, u8, &[u8]) -> Option<Vec<u8>>,
) -> std::io::Result<()> {
    for number in 0.. {
        let (first, payload) = read_frame(stream)?;
        if first & 0xf == CLOSE {
            return stream.write_all(&frame(first, &payload));
        }
        match answer(number, first, &payload) {
            Some(bytes) => stream.write_all(&bytes)?,
            None => break,
        }
    }
    Ok(())
}
