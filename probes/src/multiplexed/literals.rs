//! Integers and strings of compressed header fields (RFC 7541 §5; the same in RFC 9204 §4.1).

use super::huffman;

/// The error for an invalid integer or string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Broken;

/// Parses an integer that starts with `bits` bits of the first byte (RFC 7541 §5.1).
pub(crate) fn integer(rest: &mut &[u8], bits: u32) -> Result<usize, Broken> {
    let (&first, mut tail) = rest.split_first().ok_or(Broken)?;
    let most = (1_usize << bits) - 1;
    let mut value = usize::from(first) & most;
    if value == most {
        let mut shift = 0;
        loop {
            let (&byte, left) = tail.split_first().ok_or(Broken)?;
            tail = left;
            // Four more bytes hold every number that can occur here.
            if shift > 21 {
                return Err(Broken);
            }
            value += usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
    }
    *rest = tail;
    Ok(value)
}

/// Appends a string to `text`. Its length starts with `bits` bits of the first byte; the bit above
/// them is set if the string is Huffman-coded.
pub(crate) fn string(rest: &mut &[u8], bits: u32, text: &mut Vec<u8>) -> Result<(), Broken> {
    let is_coded = rest
        .first()
        .is_some_and(|first| first & (1 << bits) as u8 != 0);
    let length = integer(rest, bits)?;
    let (own, tail) = rest.split_at_checked(length).ok_or(Broken)?;
    *rest = tail;
    if is_coded {
        return huffman::decode(own, text).ok_or(Broken);
    }
    text.extend_from_slice(own);
    Ok(())
}
