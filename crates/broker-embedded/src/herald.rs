//! The herald: a task that tells senders what became of their calls.
//!
//! Waking a task from the writer's own thread takes a lock and often a switch of threads, for each of the hundreds of
//! senders that share a commit. The writer therefore wakes one task, the herald, and that wakes the senders from among
//! them, where a wake-up is a push. While no herald is at work, the writer tells the senders itself.

use std::sync::{Arc, Mutex};

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;

use crate::intake::{Answered, lock};

/// An answer and who waits for it.
type Message = (oneshot::Sender<Answered>, Answered);

/// What the writer leaves for the herald.
#[derive(Debug, Default)]
pub(crate) struct Herald {
    desk: Mutex<Desk>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Desk {
    /// At most as much as the intake lets in.
    messages: Vec<Message>,
    at_work: bool,
}

/// Whoever has gone needs no answer.
fn deliver(messages: Vec<Message>) {
    for (sender, answer) in messages {
        let _gone = sender.send(answer);
    }
}

impl Herald {
    /// Sees to it that the senders are told.
    pub(crate) fn tell(&self, messages: Vec<Message>) {
        // One is told as fast from here.
        if messages.len() > 1 {
            let mut desk = lock(&self.desk);
            if desk.at_work {
                desk.messages.extend(messages);
                drop(desk);
                self.wake.notify_one();
                return;
            }
        }
        deliver(messages);
    }

    /// Sets a herald to work, if there is a runtime for it. It works until the set is dropped.
    pub(crate) fn start(self: &Arc<Self>) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        if let Ok(runtime) = Handle::try_current() {
            lock(&self.desk).at_work = true;
            tasks.spawn_on(Arc::clone(self).work(AtWork(Arc::clone(self))), &runtime);
        }
        tasks
    }

    async fn work(self: Arc<Self>, _at_work: AtWork) {
        loop {
            self.wake.notified().await;
            deliver(std::mem::take(&mut lock(&self.desk).messages));
        }
    }
}

/// Held by the herald's task. However that ends, also with its runtime, nobody is left untold.
struct AtWork(Arc<Herald>);

impl Drop for AtWork {
    fn drop(&mut self) {
        let left = {
            let mut desk = lock(&self.0.desk);
            desk.at_work = false;
            std::mem::take(&mut desk.messages)
        };
        deliver(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(count: usize) -> (Vec<Message>, Vec<oneshot::Receiver<Answered>>) {
        (0..count)
            .map(|_| {
                let (sender, receiver) = oneshot::channel();
                ((sender, Answered::empty()), receiver)
            })
            .unzip()
    }

    #[tokio::test]
    async fn everyone_is_told_in_any_order_of_asking() {
        let herald = Arc::new(Herald::default());
        let _tasks = herald.start();
        let (mut sent, mut waiting) = messages(3);
        let gone = waiting.remove(1);
        drop(gone);
        herald.tell(std::mem::take(&mut sent));
        for receiver in waiting.into_iter().rev() {
            assert!(receiver.await.is_ok());
        }
    }

    #[test]
    fn nobody_is_left_untold_when_the_herald_ends_or_never_was() {
        let herald = Arc::new(Herald::default());
        let (sent, waiting) = messages(2);
        herald.tell(sent);
        for receiver in waiting {
            assert!(receiver.blocking_recv().is_ok(), "no runtime");
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let tasks = runtime.block_on(async { herald.start() });
        let (sent, waiting) = messages(2);
        herald.tell(sent);
        drop(runtime);
        for receiver in waiting {
            assert!(receiver.blocking_recv().is_ok(), "left behind by a runtime that is gone");
        }
        let (sent, waiting) = messages(2);
        herald.tell(sent);
        for receiver in waiting {
            assert!(receiver.blocking_recv().is_ok(), "told after it");
        }
        drop(tasks);
    }
}
