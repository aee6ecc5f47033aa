//! `wavehouse mq`: what it prints, and what it exits with.
#![expect(clippy::unwrap_used, reason = "a harness has nothing to do about a machine that fails it")]

use std::fs;
use std::path::Path;

use crate::program::run;

/// Runs a command line in an empty folder; exit code, standard output, standard error.
fn mq(line: &str) -> (i32, String, String) {
    let words: Vec<&str> = std::iter::once("mq").chain(line.split_whitespace()).collect();
    mq_words(&words)
}

fn mq_words(words: &[&str]) -> (i32, String, String) {
    let dir = tempfile::tempdir().unwrap();
    let output = run(dir.path(), words, &[]);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn shipped(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deployments/nats").join(file);
    fs::read_to_string(path).unwrap()
}

#[test]
fn case_36_help_is_0_and_on_standard_output() {
    for line in ["help", "-h", "--help", "manifests --help", "permissions -h", "help explain"] {
        let (code, out, err) = mq(line);
        assert_eq!((code, err.as_str()), (0, ""), "{line}");
        assert!(out.contains("Usage: wavehouse mq"), "{line}: {out}");
    }
    insta::assert_snapshot!("mq_manifests_help", mq("manifests --help").1);
}

#[test]
fn case_36_wrong_usage_is_2_and_on_standard_error() {
    for line in [
        "",
        "nonsense",
        "--partitions 4",
        "manifests extra",
        "manifests --nonsense",
        "manifests --partitions x",
        "manifests --partitions 0",
        "manifests --shards 0",
        "manifests --shards -1",
        "manifests --replicas 0",
        "manifests --publish-timeout 0",
        "manifests --publish-timeout -5s",
        "manifests --publish-timeout 5",
        "manifests --dedupe-lease -1s",
        "manifests --file-store 0",
        "manifests --file-store 10GB",
        "manifests --file-store -1",
        "manifests --partition-max-bytes 0",
        "manifests --partition-max-bytes 1.5Gi",
        "manifests --partitions",
        "permissions extra",
        "permissions --shards 0",
        "permissions --partitions 4",
        "explain",
        "explain acme",
        "explain a.b events",
        "explain acme events extra",
        "explain acme events --shards 0",
        "explain acme events --partitions 0",
        "provision --server x --partitions 0",
    ] {
        let (code, out, err) = mq(line);
        assert_eq!((code, out.as_str()), (2, ""), "{line}: {err}");
        assert!(err.starts_with("wavehouse: "), "{line}: {err}");
    }
    for line in ["", "nonsense", "manifests extra"] {
        assert!(mq(line).2.contains("Usage: wavehouse mq"), "{line}");
    }
}

#[test]
fn case_36_settings_that_cannot_work_are_1() {
    for (line, told) in [
        ("manifests --prefix Wh", "--prefix: "),
        ("manifests --prefix a.b", "--prefix: "),
        ("manifests --partitions -1", "--partitions: "),
        ("manifests --shards 257", "--shards: "),
        ("manifests --replicas 6", "--replicas: "),
        ("manifests --coord-bucket a.b", "--coord-bucket: "),
        ("manifests --ingest-consumer a.b", "--ingest-consumer: "),
        ("manifests --history-stream a*", "--history-stream: "),
        ("manifests --partitions 6", "105Gi"),
        ("permissions --shards 257", "--shards: "),
        ("permissions --js-domain two.tokens", "--js-domain: "),
        ("permissions --dlq-stream WH_HISTORY", "--dlq-stream: "),
        ("explain acme events --shards 257", "--shards: "),
    ] {
        let (code, out, err) = mq(line);
        assert_eq!((code, out.as_str()), (1, ""), "{line}: {err}");
        assert!(err.contains(told), "{line}: {err}");
    }
    let (_, _, err) = mq("manifests --prefix Wh --shards 257 --coord-bucket a.b");
    for told in ["--prefix: ", "--shards: ", "--coord-bucket: "] {
        assert!(err.contains(told), "all at once: {err}");
    }
}

#[test]
fn case_29_the_shipped_manifests_are_what_the_program_prints() {
    let (code, out, err) = mq("manifests --partitions 4 --shards 8");
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(
        out == shipped("jetstream.yaml"),
        "deployments/nats/jetstream.yaml is not what the program prints"
    );
}

#[test]
fn what_the_manifests_say_writes_them_again() {
    for line in [
        "manifests",
        "manifests --partitions 2 --shards 3 --prefix x --replicas 1 --ingest-consumer c \
         --history-stream H --dlq-stream D --coord-bucket b --publish-timeout 1m30s --dedupe-lease 2m \
         --file-store 1T --partition-max-bytes 1536Mi",
    ] {
        let (code, out, _) = mq(line);
        assert_eq!(code, 0, "{line}");
        let command = out.lines().find_map(|line| line.strip_prefix("#   wavehouse mq ")).unwrap();
        assert!(mq(command).1 == out, "{command} writes something else than {line}");
    }
}

#[test]
fn case_36_defaults_and_empty_flags_are_the_same() {
    let (_, usual, _) = mq("manifests");
    let empty = ["mq", "manifests", "--history-stream", "", "--coord-bucket=", "--partition-max-bytes", ""];
    assert!(mq_words(&empty).1 == usual);
    let said = "manifests --partitions 1 --shards 32 --prefix wh --replicas 3 --ingest-consumer wh-ingest \
                --history-stream WH_HISTORY --dlq-stream WH_DLQ --publish-timeout 5s --coord-bucket wh_coord \
                --dedupe-lease 30s --file-store 100Gi --partition-max-bytes 15Gi";
    assert!(mq(said).1 == usual);
    assert!(mq("manifests --shards 8 --shards 32").1 == usual, "the last one counts");
    assert_eq!(usual.matches("kind: Consumer").count(), 32);
}

#[test]
fn case_29_the_shipped_permissions_are_what_the_program_prints() {
    let (code, out, err) = mq("permissions --shards 8");
    assert_eq!((code, err.as_str()), (0, ""));
    let indented: String = out.lines().map(|line| format!("            {line}\n")).collect();
    assert!(
        shipped("values.yaml").ends_with(&indented),
        "deployments/nats/values.yaml has other permissions"
    );
    let (code, out, _) = mq("permissions --shards 8 --json");
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, json["publish"]["allow"].as_array().unwrap().len()), (0, 55));
    let (code, out, _) = mq("permissions --shards 1 --js-domain hub --prefix x");
    assert_eq!(code, 0);
    for part in ["- $JS.hub.API.CONSUMER.MSG.NEXT.*.wh-ingest-0\n", "- x.live.>\n", "JetStream domain hub"] {
        assert!(out.contains(part), "{out}");
    }
}

