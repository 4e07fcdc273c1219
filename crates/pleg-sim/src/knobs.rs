//! Knobs: faults that users set as text, with flags or at run time. The module has no I/O, clock or state.
//!
//! `faults` makes the random decisions and counts the faults that fired. The faults take effect in `events`, `delivery`
//! (`second_subscriber`), `lists` (list responses), `service` (status responses) and `Engine::admit` (every call).

use std::{fmt, time::Duration};

use tonic::Code;

use crate::error::SimError;

/// The type of a knob's values.
struct Kind {
    /// The name that stands for a value of this type in a usage text, such as `RATE`.
    usage: &'static str,
    /// A description of valid values, for error messages.
    wanted: &'static str,
    parse: fn(&str) -> Option<Value>,
}

const OFTEN: &Kind = &Kind {
    usage: "RATE",
    wanted: "a rate, such as 5%, 0.1%, on, off, or #3 for the third case from now",
    parse: |text| rate(text).map(Value::Rate),
};
const FLAG: &Kind = &Kind {
    usage: "on",
    wanted: "on or off",
    parse: |text| (text == "on").then_some(Value::On),
};
const NUMBER: &Kind = &Kind {
    usage: "NUMBER",
    wanted: "a whole number, or off",
    parse: |text| text.parse().ok().map(Value::Number),
};
const BYTES: &Kind = &Kind {
    usage: "BYTES",
    wanted: "a size, such as 5000000, 512KiB, 16MiB or 20MB, or off",
    parse: |text| bytes(text).map(Value::Number),
};
const SPAN: &Kind = &Kind {
    usage: "DURATION",
    wanted: "a duration, such as 50ms, 10s or 3m, or off",
    parse: |text| duration(text).map(Value::Span),
};
const HANG: &Kind = &Kind {
    usage: "on|DURATION",
    wanted: "on, off, or a duration, such as 10s",
    parse: |text| (FLAG.parse)(text).or_else(|| (SPAN.parse)(text)),
};
const FAILURE: &Kind = &Kind {
    usage: "CODE[@RATE]",
    wanted: "a gRPC code, such as unavailable, or a code with a rate, such as unavailable@10%, or off",
    parse: |text| {
        let (code, often) = text.split_once('@').unwrap_or((text, "on"));
        let code = code.to_ascii_lowercase();
        let mut codes = (1..=16).map(Code::from_i32);
        let code = codes.find(|c| code_name(*c) == code);
        code.zip(rate(often)).map(|(c, r)| Value::Failure(c, r))
    },
};

/// Every knob: its name, its type and what it does. CALLS stands for the calls that a knob applies to.
#[rustfmt::skip]
const KNOBS: &[(&str, &Kind, &str)] = &[
    ("drop", OFTEN, "an event is lost"),
    ("duplicate", OFTEN, "an event is sent twice"),
    ("swap", OFTEN, "an event is sent after the next event"),
    ("freeze", OFTEN, "an event carries the statuses of the previous event"),
    ("sandbox.nil", OFTEN, "an event has no sandbox status"),
    ("containers.empty", OFTEN, "an event has no container statuses"),
    ("containers.hole", OFTEN, "an event has an additional, empty container status"),
    ("stamp.zero", OFTEN, "an event's created_at is 0"),
    ("stamp.negative", OFTEN, "an event's created_at is Go's zero time, which is negative"),
    ("stamp.seconds", OFTEN, "an event's created_at is in seconds"),
    ("stamp.future", OFTEN, "an event's created_at is one hour in the future"),
    ("stamp.pause", SPAN, "events wait between the copy of their statuses and their timestamp"),
    ("oversize", OFTEN, "an event is larger, by 5 MB or oversize.bytes"),
    ("oversize.bytes", BYTES, "the size that oversize adds"),
    ("second_subscriber", OFTEN, "a second subscriber takes an event (containerd 1.x, CRI-O up to 1.27)"),
    ("stream.end_after", NUMBER, "event streams end with OK after that many events"),
    ("stream.mute", FLAG, "the current event streams stay open and deliver nothing from now on"),
    ("list.empty", OFTEN, "a list is answered with no items"),
    ("list.pad", BYTES, "every item of a list is larger by this size"),
    ("list.fill", NUMBER, "a list of containers has that many more items, with nothing but an id"),
    ("list.unfiltered", FLAG, "lists ignore their filters"),
    ("list.limit", BYTES, "list responses above this size fail (instead of the runtime's limit)"),
    ("list.page", NUMBER, "the number of items per page of a streaming list"),
    ("list.empty_page", OFTEN, "a streaming list starts with an empty page"),
    ("list.break_after", NUMBER, "streaming lists fail after that many pages"),
    ("list.unimplemented", FLAG, "streaming lists are not implemented"),
    ("network.not_ready", FLAG, "the runtime's condition NetworkReady is false"),
    ("status.not_found", OFTEN, "the status of an existing id is NotFound"),
    ("status.pad", BYTES, "every status is larger by this size"),
    ("CALLS.latency", SPAN, "each call takes that much longer"),
    ("CALLS.hang", HANG, "calls hang until the knob is off, or for that long from now"),
    ("CALLS.fail", FAILURE, "calls fail, such as unavailable@10%"),
];

