//! Configurable faults: knobs that are set from text, for flags and for control at run time. Pure.
//!
//! [`FaultProfile`] holds the knobs that are on. `injector` makes the random decisions and counts the
//! faults that fired. The faults take effect in `events` (events), `stream` (what a subscriber
//! receives), `lists` (list responses) and `Engine::admit` (every call).

mod injector;

use std::{collections::BTreeMap, fmt, time::Duration};

use tonic::Code;

pub(crate) use self::injector::{Injector, Publish, SECOND_SUBSCRIBER};
use Kind::{Bytes, Failure, Flag, Hang, Number, Often, Span};

/// The type of a knob.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A [`Rate`].
    Often,
    Flag,
    Number,
    Bytes,
    Span,
    Hang,
    Failure,
}

/// Every knob: its name, its type and what it does.
#[rustfmt::skip]
const KNOBS: &[(&str, Kind, &str)] = &[
    ("drop", Often, "an event is lost"),
    ("duplicate", Often, "an event is sent twice"),
    ("swap", Often, "an event is sent after the next one"),
    ("freeze", Often, "an event carries the statuses of the previous one"),
    ("sandbox.nil", Often, "an event has no sandbox status"),
    ("containers.empty", Often, "an event has no container statuses"),
    ("containers.hole", Often, "an event has an additional, empty container status"),
    ("stamp.zero", Often, "an event's created_at is 0"),
    ("stamp.negative", Often, "an event's created_at is Go's zero time, which is negative"),
    ("stamp.seconds", Often, "an event's created_at is in seconds"),
    ("stamp.future", Often, "an event's created_at is one hour in the future"),
    ("stamp.pause", Span, "events wait between the copy of their statuses and their timestamp"),
    ("oversize", Often, "an event is larger, by 5 MB or oversize.bytes"),
    ("oversize.bytes", Bytes, "the size that oversize adds"),
    ("second_subscriber", Often, "a second subscriber takes an event (containerd 1.x, CRI-O up to 1.27)"),
    ("stream.end_after", Number, "event streams end with OK after that many events"),
    ("stream.mute", Flag, "the current event streams stay open and deliver nothing from now on"),
    ("list.empty", Often, "a list is answered with no items"),
    ("list.pad", Bytes, "every item of a list is larger by this size"),
    ("list.limit", Bytes, "list responses above this size fail (instead of the runtime's limit)"),
    ("list.page", Number, "the number of items per page of a streaming list"),
    ("list.empty_page", Often, "a streaming list starts with an empty page"),
    ("list.break_after", Number, "streaming lists fail after that many pages"),
    ("list.unimplemented", Flag, "streaming lists are not implemented"),
    ("network.not_ready", Flag, "the runtime's condition NetworkReady is false"),
    ("status.not_found", Often, "the status of an existing id is NotFound"),
];

/// The knobs of calls.
const CALL_KNOBS: [(&str, Kind, &str); 3] = [
    ("latency", Span, "each call takes that much longer"),
    (
        "hang",
        Hang,
        "calls hang until this is off, or for that long from now",
    ),
    ("fail", Failure, "calls fail, such as unavailable@10%"),
];

/// The calls that a knob can name.
const METHODS: &str = "Version Status RunPodSandbox StopPodSandbox RemovePodSandbox \
    PodSandboxStatus ListPodSandbox StreamPodSandboxes CreateContainer StartContainer \
    StopContainer RemoveContainer ContainerStatus ListContainers StreamContainers \
    UpdateContainerResources ReopenContainerLog ExecSync GetContainerEvents ListImages \
    ImageStatus PullImage RemoveImage";

/// Why a knob cannot be set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KnobError {
    /// The knob does not exist.
    #[error("no knob {name:?}; {near}")]
    Unknown {
        /// The name in the request.
        name: String,
        /// Knobs that do exist.
        near: String,
    },
    /// The value is not valid for the knob.
    #[error("{knob}={value}: not {wanted}")]
    Value {
        /// The knob.
        knob: String,
        /// The value in the request.
        value: String,
        /// What the knob accepts.
        wanted: &'static str,
    },
    /// The knob has no effect in the simulated runtime.
    #[error(
        "{knob} has no effect in {runtime}; use mode containerd-1.7, or mode crio with version \
         1.27 or older"
    )]
    Mode {
        /// The knob.
        knob: String,
        /// The simulated runtime, and why the knob has no effect.
        runtime: String,
    },
}

