//! Dead letters by the command line: seen, the cause mended, sent on, gone.

use std::path::Path;

use wavehouse_testkit::wait_for;

use crate::dev::wait_page;
use crate::http::Client;
use crate::program::{Program, SOON, run};

async fn sql(client: &Client, statement: &str) -> String {
    let answer = client.post("/v1/ops/query", serde_json::json!({ "sql": statement }).to_string()).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.text.trim().to_owned()
}

fn dlq(gateway: &Program, args: &[&str]) -> String {
    let url = format!("http://127.0.0.1:{}", gateway.port);
    let args: Vec<&str> = ["dlq"].iter().chain(args).chain(&["--url", &url]).copied().collect();
    let output = run(Path::new("/"), &args, &[]);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test]
async fn letters_are_seen_mended_and_sent_on() {
    let mut gateway = Program::dev(&[]);
    gateway.up().await;
    wait_page(&gateway).await;
    let client = gateway.plain_client();
    sql(&client, "CREATE TABLE t (a UInt32, CONSTRAINT small CHECK a < 100) ORDER BY a").await;
    assert_eq!(client.post("/v1/ops/schema/refresh", "").await.status, 200);
    let rows: String =
        (0..100).map(|n| format!("{{\"a\":{}}}\n", if n % 15 == 7 { n + 100 } else { n })).collect();
    assert_eq!(client.post("/v1/ingest?table=t", rows).await.status, 200);
    wait_for("the good rows", SOON, async || {
        sql(&client, "SELECT count() AS n FROM t").await == r#"[{"n":93}]"#
    })
    .await;
    wait_for("the letters", SOON, async || dlq(&gateway, &["ls"]).contains("7  in all")).await;

    let list = dlq(&gateway, &["ls", "--table", "t", "--code", "469"]);
    assert!(list.ends_with("7 letters\n"), "{list}");
    let id = list.split(' ').next().unwrap();
    let shown = dlq(&gateway, &["show", "--table", "t", id]);
    assert!(shown.contains("Constraint `small`") && shown.contains("{\"a\":107}"), "{shown}");
    assert_eq!(dlq(&gateway, &["replay", "--table", "t", "--dry-run"]), "7 would be replayed\n");

    sql(&client, "ALTER TABLE t DROP CONSTRAINT small").await;
    assert_eq!(dlq(&gateway, &["drop", "--table", "t", "--id", id]), "1 dropped\n");
    assert_eq!(dlq(&gateway, &["replay", "--table", "t"]), "6 replayed\n");
    wait_for("the mended rows", SOON, async || {
        sql(&client, "SELECT count() AS n FROM t").await == r#"[{"n":99}]"#
    })
    .await;
    assert!(dlq(&gateway, &["ls"]).contains("0  in all"));
}

/// The rows behind the bad one take a second to store, and the gateway is killed within it: buried, not acknowledged.
#[tokio::test]
async fn killed_between_burying_and_acknowledging_it_buries_once() {
    let mut gateway = Program::dev(&[]);
    gateway.up().await;
    wait_page(&gateway).await;
    let client = gateway.plain_client();
    sql(
        &client,
        "CREATE TABLE slow (a UInt32, wait UInt8 MATERIALIZED sleepEachRow(0.01), CONSTRAINT small CHECK a < 1000) \
         ORDER BY a SETTINGS non_replicated_deduplication_window = 1000",
    )
    .await;
    assert_eq!(client.post("/v1/ops/schema/refresh", "").await.status, 200);
    let rows: String =
        (0..120).map(|n| format!("{{\"a\":{}}}\n", if n == 20 { 1000 + n } else { n })).collect();
    assert_eq!(client.post("/v1/ingest?table=slow", rows).await.status, 200);
    let letters = async || {
        let answer = client.get("/v1/ops/dlq?table=slow").await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.text
    };
    wait_for("the letter", SOON, async || letters().await.contains("1020")).await;
    let before = letters().await;
    let waiting = client.get("/metrics").await.text;
    assert!(
        waiting.contains(r#"wavehouse_queue_unwritten_rows{tenant="0",table="slow"} 120"#),
        "nothing of the batch is acknowledged yet: {waiting}"
    );
    gateway.kill9();

    gateway.up().await;
    wait_page(&gateway).await;
    let client = gateway.plain_client();
    wait_for("every other row", SOON, async || {
        !client.get("/metrics").await.text.contains("wavehouse_queue_unwritten_rows{")
    })
    .await;
    let found = sql(&client, "SELECT count() AS n, uniqExact(a) AS u FROM slow").await;
    assert_eq!(found, r#"[{"n":119,"u":119}]"#);
    let after = client.get("/v1/ops/dlq?table=slow").await.text;
    let positions = |text: &str| {
        let page: serde_json::Value = serde_json::from_str(text).unwrap();
        page["letters"].as_array().unwrap().iter().map(|letter| letter["id"].to_string()).collect::<Vec<_>>()
    };
    assert_eq!(positions(&before).len(), 1, "{before}");
    assert_eq!(positions(&before), positions(&after));
}
