//! TLS by rustls: the configuration from a plan, and a session over a socket.
//!
//! Payload must be decrypted, so nothing is discarded in the kernel. The CPU time for this is the
//! probe's and is reported as such.

mod trust;

use std::fmt;
use std::io::{self, BufRead as _, Read as _, Write as _};
use std::net::TcpStream;
use std::ops::RangeInclusive;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, ProtocolVersion};

use crate::ciphers;
use crate::error::Error;
use crate::plan::{Target, Tls, TlsVersion};
use crate::sys::is_temporary;

/// The most sessions to remember for resumption; there is one server.
const REMEMBERED_SESSIONS: usize = 256;

/// Makes the sessions of a run.
#[derive(Clone)]
pub struct Client {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Client {
    /// The client for a target, with `alpn` as the only protocol; `None` for cleartext.
    ///
    /// # Errors
    /// `Error::Plan` for an unusable server name or certificate file.
    pub fn of(target: &Target, alpn: &[u8]) -> Result<Option<Self>, Error> {
        let tls = target.tls.as_ref();
        let versions = tls.map(|tls| tls.oldest..=tls.newest);
        let both = tls.zip(versions);
        both.map(|(tls, versions)| Self::new(tls, target, alpn, &versions))
            .transpose()
    }

    /// The same, with only TLS 1.3.
    ///
    /// # Errors
    /// As above, and if the target has no TLS.
    pub fn of_newest(target: &Target, alpn: &[u8]) -> Result<Self, Error> {
        let none = || Error::Plan("target.tls is missing".into());
        let tls = target.tls.as_ref().ok_or_else(none)?;
        Self::new(tls, target, alpn, &(TlsVersion::V1_3..=TlsVersion::V1_3))
    }

    fn new(
        tls: &Tls,
        target: &Target,
        alpn: &[u8],
        may_be: &RangeInclusive<TlsVersion>,
    ) -> Result<Self, Error> {
        let refused = |error| Error::Plan(format!("target.tls: {error}"));
        let mut provider = rustls::crypto::ring::default_provider();
        if !tls.ciphers.is_empty() {
            let named = tls.ciphers.iter().filter_map(|name| ciphers::find(name));
            provider.cipher_suites = named.collect();
        }
        let provider = Arc::new(provider);
        let versions = [
            (TlsVersion::V1_3, &rustls::version::TLS13),
            (TlsVersion::V1_2, &rustls::version::TLS12),
        ];
        let offered: Vec<_> = versions
            .into_iter()
            .filter(|(version, _)| may_be.contains(version))
            .map(|(_, version)| version)
            .collect();
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&offered)
            .map_err(refused)?;
        let trust: Arc<dyn ServerCertVerifier> = if tls.verify {
            Arc::new(trust::Listed::read(tls.ca_file.as_deref(), provider)?)
        } else {
            Arc::new(trust::Anybody::new(provider))
        };
        let builder = builder.dangerous().with_custom_certificate_verifier(trust);
        let mut config = match (&tls.certificate_file, &tls.key_file) {
            (Some(certificate), Some(key)) => builder
                .with_client_auth_cert(read_chain(certificate)?, read_key(key)?)
                .map_err(refused)?,
            _ => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![alpn.to_vec()];
        config.resumption = if tls.resumption {
            Resumption::in_memory_sessions(REMEMBERED_SESSIONS)
        } else {
            Resumption::disabled()
        };
        Ok(Self {
            config: Arc::new(config),
            name: server_name(tls, target)?,
        })
    }

    /// The configuration of its sessions.
    pub fn config(&self) -> Arc<ClientConfig> {
        self.config.clone()
    }

    /// The name that the server's certificate must have.
    pub fn name(&self) -> String {
        self.name.to_str().into_owned()
    }

    /// A session before its handshake.
    ///
    /// # Errors
    /// If rustls refuses the configuration.
    pub fn session(&self) -> io::Result<Session> {
        let connection = ClientConnection::new(self.config.clone(), self.name.clone())
            .map_err(io::Error::other)?;
        Ok(Session {
            connection: Box::new(connection),
        })
    }
}

/// The certificates in a PEM file.
fn read_chain(file: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let chain = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| Error::Plan(format!("certificate in {file}: {error}")))?;
    if chain.is_empty() {
        return Err(Error::Plan(format!("{file}: no certificate (PEM) in it")));
    }
    Ok(chain)
}

