//! A child process that publishes, cuts and acks as fast as it can, and is killed again and again at random instants.
//! What it was told is compared with what is there in the end.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use wavehouse_broker::{Broker, Cut, Delivery, InsertToken};
use wavehouse_broker_embedded::EmbeddedBroker;
use wavehouse_core::{Sequence, TableRef};

use crate::faulty::Chance;
use crate::kit::{next, numbered, numbers, open, open_unit, options, table};

const KILLS: u64 = 24;
const TABLES: [&str; 3] = ["a", "b", "c"];
/// Blocks that the child takes before it cuts and acks.
const BATCH: usize = 8;

/// Tells the parent, at once and whole: what has been said outlives the one who said it.
fn say(line: &str) {
    std::io::stdout().lock().write_all(format!("\n!{line}\n").as_bytes()).unwrap();
}

/// Not a test of its own: the process that is killed. It works in the directory that it is started in.
#[test]
#[ignore = "run by the test that kills it"]
fn child() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let first: u64 = std::fs::read_to_string("first").unwrap().parse().unwrap();
        let broker = open(&options(Path::new(".")));
        let mut senders = JoinSet::new();
        for (index, name) in (0..).zip(TABLES) {
            senders.spawn(send(Arc::clone(&broker), table(name), first + index * 1_000_000));
        }
        read(&broker).await;
    });
}

async fn send(broker: Arc<EmbeddedBroker>, table: TableRef, first: u64) {
    for number in first.. {
        let padding = usize::try_from(number % 7 * 900).unwrap();
        say(&format!("sent {} {number}", table.table));
        let outcome = broker.submit(vec![numbered(&table, number, padding)]).await.remove(0);
        match outcome {
            Ok(receipt) => say(&format!("stored {} {number} {}", table.table, receipt.first.sequence)),
            Err(error) => panic!("refused: {error}"),
        }
    }
}

async fn read(broker: &EmbeddedBroker) {
    let mut unit = open_unit(broker).await;
    for cut in &unit.cuts {
        say(&format!("given {} {} {} {}", cut.table.table, cut.first, cut.last, cut.token));
    }
    say("open");
    let mut token = 0;
    loop {
        let mut batches: HashMap<TableRef, Vec<Delivery>> = HashMap::new();
        for _ in 0..BATCH {
            let delivery = next(&mut unit).await;
            let rows = numbers(&delivery.stored().block);
            say(&format!("came {} {} {rows:?}", delivery.table().table, delivery.sequence()));
            batches.entry(delivery.table().clone()).or_default().push(delivery);
        }
        for (table, batch) in batches {
            let (first, last) = (batch[0].sequence(), batch[batch.len() - 1].sequence());
            token += 1;
            let (splits, token) = (vec![1, 2], InsertToken(token));
            let blocks = u32::try_from(batch.len()).unwrap();
            let cut = Cut { table: table.clone(), first, last, blocks, splits, done_rows: 0, token };
            say(&format!("cutting {} {first} {last} {token}", table.table));
            unit.control.record_cut(cut).await.unwrap();
            say(&format!("cut {} {first} {last} {token}", table.table));
            for delivery in batch {
                say(&format!("acking {} {}", table.table, delivery.sequence()));
                delivery.ack();
            }
        }
    }
}

/// What the parent knows of a table.
#[derive(Default)]
struct Known {
    sent: BTreeSet<u64>,
    stored: BTreeSet<u64>,
    /// Rows in the order in which they came for the first time.
    came: Vec<u64>,
    rows: BTreeMap<u64, Vec<u64>>,
    /// Blocks acked, those of them that were acked since the last kill, and those that a later cut made durable.
    acked: BTreeSet<u64>,
    acked_now: BTreeSet<u64>,
    acked_for_good: BTreeSet<u64>,
    /// The last cut that was recorded, and one that may have been.
    cut: Option<(u64, u64, String)>,
    cutting: Option<(u64, u64, String)>,
}

impl Known {
    fn comes(&mut self, sequence: u64, rows: Vec<u64>) {
        assert!(!self.acked_for_good.contains(&sequence), "block {sequence} was acked for good");
        // Acked just before a kill and forgotten.
        self.acked.remove(&sequence);
        if let Some(before) = self.rows.insert(sequence, rows.clone()) {
            assert_eq!(before, rows, "a block is what it was");
            return;
        }
        self.came.extend(rows);
    }

