//! Which servers on this host nginx-tune itself started.
//!
//! The same question as `nginx_tune/load/own_servers.py` asks, and by the same mark: every process of a
//! lab has it in its environment. nginx overwrites that memory with its title (`ngx_setproctitle.c`), so
//! it is looked for in the ancestors of whoever listens too. Nothing that stands in a plan has a part
//! in the answer but the address that is asked.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use crate::sys;

/// Set for every process that a lab starts (`nginx_tune/lab/lifetime.py`).
const MARK: &[u8] = b"NGINX_TUNE_LAB=";

/// `TCP_LISTEN` and, of UDP, a socket without a peer (`TCP_CLOSE`): `include/net/tcp_states.h`.
const LISTENS: &str = "0A";
const UNCONNECTED: &str = "07";

/// Of a unix socket that accepts (`include/uapi/linux/net.h`).
const ACCEPTS: u32 = 1 << 16;

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
pub fn is_own_server_over_a_link(address: IpAddr, port: u16, carrying: Carrying) -> bool {
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
                && are_own(&takers(&pid.to_string(), address.into(), port, carrying));
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

/// Whether all who listen on an address and port were started by nginx-tune; false for nobody.
pub fn is_own_server(address: IpAddr, port: u16, carrying: Carrying) -> bool {
    are_own(&takers("self", address, port, carrying))
}

/// The sockets of a process's network namespace that may take what is sent to an address and port.
fn takers(process: &str, address: IpAddr, port: u16, carrying: Carrying) -> HashSet<u64> {
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

/// Whether all who listen at a unix socket's path were started by nginx-tune; false for nobody.
pub fn is_own_socket(path: &str) -> bool {
    let text = fs::read_to_string("/proc/self/net/unix").unwrap_or_default();
    are_own(&unix_listeners(&text, path).collect())
}

/// The inodes of the sockets that may take what is sent to an address and port.
fn listeners(text: &str, state: &str, address: IpAddr, port: u16) -> impl Iterator<Item = u64> {
    let asked = address.to_canonical();
    text.lines().filter_map(move |line| {
        let columns: Vec<_> = line.split_whitespace().collect();
        let [_, local, _, found, _, _, _, _, _, inode, ..] = columns[..] else {
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
        if covers { inode.parse().ok() } else { None }
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

/// The inodes of the unix sockets that listen at a path (`net/unix/af_unix.c`, `unix_seq_show`).
fn unix_listeners(text: &str, path: &str) -> impl Iterator<Item = u64> {
    text.lines().filter_map(move |line| {
        let mut columns = line.split_whitespace();
        let flags = u32::from_str_radix(columns.nth(3)?, 16).ok()?;
        let inode = columns.nth(2)?;
        // A path may hold spaces: it is all that follows the number and one space.
        let (_, own) = line.split_once(&format!(" {inode} "))?;
        (flags & ACCEPTS != 0 && own == path).then(|| inode.parse().ok())?
    })
}

/// Whether each of the sockets is held by somebody, and by none but our own.
fn are_own(sockets: &HashSet<u64>) -> bool {
    if sockets.is_empty() {
        return false;
    }
    let mut holders: HashMap<u64, Vec<u32>> = HashMap::new();
    for pid in pids() {
        for socket in sockets_of(pid).filter(|socket| sockets.contains(socket)) {
            holders.entry(socket).or_default().push(pid);
        }
    }
    sockets.iter().all(|socket| {
        let holders = holders.get(socket);
        holders.is_some_and(|pids| pids.iter().all(|&pid| is_marked(pid)))
    })
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

/// Whether a process or one of its ancestors has the mark.
fn is_marked(pid: u32) -> bool {
    let (mut next, mut seen) = (Some(pid), HashSet::new());
    while let Some(pid) = next.filter(|&pid| pid > 0 && seen.insert(pid)) {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        if environment
            .split(|&byte| byte == 0)
            .any(|it| it.starts_with(MARK))
        {
            return true;
        }
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        next = parent(&stat);
    }
    false
}

/// `proc_pid_stat(5)`: the name may hold anything, so what counts stands behind its last bracket.
fn parent(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{
        Carrying, has_local, is_own_server, is_own_server_over_a_link, is_own_socket, listeners,
        parent, unix_listeners,
    };
    use std::net::{TcpListener, UdpSocket};
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
            found.collect::<Vec<_>>()
        };
        assert_eq!(found("127.0.0.1", 8080), [11, 12, 15, 16]);
        assert_eq!(found("::ffff:127.0.0.1", 8080), [11, 12, 15, 16]);
        assert_eq!(found("::1", 8080), [15, 17]);
        assert!(found("127.0.0.1", 8081).is_empty());
    }

    #[test]
    fn only_sockets_that_accept_at_the_very_path_count() {
        let table = "Num RefCount Protocol Flags Type St Inode Path\n\
             0000: 00000002 00000000 00010000 0001 01 31 /run/a b.sock\n\
             0000: 00000002 00000000 00000000 0001 03 32 /run/a b.sock\n\
             0000: 00000002 00000000 00010000 0001 01 33 /run/a b.sock2\n\
             0000: 00000002 00000000 00010000 0001 01 34\n";
        let found = |path| unix_listeners(table, path).collect::<Vec<_>>();
        assert_eq!(found("/run/a b.sock"), [31]);
        assert!(found("/run/a").is_empty() && found("").is_empty());
    }

    #[test]
    fn the_parent_stands_behind_the_name() {
        assert_eq!(parent("7 (a) S 9) R 5 1 1"), Some(5));
        assert_eq!(parent("junk"), None);
    }

    #[test]
    fn a_server_of_somebody_else_is_not_ours() {
        // This process was started by no lab.
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = tcp.local_addr().unwrap();
        assert!(!is_own_server(at.ip(), at.port(), Carrying::Tcp));
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = udp.local_addr().unwrap();
        assert!(!is_own_server(at.ip(), at.port(), Carrying::Udp));
        let path = std::env::temp_dir().join(format!("own-{}.sock", std::process::id()));
        let unix = UnixListener::bind(&path).unwrap();
        assert!(!is_own_socket(path.to_str().unwrap()));
        drop(unix);
        assert!(std::fs::remove_file(path).is_ok());
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

    #[test]
    fn nobody_listens_over_a_link_that_is_not_there() {
        for address in ["127.0.0.1", "198.18.255.1", "::1"] {
            let address = address.parse().unwrap();
            assert!(!is_own_server_over_a_link(address, 80, Carrying::Tcp));
        }
    }
}