#[test]
fn a_table_is_explained() {
    let words =
        ["mq", "explain", "initech", "a*b>c", "--partitions", "4", "--shards", "32", "--scope", "eu.1"];
    let (code, out, err) = mq_words(&words);
    assert_eq!((code, err.as_str()), (0, ""));
    insta::assert_snapshot!("mq_explain", out);
    let (code, out, _) =
        mq("explain acme events --partitions 4 --shards 8 --prefix x --ingest-consumer c --json");
    assert_eq!(code, 0);
    let expected = serde_json::json!({
        "tenant": "acme", "table": "events", "scope": "",
        "partition": 2, "partitions": 4, "shard": 0, "shards": 8,
        "stream": "X_INGEST_2", "durable": "c-0",
        "subject": "x.ingest.2.0.acme.events", "filter": "x.ingest.2.0.>",
        "history_subject": "x.hist.acme.events", "dead_letter_subject": "x.dlq.acme.events",
    });
    assert_eq!(serde_json::from_str::<serde_json::Value>(&out).unwrap(), expected);
}

#[test]
fn neither_configuration_nor_variables_are_needed() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("config.yaml"), "nonsense: [").unwrap();
    let output = run(dir.path(), &["mq", "explain", "0", "t"], &[("WH_NONSENSE", "1")]);
    assert_eq!(output.status.code(), Some(0));
}