/// The private key in a PEM file.
fn read_key(file: &str) -> Result<PrivateKeyDer<'static>, Error> {
    PrivateKeyDer::from_pem_file(file).map_err(|error| {
        Error::Plan(format!(
            "key in {file}: {error}; it must be PEM and without a password"
        ))
    })
}

/// The name that the certificate must have: the configured one, else that of the `Host` header,
/// else the address.
fn server_name(tls: &Tls, target: &Target) -> Result<ServerName<'static>, Error> {
    let host = tls.server_name.as_deref().unwrap_or_else(|| {
        let bracketed = target
            .host
            .strip_prefix('[')
            .and_then(|rest| rest.split(']').next());
        bracketed.unwrap_or_else(|| target.host.split(':').next().unwrap_or_default())
    });
    ServerName::try_from(host.to_owned())
        .map_err(|_| Error::Plan(format!("target.tls: {host:?} is not a server name")))
}

/// The negotiated parameters of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Agreed {
    /// The version of TLS.
    pub version: TlsVersion,
    /// The cipher suite, by OpenSSL's name.
    pub cipher: &'static str,
}

/// The result of reading ciphertext.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// True if all arrived data were read.
    pub drained: bool,
    /// The end of the server's data, if it was reached.
    pub ended: Option<End>,
}

/// The way in which the server ended its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// With `close_notify`: the data are complete.
    Told,
    /// Only by closing the connection: the data may be incomplete.
    Abrupt,
}

/// A TLS session.
pub struct Session {
    connection: Box<ClientConnection>,
}

impl fmt::Debug for Session {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Session").finish_non_exhaustive()
    }
}

impl Session {
    /// Whether the handshake is still in progress.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether the handshake resumed an earlier session.
    pub fn is_resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// The negotiated ALPN protocol.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.connection.alpn_protocol()
    }

    /// The negotiated parameters; `None` early in the handshake.
    pub fn agreed(&self) -> Option<Agreed> {
        let version = match self.connection.protocol_version()? {
            ProtocolVersion::TLSv1_2 => TlsVersion::V1_2,
            ProtocolVersion::TLSv1_3 => TlsVersion::V1_3,
            _ => return None,
        };
        let suite = self.connection.negotiated_cipher_suite()?;
        Some(Agreed {
            version,
            cipher: ciphers::name(suite.suite()),
        })
    }

    /// Whether ciphertext is still to be sent.
    pub fn has_unsent(&self) -> bool {
        self.connection.wants_write()
    }

    /// Encrypts bytes and sends as much as the socket takes; returns true if everything was sent.
    pub fn send(&mut self, stream: &mut TcpStream, bytes: &[u8]) -> io::Result<bool> {
        self.connection.writer().write_all(bytes)?;
        self.flush(stream)
    }

    /// Sends pending ciphertext; returns true if everything was sent.
    pub fn flush(&mut self, stream: &mut TcpStream) -> io::Result<bool> {
        while self.connection.wants_write() {
            match self.connection.write_tls(stream) {
                Ok(_) => {}
                Err(error) if is_temporary(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Reads once from the socket and passes the decrypted data, piece by piece, to `take`.
    ///
    /// # Errors
    /// Those of the socket; one of kind `InvalidData` if the server violates TLS or has a wrong
    /// certificate.
    pub fn read(
        &mut self,
        stream: &mut TcpStream,
        wire: &mut [u8],
        mut take: impl FnMut(&[u8]),
    ) -> io::Result<Progress> {
        let count = stream.read(wire)?;
        let mut rest = &wire[..count];
        let mut told = false;
        if count == 0 {
            self.connection.read_tls(&mut rest)?;
        }
        while !rest.is_empty() {
            self.connection.read_tls(&mut rest)?;
            let state = self.connection.process_new_packets().map_err(|error| {
                // The alert that tells the server the reason.
                let _ = self.connection.write_tls(stream);
                io::Error::new(io::ErrorKind::InvalidData, error)
            })?;
            told |= state.peer_has_closed();
            let mut reader = self.connection.reader();
            while let Ok(piece) = reader.fill_buf() {
                let length = piece.len();
                if length == 0 {
                    break;
                }
                take(piece);
                reader.consume(length);
            }
            if told {
                break;
            }
        }
        // Replies of TLS itself: key updates, the end of the handshake.
        self.flush(stream)?;
        let ended = match (told, count) {
            (true, _) => Some(End::Told),
            (false, 0) => Some(End::Abrupt),
            _ => None,
        };
        Ok(Progress {
            drained: count < wire.len(),
            ended,
        })
    }
}
