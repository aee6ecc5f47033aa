//! Keys instead of passwords, and encryption.

use std::fs;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Value, json};
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

/// What an issuer says of a subject, as servers want it: signed claims of the second version.
fn jwt(issuer: &nkeys::KeyPair, subject: &nkeys::KeyPair, claims: Value) -> String {
    let head = json!({"typ": "JWT", "alg": "ed25519-nkey"});
    let body = json!({
        "jti": "test", "iat": 1_700_000_000, "iss": issuer.public_key(), "sub": subject.public_key(), "name": "test",
        "nats": claims,
    });
    let text = [head, body].map(|part| URL_SAFE_NO_PAD.encode(part.to_string())).join(".");
    let signature = issuer.sign(text.as_bytes()).expect("a signature");
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// A file of credentials as `nsc` writes it.
fn creds(user: &nkeys::KeyPair, jwt: &str) -> String {
    let seed = user.seed().expect("a seed");
    format!(
        "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )
}

#[tokio::test]
async fn a_credentials_file_proves_who_we_are_and_what_we_may() {
    let (operator, account) = (nkeys::KeyPair::new_operator(), nkeys::KeyPair::new_account());
    let of_operator = jwt(&operator, &operator, json!({"type": "operator", "version": 2}));
    let limits = json!({"subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true,
        "conn": -1, "leaf": -1, "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1});
    let of_account = jwt(&operator, &account, json!({"type": "account", "version": 2, "limits": limits}));
    let server = NatsServer::start(&format!(
        "operator: {of_operator}\nresolver: MEMORY\nresolver_preload: {{ {}: {of_account} }}",
        account.public_key()
    ))
    .await;
    let user = |issuer: &nkeys::KeyPair| {
        let user = nkeys::KeyPair::new_user();
        let may = json!({"allow": ["a.>"]});
        let claims = json!({"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1, "pub": may, "sub": {}});
        creds(&user, &jwt(issuer, &user, claims))
    };
    let open = async |name: &str, text: String| {
        let file = server.dir().join(name);
        fs::write(&file, text).expect("written");
        let options = ConnectOptions {
            urls: vec![server.url()],
            creds_file: Some(file),
            record_refusals_of: vec!["a.".to_owned(), "b.".to_owned()],
            ..ConnectOptions::default()
        };
        Connection::open(&options).await.expect("good options")
    };
    let known = open("known.creds", user(&account)).await;
    wait_connected(&known).await;
    // The claims hold: one subject may be published to, another not.
    let number = *known.refusals().borrow();
    known.publish("a.b", None, "x".into()).await.expect("sent");
    known.publish("b.a", None, "x".into()).await.expect("sent");
    wait_for("a refusal", LONG, async || known.publish_refused_since(number, "b.a").is_some()).await;
    assert!(known.publish_refused_since(number, "a.b").is_none());

    let stranger = open("stranger.creds", user(&nkeys::KeyPair::new_account())).await;
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
