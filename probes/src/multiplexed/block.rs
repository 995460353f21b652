//! The header block of a request. All fields are literal, so that requests do not depend on each
//! other.

use std::io::Write as _;

use crate::plan::{ByteRange, Class, Method, Target};
use crate::request::{Object, USER_AGENT};

/// The encoding of header blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Coding {
    /// HPACK (RFC 7541).
    #[default]
    Hpack,
    /// QPACK (RFC 9204), only with its static table.
    Qpack,
}

/// Names in the static tables that are used (RFC 7541 and RFC 9204, appendix A of each).
#[derive(Debug, Clone, Copy)]
enum Name {
    Authority,
    Method,
    Path,
}

/// Whole fields in the static tables that are used.
#[derive(Debug, Clone, Copy)]
enum Whole {
    Get,
    Http,
    Https,
}

impl Coding {
    /// Writes the prefix of a block: for QPACK, that it needs no dynamic entry.
    fn begin(self, buffer: &mut Vec<u8>) {
        if self == Self::Qpack {
            buffer.extend_from_slice(&[0, 0]);
        }
    }

    fn whole(self, field: Whole, buffer: &mut Vec<u8>) {
        buffer.push(match (self, field) {
            (Self::Hpack, Whole::Get) => 0x82,
            (Self::Hpack, Whole::Http) => 0x86,
            (Self::Hpack, Whole::Https) => 0x87,
            (Self::Qpack, Whole::Get) => 0xd1,
            (Self::Qpack, Whole::Http) => 0xd6,
            (Self::Qpack, Whole::Https) => 0xd7,
        });
    }

    /// Writes a field whose name is in the static table; the server does not add it to its table.
    fn named(self, name: Name, value: &str, buffer: &mut Vec<u8>) {
        match (self, name) {
            (Self::Hpack, Name::Authority) => buffer.push(1),
            (Self::Hpack, Name::Method) => buffer.push(2),
            (Self::Hpack, Name::Path) => buffer.push(4),
            (Self::Qpack, Name::Authority) => buffer.push(0x50),
            (Self::Qpack, Name::Path) => buffer.push(0x51),
            // Index 15 is the first that does not fit into four bits.
            (Self::Qpack, Name::Method) => buffer.extend_from_slice(&[0x5f, 0]),
        }
        string(value.as_bytes(), 7, 0, buffer);
    }

    fn field(self, name: &[u8], value: &[u8], buffer: &mut Vec<u8>) {
        match self {
            Self::Hpack => {
                buffer.push(0);
                string(name, 7, 0, buffer);
            }
            Self::Qpack => string(name, 3, 0x20, buffer),
        }
        string(value, 7, 0, buffer);
    }
}

/// The parts of the block that all requests of a class share.
#[derive(Debug, Default)]
pub struct Block {
    coding: Coding,
    before_path: Vec<u8>,
    after_path: Vec<u8>,
}

impl Block {
    /// The block of a class. Headers of the plan replace the probe's own.
    pub fn new(coding: Coding, class: &Class, target: &Target) -> Self {
        let own = |name: &str| {
            let mut headers = class.headers.iter();
            headers.find(|(own, _)| own.eq_ignore_ascii_case(name))
        };
        let mut before_path = Vec::new();
        coding.begin(&mut before_path);
        match class.method {
            Method::Get => coding.whole(Whole::Get, &mut before_path),
            Method::Head => {
                coding.named(Name::Method, class.method.text(), &mut before_path);
            }
        }
        let scheme = if target.tls.is_some() {
            Whole::Https
        } else {
            Whole::Http
        };
        coding.whole(scheme, &mut before_path);
        let host = own("host").map_or(&target.host, |(_, value)| value);
        coding.named(Name::Authority, host, &mut before_path);
        let mut after_path = Vec::new();
        let mut field = |name: &str, value: &str| {
            coding.field(name.as_bytes(), value.as_bytes(), &mut after_path);
        };
        for (name, value) in [("user-agent", USER_AGENT), ("accept", "*/*")] {
            if own(name).is_none() {
                field(name, value);
            }
        }
        for (name, value) in &class.headers {
            if !name.eq_ignore_ascii_case("host") {
                field(&name.to_ascii_lowercase(), value);
            }
        }
        Self {
            coding,
            before_path,
            after_path,
        }
    }

    /// Writes the block for an object into `buffer`.
    pub fn render(&self, object: &Object<'_>, buffer: &mut Vec<u8>) {
        buffer.clear();
        buffer.extend_from_slice(&self.before_path);
        self.coding.named(Name::Path, object.path, buffer);
        buffer.extend_from_slice(&self.after_path);
        if let Some(ByteRange { first, last }) = object.range {
            let mut range = Vec::with_capacity(48);
            // Writing to a vector cannot fail.
            let _ = write!(range, "bytes={first}-{last}");
            self.coding.field(b"range", &range, buffer);
        }
    }
}

/// Writes a string without compression after its length. The length has `bits` bits of its first
/// byte; `above` is the value of the bits above (RFC 7541 §5.1, §5.2).
fn string(text: &[u8], bits: u32, above: u8, buffer: &mut Vec<u8>) {
    let most = (1 << bits) - 1;
    if text.len() < most {
        buffer.push(above | text.len() as u8);
    } else {
        buffer.push(above | most as u8);
        let mut left = text.len() - most;
        while left >= 0x80 {
            buffer.push(left as u8 | 0x80);
            left >>= 7;
        }
        buffer.push(left as u8);
    }
    buffer.extend_from_slice(text);
}

#[cfg(test)]
mod tests {
    use super::string;
    use crate::multiplexed::literals;

    #[test]
    fn strings_of_any_length_come_back() {
        for (bits, above) in [(7, 0), (3, 0x20)] {
            for length in [0, 1, 6, 7, 8, 126, 127, 128, 254, 255, 256, 8_000, 20_000] {
                let mut block = Vec::new();
                string(&vec![b'p'; length], bits, above, &mut block);
                assert_eq!(u32::from(block[0]) >> bits << bits, u32::from(above));
                let (mut rest, mut text) = (block.as_slice(), Vec::new());
                literals::string(&mut rest, bits, &mut text).expect("a string");
                assert_eq!((text.len(), rest.len()), (length, 0));
            }
        }
    }
}
