//! Guard rails: checks before the first packet is sent.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZero;
use std::thread;

use crate::error::Error;
use crate::plan::{Endpoint, Permit, Plan};
use crate::sources;
use crate::sys;

/// Descriptors reserved for everything but connections.
const SPARE_DESCRIPTORS: u64 = 64;

/// The location of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// An address of this host.
    Here,
    /// Another host.
    Elsewhere,
}

/// Checks a plan against this host; returns the location of its targets: `Elsewhere` if any of them
/// is.
///
/// # Errors
/// `Error::Refused` if a target is not permitted, `Error::Plan` if the host does not allow so many
/// connections.
pub fn check(plan: &Plan) -> Result<Place, Error> {
    let own = sys::own_addresses().map_err(|error| Error::System("own addresses", error))?;
    let mut place = Place::Here;
    for target in plan.targets() {
        let found = match &target.endpoint {
            Endpoint::Internet(at) => decide(at.ip(), at.port(), &plan.permit, &own)?,
            Endpoint::Unix(path) => decide_socket(path, &plan.permit)?,
        };
        if found == Place::Elsewhere {
            place = Place::Elsewhere;
        }
    }
    let connections = plan.connections() as u64;
    check_descriptors(connections)?;
    if !plan.targets().all(|target| target.endpoint.is_unix()) {
        check_ports(connections, sources::addresses(plan.targets()))?;
    }
    if plan.precise && thread::available_parallelism().map_or(1, NonZero::get) <= plan.threads {
        return Err(Error::Plan(
            "precise needs a CPU of its own for each thread, and one for others; this process may \
             not use so many"
                .into(),
        ));
    }
    Ok(place)
}

/// The location of a target; an error if it is not permitted.
fn decide(address: IpAddr, port: u16, permit: &Permit, own: &[IpAddr]) -> Result<Place, Error> {
    // ::ffff:192.0.2.1 is 192.0.2.1.
    let address = address.to_canonical();
    if address.is_unspecified() || address.is_multicast() || address == Ipv4Addr::BROADCAST {
        return Err(Error::Refused(format!("{address} is not one server")));
    }
    // By the list of interface addresses, not by trying to bind: with net.ipv4.ip_nonlocal_bind
    // every address can be bound.
    if address.is_loopback() || own.contains(&address) {
        if permit.live || permit.ports.contains(&port) {
            return Ok(Place::Here);
        }
        return Err(Error::Refused(format!(
            "{address} port {port} is not a server that nginx-tune started; to load a live one \
             allow it (--allow-live)"
        )));
    }
    if permit
        .hosts
        .iter()
        .any(|host| host.to_canonical() == address)
    {
        return Ok(Place::Elsewhere);
    }
    Err(Error::Refused(format!(
        "{address} is not an address of this host; to load another host allow it \
         (--allow-target {address})"
    )))
}

/// The location of a socket of this host; an error if it is not permitted.
fn decide_socket(path: &str, permit: &Permit) -> Result<Place, Error> {
    if permit.live || permit.sockets.iter().any(|own| own == path) {
        return Ok(Place::Here);
    }
    Err(Error::Refused(format!(
        "{path} is not the socket of a server that nginx-tune started; to load a live one allow \
         it (--allow-live)"
    )))
}

fn check_descriptors(connections: u64) -> Result<(), Error> {
    let limit = sys::raise_descriptor_limit(connections + SPARE_DESCRIPTORS)
        .map_err(|error| Error::System("limit of open files", error))?;
    if connections + SPARE_DESCRIPTORS > limit {
        return Err(Error::Plan(format!(
            "{connections} connections need {} open files; the limit (ulimit -n) is {limit}",
            connections + SPARE_DESCRIPTORS
        )));
    }
    Ok(())
}

fn check_ports(connections: u64, addresses: u64) -> Result<(), Error> {
    let ports = local_ports();
    if connections > ports / 2 * addresses {
        return Err(Error::Plan(format!(
            "{connections} connections are more than half of the {ports} local ports \
             (net.ipv4.ip_local_port_range)"
        )));
    }
    Ok(())
}

/// The number of local ports that one address of this host has for one target.
pub fn local_ports() -> u64 {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    ports_of(&range)
}

/// The number of ports in a range; the kernel's default if it cannot be read.
fn ports_of(range: &str) -> u64 {
    let mut ends = range.split_whitespace().map(str::parse::<u64>);
    match (ends.next(), ends.next()) {
        (Some(Ok(low)), Some(Ok(high))) if low <= high => high - low + 1,
        _ => 60_999 - 32_768 + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::{Place, decide, decide_socket, ports_of};
    use crate::plan::Permit;
    use std::net::IpAddr;

    fn permit(ports: &[u16], live: bool, hosts: &[&str]) -> Permit {
        Permit {
            ports: ports.to_vec(),
            live,
            hosts: hosts.iter().map(|host| host.parse().unwrap()).collect(),
            sockets: vec!["/run/own".into()],
        }
    }

    fn place(address: &str, permit: &Permit) -> Option<Place> {
        let own: Vec<IpAddr> = vec!["192.0.2.7".parse().unwrap(), "2001:db8::7".parse().unwrap()];
        decide(address.parse().unwrap(), 8080, permit, &own).ok()
    }

    #[test]
    fn this_host_needs_its_port_listed_or_live() {
        for address in [
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "192.0.2.7",
            "2001:db8::7",
            "::ffff:127.0.0.1",
        ] {
            assert_eq!(place(address, &permit(&[], false, &[])), None, "{address}");
            assert_eq!(place(address, &permit(&[8081], false, &[])), None);
            assert_eq!(place(address, &permit(&[], false, &[address])), None);
            assert_eq!(
                place(address, &permit(&[8080], false, &[])),
                Some(Place::Here)
            );
            assert_eq!(place(address, &permit(&[], true, &[])), Some(Place::Here));
        }
    }

    #[test]
    fn a_socket_needs_its_path_listed_or_live() {
        let place = |path: &str, live| decide_socket(path, &permit(&[], live, &[])).ok();
        assert_eq!(place("/run/own", false), Some(Place::Here));
        assert_eq!(place("/run/own2", false), None);
        assert_eq!(place("/run/other", true), Some(Place::Here));
    }

    #[test]
    fn another_host_needs_its_address_listed() {
        for address in [
            "192.0.2.8",
            "169.254.169.254",
            "8.8.8.8",
            "fe80::1",
            "::ffff:8.8.8.8",
        ] {
            assert_eq!(
                place(address, &permit(&[8080], true, &[])),
                None,
                "{address}"
            );
            assert_eq!(place(address, &permit(&[8080], true, &["192.0.2.9"])), None);
            let listed = permit(&[], false, &[address]);
            assert_eq!(place(address, &listed), Some(Place::Elsewhere));
        }
    }

    #[test]
    fn what_is_not_one_server_is_never_let_through() {
        for address in ["0.0.0.0", "::", "255.255.255.255", "224.0.0.1", "ff02::1"] {
            assert_eq!(
                place(address, &permit(&[8080], true, &[address])),
                None,
                "{address}"
            );
        }
    }

    #[test]
    fn the_port_range_is_counted() {
        assert_eq!(ports_of("32768\t60999\n"), 28_232);
        assert_eq!(ports_of("junk"), 28_232);
    }
}
