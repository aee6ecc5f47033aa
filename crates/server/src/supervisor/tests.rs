//! What ends a run, in which order tasks stop, and what happens to those that do not.

use std::sync::{Arc, Mutex};

use super::*;

type Log = Arc<Mutex<Vec<&'static str>>>;

fn supervisor() -> (Supervisor, mpsc::Sender<Signal>, mpsc::Receiver<Signal>) {
    let (send, receive) = mpsc::channel(4);
    (Supervisor::new(StopBudget { delay: Duration::ZERO, drain: Duration::from_secs(10) }), send, receive)
}

fn until_stopped(supervisor: &mut Supervisor, name: &'static str, phase: Phase, log: &Log) {
    let log = Arc::clone(log);
    supervisor.spawn(name, phase, OnExit::StopProcess, |stop| async move {
        stop.cancelled().await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        log.lock().unwrap().push(name);
        Ok(())
    });
}

#[tokio::test(start_paused = true)]
async fn phases_stop_in_order_whatever_the_order_of_start() {
    let (mut supervisor, signals, receive) = supervisor();
    let log = Log::default();
    for (name, phase) in [
        ("queue", Phase::Release),
        ("sweeper", Phase::Background),
        ("api", Phase::Api),
        ("worker", Phase::Worker),
    ] {
        until_stopped(&mut supervisor, name, phase, &log);
    }
    signals.send(Signal::Terminate).await.unwrap();
    let outcome = supervisor.run(receive).await;
    assert!(outcome.clean(), "{outcome:?}");
    assert_eq!(*log.lock().unwrap(), ["api", "worker", "sweeper", "queue"]);
}

#[tokio::test(start_paused = true)]
async fn the_first_cause_is_told() {
    let (mut supervisor, _signals, receive) = supervisor();
    supervisor
        .spawn("first", Phase::Background, OnExit::StopProcess, |_| async { anyhow::bail!("out of luck") });
    supervisor.spawn("second", Phase::Api, OnExit::StopProcess, |stop| async move {
        stop.cancelled().await;
        anyhow::bail!("because of the first")
    });
    let outcome = supervisor.run(receive).await;
    assert!(!outcome.clean());
    assert_eq!(outcome.cause.to_string(), "first failed: out of luck");
    assert_eq!(outcome.cut_off, ["second"]);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_ends_by_itself_ends_the_process_and_one_that_may_does_not() {
    let (mut supervisor, _signals, receive) = supervisor();
    supervisor.spawn("errand", Phase::Background, OnExit::Log, |_| async { anyhow::bail!("not today") });
    supervisor.spawn("worker", Phase::Worker, OnExit::StopProcess, |_| async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        Ok(())
    });
    let outcome = supervisor.run(receive).await;
    assert_eq!(outcome.cause.to_string(), "worker ended by itself");
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failure() {
    let (mut supervisor, _signals, receive) = supervisor();
    supervisor.spawn("bug", Phase::Worker, OnExit::StopProcess, |_| async { panic!("a bug") });
    let outcome = supervisor.run(receive).await;
    assert!(matches!(outcome.cause, Cause::Failed { task: "bug", .. }), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn what_does_not_stop_is_cut_off_and_the_rest_still_gets_its_turn() {
    let (mut supervisor, signals, receive) = supervisor();
    let log = Log::default();
    supervisor.spawn("stuck", Phase::Api, OnExit::StopProcess, |_| std::future::pending());
    until_stopped(&mut supervisor, "worker", Phase::Worker, &log);
    until_stopped(&mut supervisor, "queue", Phase::Release, &log);
    signals.send(Signal::Interrupt).await.unwrap();
    let began = Instant::now();
    let outcome = supervisor.run(receive).await;
    assert_eq!(outcome.cut_off, ["stuck"]);
    assert!(!outcome.clean());
    assert_eq!(*log.lock().unwrap(), ["worker", "queue"]);
    assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_second_signal_ends_it_at_once() {
    let (mut supervisor, signals, receive) = supervisor();
    supervisor.spawn("stuck", Phase::Api, OnExit::StopProcess, |_| std::future::pending());
    signals.send(Signal::Terminate).await.unwrap();
    signals.send(Signal::Terminate).await.unwrap();
    let began = Instant::now();
    let outcome = supervisor.run(receive).await;
    assert!(outcome.hurried && !outcome.clean());
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[test]
fn the_parts_of_a_stop_add_up_to_what_is_documented() {
    let budget = StopBudget { delay: Duration::ZERO, drain: Duration::from_secs(10) };
    let began = Instant::now();
    let mut now = began;
    for phase in Phase::ORDER {
        now = budget.deadline(phase, began, now);
    }
    assert!(now - began <= Duration::from_secs(18));
}
