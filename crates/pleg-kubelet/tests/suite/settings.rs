//! Settings that would make a loop spin or a computation panic are refused.

use std::time::Duration;

use pleg::InvalidSetting;
use pleg_kubelet::backoff::BackOffSettings;
use pleg_kubelet::probe::ProbeTiming;
use pleg_kubelet::worker::WorkerSettings;

use crate::SECOND;

fn refused(validated: Result<(), InvalidSetting>) -> &'static str {
    validated.err().map_or("", |error| error.setting)
}

#[test]
fn worker_settings_have_bounds() {
    let refused = |change: fn(&mut WorkerSettings)| {
        let mut settings = WorkerSettings::default();
        change(&mut settings);
        refused(settings.validate())
    };
    assert_eq!(refused(|_| ()), "");
    assert_eq!(refused(|s| s.concurrency = 0), "concurrency");
    assert_eq!(
        refused(|s| s.resync_period = Duration::ZERO),
        "resync_period"
    );
    assert_eq!(
        refused(|s| s.resync_period = Duration::MAX),
        "resync_period"
    );
    assert_eq!(
        refused(|s| s.view_deadline = Duration::ZERO),
        "view_deadline"
    );
    assert_eq!(refused(|s| s.jitter = f64::NAN), "jitter");
    assert_eq!(refused(|s| s.jitter = -0.1), "jitter");
    assert_eq!(refused(|s| s.jitter = 1e300), "jitter");
}

#[test]
fn back_off_settings_have_bounds() {
    let refused = |change: fn(&mut BackOffSettings)| {
        let mut settings = BackOffSettings::default();
        change(&mut settings);
        refused(settings.validate())
    };
    assert_eq!(refused(|_| ()), "");
    assert_eq!(refused(|s| s.initial = Duration::ZERO), "initial");
    assert_eq!(refused(|s| s.max = SECOND), "max");
    assert_eq!(refused(|s| s.max = Duration::MAX), "max");
    assert_eq!(refused(|s| s.reset_after = Duration::MAX), "reset_after");
}

#[test]
fn probe_timings_have_bounds() {
    let refused = |change: fn(&mut ProbeTiming)| {
        let mut timing = ProbeTiming::default();
        change(&mut timing);
        refused(timing.validate())
    };
    assert_eq!(refused(|_| ()), "");
    assert_eq!(refused(|t| t.period = Duration::ZERO), "period");
    assert_eq!(refused(|t| t.timeout = Duration::ZERO), "timeout");
    assert_eq!(
        refused(|t| t.initial_delay = Duration::MAX),
        "initial_delay"
    );
    assert_eq!(refused(|t| t.success_threshold = 0), "success_threshold");
    assert_eq!(refused(|t| t.failure_threshold = 0), "failure_threshold");
}
