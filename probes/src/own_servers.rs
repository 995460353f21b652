//! Which servers on this host nginx-tune itself started.
//!
//! The kernel says who listens and whose the socket is, and `own_processes` which processes are ours.
//! Nothing that stands in a plan has a part in the answer but the address that is asked.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::IntoRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use crate::own_processes::OwnProcesses;
use crate::sys;

/// `TCP_LISTEN` and, of UDP, a socket without a peer (`TCP_CLOSE`): `include/net/tcp_states.h`.
const LISTENS: &str = "0A";
const UNCONNECTED: &str = "07";

/// What carries the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrying {
    /// HTTP/1.1 and HTTP/2.
    Tcp,
    /// HTTP/3.
    Udp,
}

/// The same of a server in another network namespace of this host, as the clients of a lab's link see it.
///
/// What is sent there has to end there: it goes over a veth pair, with no router between, whose other
/// end lies in the namespace, and the address is that namespace's own. So says the kernel; another host
/// of the same address is no such end.
pub fn is_own_server_over_a_link(
    ours: &OwnProcesses,
    address: IpAddr,
    port: u16,
    carrying: Carrying,
) -> bool {
    let IpAddr::V4(address) = address.to_canonical() else {
        return false;
    };
    let mut looked_at = HashSet::from([namespace_of("self")]);
    for pid in pids() {
        let namespace = namespace_of(&pid.to_string());
        if namespace.is_none() || !looked_at.insert(namespace) {
            continue;
        }
        if sys::leads_to(address, pid).unwrap_or(false) {
            let local = format!("/proc/{pid}/net/fib_trie");
            let local = fs::read_to_string(local).unwrap_or_default();
            return has_local(&local, address)
                && are_own(
                    ours,
                    &takers(&pid.to_string(), address.into(), port, carrying),
                );
        }
    }
    false
}

fn namespace_of(process: &str) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{process}/ns/net")).ok()
}

/// Whether an address is one of the namespace's own (`net/ipv4/fib_trie.c`, `fib_trie_seq_show`).
fn has_local(text: &str, address: Ipv4Addr) -> bool {
    let place = format!("|-- {address}");
    let mut lines = text.lines().map(str::trim);
    let mut is_there = false;
    lines.any(|line| {
        if line.starts_with("|--") || line.starts_with("+--") {
            is_there = line == place;
        }
        is_there && line == "/32 host LOCAL"
    })
}

/// Whether all who listen on an address and port are ours; false for nobody.
pub fn is_own_server(ours: &OwnProcesses, address: IpAddr, port: u16, carrying: Carrying) -> bool {
    are_own(ours, &takers("self", address, port, carrying))
}

/// The sockets of a process's network namespace that may take what is sent to an address and port.
fn takers(process: &str, address: IpAddr, port: u16, carrying: Carrying) -> HashSet<Socket> {
    let (tables, state) = match carrying {
        Carrying::Tcp => (["tcp", "tcp6"], LISTENS),
        Carrying::Udp => (["udp", "udp6"], UNCONNECTED),
    };
    let mut sockets = HashSet::new();
    for table in tables {
        let text = fs::read_to_string(format!("/proc/{process}/net/{table}")).unwrap_or_default();
        sockets.extend(listeners(&text, state, address, port));
    }
    sockets
}

/// Whether who listens at a unix socket is ours, which the kernel says of a connection alone: one is made
/// and closed. Without a mark of our own none is.
pub fn is_own_socket(ours: &OwnProcesses, path: &str) -> bool {
    let peer = sys::connect_unix(path).and_then(|stream| sys::peer(&stream));
    peer.is_ok_and(|peer| {
        // One that is not seen from here is 0.
        let pid = u32::try_from(peer.pid).unwrap_or(0);
        peer.uid == ours.user() && pid > 0 && ours.contains(pid)
    })
}

/// Another path of the very socket that is now at one, until this process ends: whatever is put there later.
pub fn hold_socket(path: &str) -> std::io::Result<String> {
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH)
        .open(path)?;
    Ok(format!("/proc/self/fd/{}", file.into_raw_fd()))
}

/// A socket and its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Socket {
    inode: u64,
    user: u32,
}

/// The sockets that may take what is sent to an address and port.
fn listeners(text: &str, state: &str, address: IpAddr, port: u16) -> impl Iterator<Item = Socket> {
    let asked = address.to_canonical();
    text.lines().filter_map(move |line| {
        let columns: Vec<_> = line.split_whitespace().collect();
        let [_, local, _, found, _, _, _, user, _, inode, ..] = columns[..] else {
            return None;
        };
        let (own, own_port) = local.split_once(':')?;
        if found != state || u16::from_str_radix(own_port, 16).ok()? != port {
            return None;
        }
        let own = address_of(own)?;
        // An IPv6 wildcard takes IPv4 too, unless IPV6_V6ONLY is set, which is not told here.
        let covers = if own.is_unspecified() {
            own.is_ipv6() || asked.is_ipv4()
        } else {
            own.to_canonical() == asked
        };
        if !covers {
            return None;
        }
        Some(Socket {
            inode: inode.parse().ok()?,
            user: user.parse().ok()?,
        })
    })
}

