//! What the generator logs: quiet when all is well. WARN says that it recovers by itself, ERROR
//! that someone must act.

use std::time::Duration;

use pleg_core::{CallError, Health, Instant, List, NotReady};

/// The same failure again is said once in this time.
const AGAIN: Duration = Duration::from_secs(60);

/// What was said of failing lists.
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
                tracing::warn!(%error, ?took, "a full list failed; it is tried again");
                self.said = Some((error.clone(), list.ended));
            }
        }
    }
}

/// Says when readiness changes.
#[derive(Debug, Default)]
pub(crate) struct HealthLog {
    ready: bool,
}

impl HealthLog {
    /// The writer replaces what it wrote last.
    pub(crate) fn written(&mut self, last: &Health, health: &Health, now: Instant) {
        if let Err(why @ NotReady::Stalled { .. }) = last.ready(now) {
            tracing::warn!(%why, "not ready meanwhile; the work goes on now");
        }
        let ready = health.ready(now);
        match &ready {
            Err(why) if self.ready => tracing::error!(%why, "not ready any more"),
            Ok(()) if !self.ready => tracing::info!("ready"),
            _ => {}
        }
        self.ready = ready.is_ok();
    }
}
