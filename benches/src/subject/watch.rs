//! Watches the health that a generator reports.

use std::time::Duration;

use pleg_runtime::clock::{Clock, wall};

use super::generators::{HealthReport, Subject};
use crate::protocol::Watched;

/// The interval between two health reports.
const LOOK: Duration = Duration::from_millis(20);

/// Watches for `millis`, or until the first problem if `first`.
pub(super) async fn watch<P: Subject>(
    subject: &P,
    clock: Clock,
    millis: u64,
    first: bool,
) -> Watched {
    let mut now = clock.now();
    let end = now.after(Duration::from_millis(millis));
    let mut watched = Watched {
        period: subject.period(),
        ..Watched::default()
    };
    loop {
        let health_report = subject.health_report();
        if health_report != HealthReport::Well {
            watched
                .first_problem
                .get_or_insert_with(|| wall().as_nanos());
        }
        if now >= end || (first && watched.first_problem.is_some()) {
            return watched;
        }
        clock.sleep_until(now.after(LOOK)).await;
        let before = std::mem::replace(&mut now, clock.now());
        if health_report == HealthReport::NotReady {
            watched.unready += u64::try_from(now.nanos_since(before)).unwrap_or(0);
        }
    }
}