/// The description of a knob.
#[derive(Clone, Debug)]
pub struct KnobHelp {
    /// The name and the type of the value.
    pub usage: String,
    /// What the knob does.
    pub about: &'static str,
}

/// The descriptions of all knobs.
#[must_use]
pub fn knob_help() -> Vec<KnobHelp> {
    let help = |group: &'static str| {
        move |&(name, kind, about): &(&str, Kind, &'static str)| KnobHelp {
            usage: format!("{group}{name}={}", kind.texts().0),
            about,
        }
    };
    let calls = CALL_KNOBS.iter().map(help("CALLS."));
    KNOBS.iter().map(help("")).chain(calls).collect()
}

/// The faults that the runtime shows: the knobs that are on, by name. The default is none.
///
/// As text it is one `KNOB=VALUE` per line, in the syntax of [`FaultProfile::set`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FaultProfile(BTreeMap<String, Value>);

/// The value of a knob that is on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    On,
    Rate(Rate),
    Number(usize),
    Span(Duration),
    Failure(Code, Rate),
}

/// How often a fault fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rate {
    /// In that many of a million cases, at random.
    Millionths(u32),
    /// Once: in the n-th case since the knob was set, counted from 1.
    Nth(u64),
}

impl FaultProfile {
    /// Sets one knob from text: `KNOB=VALUE`, `KNOB` (the same as `KNOB=on`) or `KNOB=off`. Returns
    /// the name under which the knob is shown and counted.
    ///
    /// # Errors
    ///
    /// If the knob does not exist, or the value is not valid for it.
    pub fn set(&mut self, text: &str) -> Result<String, KnobError> {
        let (knob, value) = text.split_once('=').unwrap_or((text, "on"));
        let (knob, value) = (knob.trim(), value.trim());
        let (name, kind) = find(knob).ok_or_else(|| KnobError::Unknown {
            name: knob.to_owned(),
            near: similar_knobs(knob),
        })?;
        let parsed = kind.parse(value).ok_or_else(|| KnobError::Value {
            knob: knob.to_owned(),
            value: value.to_owned(),
            wanted: kind.texts().1,
        })?;
        match parsed {
            Some(value) => self.0.insert(name.clone(), value),
            None => self.0.remove(&name),
        };
        Ok(name)
    }

    fn get(&self, name: &str) -> Option<Value> {
        self.0.get(name).copied()
    }
}

/// One knob per line.
impl fmt::Display for FaultProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut knobs = self.0.iter();
        knobs.try_for_each(|(name, value)| writeln!(f, "{name}={value}"))
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::On => f.write_str("on"),
            Self::Rate(rate) => rate.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Span(span) => write!(f, "{span:?}"),
            Self::Failure(code, rate) => write!(f, "{}@{rate}", code_name(*code)),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nth(n) => write!(f, "#{n}"),
            Self::Millionths(n) => write!(f, "{}%", f64::from(*n) / 10_000.0),
        }
    }
}

/// The name under which a knob is stored, and its type.
fn find(knob: &str) -> Option<(String, Kind)> {
    if let Some((name, kind, _)) = KNOBS.iter().find(|(name, ..)| *name == knob) {
        return Some(((*name).to_owned(), *kind));
    }
    let (group, fault) = knob.rsplit_once('.')?;
    let (_, kind, _) = CALL_KNOBS.iter().find(|(name, ..)| *name == fault)?;
    let is_pod = group
        .strip_prefix("pod.")
        .is_some_and(|uid| !uid.is_empty());
    if group == "all" || is_pod {
        return Some((knob.to_owned(), *kind));
    }
    let mut methods = METHODS.split(' ').map(|m| (m, snake(m)));
    let (_, calls) = methods.find(|(method, calls)| *method == group || calls == group)?;
    Some((format!("{calls}.{fault}"), *kind))
}

