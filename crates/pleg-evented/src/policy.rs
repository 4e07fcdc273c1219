//! How soon and how often to try again: the settings, and their validation.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// When to issue the next call. The defaults are those of the design, section 6.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReconnectSettings {
    /// While no connection can be had, it is tried again after this long …
    pub dial_every: Duration,
    /// … for this long since the first failure.
    pub dial_every_for: Duration,
    /// Then, and after calls that ended early, after this long, doubling …
    pub backoff_from: Duration,
    /// … to this.
    pub backoff_to: Duration,
    /// By how many percent at most such a pause is shortened at random.
    pub jitter_percent: u8,
    /// What the random numbers follow from. By default another one in every process.
    pub seed: u64,
    /// How many calls are issued within any minute at most. A connection that cannot be had is
    /// no call.
    pub subscribes_per_minute: u16,
    /// A call that lived this long makes good for all that failed before.
    pub reset_after: Duration,
    /// How often a stream that is not offered, or is switched off, is asked for again.
    pub probe_every: Duration,
    /// A call that ends this soon has ended at once.
    pub at_once: Duration,
    /// How long a connection may take.
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

/// Settings that make sense.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReconnectPolicy(ReconnectSettings);

impl ReconnectPolicy {
    /// Checks the settings.
    ///
    /// # Errors
    /// The first one that cannot be used.
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
        Ok(Self(settings))
    }

    /// The settings.
    pub const fn settings(&self) -> &ReconnectSettings {
        &self.0
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

/// A setting that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting} is {given}: {rule}")]
pub struct InvalidPolicy {
    /// Which.
    pub setting: &'static str,
    /// What it is.
    pub given: String,
    /// What it must be.
    pub rule: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_invalid_settings_are_named() {
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
