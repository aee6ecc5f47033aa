//! What the user of the product may not do, with the permissions that the product says it needs.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use wavehouse_nats::CallError;

use crate::stage::{Stage, input};

#[tokio::test]
async fn case_46_what_is_the_operators_is_refused() {
    let stage = Stage::start(input()).await;
    let user = stage.user().await;
    let jetstream = user.jetstream().with_timeout(Duration::from_secs(2));
    let stream = json!({"name": "WH_INGEST_0", "subjects": ["wh.ingest.0.>"]});
    let durable =
        json!({"stream_name": "WH_INGEST_0", "config": {"durable_name": "x", "ack_policy": "explicit"}});
    let changed = json!({"stream_name": "WH_INGEST_0", "action": "update", "config": {
        "durable_name": "wh-ingest-0", "ack_policy": "explicit", "filter_subject": "wh.ingest.0.0.>",
        "max_deliver": 1}});
    for (verb, body) in [
        ("STREAM.CREATE.X", &stream),
        ("STREAM.UPDATE.WH_INGEST_0", &stream),
        ("STREAM.PURGE.WH_INGEST_0", &json!({})),
        ("STREAM.DELETE.WH_INGEST_0", &json!({})),
        ("CONSUMER.DURABLE.CREATE.WH_INGEST_0.x", &durable),
        ("CONSUMER.CREATE.WH_INGEST_0.x", &durable),
        ("CONSUMER.CREATE.WH_INGEST_0.wh-ingest-0.wh.ingest.0.0.>", &changed),
        ("CONSUMER.RESET.WH_INGEST_0.someone", &json!({})),
        ("CONSUMER.MSG.NEXT.WH_INGEST_0.someone", &json!({})),
        ("STREAM.MSG.GET.WH_INGEST_0", &json!({"seq": 1})),
        ("STREAM.MSG.DELETE.WH_INGEST_0", &json!({"seq": 1})),
        ("STREAM.MSG.DELETE.WH_HISTORY", &json!({"seq": 1})),
        ("STREAM.MSG.DELETE.KV_wh_coord", &json!({"seq": 1})),
        ("STREAM.UPDATE.KV_wh_coord", &json!({"name": "KV_wh_coord"})),
        ("STREAM.PURGE.WH_DLQ", &json!({})),
        ("CONSUMER.DELETE.WH_INGEST_0.wh-ingest-0", &json!({})),
        ("STREAM.CREATE.KV_other", &json!({})),
        ("STREAM.PURGE.KV_wh_coord", &json!({})),
        ("STREAM.DELETE.KV_wh_coord", &json!({})),
    ] {
        let answer = jetstream.call::<Value>(verb, Bytes::from(body.to_string())).await;
        assert!(matches!(answer, Err(CallError::Refused { .. })), "{verb}: {answer:?}");
    }
    let foreign_acks =
        ["$JS.ACK.WH_INGEST_0.someone.1.1.1.1.0", "$JS.ACK._.hash.WH_INGEST_0.someone.1.1.1.1.0"];
    for subject in ["wh.hist.0.t", "$KV.wh_coord.other"].into_iter().chain(foreign_acks) {
        let forged = jetstream.publish(subject, None, Bytes::from_static(b"forged")).await;
        assert!(forged.is_err(), "{subject}: {forged:?}");
    }
    let read = jetstream.direct_get_last("KV_wh_coord", "$KV.wh_coord.other").await;
    assert!(matches!(read, Err(CallError::Refused { .. })), "{read:?}");
    for stream in ["WH_INGEST_0", "WH_HISTORY", "KV_wh_coord"] {
        let info = stage.operator.stream_info(stream).await.expect("it is there");
        assert_eq!((info.state.last_seq, info.state.messages), (0, 0), "{stream}");
    }
    let names = stage.operator.consumer_names("WH_INGEST_0").await.expect("names");
    assert_eq!(names.len(), 2, "{names:?}");
    let durable = stage.operator.consumer_info("WH_INGEST_0", "wh-ingest-0").await.expect("it is there");
    assert_eq!(durable.config["max_deliver"], json!(-1), "it is as it was");
}
