//! Logs failed lists and changes of health. WARN means that the generator recovers by itself, ERROR that an operator
//! must act.

use std::time::Duration;

use pleg_core::{CallError, Degraded, GoDuration, Health, Instant, List, NotReady};

/// The minimum time between two log lines about the same error of full lists.
const AGAIN: Duration = Duration::from_secs(60);

/// The last logged failure of a list.
#[derive(Debug, Default)]
pub(crate) struct ListLog {
    last: Option<(CallError, Instant)>,
}

impl ListLog {
    pub(crate) fn listed(&mut self, list: &List) {
        match (&list.rows, &self.last) {
            (Ok(_), None) => {}
            (Ok(_), Some(_)) => {
                self.last = None;
                tracing::info!("full lists succeed again");
            }
            (Err(error), Some((last, at))) if last == error && list.ended.since(*at) < AGAIN => {}
            (Err(error), _) => {
                let took = GoDuration(list.ended.since(list.began));
                tracing::warn!(%error, %took, "a full list failed; retrying");
                self.last = Some((error.clone(), list.ended));
            }
        }
    }
}

/// Logs changes of readiness and of degraded reasons, with the code of each reason, such as `pods_hung`.
#[derive(Debug, Default)]
pub(crate) struct HealthLog {
    ready: bool,
    /// The codes of the present degraded reasons, each with the instant at which it appeared.
    degraded: Vec<(&'static str, Instant)>,
}

impl HealthLog {
    /// Logs the differences between the health published last, `last`, and the new `health`.
    pub(crate) fn written(&mut self, last: &Health, health: &Health, now: Instant) {
        if let Err(why @ NotReady::Stalled { .. }) = last.ready(now) {
            tracing::warn!(reason = why.as_str(), %why, "was not ready; the generator continues now");
        }
        let ready = health.ready(now);
        match &ready {
            Err(why) if self.ready => {
                tracing::error!(reason = why.as_str(), %why, "no longer ready");
            }
            Ok(()) if !self.ready => tracing::info!("ready"),
            _ => {}
        }
        self.ready = ready.is_ok();
        self.log_degraded(&health.degraded(now), now);
    }

    fn log_degraded(&mut self, degraded: &[Degraded], now: Instant) {
        let present = |reason| degraded.iter().any(|d| d.as_str() == reason);
        self.degraded.retain(|(reason, since)| {
            // Between two reads of a hung pod, `pods_failing` replaces `pods_hung`, although the pod still hangs.
            let repeated = *reason == "pods_hung" && present("pods_failing");
            let lasts = present(reason) || repeated;
            if !lasts {
                let seconds = now.since(*since).as_secs();
                tracing::info!(%reason, "recovered after {seconds} s");
            }
            lasts
        });
        for new in degraded {
            let reason = new.as_str();
            if self.degraded.iter().all(|(known, _)| *known != reason) {
                tracing::warn!(%reason, "degraded: {new}");
                self.degraded.push((reason, now));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn hung_pods_are_logged_once_even_if_read_again() {
        let at = |seconds| Instant::ORIGIN.after(Duration::from_secs(seconds));
        let hung = |since| Degraded::PodsHung {
            overdue: 1,
            since,
            pods: Vec::new(),
        };
        let failing = Degraded::PodsFailing {
            failing: 1,
            pods: Vec::new(),
        };
        let mut log = HealthLog::default();
        log.log_degraded(&[hung(at(1))], at(3));
        log.log_degraded(std::slice::from_ref(&failing), at(6));
        assert_eq!(
            log.degraded,
            [("pods_hung", at(3)), ("pods_failing", at(6))]
        );
        log.log_degraded(&[hung(at(7)), failing], at(9));
        assert_eq!(log.degraded.len(), 2, "logged once");
        log.log_degraded(&[], at(12));
        assert_eq!(log.degraded, []);
    }
}
