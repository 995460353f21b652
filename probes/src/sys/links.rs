//! Where packets of this network namespace end, as the kernel says it by rtnetlink(7).

use std::io;
use std::mem;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::ptr;

use libc::{c_int, c_void};

use super::{checked, checked_size, owned};

/// Of messages and attributes (`linux/rtnetlink.h`, `linux/if_link.h`, `linux/net_namespace.h`).
const HEAD_BYTES: usize = 16;
const RTMSG_BYTES: usize = 12;
const IFINFOMSG_BYTES: usize = 16;
const RTGENMSG_BYTES: usize = 4;
const RTM_GETNSID: u16 = 90;
const RTM_NEWNSID: u16 = 88;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_LINK_NETNSID: u16 = 37;
const NETNSA_NSID: u16 = 1;
const NETNSA_PID: u16 = 2;

/// An answer is one message, the longest that of a link with all that it counts.
const ANSWER_BYTES: usize = 64 * 1024;

/// Whether what is sent to an address goes, with no router between, over a veth pair whose other end lies
/// in the network namespace of a process.
///
/// # Errors
/// Where the kernel does not say.
pub fn leads_to(address: Ipv4Addr, pid: u32) -> io::Result<bool> {
    let socket = open()?;
    let mut route = vec![0; RTMSG_BYTES];
    route[0] = libc::AF_INET as u8;
    route[1] = 32;
    attribute(libc::RTA_DST, &address.octets(), &mut route);
    let answer = ask(&socket, libc::RTM_GETROUTE, libc::RTM_NEWROUTE, &route)?;
    let found = answer.get(RTMSG_BYTES..).unwrap_or_default();
    let (Some(device), None) = (number(found, libc::RTA_OIF), part(found, libc::RTA_GATEWAY))
    else {
        return Ok(false);
    };
    let mut link = vec![0; IFINFOMSG_BYTES];
    link[4..8].copy_from_slice(&device.to_ne_bytes());
    let answer = ask(&socket, libc::RTM_GETLINK, libc::RTM_NEWLINK, &link)?;
    let found = answer.get(IFINFOMSG_BYTES..).unwrap_or_default();
    let kind = part(found, libc::IFLA_LINKINFO).and_then(|it| part(it, IFLA_INFO_KIND));
    // Its number is among those that this namespace has for others; none is this one itself.
    let Some(there) = number(found, IFLA_LINK_NETNSID).filter(|_| kind == Some(b"veth\0")) else {
        return Ok(false);
    };
    let mut namespace = vec![0; RTGENMSG_BYTES];
    attribute(NETNSA_PID, &pid.to_ne_bytes(), &mut namespace);
    let answer = ask(&socket, RTM_GETNSID, RTM_NEWNSID, &namespace)?;
    let found = answer.get(RTGENMSG_BYTES..).unwrap_or_default();
    let theirs = number(found, NETNSA_NSID).filter(|&it| it >= 0);
    Ok(theirs == Some(there))
}

fn open() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    let socket = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) };
    Ok(owned(checked(socket)?))
}

/// Asks one thing; what follows the head of the answer.
fn ask(socket: &OwnedFd, asked: u16, answered: u16, body: &[u8]) -> io::Result<Vec<u8>> {
    let mut message = Vec::with_capacity(HEAD_BYTES + body.len());
    message.extend_from_slice(&((HEAD_BYTES + body.len()) as u32).to_ne_bytes());
    message.extend_from_slice(&asked.to_ne_bytes());
    message.extend_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    message.extend_from_slice(&[0; 8]);
    message.extend_from_slice(body);
    // SAFETY: the message outlives the call, which only reads so many bytes of it.
    let sent = unsafe {
        libc::send(
            socket.as_raw_fd(),
            message.as_ptr().cast::<c_void>(),
            message.len(),
            0,
        )
    };
    checked_size(sent)?;
    let mut answer = vec![0; ANSWER_BYTES];
    // SAFETY: zeroed is a valid sockaddr_nl.
    let mut from: libc::sockaddr_nl = unsafe { mem::zeroed() };
    let mut length = mem::size_of::<libc::sockaddr_nl>() as libc::socklen_t;
    // SAFETY: buffer and address outlive the call, and their lengths are told.
    let count = unsafe {
        libc::recvfrom(
            socket.as_raw_fd(),
            answer.as_mut_ptr().cast::<c_void>(),
            answer.len(),
            0,
            ptr::from_mut(&mut from).cast(),
            &raw mut length,
        )
    };
    answer.truncate(checked_size(count)?);
    let unasked = || io::Error::from(io::ErrorKind::InvalidData);
    let head = answer.get(..HEAD_BYTES).ok_or_else(unasked)?;
    let found = u16::from_ne_bytes([head[4], head[5]]);
    // From the kernel, and no error.
    if from.nl_pid != 0 || found != answered {
        return Err(unasked());
    }
    Ok(answer.split_off(HEAD_BYTES))
}

/// Adds an attribute of at most a few bytes.
fn attribute(kind: u16, value: &[u8], message: &mut Vec<u8>) {
    message.extend_from_slice(&((4 + value.len()) as u16).to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(value);
}

/// The value of an attribute among some.
fn part(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    while let [a, b, c, d, ..] = *attributes {
        let length = usize::from(u16::from_ne_bytes([a, b]));
        // Its highest bits say how it is to be read.
        let kind = u16::from_ne_bytes([c, d]) & 0x3fff;
        let value = attributes.get(4..length)?;
        if kind == wanted {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
    None
}

fn number(attributes: &[u8], wanted: u16) -> Option<c_int> {
    let value = part(attributes, wanted)?;
    Some(c_int::from_ne_bytes(value.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::{attribute, leads_to, number, part};

    #[test]
    fn attributes_are_found_among_others_and_short_ones_are_none() {
        let mut all = Vec::new();
        attribute(7, b"abcdefgh", &mut all);
        attribute(0x8000 | 4, &5_i32.to_ne_bytes(), &mut all);
        assert_eq!((number(&all, 4), number(&all, 7)), (Some(5), None));
        for length in 0..all.len() {
            assert_eq!(number(&all[..length], 4), None, "{length}");
        }
        assert_eq!(part(&[0; 64], 4), None);
        assert_eq!(part(&[0xff; 64], 0x3fff), None);
    }

    #[test]
    fn what_stays_on_this_host_leads_to_nobody_elsewhere() {
        let own = std::process::id();
        assert!(!leads_to("127.0.0.1".parse().unwrap(), own).unwrap_or(false));
    }
}
