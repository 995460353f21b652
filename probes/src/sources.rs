//! The local addresses of connections; the kernel chooses the port.
//!
//! One local address and one port of a target allow some 28,000 connections at once, including
//! those closed in the last minute. Over loopback, every address of 127.0.0.0/8 belongs to this
//! host. So when one address has no free port left, the next one is used.

use std::net::{Ipv4Addr, SocketAddr};

use crate::plan::{Endpoint, Target};

/// The most addresses in addition to the kernel's choice.
const MORE_ADDRESSES: u8 = 250;

/// The most attempts for a connection: another address may be as full as the first.
pub const TRIES: usize = 3;

/// The local addresses of connections to the targets of a plan.
#[derive(Debug, Clone, Copy)]
pub struct Sources {
    spreads: bool,
    /// The current address; 0 leaves the choice to the kernel.
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

    /// The address to bind to; `None` leaves the choice to the kernel.
    pub fn current(&self) -> Option<Ipv4Addr> {
        (self.current > 0).then(|| Ipv4Addr::new(127, 1, 0, self.current))
    }

    /// Changes to the next address, since the current one has no free port. Returns false if there
    /// is none.
    pub fn advance(&mut self) -> bool {
        if self.spreads {
            self.current = (self.current + 1) % (MORE_ADDRESSES + 1);
            self.highest = self.highest.max(self.current);
        }
        self.spreads
    }

    /// The number of addresses that were used.
    pub fn used(&self) -> u64 {
        u64::from(self.highest) + 1
    }
}

/// The number of addresses from which connections to all of the targets are possible.
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
