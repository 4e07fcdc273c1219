//! Logging of lists and readiness. WARN means that the generator recovers by itself, ERROR that an
//! operator must act.

use std::time::Duration;

use pleg_core::{CallError, Health, Instant, List, NotReady};

/// A repeated failure is logged once in this time.
const AGAIN: Duration = Duration::from_secs(60);

/// The last logged failure of a list.
#[derive(Debug, Default)]
pub(crate) struct ListLog {
    said: Option<(CallError, Instant)>,
}

impl ListLog {
    pub(crate) fn listed(&mut self, list: &List) {
        match (&list.rows, &self.said) {
            (Ok(_), None) => {}
            (Ok(_), Some(_)) => {
                self.said = None;
                tracing::info!("full lists succeed again");
            }
            (Err(error), Some((said, at))) if said == error && list.ended.since(*at) < AGAIN => {}
            (Err(error), _) => {
                let took = list.ended.since(list.began);
                tracing::warn!(%error, ?took, "a full list failed; retrying");
                self.said = Some((error.clone(), list.ended));
            }
        }
    }
}

/// Logs changes of readiness.
#[derive(Debug, Default)]
pub(crate) struct HealthLog {
    ready: bool,
}

impl HealthLog {
    /// The writer replaces `last` with `health`.
    pub(crate) fn written(&mut self, last: &Health, health: &Health, now: Instant) {
        if let Err(why @ NotReady::Stalled { .. }) = last.ready(now) {
            tracing::warn!(%why, "was not ready; the writer continues now");
        }
        let ready = health.ready(now);
        match &ready {
            Err(why) if self.ready => tracing::error!(%why, "no longer ready"),
            Ok(()) if !self.ready => tracing::info!("ready"),
            _ => {}
        }
        self.ready = ready.is_ok();
    }
}
