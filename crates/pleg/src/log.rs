//! What the generator logs: quiet when all is well. WARN says that it recovers by itself, ERROR
//! that someone must act.

use pleg_core::{Health, Instant, List, StreamChange, StreamEnd};

pub(crate) fn stream_changed(change: &StreamChange) {
    match change {
        StreamChange::Subscribed { .. } => tracing::debug!("subscribed to container events"),
        StreamChange::Ended { why, .. } => match why {
            StreamEnd::NeverOffered => {
                tracing::info!("the runtime offers no container events; lists alone keep the cache");
            }
            StreamEnd::Disabled => tracing::info!(
                "container events are switched off in the runtime (CRI-O: enable_pod_events); \
                 lists alone keep the cache"
            ),
            StreamEnd::Refused(error) => tracing::debug!(%error, "no event stream"),
            StreamEnd::Cut(error) => {
                tracing::warn!(%error, "the event stream was cut; reconnecting");
            }
            StreamEnd::Ended(Some(error)) => {
                tracing::warn!(%error, "the event stream broke; reconnecting");
            }
            _ => tracing::warn!("the event stream ended; reconnecting"),
        },
    }
}

pub(crate) fn listed(list: &List) {
    if let Err(error) = &list.rows {
        tracing::warn!(%error, took = ?list.ended.since(list.began), "a full list failed");
    }
}

/// Says when readiness turns.
pub(crate) fn health_changed(before: &Health, after: &Health, now: Instant) {
    let was = before.ready(before.beat);
    match (was, after.ready(now)) {
        (Ok(()), Err(why)) => tracing::error!(%why, "not ready any more"),
        (Err(_), Ok(())) => tracing::info!("ready"),
        _ => {}
    }
}
