//! The values of fields: escapes, request lines, numbers, ranges.

/// Unescapes a field of the default escape: `\xHH`.
pub(crate) fn unescape_default(value: &[u8]) -> Vec<u8> {
    let mut found = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((&byte, after)) = rest.split_first() {
        let (byte, after) = escaped_byte(rest).unwrap_or((byte, after));
        found.push(byte);
        rest = after;
    }
    found
}

/// The byte of `\xHH`, and the text after it.
fn escaped_byte(text: &[u8]) -> Option<(u8, &[u8])> {
    let [b'\\', b'x', high, low, after @ ..] = text else {
        return None;
    };
    Some(((hex(*high)? * 16 + hex(*low)?) as u8, after))
}

/// Unescapes a field of `escape=json`; half a surrogate pair becomes a replacement character.
pub(crate) fn unescape_json(value: &[u8]) -> Vec<u8> {
    let mut found = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            found.push(byte);
            continue;
        }
        let plain = match after.first() {
            Some(&sign @ (b'"' | b'\\' | b'/')) => sign,
            Some(b'b') => 0x08,
            Some(b'f') => 0x0c,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            _ => {
                match unicode(after) {
                    Some((character, length)) => {
                        found.extend(character.encode_utf8(&mut [0; 4]).bytes());
                        rest = &after[length..];
                    }
                    None => found.push(byte),
                }
                continue;
            }
        };
        found.push(plain);
        rest = &after[1..];
    }
    found
}

/// The character of `uHHHH` or of a pair of these, and the length read.
fn unicode(text: &[u8]) -> Option<(char, usize)> {
    let unit = code_unit(text)?;
    let is_high = (0xd800..0xdc00).contains(&unit);
    let second = match text.get(5..) {
        Some([b'\\', second @ ..]) if is_high => code_unit(second),
        _ => None,
    };
    if let Some(low @ 0xdc00..0xe000) = second {
        let code = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
        return char::from_u32(code).map(|character| (character, 11));
    }
    Some((char::from_u32(unit).unwrap_or('\u{fffd}'), 5))
}

/// The UTF-16 code unit of `uHHHH`.
pub(crate) fn code_unit(text: &[u8]) -> Option<u32> {
    let [b'u', digits @ ..] = text else {
        return None;
    };
    digits
        .get(..4)?
        .iter()
        .try_fold(0, |unit, &digit| Some(unit * 16 + hex(digit)?))
}

fn hex(digit: u8) -> Option<u32> {
    char::from(digit).to_digit(16)
}

/// The parts of `$request`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RequestLine<'a> {
    pub(crate) method: &'a [u8],
    pub(crate) target: &'a [u8],
    pub(crate) protocol: &'a [u8],
}

/// Method, target and protocol; `None` for an invalid request line.
pub(crate) fn split_request(text: &[u8]) -> Option<RequestLine<'_>> {
    let space = memchr::memchr(b' ', text)?;
    let (method, rest) = (&text[..space], &text[space + 1..]);
    let is_method = method
        .iter()
        .all(|b| b.is_ascii_uppercase() || matches!(b, b'_' | b'-'));
    if !(1..=32).contains(&method.len()) || !is_method || rest.is_empty() {
        return None;
    }
    if let Some(space) = memchr::memrchr(b' ', rest) {
        let (target, protocol) = (&rest[..space], &rest[space + 1..]);
        if protocol.starts_with(b"HTTP/") {
            return (!target.is_empty()).then_some(RequestLine {
                method,
                target,
                protocol,
            });
        }
    }
    Some(RequestLine {
        method,
        target: rest,
        protocol: b"HTTP/0.9",
    })
}

/// The path of a request target, after a scheme and host if it has them; `None` for `*` and other
/// targets that name no object.
pub(crate) fn path_of(target: &[u8], with_query: bool) -> Option<&[u8]> {
    let path = if target.starts_with(b"/") {
        target
    } else {
        let scheme = memchr::memmem::find(target, b"://").filter(|&at| at > 0)?;
        let rest = &target[scheme + 3..];
        match memchr::memchr(b'/', rest) {
            Some(slash) => &rest[slash..],
            None => b"/",
        }
    };
    let path = before(path, b'#');
    Some(if with_query { path } else { before(path, b'?') })
}

/// The text before a byte; all of it if there is no such byte.
pub(crate) fn before(text: &[u8], byte: u8) -> &[u8] {
    &text[..memchr::memchr(byte, text).unwrap_or(text.len())]
}

/// Decimal seconds as milliseconds, truncated.
pub(crate) fn milliseconds(text: &[u8]) -> Option<i64> {
    let (whole, fraction) = match memchr::memchr(b'.', text) {
        Some(point) => (&text[..point], &text[point + 1..]),
        None => (text, &[][..]),
    };
    if whole.len() > 12 || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(number(whole)? * 1000 + thousandths(fraction))
}

/// The first three digits of a fraction, as a number.
pub(crate) fn thousandths(digits: &[u8]) -> i64 {
    (0..3).fold(0, |sum, at| {
        sum * 10 + digits.get(at).map_or(0, |digit| i64::from(digit - b'0'))
    })
}

/// A whole number of at most 18 digits.
pub(crate) fn number(text: &[u8]) -> Option<i64> {
    if text.is_empty() || text.len() > 18 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(
        text.iter()
            .fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0')),
    )
}

/// A status; nginx writes 000 if it sent none.
pub(crate) fn status_code(text: &[u8]) -> Option<usize> {
    number(text)
        .filter(|_| text.len() == 3)
        .map(|code| code as usize)
}

/// The range in `Content-Range` or `Range`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) first: i64,
    pub(crate) last: Option<i64>,
    pub(crate) total: Option<i64>,
}

/// The range in a response's `Content-Range`.
pub(crate) fn content_range(text: &[u8]) -> Option<Range> {
    let (first, rest) = split(text.strip_prefix(b"bytes ")?, b'-')?;
    let (last, total) = split(rest, b'/')?;
    Some(Range {
        first: number(first)?,
        last: Some(number(last)?),
        total: if total == b"*" {
            None
        } else {
            Some(number(total)?)
        },
    })
}

/// The requested range, if it is a single one with a start.
pub(crate) fn requested_range(text: &[u8]) -> Option<Range> {
    let (first, last) = split(text.strip_prefix(b"bytes=")?, b'-')?;
    Some(Range {
        first: number(first)?,
        last: if last.is_empty() {
            None
        } else {
            Some(number(last)?)
        },
        total: None,
    })
}

fn split(text: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(byte, text)?;
    Some((&text[..at], &text[at + 1..]))
}
