//! Settings that would make a loop spin or a computation panic are refused.

use std::time::Duration;

use pleg::InvalidSetting;
use pleg_kubelet::backoff::BackOffSettings;
use pleg_kubelet::probe::ProbeTiming;
use pleg_kubelet::worker::WorkerSettings;

use crate::SECOND;

/// A setting, and how it becomes invalid.
type Change<S> = (&'static str, fn(&mut S));

/// Each change makes the settings invalid, and the error has the name of the setting.
fn check<S: Default>(validate: fn(&S) -> Result<(), InvalidSetting>, changes: &[Change<S>]) {
    assert_eq!(validate(&S::default()).err().map(|e| e.setting), None);
    for (name, change) in changes {
        let mut settings = S::default();
        change(&mut settings);
        let refused = validate(&settings).err().map(|error| error.setting);
        assert_eq!(refused, Some(*name));
    }
}

#[test]
fn settings_have_bounds() {
    check::<WorkerSettings>(
        WorkerSettings::validate,
        &[
            ("concurrency", |s| s.concurrency = 0),
            ("resync_period", |s| s.resync_period = Duration::ZERO),
            ("resync_period", |s| s.resync_period = Duration::MAX),
            ("view_deadline", |s| s.view_deadline = Duration::ZERO),
            ("jitter", |s| s.jitter = f64::NAN),
            ("jitter", |s| s.jitter = -0.1),
            ("jitter", |s| s.jitter = 1e300),
        ],
    );
    check::<BackOffSettings>(
        BackOffSettings::validate,
        &[
            ("initial", |s| s.initial = Duration::ZERO),
            ("max", |s| s.max = SECOND),
            ("max", |s| s.max = Duration::MAX),
            ("reset_after", |s| s.reset_after = Duration::MAX),
        ],
    );
    check::<ProbeTiming>(
        ProbeTiming::validate,
        &[
            ("period", |t| t.period = Duration::ZERO),
            ("timeout", |t| t.timeout = Duration::ZERO),
            ("initial_delay", |t| t.initial_delay = Duration::MAX),
            ("success_threshold", |t| t.success_threshold = 0),
            ("failure_threshold", |t| t.failure_threshold = 0),
        ],
    );
}
