//! Cipher suites by their names in IANA's registry and in OpenSSL.

use rustls::crypto::ring::cipher_suite as suite;
use rustls::{CipherSuite, SupportedCipherSuite};

/// The suites, the preferred ones first: IANA's name and OpenSSL's (the same for TLS 1.3).
const SUITES: [(&str, &str, SupportedCipherSuite); 9] = [
    (
        "TLS_AES_256_GCM_SHA384",
        "TLS_AES_256_GCM_SHA384",
        suite::TLS13_AES_256_GCM_SHA384,
    ),
    (
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_128_GCM_SHA256",
        suite::TLS13_AES_128_GCM_SHA256,
    ),
    (
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_CHACHA20_POLY1305_SHA256",
        suite::TLS13_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        "ECDHE-RSA-AES256-GCM-SHA384",
        suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "ECDHE-RSA-AES128-GCM-SHA256",
        suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        "ECDHE-RSA-CHACHA20-POLY1305",
        suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
];

/// The suite with a name.
pub fn find(name: &str) -> Option<SupportedCipherSuite> {
    let known = SUITES.iter().find(|(iana, openssl, _)| {
        name.eq_ignore_ascii_case(iana) || name.eq_ignore_ascii_case(openssl)
    });
    known.map(|(_, _, suite)| *suite)
}

/// OpenSSL's name of a negotiated suite, as in nginx's `$ssl_cipher`.
pub fn name(agreed: CipherSuite) -> &'static str {
    let known = SUITES.iter().find(|(_, _, suite)| suite.suite() == agreed);
    known.map_or("", |(_, openssl, _)| openssl)
}

/// All names, for an error message.
pub fn names() -> String {
    SUITES.map(|(_, openssl, _)| openssl).join(", ")
}

#[cfg(test)]
mod tests {
    use super::{SUITES, find, name};
    use rustls::crypto::ring::ALL_CIPHER_SUITES;

    #[test]
    fn every_suite_of_the_library_has_its_names() {
        assert_eq!(SUITES.len(), ALL_CIPHER_SUITES.len());
        for (iana, openssl, suite) in SUITES {
            let own = format!("{:?}", suite.suite()).replace("TLS13_", "TLS_");
            assert_eq!(own, iana);
            assert_eq!(find(openssl), Some(suite));
            assert_eq!(name(suite.suite()), openssl);
            assert_eq!(find(&iana.to_ascii_lowercase()), Some(suite));
        }
        assert_eq!(find("AES128-SHA"), None);
    }
}
