//! The reconnect settings and their validation.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// The delays and limits with which the stream reader reconnects.
///
/// [`Default`] sets: for 5 s a dial every 50 ms; then pauses that double from 100 ms to 60 s, with 20 % jitter; at most
/// 10 subscribe calls a minute; one subscribe call every 60 s if the runtime offers no stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReconnectSettings {
    /// The pause between failed dials (connects to the socket) during `dial_every_for`.
    pub dial_every: Duration,
    /// For this long after a first failed dial, a new dial follows `dial_every` after each failed one.
    pub dial_every_for: Duration,
    /// The first pause after `dial_every_for`, or after a second subscribe call that ended early. Further ones double.
    pub backoff_from: Duration,
    /// The upper limit of the pauses that double.
    pub backoff_to: Duration,
    /// The maximum random reduction of the pauses that double, in percent.
    pub jitter_percent: u8,
    /// The seed of the jitter. By default random in every process.
    pub seed: u64,
    /// The maximum number of subscribe calls within any minute. A failed dial is not a call.
    pub subscribes_per_minute: u16,
    /// A subscribe call that was open for this time resets the back-off.
    pub reset_after: Duration,
    /// The pause before the next dial if the runtime offers no stream, has disabled it, or the reader declined it.
    pub probe_every: Duration,
    /// A call that ends within this time without an event counts as refused or, if it ends with OK, as disabled.
    pub at_once: Duration,
    /// The deadline of a dial.
    pub dial_deadline: Duration,
}

impl Default for ReconnectSettings {
    fn default() -> Self {
        Self {
            dial_every: Duration::from_millis(50),
            dial_every_for: Duration::from_secs(5),
            backoff_from: Duration::from_millis(100),
            backoff_to: Duration::from_secs(60),
            jitter_percent: 20,
            seed: RandomState::new().hash_one(0),
            subscribes_per_minute: 10,
            reset_after: Duration::from_secs(60),
            probe_every: Duration::from_secs(60),
            at_once: Duration::from_secs(1),
            dial_deadline: Duration::from_secs(10),
        }
    }
}

/// Validated reconnect settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReconnectPolicy {
    settings: ReconnectSettings,
    avoids_harm: bool,
}

impl ReconnectPolicy {
    /// Checks the settings.
    ///
    /// # Errors
    /// The first setting that is invalid.
    pub fn new(settings: ReconnectSettings) -> Result<Self, InvalidPolicy> {
        let s = &settings;
        for (setting, pause) in [
            ("dial_every", s.dial_every),
            ("backoff_from", s.backoff_from),
            ("backoff_to", s.backoff_to),
            ("reset_after", s.reset_after),
            ("probe_every", s.probe_every),
            ("at_once", s.at_once),
            ("dial_deadline", s.dial_deadline),
        ] {
            let rule = "it must be at least 1ms and at most 1h";
            check((SHORTEST..=LONGEST).contains(&pause), setting, pause, rule)?;
        }
        let (setting, given) = ("dial_every_for", s.dial_every_for);
        check(given <= LONGEST, setting, given, "it must be at most 1h")?;
        let (setting, given) = ("backoff_from", s.backoff_from);
        let rule = "it must not be longer than backoff_to";
        check(given <= s.backoff_to, setting, given, rule)?;
        let (setting, given) = ("jitter_percent", s.jitter_percent);
        check(given <= 100, setting, given, "it must be at most 100")?;
        let (setting, given) = ("subscribes_per_minute", s.subscribes_per_minute);
        let rule = "it must be at least 1 and at most 600";
        check((1..=600).contains(&given), setting, given, rule)?;
        Ok(Self {
            settings,
            avoids_harm: false,
        })
    }

    /// If `avoid` is true, the reader subscribes only while
    /// [`Runtime::stream_hazard`](pleg_runtime::Runtime::stream_hazard) returns `None`. Default: false.
    #[must_use]
    pub const fn avoid_harm(mut self, avoid: bool) -> Self {
        self.avoids_harm = avoid;
        self
    }

    pub(crate) const fn avoids_harm(&self) -> bool {
        self.avoids_harm
    }

    /// The settings.
    pub const fn settings(&self) -> &ReconnectSettings {
        &self.settings
    }
}

const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(3600);

fn check(
    holds: bool,
    setting: &'static str,
    given: impl fmt::Debug,
    rule: &'static str,
) -> Result<(), InvalidPolicy> {
    if holds {
        return Ok(());
    }
    let given = format!("{given:?}");
    Err(InvalidPolicy {
        setting,
        given,
        rule,
    })
}

/// An invalid reconnect setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting} is {given}: {rule}")]
#[non_exhaustive]
pub struct InvalidPolicy {
    /// The name of the setting.
    pub setting: &'static str,
    /// The value that was set.
    pub given: String,
    /// The rule that the value breaks.
    pub rule: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_reconnect_settings_are_valid_and_invalid_ones_are_named() {
        assert!(ReconnectPolicy::new(ReconnectSettings::default()).is_ok());
        type Spoil = fn(&mut ReconnectSettings);
        let spoil: [(&str, Spoil); 6] = [
            ("dial_every", |s| s.dial_every = Duration::ZERO),
            ("dial_every_for", |s| s.dial_every_for = Duration::MAX),
            ("backoff_from", |s| s.backoff_from = Duration::from_secs(61)),
            ("probe_every", |s| s.probe_every = Duration::from_secs(3601)),
            ("jitter_percent", |s| s.jitter_percent = 101),
            ("subscribes_per_minute", |s| s.subscribes_per_minute = 0),
        ];
        for (setting, spoil) in spoil {
            let mut settings = ReconnectSettings::default();
            spoil(&mut settings);
            let refused = ReconnectPolicy::new(settings).map_err(|e| e.setting);
            assert_eq!(refused, Err(setting));
        }
    }
}
