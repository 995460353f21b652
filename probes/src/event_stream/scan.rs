//! Texts looked for in a body that comes in pieces of any size.

/// A text, and how much of it the last bytes are.
#[derive(Debug, Clone)]
pub(super) struct Text {
    bytes: Vec<u8>,
    /// Of each length that matched: the longest shorter one that matches too (Knuth, Morris, Pratt).
    shorter: Vec<usize>,
    matched: usize,
}

impl Text {
    /// To look for a text that is not empty.
    pub(super) fn new(text: &str) -> Self {
        let text = text.as_bytes().to_vec();
        let mut shorter = vec![0; text.len() + 1];
        let mut length = 0;
        for at in 1..text.len() {
            while length > 0 && text[at] != text[length] {
                length = shorter[length];
            }
            length += usize::from(text[at] == text[length]);
            shorter[at + 1] = length;
        }
        Self {
            bytes: text,
            shorter,
            matched: 0,
        }
    }

    /// How many of the bytes were looked at until the text was whole; none when it is not yet.
    pub(super) fn find(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while at < bytes.len() {
            if self.matched == 0 {
                at += memchr::memchr(self.bytes[0], &bytes[at..])?;
            }
            while self.matched > 0 && bytes[at] != self.bytes[self.matched] {
                self.matched = self.shorter[self.matched];
            }
            self.matched += usize::from(bytes[at] == self.bytes[self.matched]);
            at += 1;
            if self.matched == self.bytes.len() {
                self.matched = 0;
                return Some(at);
            }
        }
        None
    }
}

/// What of a number has come.
#[derive(Debug, Clone, Copy)]
enum Reading {
    /// The text is looked for.
    Nothing,
    /// The text was there, and no digit yet.
    Text,
    Digits(u64),
}

/// Numbers that stand behind a text.
#[derive(Debug, Clone)]
pub(super) struct Numbers {
    before: Text,
    reading: Reading,
}

impl Numbers {
    /// Those behind this text.
    pub(super) fn behind(text: &str) -> Self {
        Self {
            before: Text::new(text),
            reading: Reading::Nothing,
        }
    }

    /// Takes the next bytes; numbers that ended in them go into `found`.
    pub(super) fn take(&mut self, mut bytes: &[u8], found: &mut Vec<u64>) {
        while !bytes.is_empty() {
            let number = match self.reading {
                Reading::Nothing => {
                    let Some(count) = self.before.find(bytes) else {
                        return;
                    };
                    bytes = &bytes[count..];
                    self.reading = Reading::Text;
                    continue;
                }
                Reading::Text => None,
                Reading::Digits(number) => Some(number),
            };
            if bytes[0].is_ascii_digit() {
                let digit = u64::from(bytes[0] - b'0');
                let more = number.unwrap_or(0).checked_mul(10);
                let more = more.and_then(|tens| tens.checked_add(digit));
                // What is too large is no moment; the text is looked for again.
                self.reading = more.map_or(Reading::Nothing, Reading::Digits);
                bytes = &bytes[1..];
            } else {
                found.extend(number);
                self.reading = Reading::Nothing;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Numbers, Text};

    fn numbers(text: &str, pieces: &[&[u8]]) -> Vec<u64> {
        let mut numbers = Numbers::behind(text);
        let mut found = Vec::new();
        for piece in pieces {
            numbers.take(piece, &mut found);
        }
        found
    }

    #[test]
    fn a_number_is_found_wherever_the_body_is_split() {
        let body = b"data: {\"sent\":120,\"sent\":7}\n\nsent:8 \"sent\":\"sent\":9\n";
        let whole = vec![120, 7, 9];
        assert_eq!(numbers("\"sent\":", &[body]), whole);
        for at in 1..body.len() {
            let (one, two) = body.split_at(at);
            assert_eq!(numbers("\"sent\":", &[one, two]), whole, "split at {at}");
        }
        let single: Vec<&[u8]> = body.chunks(1).collect();
        assert_eq!(numbers("\"sent\":", &single), whole);
    }

    #[test]
    fn a_number_without_an_end_or_beyond_all_is_none() {
        assert_eq!(numbers("t=", &[b"t=12"]), Vec::<u64>::new());
        let large = b"t=99999999999999999999999 t=18446744073709551615 t=x";
        assert_eq!(numbers("t=", &[large]), [u64::MAX]);
    }

    #[test]
    fn a_text_that_begins_with_itself_is_found_behind_its_beginning() {
        let mut text = Text::new("aab");
        assert_eq!(text.find(b"xaa"), None);
        assert_eq!(text.find(b"ab"), Some(2));
        assert_eq!(text.find(b"b"), None);
    }
}
