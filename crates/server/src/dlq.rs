//! `wavehouse dlq`: dead letters from the command line, over the operator routes.
//!
//! `ls` without a table counts; with one it lists. `show` prints one letter whole. `replay` sends letters on again and
//! `drop` removes them; both say first how many with `--dry-run`.

mod ask;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::value::RawValue;

use ask::Gateway;

/// Longest reason in a list, in characters; `show` prints all of it.
const REASON_CHARS: usize = 100;

/// Dead letters: rows that ClickHouse refuses for good.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct DlqArgs {
    #[command(subcommand)]
    action: Action,
    /// Address of the server; a path prefix is kept.
    #[arg(long, global = true, default_value = "http://127.0.0.1:8080")]
    url: String,
    /// File that holds the operator key; without it WH_AUTH_OPERATOR_KEY counts.
    #[arg(long, global = true, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// The operator key from the environment, put here by the program's start.
    #[arg(skip)]
    pub(crate) operator_key: Option<String>,
}

#[derive(clap::Subcommand, Clone, Debug)]
enum Action {
    /// Counts letters by table; with --table lists them.
    Ls {
        #[command(flatten)]
        filter: Filter,
        /// Only letters of this table.
        #[arg(long)]
        table: Option<String>,
        /// Most letters to list.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
        /// The answer as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Prints one letter: its row, and ClickHouse's reason in full.
    Show {
        /// Table that the row was for.
        #[arg(long)]
        table: String,
        /// The letter's id, as `ls` prints it.
        id: String,
    },
    /// Sends letters on again and removes them; one that is refused again becomes a new letter.
    Replay {
        #[command(flatten)]
        filter: Filter,
        /// Table that the rows are for.
        #[arg(long)]
        table: String,
        /// Only counts.
        #[arg(long)]
        dry_run: bool,
    },
    /// Removes letters for good.
    Drop {
        #[command(flatten)]
        filter: Filter,
        /// Table that the rows were for.
        #[arg(long)]
        table: String,
        /// Only counts.
        #[arg(long)]
        dry_run: bool,
    },
}

/// Which letters are meant. All conditions must hold.
#[derive(clap::Args, Clone, Debug, Default)]
struct Filter {
    /// Only letters with this ClickHouse exception code.
    #[arg(long)]
    code: Option<u32>,
    /// Only letters buried at this time or later, RFC 3339.
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Only letters buried before this time, RFC 3339.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Only the letter with this id.
    #[arg(long)]
    id: Option<String>,
}

impl Filter {
    fn parameters<'a>(&'a self, table: Option<&'a str>) -> Vec<(&'static str, String)> {
        let text = |name, value: Option<&str>| value.map(|value| (name, value.to_owned()));
        let code = self.code.map(|code| ("code", code.to_string()));
        let texts = [
            text("table", table),
            text("from", self.from.as_deref()),
            text("until", self.until.as_deref()),
            text("id", self.id.as_deref()),
        ];
        code.into_iter().chain(texts.into_iter().flatten()).collect()
    }
}

#[derive(Deserialize)]
struct Stats {
    tables: std::collections::BTreeMap<String, u64>,
    total: u64,
}

#[derive(Deserialize)]
struct Page {
    letters: Vec<Letter>,
    more: bool,
}

#[derive(Deserialize)]
struct Letter {
    id: String,
    table: String,
    code: Option<u32>,
    reason: String,
    received_at: String,
    buried_at: String,
    row: Box<RawValue>,
}

