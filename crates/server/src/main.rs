//! The wavehouse program: configuration, wiring, supervisor, operator commands.

mod background;
mod bench;
mod budget;
mod cli;
mod config;
mod dev;
mod dlq;
mod engine;
mod health;
mod listener;
mod logs;
mod metrics;
mod mq;
mod ops;
mod proc;
mod send;
mod supervisor;
mod wiring;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command, ConfigCommand};
use config::{Finding, Loaded, Mode, Sources};
use supervisor::{Cause, Outcome};

/// A request makes a dozen small allocations, some of which are freed on another thread; measured with `make bench`, this
/// one takes single rows at 1.1 times the rate of the system's with 64 clients, and at 1.5 times with 2,048.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Something failed.
const FAILED: u8 = 1;
/// Wrong usage or configuration.
const USAGE: u8 = 64;
/// The variable that commands which talk to a server take its key from.
const OPERATOR_KEY: &str = "WH_AUTH_OPERATOR_KEY";

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let wrong = error.use_stderr();
            // Nothing is left to do when the terminal is gone.
            let _printed = error.print();
            return if wrong { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
        }
    };
    // The one place where the environment is read.
    let env: BTreeMap<String, String> = std::env::vars_os()
        .map(|(name, text)| (name.to_string_lossy().into_owned(), text.to_string_lossy().into_owned()))
        .collect();
    run(&cli, &env)
}

fn run(cli: &Cli, env: &BTreeMap<String, String>) -> ExitCode {
    match &cli.command {
        None => serve(cli, env, Mode::Serve),
        Some(Command::Dev) => serve(cli, env, Mode::Dev),
        Some(Command::Send(args)) => {
            let mut args = args.clone();
            args.operator_key = env.get(OPERATOR_KEY).cloned();
            command(send::run(args))
        }
        Some(Command::Dlq(args)) => {
            let mut args = args.clone();
            args.operator_key = env.get(OPERATOR_KEY).cloned();
            command(dlq::run(args))
        }
        Some(Command::Bench(args)) => {
            let mut args = args.clone();
            args.operator_key = env.get(OPERATOR_KEY).cloned();
            command(bench::run(args))
        }
        Some(Command::Mq(args)) => mq_command(cli, env, args),
        Some(Command::Version) => say(&format!("wavehouse {}\n", env!("CARGO_PKG_VERSION"))),
        Some(Command::Health) => match health::address(env).and_then(health::check) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&format!("{error:#}"), FAILED),
        },
        Some(Command::Metrics) => say(&metrics::reference_page()),
        Some(Command::Config(ConfigCommand::Keys)) => say(&config::reference_page()),
        Some(Command::Config(ConfigCommand::Check(args))) => match load(cli, env, mode(args.dev)) {
            Ok(loaded) => {
                let warnings: String =
                    loaded.config.warnings.iter().map(|line| format!("warning: {line}\n")).collect();
                say(&format!("{warnings}the configuration is good\n"))
            }
            Err(code) => code,
        },
        Some(Command::Config(ConfigCommand::Print(args))) => match load(cli, env, mode(args.dev)) {
            Ok(loaded) => say(&config::print(&loaded.layers, mode(args.dev))),
            Err(code) => code,
        },
    }
}

fn mq_command(cli: &Cli, env: &BTreeMap<String, String>, args: &mq::MqArgs) -> ExitCode {
    let config = || match try_load(cli, env, Mode::Serve) {
        Ok(loaded) => Ok(loaded.config),
        Err(findings) => Err(config::report(&findings)),
    };
    let run = async { Ok(mq::run(args, &mq::Surroundings { config: &config }).await) };
    match block_on(run) {
        Ok(Ok(said)) => {
            let said_it = say(&said.text);
            if said_it == ExitCode::SUCCESS { ExitCode::from(said.code) } else { said_it }
        }
        Ok(Err(refusal)) => fail(&refusal.text, refusal.code),
        Err(error) => fail(&format!("{error:#}"), FAILED),
    }
}

fn mode(dev: bool) -> Mode {
    if dev { Mode::Dev } else { Mode::Serve }
}

/// Loads the configuration; what is wrong with it is printed.
fn load(cli: &Cli, env: &BTreeMap<String, String>, mode: Mode) -> Result<Loaded, ExitCode> {
    try_load(cli, env, mode).map_err(|findings| fail(config::report(&findings).trim_end(), USAGE))
}

fn try_load(cli: &Cli, env: &BTreeMap<String, String>, mode: Mode) -> Result<Loaded, Vec<Finding>> {
    let uname = rustix::system::uname();
    let host = uname.nodename().to_string_lossy();
    let nonce = getrandom::u32().unwrap_or(std::process::id());
    let read = |path: &Path| fs::read_to_string(path);
    let file = cli.config.as_deref();
    let sources = Sources { mode, env, file, flags: &cli.set, host: (&host, nonce), read: &read };
    config::load(&sources)
}

fn serve(cli: &Cli, env: &BTreeMap<String, String>, mode: Mode) -> ExitCode {
    let config = match load(cli, env, mode) {
        Ok(loaded) => loaded.config,
        Err(code) => return code,
    };
    let mut findings: Vec<Finding> = Vec::new();
    if config.keeps_files() {
        findings.extend(config::probe_data_dir(&config.data_dir));
    }
    let engine = wiring::find_engine(&config).map_err(|missing| findings.extend(missing));
    let Ok(engine) = engine.and_then(|engine| if findings.is_empty() { Ok(engine) } else { Err(()) }) else {
        return fail(config::report(&findings).trim_end(), USAGE);
    };
    logs::start(config.log_level);
    match block_on(wiring::run(config, engine)) {
        Ok(outcome) if outcome.clean() => ExitCode::SUCCESS,
        Ok(outcome) => leave(&outcome),
        Err(error) => fail(&format!("{error:#}"), FAILED),
    }
}

fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(work)
}

/// Runs a command that talks to a server.
fn command(work: impl Future<Output = anyhow::Result<ExitCode>>) -> ExitCode {
    block_on(work).unwrap_or_else(|error| fail(&format!("{error:#}"), FAILED))
}

/// Leaves without waiting for threads that may hang: what must be durable is.
#[expect(clippy::exit, reason = "a second signal or a task that hangs must not keep the process")]
fn leave(outcome: &Outcome) -> ! {
    if !matches!(outcome.cause, Cause::Signal(_)) {
        let _code = fail(&outcome.cause.to_string(), FAILED);
    }
    std::process::exit(i32::from(FAILED))
}

fn say(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(FAILED),
    }
}

fn fail(text: &str, code: u8) -> ExitCode {
    // Nothing is left to do when standard error is gone.
    let _written = writeln!(io::stderr(), "wavehouse: {text}");
    ExitCode::from(code)
}