/// The knobs with a similar name, or all knobs.
fn similar_knobs(name: &str) -> String {
    let first = name.split(['.', '_']).next().unwrap_or(name);
    let knobs: Vec<_> = KNOBS.iter().map(|(name, ..)| (*name).to_owned()).collect();
    let calls = METHODS.split(' ').map(|m| format!("{}.hang", snake(m)));
    let close = |k: &String| first.len() > 2 && (k.contains(first) || first.starts_with(&**k));
    let close: Vec<_> = knobs.iter().cloned().chain(calls).filter(close).collect();
    if !close.is_empty() {
        return format!("similar: {}", close.join(", "));
    }
    format!(
        "there are {}, and CALLS.latency, CALLS.hang, CALLS.fail where CALLS is all, a call such as \
         list_containers, pod.UID or pod.*",
        knobs.join(", ")
    )
}

impl Kind {
    /// The type in a usage, and the values that it accepts.
    const fn texts(self) -> (&'static str, &'static str) {
        match self {
            Often => (
                "RATE",
                "a rate, such as 5%, 0.1%, on, off, or #3 for the third from now",
            ),
            Flag => ("on", "on or off"),
            Number => ("NUMBER", "a whole number, or off"),
            Bytes => (
                "BYTES",
                "a size, such as 5000000, 512KiB, 16MiB or 20MB, or off",
            ),
            Span => ("DURATION", "a duration, such as 50ms, 10s or 3m, or off"),
            Hang => ("on|DURATION", "on, off, or a duration, such as 10s"),
            Failure => (
                "CODE[@RATE]",
                "a gRPC code, such as unavailable, or one with a rate, such as unavailable@10%, or off",
            ),
        }
    }

    /// The value, or `Some(None)` if it turns the knob off. `None` if it is not valid.
    fn parse(self, text: &str) -> Option<Option<Value>> {
        if text == "off" {
            return Some(None);
        }
        let on = (text == "on").then_some(Value::On);
        let value = match self {
            Flag => on,
            Hang => on.or_else(|| duration(text).map(Value::Span)),
            Often => rate(text).map(Value::Rate),
            Number => text.parse().ok().map(Value::Number),
            Bytes => bytes(text).map(Value::Number),
            Span => duration(text).map(Value::Span),
            Failure => {
                let (code, often) = text.split_once('@').unwrap_or((text, "on"));
                let code = code.to_ascii_lowercase();
                let mut codes = (1..=16).map(Code::from_i32);
                let code = codes.find(|c| code_name(*c) == code);
                code.zip(rate(often)).map(|(c, r)| Value::Failure(c, r))
            }
        };
        const NEVER: Rate = Rate::Millionths(0);
        value.map(|value| match value {
            Value::Rate(NEVER) | Value::Failure(_, NEVER) | Value::Span(Duration::ZERO) => None,
            value => Some(value),
        })
    }
}

fn rate(text: &str) -> Option<Rate> {
    if let Some(n) = text.strip_prefix('#') {
        return n.parse().ok().filter(|n| *n > 0).map(Rate::Nth);
    }
    let percent = match text {
        "on" => 100.0,
        _ => text.strip_suffix('%')?.parse::<f64>().ok()?,
    };
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most a million, and not negative"
    )]
    let millionths = |percent: f64| Rate::Millionths((percent * 10_000.0).round() as u32);
    (0.0..=100.0)
        .contains(&percent)
        .then(|| millionths(percent))
}

fn bytes(text: &str) -> Option<usize> {
    let units = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("kB", 1000),
        ("KB", 1000),
        ("MB", 1_000_000),
        ("", 1),
    ];
    let (number, unit) = split_unit(text, units)?;
    number.parse::<usize>().ok()?.checked_mul(unit)
}

pub(crate) fn duration(text: &str) -> Option<Duration> {
    let units = [("ms", 0.001), ("us", 0.000_001), ("s", 1.0), ("m", 60.0)];
    let (number, unit) = split_unit(text, units)?;
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * unit).ok()
}

fn split_unit<'a, U, const N: usize>(text: &'a str, units: [(&str, U); N]) -> Option<(&'a str, U)> {
    let mut units = units.into_iter();
    units.find_map(|(unit, value)| Some((text.strip_suffix(unit)?, value)))
}

