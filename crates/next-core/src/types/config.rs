//! The reconciler's settings, all validated.

use std::fmt;
use std::time::Duration;

/// Which sources the reconciler uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Mode {
    /// The event stream, checked by relists, whose period grows while no event is missed.
    #[default]
    Evented,
    /// Lists alone, every second, as upstream's generic PLEG does.
    Polling,
}

impl Mode {
    /// A short lower-case name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Evented => "evented",
            Self::Polling => "polling",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The reconciler's settings. The default of each is given with it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Settings {
    /// The sources. Default: `Evented`.
    pub mode: Mode,
    /// Relist period while the stream is not confirmed, and after a missed event: the pause after the end of the last
    /// list. Default: 1 s.
    pub relist_period: Duration,
    /// The longest relist period, while no event is missed. Default: 60 s.
    pub relist_period_max: Duration,
    /// The longest relist period until the stream has delivered its first event. Default: 10 s.
    pub relist_period_unproven: Duration,
    /// The shortest deadline of a relist: both lists of the node. Default: 30 s.
    pub list_deadline: Duration,
    /// The longest deadline of a relist. Default: 2 min.
    pub list_deadline_max: Duration,
    /// The deadline of an inspection as a whole. Default: 5 s.
    pub inspection_deadline: Duration,
    /// Concurrent inspections. Default: 8.
    pub inspections: usize,
    /// How long an inspection keeps its slot. Default: 250 ms.
    pub slot_time: Duration,
    /// How often the runtime is probed: by one status call, or by `Version` if no id exists.
    /// Default: 15 s.
    pub probe_period: Duration,
    /// The node is not ready after this time without a complete list. Default: 3 min.
    pub unready_after: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mode: Mode::Evented,
            relist_period: Duration::from_secs(1),
            relist_period_max: Duration::from_secs(60),
            relist_period_unproven: Duration::from_secs(10),
            list_deadline: Duration::from_secs(30),
            list_deadline_max: Duration::from_secs(120),
            inspection_deadline: Duration::from_secs(5),
            inspections: 8,
            slot_time: Duration::from_millis(250),
            probe_period: Duration::from_secs(15),
            unready_after: Duration::from_secs(180),
        }
    }
}

/// An invalid setting, of the generator or of something that is built on it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting} is {given}: {rule}")]
#[non_exhaustive]
pub struct InvalidSetting {
    /// The name of the setting.
    pub setting: &'static str,
    /// Its value.
    pub given: String,
    /// The rule that the value breaks.
    pub rule: &'static str,
}

impl InvalidSetting {
    /// An error, unless the rule holds for the value that was given.
    ///
    /// # Errors
    /// If it does not hold.
    pub fn unless(
        holds: bool,
        setting: &'static str,
        given: impl fmt::Debug,
        rule: &'static str,
    ) -> Result<(), Self> {
        if holds {
            return Ok(());
        }
        let given = format!("{given:?}");
        Err(Self {
            setting,
            given,
            rule,
        })
    }
}

impl Settings {
    /// Checks that the settings are valid, alone and together.
    ///
    /// # Errors
    /// The first setting that is invalid.
    pub fn validate(&self) -> Result<(), InvalidSetting> {
        let least = Duration::from_millis(10);
        let periods = [
            ("relist_period", self.relist_period),
            ("relist_period_max", self.relist_period_max),
            ("relist_period_unproven", self.relist_period_unproven),
            ("list_deadline", self.list_deadline),
            ("list_deadline_max", self.list_deadline_max),
            ("inspection_deadline", self.inspection_deadline),
            ("slot_time", self.slot_time),
            ("probe_period", self.probe_period),
            ("unready_after", self.unready_after),
        ];
        for (setting, given) in periods {
            InvalidSetting::unless(given >= least, setting, given, "it must be at least 10ms")?;
            let day = Duration::from_secs(24 * 3600);
            InvalidSetting::unless(given <= day, setting, given, "it must be at most one day")?;
        }
        InvalidSetting::unless(
            self.relist_period_max >= self.relist_period,
            "relist_period_max",
            self.relist_period_max,
            "it must not be shorter than relist_period",
        )?;
        InvalidSetting::unless(
            self.list_deadline_max >= self.list_deadline,
            "list_deadline_max",
            self.list_deadline_max,
            "it must not be shorter than list_deadline",
        )?;
        InvalidSetting::unless(
            self.unready_after > self.relist_period_max,
            "unready_after",
            self.unready_after,
            "it must be longer than relist_period_max, or a quiet node becomes unready",
        )?;
        InvalidSetting::unless(
            self.inspections > 0,
            "inspections",
            self.inspections,
            "it must be at least 1",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn refused(change: impl FnOnce(&mut Settings)) -> Option<&'static str> {
        let mut settings = Settings::default();
        change(&mut settings);
        settings.validate().err().map(|e| e.setting)
    }

    #[test]
    fn each_setting_has_its_bounds() {
        let ms = Duration::from_millis;
        assert_eq!(refused(|_| ()), None);
        assert_eq!(refused(|s| s.slot_time = ms(10)), None);
        assert_eq!(refused(|s| s.slot_time = ms(9)), Some("slot_time"));
        assert_eq!(refused(|s| s.unready_after = 24 * HOUR), None);
        let longer = 24 * HOUR + ms(1);
        assert_eq!(refused(|s| s.unready_after = longer), Some("unready_after"));
        assert_eq!(refused(|s| s.inspections = 0), Some("inspections"));
        assert_eq!(refused(|s| s.inspections = 1), None);
    }

    #[test]
    fn settings_fit_each_other() {
        let second = Duration::from_secs(1);
        assert_eq!(refused(|s| s.relist_period_max = s.relist_period), None);
        assert_eq!(
            refused(|s| s.relist_period_max = s.relist_period - second / 2),
            Some("relist_period_max")
        );
        assert_eq!(refused(|s| s.list_deadline_max = s.list_deadline), None);
        assert_eq!(
            refused(|s| s.list_deadline_max = s.list_deadline - second),
            Some("list_deadline_max")
        );
        assert_eq!(
            refused(|s| s.unready_after = s.relist_period_max),
            Some("unready_after")
        );
        assert_eq!(
            refused(|s| s.unready_after = s.relist_period_max + second),
            None
        );
    }
}