/// Does what was asked. 0: done; 1: the server refused or cannot be reached.
pub(crate) async fn run(args: DlqArgs) -> anyhow::Result<ExitCode> {
    let key = match &args.key_file {
        Some(path) => {
            let text = std::fs::read_to_string(path);
            Some(
                text.with_context(|| format!("cannot read the key file {}", path.display()))?
                    .trim()
                    .to_owned(),
            )
        }
        None => args.operator_key.clone(),
    };
    let gateway = Gateway::new(&args.url, key.as_deref())?;
    let text = match &args.action {
        Action::Ls { filter, table: None, json, .. } => counts(&gateway, filter, *json).await?,
        Action::Ls { filter, table: Some(table), limit, json } => {
            list(&gateway, filter, (table, *limit), *json).await?
        }
        Action::Show { table, id } => show(&gateway, table, id).await?,
        Action::Replay { filter, table, dry_run } => {
            change(
                &gateway,
                ("POST", "/v1/ops/dlq/replay", "replayed"),
                &filter.parameters(Some(table)),
                *dry_run,
            )
            .await?
        }
        Action::Drop { filter, table, dry_run } => {
            change(&gateway, ("DELETE", "/v1/ops/dlq", "dropped"), &filter.parameters(Some(table)), *dry_run)
                .await?
        }
    };
    io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

async fn counts(gateway: &Gateway, filter: &Filter, json: bool) -> anyhow::Result<String> {
    if filter.code.is_some() || filter.from.is_some() || filter.until.is_some() || filter.id.is_some() {
        bail!("a filter needs --table");
    }
    let body = gateway.ask("GET", "/v1/ops/dlq/stats", &[]).await?;
    if json {
        return Ok(body);
    }
    let stats: Stats = serde_json::from_str(&body).context("the answer is not of the expected form")?;
    let lines: String = stats.tables.iter().map(|(table, count)| format!("{count:>10}  {table}\n")).collect();
    Ok(format!("{lines}{:>10}  in all\n", stats.total))
}

async fn list(
    gateway: &Gateway,
    filter: &Filter,
    (table, limit): (&str, u16),
    json: bool,
) -> anyhow::Result<String> {
    let mut parameters = filter.parameters(Some(table));
    parameters.push(("limit", limit.to_string()));
    let body = gateway.ask("GET", "/v1/ops/dlq", &parameters).await?;
    if json {
        return Ok(body);
    }
    let page: Page = serde_json::from_str(&body).context("the answer is not of the expected form")?;
    let mut text = String::new();
    for letter in &page.letters {
        let code = letter.code.map_or_else(|| "-".to_owned(), |code| code.to_string());
        let reason: String = letter.reason.lines().next().unwrap_or("").chars().take(REASON_CHARS).collect();
        text.push_str(&format!("{}  {}  {code:>5}  {reason}\n", letter.id, letter.buried_at));
    }
    text.push_str(&format!("{} letters{}\n", page.letters.len(), if page.more { ", and more" } else { "" }));
    Ok(text)
}

async fn show(gateway: &Gateway, table: &str, id: &str) -> anyhow::Result<String> {
    let parameters = [("table", table.to_owned()), ("id", id.to_owned())];
    let body = gateway.ask("GET", "/v1/ops/dlq", &parameters).await?;
    let page: Page = serde_json::from_str(&body).context("the answer is not of the expected form")?;
    let Some(letter) = page.letters.first() else { bail!("table {table:?} has no dead letter {id}") };
    let code = letter.code.map_or_else(|| "none".to_owned(), |code| code.to_string());
    Ok(format!(
        "id        {}\ntable     {}\nreceived  {}\nburied    {}\ncode      {code}\nreason    {}\nrow       {}\n",
        letter.id,
        letter.table,
        letter.received_at,
        letter.buried_at,
        letter.reason,
        letter.row.get()
    ))
}

async fn change(
    gateway: &Gateway,
    (method, path, done): (&str, &str, &str),
    parameters: &[(&'static str, String)],
    dry_run: bool,
) -> anyhow::Result<String> {
    let mut parameters = parameters.to_vec();
    if dry_run {
        parameters.push(("dry_run", "true".to_owned()));
    }
    let body = gateway.ask(method, path, &parameters).await?;
    let answer: serde_json::Value = serde_json::from_str(&body).context("the answer is not JSON")?;
    let number = |name: &str| answer.get(name).and_then(serde_json::Value::as_u64).unwrap_or_default();
    let (matched, not_rows) = (number("matched"), number("not_rows"));
    let gone = matched.saturating_sub(not_rows);
    let mut text = if dry_run { format!("{gone} would be {done}\n") } else { format!("{gone} {done}\n") };
    if not_rows > 0 {
        text.push_str(&format!(
            "{not_rows} are no rows and stay: see them with `wavehouse dlq ls`, drop them\n"
        ));
    }
    Ok(text)
}
