//! `wavehouse mq verify`: the check that a start makes, against the servers as they are.

use std::fmt::Write;

use clap::Args;
use serde_json::json;
use wavehouse_broker_nats::observe;
use wavehouse_topology::{Finding, Severity, verify};

use super::asked::LookFlags;
use super::servers::failed;
use super::{FINDINGS, Refusal, Said, Surroundings, refusal};

#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    #[command(flatten)]
    look: LookFlags,
    /// Passes over what only should be otherwise, and looks at what must.
    #[arg(long)]
    required: bool,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(args: VerifyArgs, around: &Surroundings<'_>) -> Result<Said, Refusal> {
    let asked = args.look.ask(around).await?;
    let observed = observe(&asked.connection, &asked.spec).await;
    asked.connection.close().await;
    let observed = observed.map_err(|error| failed(&error))?;
    let mut found = verify(&asked.spec, &observed);
    found.retain(|finding| !args.required || finding.severity == Severity::Required);
    let text = if args.json {
        let body = json!({"findings": found});
        serde_json::to_string_pretty(&body).map_err(|error| refusal(error.to_string()))? + "\n"
    } else {
        as_text(&found)
    };
    Ok(Said { text, code: if found.is_empty() { 0 } else { FINDINGS } })
}

fn as_text(found: &[Finding]) -> String {
    if found.is_empty() {
        return "everything on the servers is as it should be\n".to_owned();
    }
    let mut text = String::new();
    for finding in found {
        // Writing into a string cannot fail.
        let _written = writeln!(text, "{} [{}]", finding, finding.rule);
    }
    text
}
