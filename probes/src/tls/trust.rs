//! Trust in certificates: by authorities, or of any certificate.

use std::env;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::error::Error;

/// The usual places of the system's authorities: Debian and Alpine, Red Hat, SUSE, BSD layout.
const SYSTEM_BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Trusts certificates signed by those of a list, and the listed certificates themselves.
#[derive(Debug)]
pub(super) struct Listed {
    authorities: Arc<WebPkiServerVerifier>,
    /// The listed certificates: a test server's certificate is often its own authority. A chain of
    /// trust may not contain such a certificate, but curl and OpenSSL accept it.
    listed: Vec<CertificateDer<'static>>,
}

impl Listed {
    /// Reads the certificates in a PEM file; without one, those of the system (`SSL_CERT_FILE`
    /// first).
    ///
    /// # Errors
    /// `Error::Plan` if no certificate is usable.
    pub(super) fn read(file: Option<&str>, provider: Arc<CryptoProvider>) -> Result<Self, Error> {
        let path = file
            .map(str::to_owned)
            .or_else(system_bundle)
            .ok_or_else(|| {
                Error::Plan(
                    "no file of certificate authorities on this system; name one (--cacert) or do \
                 without verification (--insecure)"
                        .into(),
                )
            })?;
        let unusable = |what: &str| Error::Plan(format!("certificates in {path}: {what}"));
        let listed = CertificateDer::pem_file_iter(&path)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| unusable(&error.to_string()))?;
        let mut roots = RootCertStore::empty();
        // A bundle may contain certificates in a form that is no longer allowed; the others are
        // used.
        roots.add_parsable_certificates(listed.iter().cloned());
        let authorities = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|_| unusable("not one that can be used"))?;
        Ok(Self {
            authorities,
            listed,
        })
    }
}

fn system_bundle() -> Option<String> {
    let known = || {
        let path = SYSTEM_BUNDLES
            .into_iter()
            .find(|path| Path::new(path).is_file());
        path.map(str::to_owned)
    };
    env::var("SSL_CERT_FILE").ok().or_else(known)
}

impl ServerCertVerifier for Listed {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let judged = self.authorities.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match judged {
            // Reached only for a certificate that is currently valid.
            Err(error) if is_an_authority_itself(&error) && self.listed.contains(end_entity) => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            judged => judged,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.authorities
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.authorities
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authorities.supported_verify_schemes()
    }
}

/// Whether a certificate was rejected because it is marked as an authority.
fn is_an_authority_itself(error: &rustls::Error) -> bool {
    let rustls::Error::InvalidCertificate(CertificateError::Other(other)) = error else {
        return false;
    };
    matches!(
        other.0.downcast_ref::<webpki::Error>(),
        Some(webpki::Error::CaUsedAsEndEntity)
    )
}

/// Accepts any certificate; signatures are still checked, so the handshake is complete.
#[derive(Debug)]
pub(super) struct Anybody {
    provider: Arc<CryptoProvider>,
}

impl Anybody {
    pub(super) fn new(provider: Arc<CryptoProvider>) -> Self {
        Self { provider }
    }
}

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
