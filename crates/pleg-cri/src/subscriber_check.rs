//! The embedder's check for another subscriber to the runtime's events.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The time limit of a check: a check that reads `/proc` can hang on a hung process.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The embedder's check.
#[derive(Clone)]
pub(crate) struct SubscriberCheck {
    find: Arc<dyn Fn() -> Option<String> + Send + Sync>,
    is_running: Arc<AtomicBool>,
}

impl SubscriberCheck {
    pub(crate) fn new(find: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        Self {
            find: Arc::new(find),
            is_running: Arc::default(),
        }
    }

    /// The reason to expect another subscriber, if any. A check that hangs blocks one thread; no further check starts
    /// until it ends.
    pub(crate) async fn run(&self) -> Option<String> {
        let hangs = || Some("the check for another subscriber hangs".to_owned());
        if self.is_running.swap(true, Ordering::Relaxed) {
            return hangs();
        }
        let running = Running(self.is_running.clone());
        let find = self.find.clone();
        let check = tokio::task::spawn_blocking(move || {
            let _running = running;
            find()
        });
        match tokio::time::timeout(TIMEOUT, check).await {
            Ok(Ok(found)) => found,
            Ok(Err(_)) => Some("the check for another subscriber failed".to_owned()),
            Err(_) => hangs(),
        }
    }
}

/// Marks a check as running until dropped.
struct Running(Arc<AtomicBool>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Mutex, mpsc};

    #[tokio::test]
    async fn check_that_hangs_is_not_started_twice() {
        let (answer, answers) = mpsc::channel();
        let answers = Mutex::new(answers);
        let check = SubscriberCheck::new(move || answers.lock().unwrap().recv().unwrap());
        let first = tokio::spawn({
            let check = check.clone();
            async move { check.run().await }
        });
        while !check.is_running.load(Ordering::Relaxed) {
            tokio::task::yield_now().await;
        }
        let hangs = "the check for another subscriber hangs";
        assert_eq!(check.run().await.as_deref(), Some(hangs));
        answer.send(Some("a kubelet runs".to_owned())).unwrap();
        assert_eq!(first.await.unwrap().as_deref(), Some("a kubelet runs"));
    }
}
