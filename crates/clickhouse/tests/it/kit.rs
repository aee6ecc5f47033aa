//! A connection to an engine of the test's own.

use std::sync::Arc;

use bytes::Bytes;
use wavehouse_clickhouse::{
    CatalogOptions, ClickHouseError, ClickHouseMetrics, ClickHouseSink, Connection, RowBatch, RowSink,
    Secret, Target, Targets,
};
use wavehouse_core::{TableName, TableRef, TenantId};
use wavehouse_testkit::Engine;

pub(crate) fn target(engine: &Engine) -> Target {
    Target::new(&engine.url(), &engine.user, Secret::new(&engine.password), "default")
}

pub(crate) fn connect(target: Target) -> Arc<Connection> {
    Arc::new(Connection::new(target, CatalogOptions::default(), &ClickHouseMetrics::default()).unwrap())
}

/// An engine and a sink into it.
pub(crate) struct House {
    pub(crate) engine: Engine,
    pub(crate) connection: Arc<Connection>,
    pub(crate) sink: ClickHouseSink,
}

impl House {
    pub(crate) async fn new(statements: &[&str]) -> Self {
        let engine = Engine::start().await;
        for statement in statements {
            engine.query(statement).await;
        }
        let connection = connect(target(&engine));
        let targets = Targets::one(TenantId::default(), Arc::clone(&connection));
        let sink = ClickHouseSink::new(targets, ClickHouseMetrics::default());
        Self { engine, connection, sink }
    }

    pub(crate) async fn insert(
        &self,
        table: &str,
        token: &str,
        lines: &[String],
    ) -> Result<(), ClickHouseError> {
        let batch = batch(table, token, lines);
        self.sink.write(&batch).await.map_err(|error| error.clickhouse().unwrap().clone())
    }

    pub(crate) async fn count(&self, table: &str) -> String {
        self.engine.query(&format!("SELECT count() FROM `{table}`")).await.trim().to_owned()
    }
}

/// A batch whose lines are cut into pieces of seven, as blocks would.
pub(crate) fn batch(table: &str, token: &str, lines: &[String]) -> RowBatch {
    let piece =
        |lines: &[String]| Bytes::from(lines.iter().map(|line| format!("{line}\n")).collect::<String>());
    let pieces: Vec<Bytes> = lines.chunks(7).map(piece).collect();
    RowBatch {
        table: TableRef::new(TenantId::default(), TableName::parse(table).unwrap()),
        rows: u32::try_from(lines.len()).unwrap(),
        bytes: pieces.iter().map(|piece| piece.len() as u64).sum(),
        lines: pieces,
        token: token.to_owned(),
    }
}

pub(crate) fn numbers(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|number| format!("{{\"n\":{number}}}")).collect()
}
