//! Encryption: certificates and keys read, and put into the form that the client wants.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use super::{Finding, TlsOptions};

/// `None` when nothing is asked for, or when something is wrong, which is then among the findings.
pub(super) fn client_config(options: &TlsOptions, found: &mut Vec<Finding>) -> Option<ClientConfig> {
    if *options == TlsOptions::default() {
        return None;
    }
    let before = found.len();
    let roots = match &options.ca_file {
        Some(file) => roots_of(file, found),
        None => system_roots(found),
    };
    let identity = match (&options.cert_file, &options.key_file) {
        (Some(cert), Some(key)) => identity(cert, key, found),
        (None, None) => None,
        (Some(_), None) => {
            found.push(Finding::Needs { key: "tls.cert_file", needs: "tls.key_file" });
            None
        }
        (None, Some(_)) => {
            found.push(Finding::Needs { key: "tls.key_file", needs: "tls.cert_file" });
            None
        }
    };
    let name = options.server_name.clone().map(ServerName::try_from);
    let name = name.transpose().unwrap_or_else(|error| {
        found.push(Finding::Unusable { key: "tls.server_name", what: error.to_string() });
        None
    });
    if found.len() > before {
        return None;
    }
    let made = build(roots, identity, name);
    made.map_err(|error| found.push(Finding::Unusable { key: "tls", what: error })).ok()
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn build(
    roots: RootCertStore,
    identity: Option<Identity>,
    name: Option<ServerName<'static>>,
) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    let builder = match name {
        Some(name) => {
            let verifier = NamedVerifier::new(roots, provider, name)?;
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        }
        None => builder.with_root_certificates(roots),
    };
    match identity {
        Some((certs, key)) => builder.with_client_auth_cert(certs, key).map_err(|error| error.to_string()),
        None => Ok(builder.with_no_client_auth()),
    }
}

fn roots_of(file: &Path, found: &mut Vec<Finding>) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    for cert in certificates("tls.ca_file", file, found) {
        if let Err(error) = roots.add(cert) {
            found.push(Finding::Unusable { key: "tls.ca_file", what: error.to_string() });
        }
    }
    roots
}

fn system_roots(found: &mut Vec<Finding>) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let (added, _odd) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if added == 0 {
        let what = "this system has no root certificates: name those to trust".to_owned();
        found.push(Finding::Unusable { key: "tls.ca_file", what });
    }
    roots
}

fn identity(cert: &Path, key: &Path, found: &mut Vec<Finding>) -> Option<Identity> {
    let certs = certificates("tls.cert_file", cert, found);
    let key = read("tls.key_file", key, found).and_then(|pem| {
        PrivateKeyDer::from_pem_slice(&pem).map_err(|error| not_pem("tls.key_file", &error, found)).ok()
    });
    key.map(|key| (certs, key))
}

fn certificates(key: &'static str, file: &Path, found: &mut Vec<Finding>) -> Vec<CertificateDer<'static>> {
    let Some(pem) = read(key, file, found) else { return Vec::new() };
    match CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>() {
        Ok(certs) if certs.is_empty() => {
            let what = format!("{} has no certificate", file.display());
            found.push(Finding::Unusable { key, what });
            certs
        }
        Ok(certs) => certs,
        Err(error) => {
            not_pem(key, &error, found);
            Vec::new()
        }
    }
}

fn not_pem(key: &'static str, error: &rustls_pki_types::pem::Error, found: &mut Vec<Finding>) {
    found.push(Finding::Unusable { key, what: error.to_string() });
}

fn read(key: &'static str, file: &Path, found: &mut Vec<Finding>) -> Option<Vec<u8>> {
    let unreadable = |error: std::io::Error| {
        let path = PathBuf::from(file);
        found.push(Finding::Unreadable { key, path, why: error.to_string() });
    };
    std::fs::read(file).map_err(unreadable).ok()
}

/// Checks a server's certificate in full, against a name of our choice instead of the host that was dialled.
#[derive(Debug)]
struct NamedVerifier {
    inner: Arc<WebPkiServerVerifier>,
    name: ServerName<'static>,
}

impl NamedVerifier {
    fn new(
        roots: RootCertStore,
        provider: Arc<CryptoProvider>,
        name: ServerName<'static>,
    ) -> Result<Self, String> {
        let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        Ok(Self { inner: builder.build().map_err(|error| error.to_string())?, name })
    }
}

impl ServerCertVerifier for NamedVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _dialled: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.inner.verify_server_cert(end_entity, intermediates, &self.name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
