//! An operator's statement, passed on as it is, its answer passed back as it comes.

use http::HeaderValue;
use http::header::CONTENT_TYPE;

use crate::client::Client;
use crate::error::ClickHouseError;
use crate::response::{Response, ResponseBody};

/// Largest answer that is passed back, in bytes; a larger one fails with [`Cause::TooLarge`](crate::Cause::TooLarge).
pub const RAW_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The answer to an operator's statement.
#[derive(Debug)]
pub struct RawAnswer {
    /// What ClickHouse says it is; JSON where the statement names no format.
    pub content_type: Option<HeaderValue>,
    /// The name of the format, from `X-ClickHouse-Format`. `JSON` unless the statement names another one; none when the
    /// statement has no output.
    pub format: Option<String>,
    /// The body, at most [`RAW_BYTES_MAX`].
    pub body: ResponseBody,
}

impl Client {
    /// Sends an operator's statement verbatim, with the target's query time-out. A query that only reads stops when the
    /// answer is dropped.
    ///
    /// # Errors
    /// [`ClickHouseError`], also from the body.
    pub async fn raw(&self, sql: &str) -> Result<RawAnswer, ClickHouseError> {
        let settings = [
            ("default_format", "JSON"),
            ("date_time_output_format", "iso"),
            // Numbers are numbers, however long, and whatever the server's own default is.
            ("output_format_json_quote_64bit_integers", "0"),
        ];
        let Response { headers, body, .. } = self.query(sql, &settings).await?;
        let format = headers.get("x-clickhouse-format").and_then(|format| format.to_str().ok());
        Ok(RawAnswer {
            content_type: headers.get(CONTENT_TYPE).cloned(),
            format: format.map(str::to_owned),
            body: body.limited(RAW_BYTES_MAX),
        })
    }
}
