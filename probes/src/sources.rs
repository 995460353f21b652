//! Where connections come from: the local address that the kernel picks the port for.
//!
//! A target, a port of it and one address of this host make some 28 000 connections possible at
//! once, those closed within the last minute included. Over loopback every address of 127.0.0.0/8
//! is this host's, so when one has no free port left the next one takes over.

use std::net::{Ipv4Addr, SocketAddr};

use crate::plan::{Endpoint, Target};

/// Addresses besides the one that the kernel would pick.
const MORE_ADDRESSES: u8 = 250;

/// Tries for one connection: another address may be as full as the first.
pub const TRIES: usize = 3;

/// The local addresses of connections to the targets of a plan.
#[derive(Debug, Clone, Copy)]
pub struct Sources {
    spreads: bool,
    /// 0 leaves the choice to the kernel.
    current: u8,
    highest: u8,
}

impl Sources {
    /// The sources for some targets.
    pub fn new<'t>(targets: impl Iterator<Item = &'t Target>) -> Self {
        Self {
            spreads: addresses(targets) > 1,
            current: 0,
            highest: 0,
        }
    }

    /// The address to bind to; none leaves the choice to the kernel.
    pub fn current(&self) -> Option<Ipv4Addr> {
        (self.current > 0).then(|| Ipv4Addr::new(127, 1, 0, self.current))
    }

    /// The current address has no free port: go on to the next. False where there is none.
    pub fn advance(&mut self) -> bool {
        if self.spreads {
            self.current = (self.current + 1) % (MORE_ADDRESSES + 1);
            self.highest = self.highest.max(self.current);
        }
        self.spreads
    }

    /// How many addresses were used.
    pub fn used(&self) -> u64 {
        u64::from(self.highest) + 1
    }
}

/// How many addresses connections to some targets can come from: what all of them allow.
pub fn addresses<'t>(mut targets: impl Iterator<Item = &'t Target>) -> u64 {
    let spreads = targets.all(|target| match target.endpoint {
        Endpoint::Internet(SocketAddr::V4(address)) => address.ip().is_loopback(),
        Endpoint::Internet(SocketAddr::V6(_)) => false,
        Endpoint::Unix(_) => true,
    });
    if spreads {
        u64::from(MORE_ADDRESSES) + 1
    } else {
        1
    }
}

#[cfg(test)]
mod tests {
    use super::{Endpoint, Sources, Target};
    use std::net::{Ipv4Addr, SocketAddr};

    fn targets(addresses: &[&str]) -> Vec<Target> {
        let target = |address: &&str| Target {
            endpoint: Endpoint::Internet(SocketAddr::new(address.parse().unwrap(), 80)),
            host: "localhost".into(),
            tls: None,
            proxy_protocol: None,
        };
        addresses.iter().map(target).collect()
    }

    #[test]
    fn loopback_goes_on_to_the_next_address_and_round() {
        let mut sources = Sources::new(targets(&["127.0.0.1", "127.0.0.2"]).iter());
        assert_eq!(sources.current(), None);
        assert!(sources.advance());
        assert_eq!(sources.current(), Some(Ipv4Addr::new(127, 1, 0, 1)));
        for _ in 0..250 {
            assert!(sources.advance());
        }
        assert_eq!((sources.current(), sources.used()), (None, 251));
    }

    #[test]
    fn other_targets_have_the_one_address() {
        for target in ["192.0.2.1", "::1", "::ffff:127.0.0.1"] {
            let mut sources = Sources::new(targets(&["127.0.0.1", target]).iter());
            assert!(!sources.advance(), "{target}");
            assert_eq!((sources.current(), sources.used()), (None, 1));
        }
    }
}