    fn given(&mut self, given: Option<&(u64, u64, String)>) {
        match given {
            Some(cut) => {
                assert!(self.cut.as_ref() == Some(cut) || self.cutting.as_ref() == Some(cut), "{cut:?}");
                self.cut = Some(cut.clone());
            }
            None => {
                if let Some((first, last, _)) = &self.cut {
                    let over = (*first..=*last).all(|sequence| self.acked.contains(&sequence));
                    assert!(over, "the cut {first} to {last} is forgotten");
                }
                self.cut = None;
            }
        }
        self.cutting = None;
        self.acked_now.clear();
    }
}

fn spawn(dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["kill::child", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .current_dir(dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// One life of the child: what it said.
fn live(dir: &Path, life: u64, chance: &mut Chance) -> Vec<String> {
    std::fs::write(dir.join("first"), (life * 10_000_000).to_string()).unwrap();
    let mut child = spawn(dir);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut said = Vec::new();
    for line in lines.by_ref() {
        let line = line.unwrap();
        let open = line == "!open";
        said.push(line);
        if open {
            break;
        }
    }
    assert_eq!(said.last().map(String::as_str), Some("!open"), "it opens: {said:?}");
    // Its pipe fills up while it is not read, so it is read until it dies.
    let reader = std::thread::spawn(move || lines.map_while(Result::ok).collect::<Vec<_>>());
    std::thread::sleep(Duration::from_millis(chance.below(120)));
    child.kill().unwrap();
    child.wait().unwrap();
    said.extend(reader.join().unwrap());
    said
}

fn learn(known: &mut HashMap<String, Known>, said: &[String]) {
    let mut given: HashMap<String, (u64, u64, String)> = HashMap::new();
    for line in said.iter().filter_map(|line| line.strip_prefix('!')) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        if words[0] == "open" {
            for (name, known) in known.iter_mut() {
                known.given(given.get(name));
            }
            continue;
        }
        let cut = || (number(2), number(3), words[4].to_owned());
        let table = known.get_mut(words[1]).unwrap();
        match words[0] {
            "given" => drop(given.insert(words[1].to_owned(), cut())),
            "sent" => drop(table.sent.insert(number(2))),
            "stored" => drop(table.stored.insert(number(2))),
            "came" => {
                let rows = words[3..].join("");
                let rows = rows.trim_matches(['[', ']']).split(',').map(|row| row.parse().unwrap()).collect();
                table.comes(number(2), rows);
            }
            "cutting" => table.cutting = Some(cut()),
            "cut" => {
                table.cut = table.cutting.take();
                // Durable on return, together with every ack given before, of any table.
                for table in known.values_mut() {
                    table.acked_for_good.append(&mut table.acked_now);
                }
            }
            "acking" => {
                table.acked.insert(number(2));
                table.acked_now.insert(number(2));
            }
            other => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn what_was_stored_outlives_any_kill() {
    let dir = tempfile::tempdir().unwrap();
    let mut chance = Chance::new(std::process::id().into());
    let mut known: HashMap<String, Known> =
        TABLES.iter().map(|name| ((*name).to_owned(), Known::default())).collect();
    for life in 1..=KILLS {
        let (path, mut luck) = (dir.path().to_owned(), Chance::new(chance.below(u64::MAX)));
        let said = tokio::task::spawn_blocking(move || live(&path, life, &mut luck)).await.unwrap();
        learn(&mut known, &said);
    }
    let broker = open(&options(dir.path()));
    let mut unit = open_unit(&broker).await;
    for (name, known) in &mut known {
        let cut = unit.cuts.iter().find(|cut| *cut.table.table.as_str() == **name);
        known.given(cut.map(|cut| (cut.first.0, cut.last.0, cut.token.to_string())).as_ref());
    }
    while !broker.depths().is_empty() {
        let delivery = next(&mut unit).await;
        let Sequence(sequence) = delivery.sequence();
        let rows = numbers(&delivery.stored().block);
        known.get_mut(delivery.table().table.as_str()).unwrap().comes(sequence, rows);
        delivery.ack();
    }
    for (name, known) in known {
        assert!(known.came.is_sorted_by(|a, b| a < b), "{name}: order holds");
        let came: BTreeSet<u64> = known.came.iter().copied().collect();
        let lost: Vec<_> = known.stored.difference(&came).collect();
        assert!(lost.is_empty(), "{name}: stored and lost: {lost:?}");
        assert!(came.is_subset(&known.sent), "{name}: nothing that was never sent");
        assert!(known.stored.len() > 100, "{name}: {} rows were stored", known.stored.len());
        // Sequences run without gaps.
        let count = known.rows.len() as u64;
        assert_eq!(known.rows.keys().copied().collect::<Vec<_>>(), (1..=count).collect::<Vec<_>>(), "{name}");
    }
}
