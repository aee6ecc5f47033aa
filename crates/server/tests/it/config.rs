//! What the program refuses before it starts, and how it says so.

use std::fs;
use std::process::Output;

use crate::program::run;

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
}

#[test]
fn every_finding_is_told_and_the_exit_code_is_64() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("config.yaml"), "server: {prot: 1}\nsettings: {dir: x}\n").unwrap();
    for args in [&[][..], &["dev"], &["config", "check"], &["config", "print"]] {
        let output = run(dir.path(), args, &[("WH_SERVER_PORT", "x"), ("WH_NONSENSE", "1")]);
        assert_eq!(output.status.code(), Some(64), "{args:?} {}", text(&output));
        for part in
            ["4 findings", "server.prot", "server.port (WH_SERVER_PORT)", "settings.dir", "WH_NONSENSE"]
        {
            assert!(text(&output).contains(part), "{args:?}: {part} is not in {}", text(&output));
        }
    }
}

#[test]
fn a_file_that_is_named_must_be_there() {
    let dir = tempfile::tempdir().unwrap();
    for (args, env) in [(&["--config", "none.yaml"][..], &[][..]), (&[], &[("WH_CONFIG", "none.yaml")])] {
        let output = run(dir.path(), args, env);
        assert_eq!(output.status.code(), Some(64));
        assert!(text(&output).contains("none.yaml cannot be read"), "{}", text(&output));
    }
}

#[test]
fn a_data_directory_that_cannot_be_used_is_told_before_anything_starts() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "x").unwrap();
    let output = run(dir.path(), &[], &[("WH_DATA_DIR", "file")]);
    assert_eq!(output.status.code(), Some(64));
    assert!(text(&output).contains("is not a directory"), "{}", text(&output));
}

#[test]
fn an_engine_that_is_not_there_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let env = [("WH_ENGINE_BIN", "/nowhere/bin"), ("WH_ENGINE_LIB", "/nowhere/lib")];
    let output = run(dir.path(), &["dev"], &env);
    assert_eq!(output.status.code(), Some(64));
    for part in ["/nowhere/bin", "/nowhere/lib", "WH_CH_URL"] {
        assert!(text(&output).contains(part), "{}", text(&output));
    }
}

#[test]
fn wrong_usage_is_64_and_help_is_0() {
    let dir = tempfile::tempdir().unwrap();
    for args in [&["serve"][..], &["--nonsense"], &["config"], &["send"]] {
        assert_eq!(run(dir.path(), args, &[]).status.code(), Some(64), "{args:?}");
    }
    for args in [&["--help"][..], &["version"], &["--version"], &["help", "config"], &["config", "check"]] {
        assert_eq!(run(dir.path(), args, &[]).status.code(), Some(0), "{args:?}");
    }
    insta::assert_snapshot!("help", String::from_utf8_lossy(&run(dir.path(), &["--help"], &[]).stdout));
}

#[test]
fn what_is_in_effect_is_printed_without_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let env = [("WH_CH_PASSWORD", "hunter2"), ("WH_CH_DATABASE", "events_db")];
    let output = run(dir.path(), &["config", "print", "--set", "server.port=81"], &env);
    assert_eq!(output.status.code(), Some(0));
    assert!(!text(&output).contains("hunter2"));
    for part in
        ["port: 81  # WH_SERVER_PORT (--set)", "database: \"events_db\"  # WH_CH_DATABASE (WH_CH_DATABASE)"]
    {
        assert!(text(&output).contains(part), "{part} is not in {}", text(&output));
    }
}

#[test]
fn a_gateway_that_does_not_run_is_not_healthy() {
    let dir = tempfile::tempdir().unwrap();
    let port = wavehouse_testkit::free_port().to_string();
    for port in [port.as_str(), "http"] {
        assert_eq!(run(dir.path(), &["health"], &[("WH_SERVER_PORT", port)]).status.code(), Some(1));
    }
}
