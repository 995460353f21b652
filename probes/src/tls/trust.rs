//! Whom to believe: certificate authorities, or anybody.

use std::env;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::error::Error;

/// Where distributions keep the authorities that the system trusts: Debian and Alpine, Red Hat,
/// SUSE, BSD layout.
const SYSTEM_BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The authorities of a file; without one those of the system (`SSL_CERT_FILE` first).
pub(super) fn roots(file: Option<&str>) -> Result<RootCertStore, Error> {
    let told = file.map(str::to_owned);
    let path = told
        .or_else(|| env::var("SSL_CERT_FILE").ok())
        .or_else(|| {
            let known = SYSTEM_BUNDLES
                .into_iter()
                .find(|path| Path::new(path).is_file());
            known.map(str::to_owned)
        })
        .ok_or_else(|| {
            Error::Plan(
                "no file of certificate authorities on this system; name one (--cacert) or do \
                 without verification (--insecure)"
                    .into(),
            )
        })?;
    let unusable = |what: &str| Error::Plan(format!("certificates in {path}: {what}"));
    let certificates =
        CertificateDer::pem_file_iter(&path).map_err(|error| unusable(&error.to_string()))?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        let certificate = certificate.map_err(|error| unusable(&error.to_string()))?;
        // A bundle may hold some of a form that is no longer allowed; the others serve.
        let _ = roots.add(certificate);
    }
    if roots.is_empty() {
        return Err(unusable("not one that can be used"));
    }
    Ok(roots)
}

/// Takes any certificate; signatures are still checked, so the handshake is a whole one.
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
