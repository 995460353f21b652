//! What servers of the tests show.

#![allow(dead_code, unreachable_pub)]

/// Of `localhost`, its own authority: for tests alone.
pub const CERTIFICATE: &str = concat!(
    "MIIBfjCCASWgAwIBAgIUUro67oAgdBT9j/ORDZS1BkaAKtowCgYIKoZIzj0EAwIwFDESMBAGA1UEAwwJbG9jYWxob3N0MCAX",
    "DTI2MTEyNDEyNDcyOFoYDzIxMjYxMDMxMTI0NzI4WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO",
    "PQMBBwNCAAQ+C922xnWIUHCmrSSaqOZURHlEy5BbMzB1A2ilEzcBc5lWN49Osh3C2k/vl6Q7ul+AohTDAMDbA+GNpIaSWvJd",
    "o1MwUTAdBgNVHQ4EFgQU+CpgT3lX6EuHMlX72SXLNDxHTJUwHwYDVR0jBBgwFoAU+CpgT3lX6EuHMlX72SXLNDxHTJUwDwYD",
    "VR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNHADBEAiBBF0jU7DgyBAodupirL5EwUkzHswuStxLGdkdS+UGMxwIgXahJfQ83",
    "Pm8HGpahHypfxhv2KmhiB9Zo2GCOEJwHmWs=",
);
/// Its key.
pub const KEY: &str = concat!(
    "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgAF4u1jS5IveLAlSr5N7B/7De6i0/ZRfC72WHvoeIaJ2hRANC",
    "AAQ+C922xnWIUHCmrSSaqOZURHlEy5BbMzB1A2ilEzcBc5lWN49Osh3C2k/vl6Q7ul+AohTDAMDbA+GNpIaSWvJd",
);
