//! Decompression of header fields (QPACK, RFC 9204) for a client without a dynamic table: all
//! fields are in the static table or literal.

use super::fault::Fault;
use crate::multiplexed::{Head, integer, string};

/// Decodes a complete block into `head`.
///
/// # Errors
/// `Fault::Compression` for an invalid block, or one with an entry of a dynamic table;
/// `Fault::ExcessiveLoad` above the bounds.
pub(super) fn decode(block: &[u8], head: &mut Head) -> Result<(), Fault> {
    head.clear();
    let mut rest = block;
    // Without dynamic entries, none can be required (RFC 9204 §4.5.1.1), and the base does not
    // matter.
    if integer(&mut rest, 8)? != 0 {
        return Err(Fault::Compression);
    }
    integer(&mut rest, 7)?;
    while let Some(&first) = rest.first() {
        let name = match first {
            0xc0.. => {
                let (name, value) = entry(integer(&mut rest, 6)?)?;
                head.text.extend_from_slice(name);
                let end = head.text.len();
                head.text.extend_from_slice(value);
                end
            }
            0x50..=0x5f | 0x70..=0x7f => {
                let (name, _) = entry(integer(&mut rest, 4)?)?;
                head.text.extend_from_slice(name);
                let end = head.text.len();
                string(&mut rest, 7, &mut head.text)?;
                end
            }
            0x20..=0x3f => {
                string(&mut rest, 3, &mut head.text)?;
                let end = head.text.len();
                string(&mut rest, 7, &mut head.text)?;
                end
            }
            // Entries of the dynamic table, by either kind of index.
            _ => return Err(Fault::Compression),
        };
        head.end_field(name)?;
    }
    Ok(())
}

fn entry(index: usize) -> Result<(&'static [u8], &'static [u8]), Fault> {
    STATIC.get(index).copied().ok_or(Fault::Compression)
}

