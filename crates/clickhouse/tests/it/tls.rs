//! https: whom the client trusts, and how it shows who it is. The server says `Ok.` to whoever gets through.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::PrivateKeyDer;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use wavehouse_clickhouse::{Cause, Class, ClickHouseError, Client, ClientError, Secret, Target, Tls};

/// An authority of the test's own, the files that it made, and servers that end with it.
struct House {
    dir: TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
    servers: JoinSet<()>,
}

impl House {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let house = Self { dir: tempfile::tempdir().unwrap(), authority, servers: JoinSet::new() };
        fs::write(house.file("ca.pem"), house.authority.pem()).unwrap();
        let (certificate, key) = house.issue("client");
        fs::write(house.file("client.pem"), certificate.pem()).unwrap();
        fs::write(house.file("client.key"), key.serialize_pem()).unwrap();
        house
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn issue(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.authority).unwrap(), key)
    }

    /// A server that bears `name`; `mutual`: it wants the authority's certificate of its client. Returns its address.
    async fn serve(&mut self, name: &str, mutual: bool) -> String {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let (certificate, key) = self.issue(name);
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = if mutual {
            let mut roots = RootCertStore::empty();
            roots.add(self.authority.der().clone()).unwrap();
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
            builder.with_client_cert_verifier(verifier)
        } else {
            builder.with_no_client_auth()
        };
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = builder.with_single_cert(vec![certificate.der().clone()], key).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        self.servers.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let Ok(socket) = acceptor.accept(socket).await else { continue };
                let answer = service_fn(|_: hyper::Request<Incoming>| async {
                    Ok::<_, std::convert::Infallible>(hyper::Response::new(Full::new(Bytes::from_static(
                        b"1\n",
                    ))))
                });
                drop(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(socket), answer)
                        .await,
                );
            }
        });
        format!("https://127.0.0.1:{port}")
    }

    fn tls(&self) -> Tls {
        Tls { ca_file: Some(self.file("ca.pem")), ..Tls::default() }
    }
}

async fn ping(url: &str, tls: Tls) -> Result<(), ClickHouseError> {
    let mut target = Target::new(url, "default", Secret::default(), "default");
    target.tls = tls;
    Client::new(target).unwrap().ping().await
}

fn distrusts(outcome: &Result<(), ClickHouseError>) {
    let error = outcome.as_ref().unwrap_err();
    assert_eq!((error.cause, error.class), (Cause::Tls, Class::Unknown), "{error}");
}

#[tokio::test]
async fn only_its_own_authority_is_trusted() {
    let mut house = House::new();
    let url = house.serve("127.0.0.1", false).await;
    ping(&url, house.tls()).await.unwrap();
    distrusts(&ping(&url, Tls::default()).await);
    let any = Tls { insecure_skip_verify: true, ..Tls::default() };
    ping(&url, any).await.unwrap();
}

#[tokio::test]
async fn the_name_must_fit() {
    let mut house = House::new();
    let url = house.serve("clickhouse.internal", false).await;
    distrusts(&ping(&url, house.tls()).await);
    let named = Tls { server_name: Some("clickhouse.internal".to_owned()), ..house.tls() };
    ping(&url, named).await.unwrap();
}

#[tokio::test]
async fn the_client_shows_its_certificate() {
    let mut house = House::new();
    let url = house.serve("127.0.0.1", true).await;
    let (cert, key) = (house.file("client.pem"), house.file("client.key"));
    let mutual = Tls { cert_file: Some(cert), key_file: Some(key), ..house.tls() };
    ping(&url, mutual).await.unwrap();
    // In TLS 1.3 the refusal comes after the handshake, with the first read.
    assert!(ping(&url, house.tls()).await.is_err());
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named() {
    let house = House::new();
    let make = |tls: Tls| {
        let mut target = Target::new("https://h", "default", Secret::default(), "default");
        target.tls = tls;
        Client::new(target).map(drop).unwrap_err()
    };
    fs::write(house.file("empty.pem"), "").unwrap();
    for name in ["missing.pem", "empty.pem"] {
        let path = house.file(name);
        let error = make(Tls { ca_file: Some(path.clone()), ..Tls::default() });
        assert!(matches!(error, ClientError::TlsFile { path: named, .. } if named == path));
    }
    let alone = make(Tls { cert_file: Some(house.file("client.pem")), ..Tls::default() });
    assert!(matches!(alone, ClientError::Tls { .. }));
    let nameless = make(Tls { server_name: Some("not a name".to_owned()), ..Tls::default() });
    assert!(matches!(nameless, ClientError::Tls { .. }));
}
