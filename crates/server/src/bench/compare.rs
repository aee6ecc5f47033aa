//! `bench compare`: medians of several rounds, and ratios taken round by round.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Context;

use super::result::{RunResult, grouped, micros};

/// Arguments of `bench compare`.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct CompareArgs {
    /// A ratio to print: `what it says=LABEL/LABEL:FIGURE`. A label may be several joined by `+`: their figures are
    /// added; or several joined by `|`: the largest counts. FIGURE is rows_per_s, rows_per_core, p50_us, p99_us or a name under "more".
    #[arg(long = "ratio", value_name = "TEXT=A/B:FIGURE")]
    ratios: Vec<Ratio>,
    /// Files with one result a line, in the order of the rounds.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// A ratio as asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ratio {
    text: String,
    above: Side,
    below: Side,
    figure: String,
}

/// The largest of these, each a sum of labels' figures.
type Side = Vec<Vec<String>>;

impl FromStr for Ratio {
    type Err = &'static str;

    fn from_str(given: &str) -> Result<Self, Self::Err> {
        const WANTED: &str = "a ratio is TEXT=A/B:FIGURE";
        let (text, rest) = given.rsplit_once('=').ok_or(WANTED)?;
        let (labels, figure) = rest.rsplit_once(':').ok_or(WANTED)?;
        let (above, below) = labels.split_once('/').ok_or(WANTED)?;
        let list =
            |labels: &str| labels.split('|').map(|sum| sum.split('+').map(Into::into).collect()).collect();
        Ok(Self { text: text.to_owned(), above: list(above), below: list(below), figure: figure.to_owned() })
    }
}

type Rounds = BTreeMap<String, Vec<RunResult>>;

/// Reads and prints.
pub(super) fn run(args: &CompareArgs) -> anyhow::Result<()> {
    let mut order = Vec::new();
    let mut rounds = Rounds::new();
    for path in &args.files {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let result: RunResult =
                serde_json::from_str(line).with_context(|| format!("{}: not a result", path.display()))?;
            if !order.contains(&result.label) {
                order.push(result.label.clone());
            }
            rounds.entry(result.label.clone()).or_default().push(result);
        }
    }
    let text = medians(&order, &rounds) + &ratios(&args.ratios, &rounds);
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}

fn medians(order: &[String], rounds: &Rounds) -> String {
    let mut text = format!(
        "{:<30} {:>6} {:>12} {:>9} {:>9} {:>9} {:>12} {:>7} {:>10}\n",
        "medians", "rounds", "rows/s", "MB/s", "p50", "p99", "rows/s/core", "MB RSS", "flushes"
    );
    for label in order {
        let Some(results) = rounds.get(label) else { continue };
        let middle = |name: &str| median(results.iter().filter_map(|one| one.figure(name)).collect());
        let shown = |value: Option<f64>, show: fn(f64) -> String| value.map_or_else(|| "-".to_owned(), show);
        #[expect(clippy::cast_precision_loss, reason = "a count for people")]
        let flushes =
            median(results.iter().filter_map(|one| Some(one.cost.device_flushes? as f64)).collect());
        // Writing to a string does not fail.
        let _written = writeln!(
            text,
            "{label:<30} {:>6} {:>12} {:>9} {:>9} {:>9} {:>12} {:>7} {:>10}",
            results.len(),
            shown(middle("rows_per_s"), grouped),
            shown(middle("mb_per_s"), |value| format!("{value:.1}")),
            shown(middle("p50_us"), micros),
            shown(middle("p99_us"), micros),
            shown(middle("rows_per_core"), grouped),
            shown(middle("rss_mb"), grouped),
            shown(flushes, grouped),
        );
        let names: std::collections::BTreeSet<&String> =
            results.iter().flat_map(|one| one.more.keys()).collect();
        for name in names {
            let value =
                shown(
                    middle(name),
                    |value| if value < 100.0 { format!("{value:.2}") } else { grouped(value) },
                );
            let _written = writeln!(text, "    {name:<26} {value:>19}");
        }
    }
    text
}

fn ratios(wanted: &[Ratio], rounds: &Rounds) -> String {
    let mut text = String::new();
    if !wanted.is_empty() {
        text.push_str("\nratios (median of the rounds, smallest and largest)\n");
    }
    for ratio in wanted {
        let each = of_rounds(ratio, rounds);
        let smallest = each.iter().copied().fold(f64::INFINITY, f64::min);
        let largest = each.iter().copied().fold(0.0, f64::max);
        let shown = median(each).map_or_else(
            || "not measured".to_owned(),
            |value| format!("{value:>8.2}x   ({smallest:.2} to {largest:.2})"),
        );
        let _written = writeln!(text, "{:<62} {shown}", ratio.text);
    }
    text
}

/// One ratio for each round in which everything needed was measured.
fn of_rounds(ratio: &Ratio, rounds: &Rounds) -> Vec<f64> {
    let sum = |labels: &[String], round: usize| -> Option<f64> {
        labels.iter().map(|label| rounds.get(label)?.get(round)?.figure(&ratio.figure)).sum()
    };
    let largest = |side: &Side, round: usize| -> Option<f64> {
        side.iter().filter_map(|labels| sum(labels, round)).reduce(f64::max)
    };
    let most = rounds.values().map(Vec::len).max().unwrap_or(0);
    (0..most)
        .filter_map(|round| {
            Some(largest(&ratio.above, round)? / largest(&ratio.below, round).filter(|below| *below > 0.0)?)
        })
        .collect()
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

#[cfg(test)]
mod tests {
    use super::super::result::Latency;
    use super::*;

    fn result(label: &str, rows_per_s: f64, p50_us: f64) -> RunResult {
        let latency = Some(Latency { p50_us, ..Latency::default() });
        RunResult { label: label.into(), rows_per_s, latency, ..RunResult::default() }
    }

    #[test]
    fn ratios_pair_the_rounds_and_take_the_median() {
        let mut rounds = Rounds::new();
        rounds.insert("a".into(), [10.0, 40.0, 30.0].map(|rate| result("a", rate, 150.0)).to_vec());
        rounds.insert("b".into(), [10.0, 20.0, 10.0].map(|rate| result("b", rate, 100.0)).to_vec());
        rounds.insert("c".into(), vec![result("c", 1.0, 50.0)]);
        let ratio = |text: &str| of_rounds(&text.parse().unwrap(), &rounds);
        assert_eq!(ratio("x=a/b:rows_per_s"), [1.0, 2.0, 3.0]);
        assert_eq!(median(ratio("x=a/b:rows_per_s")), Some(2.0));
        assert_eq!(ratio("x=a/b+c:p50_us"), [1.0]);
        assert_eq!(ratio("x=a/b|c:rows_per_s"), [1.0, 2.0, 3.0]);
        assert_eq!(ratio("x=a/c|b+b:rows_per_s"), [0.5, 1.0, 1.5]);
        assert!(ratio("x=a/none:rows_per_s").is_empty());
        let text = ratios(&["goal >= 2=a/b:rows_per_s".parse().unwrap()], &rounds);
        assert!(text.contains("goal >= 2 ") && text.contains("2.00x   (1.00 to 3.00)"), "{text}");
        assert!("a/b".parse::<Ratio>().is_err());
    }

    #[test]
    fn medians_of_even_rounds_lie_between() {
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(Vec::new()), None);
    }
}
