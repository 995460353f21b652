//! The target of a load: the server's address, and the protocols below HTTP.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};

use serde_json::Value;

use crate::ciphers;
use crate::error::Error;
use crate::fields::{Fields, Read};
use crate::proxy_protocol;
use crate::sys::{self, Dial};

/// The longest path of a socket in bytes: `sun_path` of unix(7), without its final zero.
const LONGEST_SOCKET_PATH_BYTES: usize = 107;

/// A server that gets requests.
#[derive(Debug, Clone)]
pub struct Target {
    /// The server's address.
    pub endpoint: Endpoint,
    /// The `Host` header.
    pub host: String,
    /// The TLS parameters; `None` for cleartext.
    pub tls: Option<Tls>,
    /// The PROXY protocol header of each connection; `None` for none.
    pub proxy_protocol: Option<ProxyProtocol>,
}

/// The address of a server. The caller resolves names, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// An IP address and a TCP port.
    Internet(SocketAddr),
    /// The path of a socket of this host.
    Unix(String),
}

impl Endpoint {
    /// Starts a non-blocking connect.
    ///
    /// # Errors
    /// Those of the system calls; `EAGAIN` if the queue of a unix socket is full.
    pub fn connect(&self, dial: Dial) -> io::Result<TcpStream> {
        match self {
            Self::Internet(address) => sys::connect(address, dial),
            Self::Unix(path) => sys::connect_unix(path),
        }
    }

    /// Opens a UDP socket that is connected to the address.
    ///
    /// # Errors
    /// Those of the system calls, and an error for a unix socket.
    pub fn connect_udp(&self, dial: Dial) -> io::Result<(TcpStream, SocketAddr)> {
        match self {
            Self::Internet(address) => Ok((sys::connect_udp(address, dial)?, *address)),
            Self::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Whether it is a unix socket.
    pub fn is_unix(&self) -> bool {
        matches!(self, Self::Unix(_))
    }
}

/// The TLS parameters of a target.
#[derive(Debug, Clone)]
pub struct Tls {
    /// True to verify the certificate.
    pub verify: bool,
    /// The PEM file of trusted authorities; `None` for the system's.
    pub ca_file: Option<String>,
    /// The name in the handshake and the certificate; `None` for that of the `Host` header.
    pub server_name: Option<String>,
    /// True if new connections resume earlier sessions.
    pub resumption: bool,
    /// The oldest offered version.
    pub oldest: TlsVersion,
    /// The newest offered version.
    pub newest: TlsVersion,
    /// The names of the offered cipher suites, the preferred first; empty for all.
    pub ciphers: Vec<String>,
    /// The PEM file with the client's certificate and its chain.
    pub certificate_file: Option<String>,
    /// The PEM file with its private key.
    pub key_file: Option<String>,
}

/// A version of TLS. `rustls` has no older ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246).
    V1_2,
    /// TLS 1.3 (RFC 8446).
    V1_3,
}

impl TlsVersion {
    /// The name in plans and measurements.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V1_2 => "1.2",
            Self::V1_3 => "1.3",
        }
    }
}

/// The PROXY protocol header of a connection, as from a proxy in front of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyProtocol {
    /// The version of the header.
    pub version: proxy_protocol::Version,
    /// The client's address; `None` for that of the connection.
    pub source: Option<IpAddr>,
}

impl ProxyProtocol {
    /// The header for a connection from `own` to `endpoint`; `own` is `None` for a unix socket.
    pub fn header(self, own: Option<SocketAddr>, endpoint: &Endpoint) -> Vec<u8> {
        let target = match endpoint {
            Endpoint::Internet(address) => Some(*address),
            Endpoint::Unix(_) => None,
        };
        let source = match (self.source, own) {
            (Some(source), own) => SocketAddr::new(source, own.map_or(0, |own| own.port())),
            (None, Some(own)) => own,
            (None, None) => return proxy_protocol::unknown(self.version),
        };
        let port = target.map_or(0, |target| target.port());
        // Both ends are of one family.
        let ip = match (source.ip(), target.map(|target| target.ip())) {
            (IpAddr::V4(_), Some(ip @ IpAddr::V4(_)))
            | (IpAddr::V6(_), Some(ip @ IpAddr::V6(_))) => ip,
            (IpAddr::V6(_), Some(IpAddr::V4(ip))) => ip.to_ipv6_mapped().into(),
            (IpAddr::V4(_), _) => Ipv4Addr::LOCALHOST.into(),
            (IpAddr::V6(_), None) => Ipv6Addr::LOCALHOST.into(),
        };
        proxy_protocol::header(self.version, source, SocketAddr::new(ip, port))
    }
}

