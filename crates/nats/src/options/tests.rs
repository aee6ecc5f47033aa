//! Every finding, and that all of them are told at once.

use std::fs;

use super::*;

fn good() -> ConnectOptions {
    ConnectOptions { urls: vec!["nats://127.0.0.1:4222".to_owned()], ..ConnectOptions::default() }
}

fn findings(options: &ConnectOptions) -> Vec<String> {
    options.check().err().map(|error| error.0.iter().map(ToString::to_string).collect()).unwrap_or_default()
}

#[test]
fn plain_options_pass() {
    assert_eq!(findings(&good()), [] as [&str; 0]);
    let several = ConnectOptions { urls: vec!["a".into(), "b:1".into(), "tls://c:2".into()], ..good() };
    assert_eq!(findings(&several), [] as [&str; 0]);
}

#[test]
fn bad_urls_are_named_and_users_in_them_are_not() {
    let urls = ["", "nats://me:secret@host", "ws://host", "http://host"].map(str::to_owned).to_vec();
    let found = findings(&ConnectOptions { urls, ..good() });
    assert_eq!(found.len(), 4, "{found:?}");
    assert_eq!(found[0], "urls: entry 0 is empty");
    assert!(found[1].starts_with("urls: entry 1 has a user in it"), "{found:?}");
    assert!(found[2].contains("ws://host"), "{found:?}");
    assert!(found[3].contains("http://host"), "{found:?}");
    assert!(!found.join(" ").contains("secret"));
    assert_eq!(findings(&ConnectOptions { urls: vec![], ..good() }), ["urls: name at least one server"]);
}

#[test]
fn one_way_to_say_who_we_are() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("password");
    fs::write(&file, "secret\r\n").expect("written");
    let both = ConnectOptions {
        creds_file: Some(file.clone()),
        nkey_seed_file: Some(file.clone()),
        user: Some("me".to_owned()),
        ..good()
    };
    assert_eq!(findings(&both), ["creds_file, nkey_seed_file, user: give one of them at most"]);
    let lone_user = ConnectOptions { user: Some("me".to_owned()), ..good() };
    assert_eq!(findings(&lone_user), ["user: needs password_file"]);
    let lone_file = ConnectOptions { password_file: Some(file.clone()), ..good() };
    assert_eq!(findings(&lone_file), ["password_file: needs user"]);

    let pair = ConnectOptions { user: Some("me".to_owned()), password_file: Some(file), ..good() };
    let auth = pair.checked().expect("they pass").credentials.answer(b"nonce").expect("an answer");
    assert_eq!((auth.username.as_deref(), auth.password.as_deref()), (Some("me"), Some("secret")));
}

#[test]
fn seeds_sign_the_nonce_and_are_read_anew() {
    let dir = tempfile::tempdir().expect("a directory");
    let (seed_file, creds_file) = (dir.path().join("seed"), dir.path().join("creds"));
    let pair = nkeys::KeyPair::new_user();
    let seed = pair.seed().expect("a seed");
    fs::write(&seed_file, format!("{seed}\n")).expect("written");
    let creds = format!(
        "-----BEGIN NATS USER JWT-----\neyJ0.e30.x\n------END NATS USER JWT------\n\n*** IMPORTANT ***\n\
         -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    );
    fs::write(&creds_file, &creds).expect("written");

    let by_seed = ConnectOptions { nkey_seed_file: Some(seed_file.clone()), ..good() };
    let credentials = by_seed.checked().expect("they pass").credentials;
    let auth = credentials.answer(b"nonce").expect("an answer");
    assert_eq!(auth.nkey, Some(pair.public_key()));
    pair.verify(b"nonce", &auth.signature.expect("signed")).expect("a good signature");

    let by_creds = ConnectOptions { creds_file: Some(creds_file.clone()), ..good() };
    let auth = by_creds.checked().expect("they pass").credentials.answer(b"n2").expect("an answer");
    assert_eq!(auth.jwt.as_deref(), Some("eyJ0.e30.x"));
    pair.verify(b"n2", &auth.signature.expect("signed")).expect("a good signature");

    let other = nkeys::KeyPair::new_user();
    fs::write(&seed_file, other.seed().expect("a seed")).expect("written");
    assert_eq!(credentials.answer(b"n3").expect("an answer").nkey, Some(other.public_key()));

    fs::write(&creds_file, "eyJ0.e30.x\n").expect("written");
    assert_eq!(findings(&by_creds), [format!("creds_file: {} has no JWT", creds_file.display())]);
    fs::write(&seed_file, "SUnothing\n").expect("written");
    assert_eq!(findings(&by_seed), [format!("nkey_seed_file: {} has no seed", seed_file.display())]);
}

#[test]
fn everything_wrong_is_told_at_once() {
    let missing = PathBuf::from("/nowhere/at/all");
    let options = ConnectOptions {
        urls: vec![],
        creds_file: Some(missing.clone()),
        tls: TlsOptions {
            ca_file: Some(missing.clone()),
            cert_file: Some(missing.clone()),
            server_name: Some("not a name".to_owned()),
            ..TlsOptions::default()
        },
        js_domain: Some("two.tokens".to_owned()),
        inbox_prefix: "_INBOX.*".to_owned(),
        connect_timeout: Duration::ZERO,
        ..good()
    };
    let found = findings(&options);
    let heads: Vec<_> = found.iter().map(|text| text.split(':').next().unwrap_or_default()).collect();
    let expected = [
        "urls",
        "creds_file",
        "tls.ca_file",
        "tls.cert_file",
        "tls.server_name",
        "js_domain",
        "inbox_prefix",
        "connect_timeout",
    ];
    assert_eq!(heads, expected, "{found:#?}");
    assert!(found[1].contains("/nowhere/at/all"));
}

#[test]
fn certificates_are_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("pem");
    fs::write(&file, "no pem at all").expect("written");
    let options =
        ConnectOptions { tls: TlsOptions { ca_file: Some(file.clone()), ..TlsOptions::default() }, ..good() };
    assert_eq!(findings(&options), [format!("tls.ca_file: {} has no certificate", file.display())]);
}

#[test]
fn the_domain_is_in_the_api_prefix() {
    assert_eq!(good().api_prefix(), "$JS.API.");
    let hub = ConnectOptions { js_domain: Some("hub".to_owned()), ..good() };
    assert_eq!(hub.api_prefix(), "$JS.hub.API.");
}