/// `DeadlineExceeded` as `deadline_exceeded`.
fn code_name(code: Code) -> String {
    snake(&format!("{code:?}"))
}

/// `ListContainers` as `list_containers`.
fn snake(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    for c in name.chars() {
        if c.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_knob_is_displayed_as_it_is_parsed() {
        let mut profile = FaultProfile::default();
        let all = "all.latency=20ms\ncontainers.empty=2%\ncontainers.hole=3%\ndrop=5%\n\
                   duplicate=0.1%\nfreeze=100%\nlist.break_after=2\nlist.empty=8%\n\
                   list.empty_page=9%\nlist.limit=1048576\nlist.pad=1024\nlist.page=3000\n\
                   list.unimplemented=on\nlist_containers.hang=180s\nnetwork.not_ready=on\n\
                   oversize=#1\noversize.bytes=17000000\npod.*.hang=on\npod.u-1.hang=on\n\
                   sandbox.nil=1%\nsecond_subscriber=50%\nstamp.future=7%\nstamp.negative=5%\n\
                   stamp.pause=50ms\nstamp.seconds=6%\nstamp.zero=4%\nstatus.not_found=10%\n\
                   stream.end_after=0\nstream.mute=on\nswap=#3\nversion.fail=unavailable@10%\n";
        for line in all.lines() {
            let name = profile.set(line).unwrap();
            assert!(line.starts_with(&name), "{line}");
        }
        assert_eq!(profile.to_string(), all);
        assert_eq!(
            profile.0.len(),
            KNOBS.len() + 5,
            "every knob is in the text"
        );
        for line in all.lines() {
            let (name, _) = line.split_once('=').unwrap();
            profile.set(&format!("{name}=off")).unwrap();
        }
        assert_eq!(profile, FaultProfile::default());
    }

    /// A knob, and how the profile displays it.
    #[test]
    fn values_are_parsed_with_their_units() {
        for (text, shown) in [
            ("drop", "drop=100%\n"),
            ("drop=0%", ""),
            ("list.limit = 16MiB", "list.limit=16777216\n"),
            ("stamp.pause=1.5s", "stamp.pause=1.5s\n"),
            ("ListContainers.hang=3m", "list_containers.hang=180s\n"),
            ("all.hang=0s", ""),
            (
                "version.fail=DEADLINE_EXCEEDED",
                "version.fail=deadline_exceeded@100%\n",
            ),
            // A uid may contain dots.
            ("pod.a.b.hang", "pod.a.b.hang=on\n"),
        ] {
            let mut profile = FaultProfile::default();
            profile.set(text).unwrap();
            assert_eq!(profile.to_string(), shown);
        }
    }

    #[test]
    fn errors_name_the_value_and_what_is_allowed() {
        let error = |text: &str| FaultProfile::default().set(text).unwrap_err().to_string();
        assert_eq!(
            error("drop=often"),
            "drop=often: not a rate, such as 5%, 0.1%, on, off, or #3 for the third from now"
        );
        for row in "drop=101% => not a rate
            drop=#0 => not a rate
            drop=5 => not a rate
            drop=NaN% => not a rate
            stream.mute=5% => not on or off
            list.page=many => not a whole number
            list.page=-1 => not a whole number
            list.limit=16GB => not a size
            list.limit=99999999999999999999MB => not a size
            stamp.pause=-1s => not a duration
            stamp.pause=inf s => not a duration
            all.latency=5 => not a duration
            all.hang=maybe => not on, off, or a duration
            version.fail=teapot => not a gRPC code
            version.fail=unavailable@x => not a gRPC code
            list_containers.slow=1s => similar: 
            stamp.past => similar: stamp.zero
            drops=5% => similar: drop
            pod..hang => no knob \"pod..hang\"
            => there are drop, duplicate
            nonsense=5% => there are drop, duplicate"
            .lines()
        {
            let (text, part) = row.split_once("=> ").unwrap();
            let error = error(text.trim());
            assert!(error.contains(part.trim()), "{row}: {error}");
        }
    }
}
