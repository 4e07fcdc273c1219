//! The embedder's check for another subscriber to the runtime's events.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::{Mutex, oneshot};

/// The time limit of a check: a check that reads `/proc` can hang on a hung process.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The embedder's check for another subscriber.
#[derive(Clone)]
pub(crate) struct SubscriberCheck {
    find: Arc<dyn Fn() -> Option<String> + Send + Sync>,
    /// Is locked while a check runs.
    running: Arc<Mutex<()>>,
}

impl SubscriberCheck {
    pub(crate) fn new(find: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        Self {
            find: Arc::new(find),
            running: Arc::default(),
        }
    }

    /// The reason to expect another subscriber, if any. A check that hangs blocks one thread. No further check starts
    /// until the hung check ends.
    pub(crate) async fn run(&self) -> Option<String> {
        let (find, running) = (self.find.clone(), self.running.clone());
        let check = async {
            let running = running.lock_owned().await;
            let (reply, found) = oneshot::channel();
            // The check has its own thread: a tokio runtime that is dropped waits for `spawn_blocking` tasks that hang.
            let check = thread::Builder::new().spawn(move || {
                let _running = running;
                reply.send(find())
            });
            drop(check);
            found.await
        };
        match tokio::time::timeout(TIMEOUT, check).await {
            Ok(Ok(found)) => found,
            Ok(Err(_)) => Some("the check for another subscriber failed".to_owned()),
            Err(_) => Some("the check for another subscriber hangs".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// A second caller waits for the running check: if it reported a hang, its PLEG would use no event stream for 60 s.
    #[tokio::test]
    async fn subscriber_checks_run_in_turn_and_hung_check_times_out() {
        let (answer, answers) = mpsc::channel();
        let answers = std::sync::Mutex::new(answers);
        let check = SubscriberCheck::new(move || answers.lock().unwrap().recv().unwrap());
        for _ in 0..2 {
            answer.send(Some("a kubelet runs".to_owned())).unwrap();
        }
        let (first, second) = tokio::join!(check.run(), check.run());
        assert_eq!(
            (first.as_deref(), second),
            (Some("a kubelet runs"), first.clone())
        );
        let hangs = Some("the check for another subscriber hangs");
        assert_eq!(check.run().await.as_deref(), hangs);
        drop(answer);
    }
}