/// The calls that a knob can name.
const METHODS: &str = "Version Status RunPodSandbox StopPodSandbox RemovePodSandbox \
    PodSandboxStatus ListPodSandbox StreamPodSandboxes CreateContainer StartContainer \
    StopContainer RemoveContainer ContainerStatus ListContainers StreamContainers \
    UpdateContainerResources ReopenContainerLog ExecSync GetContainerEvents ListImages \
    ImageStatus PullImage RemoveImage";

/// Every knob with the type of its value, such as `drop=RATE`, and a description of the fault.
#[must_use]
pub fn knob_help() -> Vec<(String, &'static str)> {
    let all = KNOBS.iter();
    all.map(|(name, kind, about)| (format!("{name}={}", kind.usage), *about))
        .collect()
}

/// The value of a knob that is on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    On,
    Rate(Rate),
    Number(usize),
    Span(Duration),
    Failure(Code, Rate),
}

/// The frequency of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rate {
    /// The fault fires in this many of a million cases, at random.
    Millionths(u32),
    /// The fault fires once: in the n-th case since the knob was set, counted from 1.
    Nth(u64),
}

/// Checks a knob from text: `KNOB=VALUE`, `KNOB` (the same as `KNOB=on`) or `KNOB=off`.
///
/// # Errors
/// If the knob does not exist, or the value is not valid for it.
pub fn check_knob(text: &str) -> Result<(), SimError> {
    parse(text).map(drop)
}

/// The name of a knob and its value; `None` turns the knob off.
pub(crate) fn parse(text: &str) -> Result<(String, Option<Value>), SimError> {
    const NEVER: Rate = Rate::Millionths(0);
    let (knob, value) = text.split_once('=').unwrap_or((text, "on"));
    let (knob, value) = (knob.trim(), value.trim());
    let Some((name, kind)) = find(knob) else {
        let near = similar_knobs(knob);
        return Err(SimError(format!("no knob {knob:?}; {near}")));
    };
    match (kind.parse)(value) {
        _ if value == "off" => Ok((name, None)),
        None => Err(SimError(format!("{knob}={value}: not {}", kind.wanted))),
        Some(Value::Rate(NEVER) | Value::Failure(_, NEVER) | Value::Span(Duration::ZERO)) => {
            Ok((name, None))
        }
        on => Ok((name, on)),
    }
}

impl Value {
    pub(crate) fn number(self) -> Option<usize> {
        match self {
            Self::Number(number) => Some(number),
            _ => None,
        }
    }

    pub(crate) fn span(self) -> Option<Duration> {
        match self {
            Self::Span(span) => Some(span),
            _ => None,
        }
    }
}

/// Displays a value as [`parse`] reads it.
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