impl Target {
    pub(super) fn check(&self) -> Result<(), String> {
        match &self.endpoint {
            Endpoint::Internet(address) if address.port() == 0 => {
                return Err("port 0 cannot be connected to".into());
            }
            Endpoint::Unix(path) => {
                if !path.starts_with('/') || path.contains('\0') {
                    return Err("target.unix must be an absolute path".into());
                }
                if path.len() > LONGEST_SOCKET_PATH_BYTES {
                    return Err(format!(
                        "target.unix: a socket's path has {LONGEST_SOCKET_PATH_BYTES} bytes at most"
                    ));
                }
            }
            Endpoint::Internet(_) => {}
        }
        self.tls.as_ref().map_or(Ok(()), Tls::check)
    }
}

impl Tls {
    fn check(&self) -> Result<(), String> {
        if self.oldest > self.newest {
            return Err("target.tls: min_version is above max_version".into());
        }
        if self.certificate_file.is_some() != self.key_file.is_some() {
            return Err(
                "target.tls: a client's certificate needs its key, and a key its \
                        certificate"
                    .into(),
            );
        }
        for name in &self.ciphers {
            if ciphers::find(name).is_none() {
                return Err(format!(
                    "target.tls: {name:?} is not a cipher suite of the probe; it has {}",
                    ciphers::names()
                ));
            }
        }
        Ok(())
    }
}

impl Read for Target {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        let mut fields = Fields::of(value, place)?;
        let endpoint = match fields.optional("unix")? {
            None => Endpoint::Internet(SocketAddr::new(
                fields.parsed("address", "an IP address")?,
                fields.required("port")?,
            )),
            Some(path) => {
                let address: String = fields.or("address", String::new())?;
                let port: u16 = fields.or("port", 0)?;
                if !address.is_empty() || port != 0 {
                    return Err(fields.wrong("unix", "excludes address and port"));
                }
                Endpoint::Unix(path)
            }
        };
        let target = Self {
            endpoint,
            host: fields.or("host", "localhost".into())?,
            tls: fields.optional("tls")?,
            proxy_protocol: fields.optional("proxy_protocol")?,
        };
        fields.end()?;
        Ok(target)
    }
}

impl Read for Tls {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        let mut fields = Fields::of(value, place)?;
        let tls = Self {
            verify: fields.or("verify", true)?,
            ca_file: fields.optional("ca_file")?,
            server_name: fields.optional("server_name")?,
            resumption: fields.or("resumption", true)?,
            oldest: fields.or("min_version", TlsVersion::V1_2)?,
            newest: fields.or("max_version", TlsVersion::V1_3)?,
            ciphers: fields.or("ciphers", Vec::new())?,
            certificate_file: fields.optional("certificate_file")?,
            key_file: fields.optional("key_file")?,
        };
        fields.end()?;
        Ok(tls)
    }
}

impl Read for TlsVersion {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        [Self::V1_2, Self::V1_3]
            .into_iter()
            .find(|version| value.as_str() == Some(version.name()))
            .ok_or_else(|| {
                Error::Plan(format!(
                    "{place} must be 1.2 or 1.3: the probe has no other version of TLS"
                ))
            })
    }
}

impl Read for ProxyProtocol {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        let mut fields = Fields::of(value, place)?;
        let source: Option<String> = fields.optional("source")?;
        let protocol = Self {
            version: fields.required("version")?,
            source: source
                .map(|text| text.parse())
                .transpose()
                .map_err(|_| fields.wrong("source", "must be an IP address"))?,
        };
        fields.end()?;
        Ok(protocol)
    }
}

impl Read for proxy_protocol::Version {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        match value.as_u64() {
            Some(1) => Ok(Self::V1),
            Some(2) => Ok(Self::V2),
            _ => Err(Error::Plan(format!("{place} must be 1 or 2"))),
        }
    }
}
