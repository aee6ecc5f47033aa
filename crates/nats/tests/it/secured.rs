//! Keys instead of passwords, and encryption.

use std::fs;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use wavehouse_nats::{ConnectOptions, Connection, TlsOptions};
use wavehouse_testkit::{NATS_VERSION, NatsServer, wait_for};

use crate::kit::{LONG, wait_connected};

#[tokio::test]
async fn an_nkey_proves_who_we_are() {
    let pair = nkeys::KeyPair::new_user();
    let (seed, public) = (pair.seed().expect("a seed"), pair.public_key());
    let server = NatsServer::start(&format!("authorization {{ users: [ {{ nkey: {public} }} ] }}")).await;
    let file = server.dir().join("seed");
    fs::write(&file, format!("{seed}\n")).expect("written");
    let nobody = ConnectOptions { urls: vec![server.url()], ..ConnectOptions::default() };
    let stranger = Connection::open(&nobody).await.expect("good options");
    let known = Connection::open(&ConnectOptions { nkey_seed_file: Some(file), ..nobody })
        .await
        .expect("good options");
    wait_connected(&known).await;
    wait_for("the stranger to be refused", LONG, async || server.log().contains("authentication error"))
        .await;
    assert!(!stranger.is_connected());
}

/// Writes an authority, a certificate for `nats.test`, and one for a client, all as PEM.
fn certificates(dir: &Path) {
    let mut authority = CertificateParams::new(Vec::new()).expect("parameters");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority =
        CertifiedIssuer::self_signed(authority, KeyPair::generate().expect("a key")).expect("an authority");
    fs::write(dir.join("ca.pem"), authority.pem()).expect("written");
    for (name, host) in [("server", "nats.test"), ("client", "client.test")] {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![host.to_owned()]).expect("parameters");
        let cert = params.signed_by(&key, &authority).expect("a certificate");
        fs::write(dir.join(format!("{name}.pem")), cert.pem()).expect("written");
        fs::write(dir.join(format!("{name}.key")), key.serialize_pem()).expect("written");
    }
}

async fn tls_server(more: &str) -> NatsServer {
    let dir = tempfile::tempdir().expect("a directory");
    certificates(dir.path());
    let config = format!(
        "tls {{ cert_file: \"$DIR/server.pem\", key_file: \"$DIR/server.key\", ca_file: \"$DIR/ca.pem\", verify: true{more} }}"
    );
    NatsServer::start_in(dir, NATS_VERSION, &config).await
}

fn encrypted(server: &NatsServer) -> ConnectOptions {
    let file = |name: &str| Some(server.dir().join(name));
    ConnectOptions {
        urls: vec![server.url()],
        tls: TlsOptions {
            ca_file: file("ca.pem"),
            cert_file: file("client.pem"),
            key_file: file("client.key"),
            server_name: Some("nats.test".to_owned()),
            handshake_first: false,
        },
        ..ConnectOptions::default()
    }
}

#[tokio::test]
async fn both_sides_prove_who_they_are() {
    let server = tls_server("").await;
    let good = encrypted(&server);
    let connection = Connection::open(&good).await.expect("good options");
    wait_connected(&connection).await;

    // The dialled host is not in the certificate; another name is not either; and the server wants a certificate.
    let mut others = [good.clone(), good.clone(), good.clone()];
    others[0].tls.server_name = None;
    others[1].tls.server_name = Some("other.test".to_owned());
    (others[2].tls.cert_file, others[2].tls.key_file) = (None, None);
    for options in others {
        let errors = || server.log().matches("TLS handshake error").count();
        let before = errors();
        let connection = Connection::open(&options).await.expect("good options");
        wait_for("a handshake to fail", LONG, async || errors() > before).await;
        assert!(!connection.is_connected());
        connection.close().await;
    }
}

#[tokio::test]
async fn the_handshake_may_come_first() {
    let server = tls_server(", handshake_first: true").await;
    let mut options = encrypted(&server);
    options.tls.handshake_first = true;
    let connection = Connection::open(&options).await.expect("good options");
    wait_connected(&connection).await;
}
