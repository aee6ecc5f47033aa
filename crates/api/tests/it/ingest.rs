//! Rows in: forms, answers, refusals, limits.

use std::io::Write;

use wavehouse_broker::TenantLimits;
use wavehouse_broker::conformance::MemoryOptions;
use wavehouse_testkit::Engine;

use crate::harness::{Harness, open_options};

const NDJSON: (&str, &str) = ("content-type", "application/x-ndjson");

async fn with_table(columns: &str) -> (Engine, Harness) {
    let engine = Engine::start().await;
    engine.query(&format!("CREATE TABLE t ({columns}) ENGINE = MergeTree ORDER BY tuple()")).await;
    let harness = Harness::start(&engine, open_options()).await;
    (engine, harness)
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn every_form_of_body_is_stored_as_it_was_sent() {
    let (_engine, api) = with_table("a Int32, s Nullable(String)").await;
    let two = "{\"a\":1}\n{\"a\" : 2, \"s\":\"x\\u0041\"}";
    let cases = [
        (&[][..], b"{\"a\":1}".to_vec(), "single", 1),
        (&[("content-type", "application/json")], b"{\"a\":1}".to_vec(), "single", 1),
        (&[("content-type", "application/x-www-form-urlencoded")], b" {\"a\":1} ".to_vec(), "single", 1),
        (&[], b"[{\"a\":1},\n{\"a\":2}]".to_vec(), "batch", 2),
        (&[NDJSON], two.into(), "batch", 2),
        (&[NDJSON], b"{\"a\":1}".to_vec(), "batch", 1),
        (&[NDJSON, ("content-encoding", "gzip")], gzip(two.as_bytes()), "batch", 2),
        (&[("content-encoding", "zstd")], zstd::encode_all(two.as_bytes(), 3).unwrap(), "batch", 2),
        (&[], b"{\"a\":1}{\"a\":2}\r\n{\"a\":3}".to_vec(), "batch", 3),
    ];
    let mut rows = 0;
    for (headers, body, shape, count) in cases {
        let answer = api.ingest("t", headers, body.clone()).await;
        let context = format!("{headers:?} {}", String::from_utf8_lossy(&body));
        assert_eq!(answer.status, 200, "{context}: {}", answer.text);
        if shape == "single" {
            assert_eq!(answer.text.trim(), "{\"ok\":true}", "{context}");
        } else {
            assert_eq!(answer.json()["succeeded"], count, "{context}");
        }
        rows += count;
        assert_eq!(api.stored().await.len(), rows, "{context}");
    }
    assert_eq!(api.stored().await[6], "{\"a\" : 2, \"s\":\"x\\u0041\"}", "bytes are kept");
}

#[tokio::test]
async fn a_bad_record_does_not_keep_the_good_ones_out() {
    let (_engine, api) = with_table("a UInt8").await;
    let body = "{\"a\":1}\n{\"b\":2}\n{\"a\":300}\nnonsense\n{\"a\":3}\n";
    let answer = api.ingest("t", &[NDJSON], body).await;
    assert_eq!(answer.status, 200);
    let json = answer.json();
    assert_eq!(
        (json["total"].as_u64(), json["succeeded"].as_u64(), json["failed"].as_u64()),
        (Some(5), Some(2), Some(3))
    );
    assert_eq!(json["results"][0], serde_json::json!({"index": 1, "ok": true}));
    assert_eq!(json["results"][1]["index"], 2);
    assert_eq!(json["results"][1]["exception_code"], 117);
    assert_eq!(api.stored().await, ["{\"a\":1}", "{\"a\":3}"]);

    let strict = api.send("POST", "/v1/ingest?table=t&strict=true", &[NDJSON], body).await;
    assert_eq!(strict.status, 400);
    assert!(strict.error().starts_with("record 2: "), "{}", strict.text);
    assert_eq!(strict.json()["code"], "clickhouse.rejected");
    assert_eq!(api.stored().await.len(), 2, "a strict refusal stores nothing");

    let single = api.ingest("t", &[], "{\"b\":1}").await;
    assert_eq!((single.status, single.json()["exception_code"].as_u64()), (400, Some(117)));
}

#[tokio::test]
async fn whole_requests_are_refused_by_the_agreed_texts() {
    let (_engine, api) = with_table("a Int32").await;
    for (path, headers, body, status, error) in [
        ("/v1/ingest", &[][..], "{}", 400, "missing table"),
        ("/v1/ingest?table=", &[], "{}", 400, "missing table"),
        ("/v1/ingest?table=nope", &[], "{}", 404, "unknown table: nope"),
        ("/v1/ingest?table=t", &[], "", 400, "empty body"),
        ("/v1/ingest?table=t", &[NDJSON], "\n\n", 400, "empty ndjson body"),
        ("/v1/ingest?table=t", &[], "[{\"a\":1},", 400, "invalid json: unterminated json array"),
        ("/v1/ingest?table=t", &[("x-tenant-id", "acme")], "{}", 404, "unknown tenant: acme"),
        (
            "/v1/ingest?table=t",
            &[("content-encoding", "br")],
            "{}",
            415,
            "unsupported Content-Encoding \"br\"",
        ),
        ("/v1/ingest?table=t", &[("content-type", "text/csv")], "1", 415, "Content-Type \"text/csv\""),
        ("/v1/ingest?table=%", &[], "{}", 400, "invalid query string"),
    ] {
        let answer = api.send("POST", path, headers, body).await;
        assert_eq!(answer.status, status, "{path} {body}: {}", answer.text);
        assert!(answer.error().starts_with(error), "{path} {body}: {}", answer.text);
        assert_eq!(answer.header("content-type"), Some("application/json"));
    }
    let empty = api.ingest("t", &[], "[]").await;
    assert_eq!((empty.status, empty.json()["total"].as_u64()), (200, Some(0)));
    assert!(api.stored().await.is_empty());
}

#[tokio::test]
async fn sixteen_mebibytes_are_the_end_before_and_after_unpacking() {
    let (_engine, api) = with_table("a Int32").await;
    let line = format!("{{\"a\":1}}{}\n", " ".repeat(24));
    let fits = line.repeat((16 << 20) / line.len());
    let answer = api.ingest("t", &[NDJSON], fits.clone()).await;
    assert_eq!(answer.status, 200, "{}", answer.text.get(..200).unwrap_or(&answer.text));
    assert_eq!(answer.json()["succeeded"], 524_288);
    assert_eq!(answer.json()["results"].as_array().map(Vec::len), Some(10_000));

    let over = format!("{fits} ");
    let bomb = gzip(over.as_bytes());
    for (headers, body) in
        [(&[NDJSON][..], over.into_bytes()), (&[NDJSON, ("content-encoding", "gzip")], bomb)]
    {
        let answer = api.ingest("t", headers, body).await;
        assert_eq!((answer.status, answer.error().as_str()), (413, "request body exceeded 16777216 bytes"));
    }
    let many = api.ingest("t", &[NDJSON], "{\"a\":1}\n".repeat(1_048_577)).await;
    assert_eq!(many.status, 413, "{}", many.text);
}

#[tokio::test]
async fn a_full_queue_is_503_with_retry_after() {
    let engine = Engine::start().await;
    engine.query("CREATE TABLE t (a Int32) ENGINE = MergeTree ORDER BY tuple()").await;
    let limits = TenantLimits { unwritten_bytes_max: 300, ..MemoryOptions::default().limits };
    let memory = MemoryOptions { limits, ..MemoryOptions::default() };
    let api = Harness::start_at(&engine.url(), &engine, open_options(), memory).await;
    api.connection.catalog.refresh().await.unwrap();
    let mut accepted = 0;
    let refused = loop {
        let answer = api.ingest("t", &[], "{\"a\":1}").await;
        if answer.status != 200 {
            break answer;
        }
        accepted += 1;
        assert!(accepted < 100, "the queue never filled");
    };
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("30")));
    assert!(
        refused.error().starts_with("service unavailable: queue of tenant 0 is full"),
        "{}",
        refused.text
    );
    assert_eq!(api.stored().await.len(), accepted);
}

#[tokio::test]
async fn receipt_time_is_filled_in_at_the_columns_width() {
    let (_engine, api) = with_table("a Int32, received_timestamp DateTime64(3, 'UTC')").await;
    assert_eq!(api.ingest("t", &[], "{\"a\":1}").await.status, 200);
    assert_eq!(
        api.ingest("t", &[], "{\"a\":2,\"received_timestamp\":\"2026-01-01T00:00:00.000Z\"}").await.status,
        200
    );
    let rows: Vec<serde_json::Value> =
        api.stored().await.iter().map(|row| serde_json::from_str(row).unwrap()).collect();
    let filled = rows[0]["received_timestamp"].as_str().unwrap();
    assert_eq!((filled.len(), filled.ends_with('Z')), ("2026-01-01T00:00:00.000Z".len(), true), "{filled}");
    assert_eq!(rows[1]["received_timestamp"], "2026-01-01T00:00:00.000Z");
}
