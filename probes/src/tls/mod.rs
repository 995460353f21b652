//! TLS by rustls: what a plan asks of it, and one session over a socket.
//!
//! Payload has to be decrypted, so nothing is discarded in the kernel here; the CPU time that
//! this takes is the probe's and is reported as such.

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

/// Sessions that are remembered for resumption; one server is asked.
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
    /// The client that a target asks for, which speaks what `alpn` names and nothing else; none is
    /// cleartext.
    ///
    /// # Errors
    /// `Error::Plan` for a server name or a file of certificates that cannot be used.
    pub fn of(target: &Target, alpn: &[u8]) -> Result<Option<Self>, Error> {
        let tls = target.tls.as_ref();
        let versions = tls.map(|tls| tls.oldest..=tls.newest);
        let both = tls.zip(versions);
        both.map(|(tls, versions)| Self::new(tls, target, alpn, &versions))
            .transpose()
    }

    /// The same with TLS 1.3 alone.
    ///
    /// # Errors
    /// As above, and where the target has no TLS.
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

    /// What its sessions are to be.
    pub fn config(&self) -> Arc<ClientConfig> {
        self.config.clone()
    }

    /// Whom the server's certificate has to name.
    pub fn name(&self) -> String {
        self.name.to_str().into_owned()
    }

    /// A session whose handshake has not begun.
    ///
    /// # Errors
    /// When rustls refuses the configuration.
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

/// The name that the certificate must bear: as told, else the `Host` header's, else the address.
fn server_name(tls: &Tls, target: &Target) -> Result<ServerName<'static>, Error> {
    let host = tls.server_name.as_deref().unwrap_or_else(|| {
        let bracketed = target
            .host
            .strip_prefix('[')
            .and_then(|rest| rest.split(']').next());
        bracketed.unwrap_or_else(|| target.host.split(':').next().unwrap_or_default())
    });
    ServerName::try_from(host.to_owned())
        .map_err(|_| Error::Plan(format!("target.tls: {host:?} is no name of a server")))
}

/// What both sides of a session agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Agreed {
    /// The version of TLS.
    pub version: TlsVersion,
    /// The cipher suite, by OpenSSL's name.
    pub cipher: &'static str,
}

/// What a read of ciphertext came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// All that had come was read.
    pub drained: bool,
    /// The server sends no more.
    pub ended: Option<End>,
}

/// How the server stopped sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It said so (`close_notify`): what came is all there is.
    Told,
    /// The connection just ended: more may have been meant to come.
    Abrupt,
}

/// One TLS session.
pub struct Session {
    connection: Box<ClientConnection>,
}

impl fmt::Debug for Session {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Session").finish_non_exhaustive()
    }
}

impl Session {
    /// Whether requests cannot be sent yet.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether the handshake took up an earlier session.
    pub fn is_resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// What both sides agreed to speak.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.connection.alpn_protocol()
    }

    /// What was agreed on; none before the handshake has come so far.
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

    /// Encrypts bytes and sends what the socket takes; whether all is on its way.
    pub fn send(&mut self, stream: &mut TcpStream, bytes: &[u8]) -> io::Result<bool> {
        self.connection.writer().write_all(bytes)?;
        self.flush(stream)
    }

    /// Sends ciphertext that waits; whether all is on its way.
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

    /// Reads once from the socket and gives what it decrypts to, piece by piece, to `take`.
    ///
    /// # Errors
    /// Of the socket; of kind `InvalidData` when the server does not keep to TLS or is not
    /// whom it should be.
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
                // The alert that tells the server why.
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
        // Answers of the protocol itself: key updates, the end of the handshake.
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
