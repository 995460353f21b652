//! The opening handshake (RFC 6455 §4): what is asked, and what has to be answered.

use std::mem::MaybeUninit;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest;

use super::fault::Fault;

/// What a server appends to the key before it hashes both (§1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Bytes of the longest head that is read, and its fields.
const LONGEST_HEAD_BYTES: usize = 16 * 1024;
const MOST_FIELDS: usize = 64;

/// Interim answers that come before the one that counts, at most.
const MOST_INTERIM: u32 = 8;

/// What was asked, and what has come of the answer.
#[derive(Debug)]
pub struct Opening {
    request: Vec<u8>,
    accept: String,
    protocols: Vec<String>,
    head: Vec<u8>,
    interim: u32,
}

/// What the answer came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// More has to come.
    Waiting,
    /// The WebSocket stands; so many of the bytes given last were of the head.
    Open(usize),
    /// It was refused with this status.
    Refused(u16),
}

impl Opening {
    /// The opening of a WebSocket by a request of HTTP/1.1, whole but for what makes it one. `nonce` has
    /// to be another for each connection; `protocols` are those that the request offers.
    pub fn new(mut request: Vec<u8>, nonce: [u8; 16], protocols: Option<&str>) -> Self {
        let key = STANDARD.encode(nonce);
        // The last line end closes the head.
        request.truncate(request.len().saturating_sub(2));
        for text in [
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
            "Sec-WebSocket-Key: ",
            &key,
            "\r\n\r\n",
        ] {
            request.extend_from_slice(text.as_bytes());
        }
        let offered = protocols.unwrap_or_default().split(',').map(str::trim);
        Self {
            request,
            accept: accept(&key),
            protocols: offered
                .filter(|it| !it.is_empty())
                .map(str::to_owned)
                .collect(),
            head: Vec::new(),
            interim: 0,
        }
    }

    /// Takes what is to be sent.
    pub(super) fn take_request(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.request)
    }

    /// Takes bytes of the answer.
    ///
    /// # Errors
    /// Why it is none.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<Answer, Fault> {
        let mut taken = 0;
        loop {
            let before = self.head.len();
            let rest = &bytes[taken..];
            let room = LONGEST_HEAD_BYTES - before;
            self.head.extend_from_slice(&rest[..rest.len().min(room)]);
            match self.read()? {
                None if rest.len() >= room => return Err(Fault::Head),
                None => return Ok(Answer::Waiting),
                Some((status, length)) => {
                    taken += length - before;
                    self.head.clear();
                    match status {
                        101 => return Ok(Answer::Open(taken)),
                        100..=199 if self.interim < MOST_INTERIM => self.interim += 1,
                        100..=199 => return Err(Fault::Flood),
                        _ => return Ok(Answer::Refused(status)),
                    }
                }
            }
        }
    }

    /// The status of a whole head and its length; of a 101 it is as it has to be.
    fn read(&self) -> Result<Option<(u16, usize)>, Fault> {
        let mut fields = [const { MaybeUninit::uninit() }; MOST_FIELDS];
        let mut head = httparse::Response::new(&mut []);
        let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
            &mut head,
            &self.head,
            &mut fields,
        );
        let length = match parsed {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err(Fault::Head),
        };
        let status = head.code.unwrap_or_default();
        if status < 100 {
            return Err(Fault::Head);
        }
        if status == 101 {
            self.check(head.headers)?;
        }
        Ok(Some((status, length)))
    }

    /// What a client has to see to (§4.1, the list at its end).
    fn check(&self, fields: &[httparse::Header<'_>]) -> Result<(), Fault> {
        let all = |name: &'static str| {
            let own = fields.iter();
            own.filter(move |field| field.name.eq_ignore_ascii_case(name))
                .map(|field| std::str::from_utf8(field.value).unwrap_or_default().trim())
        };
        let has = |name, word: &str| {
            all(name)
                .flat_map(|value| value.split(','))
                .any(|part| part.trim().eq_ignore_ascii_case(word))
        };
        if !has("upgrade", "websocket") || !has("connection", "upgrade") {
            return Err(Fault::Upgrade);
        }
        if !all("sec-websocket-accept").eq([self.accept.as_str()]) {
            return Err(Fault::Accept);
        }
        let is_offered = |name: &str| self.protocols.iter().any(|own| own == name);
        if all("sec-websocket-extensions").next().is_some()
            || !all("sec-websocket-protocol").all(is_offered)
        {
            return Err(Fault::Extension);
        }
        Ok(())
    }
}

