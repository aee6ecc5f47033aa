//! Dead letters: seen, sent on, removed.

use wavehouse_broker::{Broker, DeadLetter};
use wavehouse_core::{LogId, Position, Sequence, TableName, TableRef, TenantId, Timestamp};
use wavehouse_testkit::Engine;

use crate::harness::{Harness, open_options};

fn letter(table: &str, row: u32, code: u32) -> DeadLetter {
    DeadLetter {
        table: TableRef::new(TenantId::default(), TableName::parse(table).unwrap()),
        position: Position::new(LogId(1), Sequence(1), row),
        received_at: Timestamp::from_millis(1_000),
        buried_at: Timestamp::from_millis(2_000),
        code: Some(code),
        reason: format!("Code: {code}. why"),
        line: format!("{{\"a\":{row}}}").into(),
    }
}

async fn start() -> (Engine, Harness) {
    let engine = Engine::start().await;
    let api = Harness::start(&engine, open_options()).await;
    let letters = (0..7).map(|row| letter("t", row, 469)).chain([letter("t", 9, 117), letter("u", 1, 117)]);
    api.broker.bury(letters.collect()).await.unwrap();
    (engine, api)
}

#[tokio::test]
async fn letters_are_counted_and_read_a_page_at_a_time() {
    let (_engine, api) = start().await;
    let get = async |path: &str| api.send("GET", path, &[], "").await.json();
    assert_eq!(get("/v1/ops/dlq/stats").await, serde_json::json!({"tables": {"t": 8, "u": 1}, "total": 9}));
    assert_eq!(get("/v1/ops/dlq/stats?table=u").await["total"], 1);
    let page = get("/v1/ops/dlq?table=t&limit=5").await;
    assert_eq!((page["letters"].as_array().unwrap().len(), page["more"].as_bool()), (5, Some(true)));
    let last = &page["letters"][4];
    assert_eq!(
        *last,
        serde_json::json!({"id": "0000000000000001-1-4", "table": "t", "code": 469, "reason": "Code: 469. why",
            "received_at": "1970-01-01T00:00:01.000Z", "buried_at": "1970-01-01T00:00:02.000Z", "row": {"a": 4}})
    );
    let rest = get("/v1/ops/dlq?table=t&after=0000000000000001-1-4").await;
    assert_eq!((rest["letters"].as_array().unwrap().len(), rest["more"].as_bool()), (3, Some(false)));
    assert_eq!(get("/v1/ops/dlq?code=117").await["letters"].as_array().unwrap().len(), 2);
    assert_eq!(get("/v1/ops/dlq?until=1970-01-01T00:00:02Z").await["letters"].as_array().unwrap().len(), 0);
    assert_eq!(get("/v1/ops/dlq?table=t&id=0000000000000001-1-9").await["letters"][0]["row"]["a"], 9);
}

#[tokio::test]
async fn letters_are_replayed_and_removed() {
    let (_engine, api) = start().await;
    let post = async |path: &str| api.send("POST", path, &[], "").await;
    let dry = post("/v1/ops/dlq/replay?table=t&code=469&dry_run").await.json();
    assert_eq!(dry, serde_json::json!({"matched": 7, "replayed": 0, "dry_run": true}));
    assert!(api.stored().await.is_empty());
    let done = post("/v1/ops/dlq/replay?table=t&code=469").await.json();
    assert_eq!(done, serde_json::json!({"matched": 7, "replayed": 7, "dry_run": false}));
    assert_eq!(api.stored().await, (0..7).map(|row| format!("{{\"a\":{row}}}")).collect::<Vec<_>>());
    let gone = api.send("DELETE", "/v1/ops/dlq?table=u", &[], "").await.json();
    assert_eq!(gone, serde_json::json!({"matched": 1, "dropped": 1, "dry_run": false}));
    let left = api.send("GET", "/v1/ops/dlq/stats", &[], "").await.json();
    assert_eq!(left, serde_json::json!({"tables": {"t": 1}, "total": 1}));
}

#[tokio::test]
async fn what_is_no_row_is_not_replayed() {
    let (_engine, api) = start().await;
    let no_rows =
        ["WHB\u{1}\u{fffd}", "{\"a\":1}\n{\"a\":2}", "[1]", "7", ""].iter().enumerate().map(|(row, line)| {
            let row = u32::try_from(row).unwrap();
            DeadLetter { line: (*line).into(), code: None, ..letter("v", row, 0) }
        });
    api.broker.bury(no_rows.chain([letter("v", 7, 117)]).collect()).await.unwrap();
    let post = async |path: &str| api.send("POST", path, &[], "").await.json();
    let dry = post("/v1/ops/dlq/replay?table=v&dry_run").await;
    assert_eq!(dry, serde_json::json!({"matched": 6, "replayed": 0, "not_rows": 5, "dry_run": true}));
    let done = post("/v1/ops/dlq/replay?table=v").await;
    assert_eq!(done, serde_json::json!({"matched": 6, "replayed": 1, "not_rows": 5, "dry_run": false}));
    assert_eq!(api.stored().await, ["{\"a\":7}"]);
    let left = api.send("GET", "/v1/ops/dlq?table=v", &[], "").await.json();
    assert_eq!(left["letters"].as_array().unwrap().len(), 5, "they stay: {left}");
    let gone = api.send("DELETE", "/v1/ops/dlq?table=v", &[], "").await.json();
    assert_eq!(gone, serde_json::json!({"matched": 5, "dropped": 5, "dry_run": false}));
}

#[tokio::test]
async fn bad_questions_are_answered() {
    let (_engine, api) = start().await;
    for (method, path, error) in [
        ("DELETE", "/v1/ops/dlq", "missing table"),
        ("POST", "/v1/ops/dlq/replay", "missing table"),
        ("GET", "/v1/ops/dlq?limit=0", "invalid parameter limit: it is 1 to 1000"),
        ("GET", "/v1/ops/dlq?after=0000000000000001-1-4", "invalid parameter after: it needs a table"),
        ("GET", "/v1/ops/dlq?code=x", "invalid parameter code"),
        ("GET", "/v1/ops/dlq?from=yesterday", "invalid parameter from"),
        ("GET", "/v1/ops/dlq?id=7", "invalid parameter id"),
    ] {
        let answer = api.send(method, path, &[], "").await;
        assert_eq!(answer.status, 400, "{path}");
        assert!(answer.error().starts_with(error), "{path}: {}", answer.text);
    }
    assert_eq!(api.send("GET", "/v1/ops/dlq/stats", &[], "").await.json()["total"], 9);
}