/// The name under which a knob is stored (`list_containers.hang` for `ListContainers.hang`), and the type of its value.
fn find(knob: &str) -> Option<(String, &'static Kind)> {
    let kind_of = |entry: &str| {
        let found = KNOBS.iter().find(|(name, ..)| *name == entry);
        found.map(|(_, kind, _)| *kind)
    };
    let (group, fault) = knob.rsplit_once('.').unwrap_or(("", knob));
    if group != "CALLS"
        && let Some(kind) = kind_of(knob)
    {
        return Some((knob.to_owned(), kind));
    }
    let kind = kind_of(&format!("CALLS.{fault}"))?;
    let mut methods = METHODS.split(' ').map(|method| (method, snake(method)));
    let method = methods.find(|(method, calls)| *method == group || calls == group);
    let is_pod = |uid: &str| !uid.is_empty();
    let named = group == "all" || group.strip_prefix("pod.").is_some_and(is_pod);
    match method {
        Some((_, calls)) => Some((format!("{calls}.{fault}"), kind)),
        None => named.then(|| (knob.to_owned(), kind)),
    }
}

/// The knobs with a name similar to `name`; if there are none, all knobs.
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
        "there are {}, where CALLS is all, a call such as list_containers, pod.UID or pod.*",
        knobs.join(", ")
    )
}

fn rate(text: &str) -> Option<Rate> {
    if let Some(n) = text.strip_prefix('#') {
        return n.parse().ok().filter(|n| *n > 0).map(Rate::Nth);
    }
    let percent = match text {
        "on" => 100.0,
        _ => text.strip_suffix('%')?.parse::<f64>().ok()?,
    };
    let is_valid = (0.0..=100.0).contains(&percent);
    is_valid.then(|| Rate::Millionths((percent * 10_000.0).round() as u32))
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

/// The name of a gRPC code in snake case: `deadline_exceeded` for `DeadlineExceeded`.
fn code_name(code: Code) -> String {
    snake(&format!("{code:?}"))
}

/// The text in snake case: `list_containers` for `ListContainers`.
pub(crate) fn snake(name: &str) -> String {
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

    /// The text that is displayed for a knob; empty if the knob is off.
    fn shown(text: &str) -> String {
        let (name, value) = parse(text).unwrap();
        value.map_or_else(String::new, |value| format!("{name}={value}"))
    }

    #[test]
    fn displayed_text_of_every_knob_parses_to_same_value() {
        let all = "all.latency=20ms,containers.empty=2%,containers.hole=3%,drop=5%,\
                   duplicate=0.1%,freeze=100%,list.break_after=2,list.empty=8%,\
                   list.empty_page=9%,list.fill=7,list.limit=1048576,list.pad=1024,list.page=3000,\
                   list.unfiltered=on,list.unimplemented=on,list_containers.hang=180s,network.not_ready=on,\
                   oversize=#1,oversize.bytes=17000000,pod.*.hang=on,pod.u-1.hang=on,\
                   sandbox.nil=1%,second_subscriber=50%,stamp.future=7%,stamp.negative=5%,\
                   stamp.pause=50ms,stamp.seconds=6%,stamp.zero=4%,status.not_found=10%,\
                   status.pad=2048,stream.end_after=0,stream.mute=on,swap=#3,version.fail=unavailable@10%";
        let all: Vec<_> = all.split(',').collect();
        assert_eq!(all.len(), KNOBS.len() + 2, "every knob is in the text");
        for knob in all {
            assert_eq!(shown(knob), knob);
            let (name, _) = knob.split_once('=').unwrap();
            assert_eq!(shown(&format!("{name}=off")), "");
        }
        let deadline = "version.fail=deadline_exceeded@100%";
        for (text, displayed) in [
            ("drop", "drop=100%"),
            ("drop=0%", ""),
            ("list.limit = 16MiB", "list.limit=16777216"),
            ("stamp.pause=1.5s", "stamp.pause=1.5s"),
            ("ListContainers.hang=3m", "list_containers.hang=180s"),
            ("all.hang=0s", ""),
            ("version.fail=DEADLINE_EXCEEDED", deadline),
            // A uid may contain dots.
            ("pod.a.b.hang", "pod.a.b.hang=on"),
        ] {
            assert_eq!(shown(text), displayed);
        }
    }

    #[test]
    fn invalid_knob_error_names_value_and_what_is_allowed() {
        let error = |text: &str| check_knob(text).unwrap_err().to_string();
        assert_eq!(
            error("drop=often"),
            "drop=often: not a rate, such as 5%, 0.1%, on, off, or #3 for the third case from now"
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
            CALLS.hang => similar: CALLS.latency
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