/// What a server has to answer to a key.
fn accept(key: &str) -> String {
    let mut hash = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    hash.update(key.as_bytes());
    hash.update(GUID);
    STANDARD.encode(hash.finish())
}

#[cfg(test)]
mod tests {
    use super::{Answer, Opening, accept};
    use crate::mutations::Mutations;
    use crate::websocket::Fault;

    fn opening() -> Opening {
        let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec();
        // The key of RFC 6455 §1.3.
        Opening::new(request, *b"the sample nonce", Some("chat, echo"))
    }

    const GOOD: &str = "HTTP/1.1 101 Switching Protocols\r\nupgrade: WebSocket\r\n\
        Connection: keep-alive, Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

    #[test]
    fn the_key_and_its_answer_are_those_of_the_standard() {
        assert_eq!(
            accept("dGhlIHNhbXBsZSBub25jZQ=="),
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
        let request = String::from_utf8(opening().take_request()).unwrap();
        assert!(
            request.ends_with("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"),
            "{request}"
        );
        assert!(request.starts_with("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n"));
    }

    #[test]
    fn an_answer_is_good_or_has_the_name_of_what_is_wrong() {
        let good = |text: &str| opening().feed(text.as_bytes());
        assert_eq!(good(GOOD), Ok(Answer::Open(GOOD.len())));
        let more = format!("HTTP/1.1 103 Early Hints\r\n\r\n{GOOD}\u{1}");
        assert_eq!(good(&more), Ok(Answer::Open(more.len() - 1)));
        let chosen = GOOD.replace("\r\n\r\n", "\r\nSec-WebSocket-Protocol: echo\r\n\r\n");
        assert_eq!(good(&chosen), Ok(Answer::Open(chosen.len())));
        let refused = "HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\n\r\nForbidden";
        assert_eq!(good(refused), Ok(Answer::Refused(403)));
        for (from, to, fault) in [
            ("s3pP", "S3pP", Fault::Accept),
            (
                "Sec-WebSocket-Accept",
                "Sec-WebSocket-Accepted",
                Fault::Accept,
            ),
            ("WebSocket\r", "h2c\r", Fault::Upgrade),
            (", Upgrade", "", Fault::Upgrade),
            (
                "\r\n\r\n",
                "\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n",
                Fault::Extension,
            ),
            (
                "\r\n\r\n",
                "\r\nSec-WebSocket-Protocol: other\r\n\r\n",
                Fault::Extension,
            ),
            ("HTTP/1.1", "HTTP/1.1x", Fault::Head),
        ] {
            assert_eq!(good(&GOOD.replacen(from, to, 1)), Err(fault), "{to}");
        }
        let interim = "HTTP/1.1 100 Continue\r\n\r\n".repeat(9);
        assert_eq!(good(&interim), Err(Fault::Flood));
        let long = format!("HTTP/1.1 101 Yes\r\nLong: {}", "x".repeat(1 << 16));
        assert_eq!(good(&long), Err(Fault::Head));
    }

    #[test]
    fn mutated_answers_are_read_alike_however_they_are_cut() {
        let seeds = [
            GOOD.to_owned(),
            format!("HTTP/1.1 100 Continue\r\n\r\n{GOOD}"),
            "HTTP/1.1 400 Bad Request\r\n\r\n".to_owned(),
        ];
        let mut some = Mutations::of("openings of WebSockets", 5_000);
        let (mut open, mut wrong) = (0, 0);
        while some.again() {
            let bytes = some.mutated(&seeds);
            let whole = opening().feed(&bytes);
            let (mut cut, mut before) = (opening(), 0);
            let mut found = Ok(Answer::Waiting);
            for piece in some.pieces(&bytes) {
                found = cut.feed(piece).map(|answer| match answer {
                    Answer::Open(taken) => Answer::Open(before + taken),
                    other => other,
                });
                before += piece.len();
                if found != Ok(Answer::Waiting) {
                    break;
                }
            }
            assert_eq!(found, whole, "{}", String::from_utf8_lossy(&bytes));
            open += usize::from(matches!(whole, Ok(Answer::Open(_))));
            wrong += usize::from(whole.is_err());
        }
        assert!(open > 500 && wrong > 500 || some.is_alone());
    }
}
