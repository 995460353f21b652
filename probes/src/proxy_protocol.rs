//! Headers of the PROXY protocol: the client's address, sent before any other bytes.
//!
//! Source: `proxy-protocol.txt` of `HAProxy`, sections 2.1 (version 1) and 2.2 (version 2).

use std::net::{IpAddr, SocketAddr};

/// The beginning of every header of version 2.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// Commands of version 2.
const LOCAL: u8 = 0x20;
const PROXY: u8 = 0x21;

/// Transports of version 2: TCP over IPv4 and IPv6.
const TCP4: u8 = 0x11;
const TCP6: u8 = 0x21;

/// The version of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

/// The header of a connection between two addresses of the same family.
pub fn header(version: Version, source: SocketAddr, target: SocketAddr) -> Vec<u8> {
    if version == Version::V1 {
        let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
        let line = format!(
            "PROXY {family} {} {} {} {}\r\n",
            source.ip(),
            target.ip(),
            source.port(),
            target.port()
        );
        return line.into_bytes();
    }
    let mut addresses = Vec::new();
    for ip in [source.ip(), target.ip()] {
        match ip {
            IpAddr::V4(ip) => addresses.extend_from_slice(&ip.octets()),
            IpAddr::V6(ip) => addresses.extend_from_slice(&ip.octets()),
        }
    }
    for port in [source.port(), target.port()] {
        addresses.extend_from_slice(&port.to_be_bytes());
    }
    let family = if source.is_ipv4() { TCP4 } else { TCP6 };
    second(PROXY, family, &addresses)
}

/// The header of a connection without known addresses.
pub fn unknown(version: Version) -> Vec<u8> {
    match version {
        Version::V1 => b"PROXY UNKNOWN\r\n".to_vec(),
        Version::V2 => second(LOCAL, 0, &[]),
    }
}

fn second(command: u8, family: u8, addresses: &[u8]) -> Vec<u8> {
    let mut header = SIGNATURE.to_vec();
    header.extend_from_slice(&[command, family]);
    // At most 36 bytes.
    header.extend_from_slice(&(addresses.len() as u16).to_be_bytes());
    header.extend_from_slice(addresses);
    header
}

#[cfg(test)]
mod tests {
    use super::{Version, header, unknown};

    #[test]
    fn the_first_version_is_a_line() {
        let line = |source: &str, target: &str| {
            header(
                Version::V1,
                source.parse().unwrap(),
                target.parse().unwrap(),
            )
        };
        assert_eq!(
            line("192.0.2.1:56324", "192.0.2.2:443"),
            b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n"
        );
        assert_eq!(
            line("[2001:db8::1]:1", "[::1]:65535"),
            b"PROXY TCP6 2001:db8::1 ::1 1 65535\r\n"
        );
        assert_eq!(unknown(Version::V1), b"PROXY UNKNOWN\r\n");
    }

    #[test]
    fn the_second_version_is_binary() {
        let four = header(
            Version::V2,
            "192.0.2.1:258".parse().unwrap(),
            "192.0.2.2:443".parse().unwrap(),
        );
        assert_eq!(
            four,
            b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x01\xc0\x00\x02\x02\x01\x02\x01\xbb"
        );
        let six = header(
            Version::V2,
            "[2001:db8::1]:1".parse().unwrap(),
            "[::1]:2".parse().unwrap(),
        );
        assert_eq!(six[12..16], [0x21, 0x21, 0, 36]);
        assert_eq!((six.len(), &six[48..]), (52, &[0, 1, 0, 2][..]));
        assert_eq!(unknown(Version::V2)[12..], [0x20, 0, 0, 0]);
    }
}
