//! The connector: plain TCP, or TLS by the target's settings.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hyper_rustls::{ConfigBuilderExt, FixedServerNameResolver, HttpsConnector};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use crate::error::ClientError;
use crate::target::Tls;

/// How long connecting may take, all addresses of the name together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) type Connector = HttpsConnector<HttpConnector>;

pub(crate) fn connector(tls: &Tls) -> Result<Connector, ClientError> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let builder = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(config(tls)?).https_or_http();
    let builder = match &tls.server_name {
        None => builder,
        Some(name) => {
            let name = ServerName::try_from(name.clone())
                .map_err(|error| ClientError::Tls { reason: format!("server name {name:?}: {error}") })?;
            builder.with_server_name_resolver(FixedServerNameResolver::new(name))
        }
    };
    Ok(builder.enable_http1().wrap_connector(http))
}

fn config(tls: &Tls) -> Result<ClientConfig, ClientError> {
    let unusable = |error: rustls::Error| ClientError::Tls { reason: error.to_string() };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(unusable)?;
    let builder = match &tls.ca_file {
        _ if tls.insecure_skip_verify => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        }
        None => builder.with_webpki_roots(),
        Some(path) => builder.with_root_certificates(roots(path)?),
    };
    match (&tls.cert_file, &tls.key_file) {
        (None, None) => Ok(builder.with_no_client_auth()),
        (Some(cert), Some(key)) => {
            let key_der = PrivateKeyDer::from_pem_file(key).map_err(|error| bad_file(key, &error))?;
            builder.with_client_auth_cert(certificates(cert)?, key_der).map_err(|error| bad_file(key, &error))
        }
        _ => Err(ClientError::Tls { reason: "cert_file and key_file go together".to_owned() }),
    }
}

fn bad_file(path: &Path, reason: &impl ToString) -> ClientError {
    ClientError::TlsFile { path: path.to_owned(), reason: reason.to_string() }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ClientError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(|error| bad_file(path, &error))?;
    if found.is_empty() {
        return Err(bad_file(path, &"it holds no certificate"));
    }
    Ok(found)
}

fn roots(path: &Path) -> Result<RootCertStore, ClientError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(path)? {
        store.add(certificate).map_err(|error| bad_file(path, &error))?;
    }
    Ok(store)
}

/// Takes any certificate, but still wants the handshake signed by it.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
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
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