/// The static table (RFC 9204 appendix A); the first entry has index 0.
const STATIC: [(&[u8], &[u8]); 99] = [
    (b":authority", b""),
    (b":path", b"/"),
    (b"age", b"0"),
    (b"content-disposition", b""),
    (b"content-length", b"0"),
    (b"cookie", b""),
    (b"date", b""),
    (b"etag", b""),
    (b"if-modified-since", b""),
    (b"if-none-match", b""),
    (b"last-modified", b""),
    (b"link", b""),
    (b"location", b""),
    (b"referer", b""),
    (b"set-cookie", b""),
    (b":method", b"CONNECT"),
    (b":method", b"DELETE"),
    (b":method", b"GET"),
    (b":method", b"HEAD"),
    (b":method", b"OPTIONS"),
    (b":method", b"POST"),
    (b":method", b"PUT"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    (b":status", b"103"),
    (b":status", b"200"),
    (b":status", b"304"),
    (b":status", b"404"),
    (b":status", b"503"),
    (b"accept", b"*/*"),
    (b"accept", b"application/dns-message"),
    (b"accept-encoding", b"gzip, deflate, br"),
    (b"accept-ranges", b"bytes"),
    (b"access-control-allow-headers", b"cache-control"),
    (b"access-control-allow-headers", b"content-type"),
    (b"access-control-allow-origin", b"*"),
    (b"cache-control", b"max-age=0"),
    (b"cache-control", b"max-age=2592000"),
    (b"cache-control", b"max-age=604800"),
    (b"cache-control", b"no-cache"),
    (b"cache-control", b"no-store"),
    (b"cache-control", b"public, max-age=31536000"),
    (b"content-encoding", b"br"),
    (b"content-encoding", b"gzip"),
    (b"content-type", b"application/dns-message"),
    (b"content-type", b"application/javascript"),
    (b"content-type", b"application/json"),
    (b"content-type", b"application/x-www-form-urlencoded"),
    (b"content-type", b"image/gif"),
    (b"content-type", b"image/jpeg"),
    (b"content-type", b"image/png"),
    (b"content-type", b"text/css"),
    (b"content-type", b"text/html; charset=utf-8"),
    (b"content-type", b"text/plain"),
    (b"content-type", b"text/plain;charset=utf-8"),
    (b"range", b"bytes=0-"),
    (b"strict-transport-security", b"max-age=31536000"),
    (
        b"strict-transport-security",
        b"max-age=31536000; includesubdomains",
    ),
    (
        b"strict-transport-security",
        b"max-age=31536000; includesubdomains; preload",
    ),
    (b"vary", b"accept-encoding"),
    (b"vary", b"origin"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-xss-protection", b"1; mode=block"),
    (b":status", b"100"),
    (b":status", b"204"),
    (b":status", b"206"),
    (b":status", b"302"),
    (b":status", b"400"),
    (b":status", b"403"),
    (b":status", b"421"),
    (b":status", b"425"),
    (b":status", b"500"),
    (b"accept-language", b""),
    (b"access-control-allow-credentials", b"FALSE"),
    (b"access-control-allow-credentials", b"TRUE"),
    (b"access-control-allow-headers", b"*"),
    (b"access-control-allow-methods", b"get"),
    (b"access-control-allow-methods", b"get, post, options"),
    (b"access-control-allow-methods", b"options"),
    (b"access-control-expose-headers", b"content-length"),
    (b"access-control-request-headers", b"content-type"),
    (b"access-control-request-method", b"get"),
    (b"access-control-request-method", b"post"),
    (b"alt-svc", b"clear"),
    (b"authorization", b""),
    (
        b"content-security-policy",
        b"script-src 'none'; object-src 'none'; base-uri 'none'",
    ),
    (b"early-data", b"1"),
    (b"expect-ct", b""),
    (b"forwarded", b""),
    (b"if-range", b""),
    (b"origin", b""),
    (b"purpose", b"prefetch"),
    (b"server", b""),
    (b"timing-allow-origin", b"*"),
    (b"upgrade-insecure-requests", b"1"),
    (b"user-agent", b""),
    (b"x-forwarded-for", b""),
    (b"x-frame-options", b"deny"),
    (b"x-frame-options", b"sameorigin"),
];

#[cfg(test)]
mod tests {
    use super::decode;
    use crate::http3::fault::Fault;
    use crate::multiplexed::{Block, Coding, Head};
    use crate::mutations::Mutations;
    use crate::plan::Plan;
    use crate::request::Object;

    fn decoded(block: &[u8]) -> Result<Vec<String>, Fault> {
        let mut head = Head::default();
        decode(block, &mut head)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let fields = head.fields();
        Ok(fields
            .map(|(name, value)| format!("{}: {}", text(name), text(value)))
            .collect())
    }

    #[test]
    fn the_literal_of_the_rfc_comes_back() {
        // RFC 9204 appendix B.1.
        let block = b"\x00\x00\x51\x0b/index.html";
        assert_eq!(decoded(block), Ok(vec![":path: /index.html".into()]));
    }

    #[test]
    fn what_the_rfc_has_of_a_table_is_refused() {
        // RFC 9204 appendices B.2, B.3 and B.4: entries of a dynamic table, which this client does
        // not have.
        for block in [
            &b"\x03\x81\x10\x11"[..],
            b"\x05\x00\x80\xc1\x81",
            b"\x00\x00\x80",     // an entry by its relative index
            b"\x00\x00\x10",     // by its post-base index
            b"\x00\x00\x40\x00", // its name
            b"\x00\x00\x00\x00", // its name, by its post-base index
        ] {
            assert_eq!(decoded(block), Err(Fault::Compression), "{block:02x?}");
        }
    }

    #[test]
    fn what_is_no_block_is_refused() {
        for block in [
            &b""[..],
            b"\x00",
            b"\x00\x00\xff\x24",                 // index 99
            b"\x00\x00\xff\xff\xff\xff\xff\xff", // an endless number
            b"\x00\x00\x51\x0b/index",           // a truncated string
            b"\x00\x00\x2a\xff\xff\x00",         // a whole byte of padding
            b"\x00\x00\x51",
        ] {
            assert_eq!(decoded(block), Err(Fault::Compression), "{block:02x?}");
        }
        let large = [&b"\x00\x00"[..], &[0xd9; 129]].concat();
        assert_eq!(decoded(&large), Err(Fault::ExcessiveLoad), "129 fields");
        assert_eq!(decoded(&large[..130]).map(|them| them.len()), Ok(128));
    }

    #[test]
    fn fields_in_all_forms_come_back() {
        let good = b"\x00\x00\xd9\x54\x03102\x27\x00x-probe\x82\x64\x02\x33age\x017\xff\x23";
        assert_eq!(
            decoded(good),
            Ok(vec![
                ":status: 200".into(),
                "content-length: 102".into(),
                "x-probe: 302".into(),
                "age: 7".into(),
                "x-frame-options: sameorigin".into(),
            ])
        );
    }

    #[test]
    fn the_blocks_of_requests_come_back() {
        let plan = r#"{"schema": "nginx-tune/loadplan/1", "duration_seconds": 1,
            "target": {"address": "127.0.0.1", "port": 4, "host": "a.example", "tls": {}},
            "classes": [{"name": "c", "arrivals": {"kind": "closed", "users": 1}, "connections": 1,
                "method": "HEAD", "headers": {"X-Long-Name": "v", "user-agent": "u"},
                "paths": {"kind": "fixed", "paths": ["/"]}, "http3": {}}]}"#;
        let plan = Plan::parse(plan.as_bytes()).expect("a plan");
        let block = Block::new(Coding::Qpack, &plan.classes[0], &plan.target);
        let mut bytes = Vec::new();
        let object = Object {
            path: "/p",
            bytes: None,
            range: Some(crate::plan::ByteRange {
                first: 2,
                last: 300,
            }),
        };
        block.render(&object, &mut bytes);
        assert_eq!(
            decoded(&bytes),
            Ok(vec![
                ":method: HEAD".into(),
                ":scheme: https".into(),
                ":authority: a.example".into(),
                ":path: /p".into(),
                "accept: */*".into(),
                "x-long-name: v".into(),
                "user-agent: u".into(),
                "range: bytes=2-300".into(),
            ])
        );
    }

    #[test]
    fn mutated_blocks_break_nothing() {
        let seeds: [&[u8]; 5] = [
            b"\x00\x00\xd9\x54\x03102\x27\x00x-probe\x82\x64\x02\x33age\x017\xff\x23",
            b"\x00\x00\x51\x0b/index.html",
            b"\x03\x81\x10\x11",
            b"\x05\x00\x80\xc1\x81",
            b"\x00\x00\xd9\x5f\x2d\x88\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f\xff\x23\x2f\x01name-of-8",
        ];
        let mut head = Head::default();
        let (mut good, mut refused) = (0, 0);
        let mut some = Mutations::of("qpack", 50_000);
        while some.again() {
            let block = some.mutated(&seeds);
            match decode(&block, &mut head) {
                Ok(()) => good += 1,
                Err(_) => refused += 1,
            }
            assert!(head.text.capacity() <= 256 * 1024, "{block:02x?}");
        }
        assert!(good > 100 && refused > 100 || some.is_alone());
    }
}
