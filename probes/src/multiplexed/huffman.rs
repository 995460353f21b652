//! The Huffman code of header strings (RFC 7541 §5.2 and appendix B).

/// The code length in bits for each byte and for the end of a string. The code is canonical, so the
/// lengths determine it.
#[rustfmt::skip]
const BITS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28,
    30, 28, 28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8,
    6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6,
    5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23,
    23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24,
    21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26,
    20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24,
    21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24,
    26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

/// The longest code in bits.
const MOST_BITS: usize = 30;

/// The symbol for the end of a string, which never occurs in one.
const END: u16 = 256;

/// By length: the first code, the number of codes, and the start of their symbols.
#[derive(Debug)]
struct Codes {
    first: [u32; MOST_BITS + 1],
    count: [u32; MOST_BITS + 1],
    begin: [usize; MOST_BITS + 1],
    symbols: [u16; BITS.len()],
}

static CODES: Codes = codes();

const fn codes() -> Codes {
    let mut codes = Codes {
        first: [0; MOST_BITS + 1],
        count: [0; MOST_BITS + 1],
        begin: [0; MOST_BITS + 1],
        symbols: [0; BITS.len()],
    };
    let (mut bits, mut code, mut placed) = (1, 0, 0);
    while bits <= MOST_BITS {
        codes.first[bits] = code;
        codes.begin[bits] = placed;
        let mut symbol = 0;
        while symbol < BITS.len() {
            if BITS[symbol] as usize == bits {
                codes.symbols[placed] = symbol as u16;
                codes.count[bits] += 1;
                placed += 1;
            }
            symbol += 1;
        }
        code = (code + codes.count[bits]) << 1;
        bits += 1;
    }
    codes
}

/// Appends the decoded string to `text`; `None` for an invalid code.
#[must_use]
pub(super) fn decode(bytes: &[u8], text: &mut Vec<u8>) -> Option<()> {
    let (mut code, mut bits) = (0_u32, 0_usize);
    for byte in bytes {
        for shift in (0..8).rev() {
            code = (code << 1) | u32::from((byte >> shift) & 1);
            bits += 1;
            if bits > MOST_BITS {
                return None;
            }
            let place = code.wrapping_sub(CODES.first[bits]);
            if place < CODES.count[bits] {
                let symbol = CODES.symbols[CODES.begin[bits] + place as usize];
                if symbol == END {
                    return None;
                }
                text.push(symbol as u8);
                (code, bits) = (0, 0);
            }
        }
    }
    // The last byte is padded with the first bits of the end symbol.
    (bits < 8 && code + 1 == 1 << bits).then_some(())
}

#[cfg(test)]
mod tests {
    use super::decode;

    fn decoded(hex: &str) -> Option<String> {
        let bytes: Vec<u8> = (0..hex.len() / 2)
            .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("hex"))
            .collect();
        let mut text = Vec::new();
        decode(&bytes, &mut text).map(|()| String::from_utf8(text).expect("text"))
    }

    #[test]
    fn the_strings_of_the_rfc_come_back() {
        // RFC 7541 appendix C.4 and C.6.
        for (hex, text) in [
            ("f1e3c2e5f23a6ba0ab90f4ff", "www.example.com"),
            ("a8eb10649cbf", "no-cache"),
            ("25a849e95ba97d7f", "custom-key"),
            ("6402", "302"),
            ("aec3771a4b", "private"),
            (
                "d07abe941054d444a8200595040b8166e082a62d1bff",
                "Mon, 21 Oct 2013 20:13:21 GMT",
            ),
            (
                "9d29ad171863c78f0b97c8e9ae82ae43d3",
                "https://www.example.com",
            ),
        ] {
            assert_eq!(decoded(hex).as_deref(), Some(text), "{hex}");
        }
        assert_eq!(decoded("").as_deref(), Some(""));
    }

    #[test]
    fn a_wrong_filling_or_an_end_inside_is_none() {
        // Zeros instead of ones; a whole byte of padding; thirty ones are the end symbol itself.
        for hex in ["00", "f1e3c2e5f23a6ba0ab90f4ffff", "ffffffff", "ff"] {
            assert_eq!(decoded(hex), None, "{hex}");
        }
    }
}