/// An address as numbers of 32 bits in the machine's order (`net/ipv4/tcp_ipv4.c`, `get_tcp4_sock`).
fn address_of(digits: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let number = u32::from_str_radix(digits.get(at..at + 8)?, 16).ok()?;
        Some(number.to_ne_bytes())
    };
    match digits.len() {
        8 => Some(IpAddr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (number, part) in bytes.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(8 * number)?);
            }
            Some(Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}

/// Whether each of the sockets is our user's and held by somebody, and by none but our own.
fn are_own(ours: &OwnProcesses, sockets: &HashSet<Socket>) -> bool {
    if sockets.is_empty() || sockets.iter().any(|socket| socket.user != ours.user()) {
        return false;
    }
    let mut holders: HashMap<u64, Vec<u32>> =
        sockets.iter().map(|it| (it.inode, Vec::new())).collect();
    for pid in pids() {
        for inode in sockets_of(pid) {
            if let Some(holders) = holders.get_mut(&inode) {
                holders.push(pid);
            }
        }
    }
    let mut holders = holders.values();
    holders.all(|pids| !pids.is_empty() && pids.iter().all(|&pid| ours.contains(pid)))
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The sockets that a process holds; none where it is gone or cannot be seen.
fn sockets_of(pid: u32) -> impl Iterator<Item = u64> {
    let files = fs::read_dir(format!("/proc/{pid}/fd"));
    files.into_iter().flatten().flatten().filter_map(|file| {
        let link = fs::read_link(file.path()).ok()?;
        let number = link.to_str()?.strip_prefix("socket:[")?;
        number.strip_suffix(']')?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::{has_local, hold_socket, listeners};
    use crate::sys;
    use std::fs;
    use std::os::unix::net::UnixListener;

    #[cfg(target_endian = "little")]
    #[test]
    fn who_may_take_a_connection_is_found_in_the_tables() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1\n\
             1: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12 1\n\
             2: 0100007F:1F90 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 13 1\n\
             3: 0200007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 14 1\n\
             4: 00000000000000000000000000000000:1F90 0:0 0A 0:0 00:0 0 0 0 15 1\n\
             5: 0000000000000000FFFF00000100007F:1F90 0:0 0A 0:0 00:0 0 0 0 16 1\n\
             6: 00000000000000000000000001000000:1F90 0:0 0A 0:0 00:0 0 0 0 17 1\n";
        let found = |address: &str, port| {
            let found = listeners(table, "0A", address.parse().unwrap(), port);
            found.map(|socket| socket.inode).collect::<Vec<_>>()
        };
        assert_eq!(found("127.0.0.1", 8080), [11, 12, 15, 16]);
        assert_eq!(found("::ffff:127.0.0.1", 8080), [11, 12, 15, 16]);
        assert_eq!(found("::1", 8080), [15, 17]);
        assert!(found("127.0.0.1", 8081).is_empty());
    }

    #[test]
    fn whose_a_socket_is_stands_beside_it() {
        let table = "0: 00000000:1F90 00000000:0000 0A 0:0 00:0 0 65534 0 11 1";
        let found = listeners(table, "0A", "127.0.0.1".parse().unwrap(), 8080);
        assert_eq!(
            found.map(|it| (it.inode, it.user)).collect::<Vec<_>>(),
            [(11, 65_534)]
        );
    }

    #[test]
    fn a_held_socket_is_the_same_whatever_is_put_at_its_path() {
        let place = std::env::temp_dir().join(format!("held-{}", std::process::id()));
        fs::create_dir(&place).unwrap();
        let path = place.join("a.sock");
        let first = UnixListener::bind(&path).unwrap();
        first.set_nonblocking(true).unwrap();
        let held = hold_socket(path.to_str().unwrap()).unwrap();
        fs::rename(&path, place.join("b.sock")).unwrap();
        let second = UnixListener::bind(&path).unwrap();
        second.set_nonblocking(true).unwrap();
        let stream = sys::connect_unix(&held).unwrap();
        assert_eq!(
            sys::peer(&stream).unwrap().pid.unsigned_abs(),
            std::process::id()
        );
        assert!(first.accept().is_ok());
        assert!(second.accept().is_err());
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn only_an_own_address_ends_in_a_namespace() {
        let table = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n\
             \x20    |-- 198.18.0.1\n        /32 host LOCAL\n     |-- 198.18.0.3\n        /32 link BROADCAST\n";
        for (address, is_there) in [
            ("198.18.0.1", true),
            ("198.18.0.3", false),
            ("198.18.0.11", false),
            ("0.0.0.0", false),
        ] {
            assert_eq!(
                has_local(table, address.parse().unwrap()),
                is_there,
                "{address}"
            );
        }
    }
}
