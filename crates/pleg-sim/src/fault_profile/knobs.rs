//! Knobs: the text syntax of [`FaultProfile`], defined in one table. Pure.

use std::{fmt, time::Duration};

use super::{
    CallFaultProfile, Failure, FaultProfile, Hang, Rate,
    values::{BYTES, CODES, DURATION, NUMBER, RATE, bytes, code_name, count, duration, flag, rate},
};

/// A knob that does not belong to calls.
pub(super) struct Knob {
    pub(super) name: &'static str,
    about: &'static str,
    slot: Slot,
}

/// Where the value is stored, and its type.
enum Slot {
    Rate(fn(&mut FaultProfile) -> &mut Rate),
    Flag(fn(&mut FaultProfile) -> &mut bool),
    Number(fn(&mut FaultProfile) -> &mut Option<usize>),
    Bytes(fn(&mut FaultProfile) -> &mut Option<usize>),
    Span(fn(&mut FaultProfile) -> &mut Duration),
}

const fn knob(name: &'static str, slot: Slot, about: &'static str) -> Knob {
    Knob { name, about, slot }
}

use Slot::{Bytes, Flag, Number, Rate as RateSlot, Span};

#[rustfmt::skip]
pub(super) const KNOBS: &[Knob] = &[
    knob("drop", RateSlot(|c| &mut c.events.drop), "an event is lost"),
    knob("duplicate", RateSlot(|c| &mut c.events.duplicate), "an event is sent twice"),
    knob("swap", RateSlot(|c| &mut c.events.swap), "an event is sent after the next one"),
    knob("freeze", RateSlot(|c| &mut c.events.freeze), "an event carries the statuses of the previous one"),
    knob("sandbox.nil", RateSlot(|c| &mut c.events.nil_sandbox), "an event has no sandbox status"),
    knob("containers.empty", RateSlot(|c| &mut c.events.no_containers), "an event has no container statuses"),
    knob("containers.hole", RateSlot(|c| &mut c.events.hole), "an event has an additional, empty container status"),
    knob("stamp.zero", RateSlot(|c| &mut c.events.stamp_zero), "an event's created_at is 0"),
    knob("stamp.negative", RateSlot(|c| &mut c.events.stamp_negative), "an event's created_at is Go's zero time, which is negative"),
    knob("stamp.seconds", RateSlot(|c| &mut c.events.stamp_seconds), "an event's created_at is in seconds"),
    knob("stamp.future", RateSlot(|c| &mut c.events.stamp_future), "an event's created_at is one hour in the future"),
    knob("stamp.pause", Span(|c| &mut c.events.stamp_pause), "events wait between the copy of their statuses and their timestamp"),
    knob("oversize", RateSlot(|c| &mut c.events.oversize), "an event is larger, by 5 MB or oversize.bytes"),
    knob("oversize.bytes", Bytes(|c| &mut c.events.oversize_bytes), "the size that oversize adds"),
    knob("second_subscriber", RateSlot(|c| &mut c.events.second_subscriber), "a second subscriber takes an event (containerd 1.x, CRI-O up to 1.27)"),
    knob("stream.end_after", Number(|c| &mut c.events.end_after), "event streams end with OK after that many events"),
    knob("stream.mute", Flag(|c| &mut c.events.mute), "the current event streams stay open and deliver nothing from now on"),
    knob("list.empty", RateSlot(|c| &mut c.lists.empty), "a list is answered with no items"),
    knob("list.pad", Bytes(|c| &mut c.lists.pad), "every item of a list is larger by this size"),
    knob("list.limit", Bytes(|c| &mut c.lists.limit), "list responses above this size fail (instead of the runtime's limit)"),
    knob("list.page", Number(|c| &mut c.lists.page), "the number of items per page of a streaming list"),
    knob("list.empty_page", RateSlot(|c| &mut c.lists.empty_page), "a streaming list starts with an empty page"),
    knob("list.break_after", Number(|c| &mut c.lists.break_after), "streaming lists fail after that many pages"),
    knob("list.unimplemented", Flag(|c| &mut c.lists.unimplemented), "streaming lists are not implemented"),
    knob("network.not_ready", Flag(|c| &mut c.lists.network_not_ready), "the runtime's condition NetworkReady is false"),
    knob("status.not_found", RateSlot(|c| &mut c.lists.not_found), "the status of an existing id is NotFound"),
];

/// The faults of calls.
#[rustfmt::skip]
const CALL_KNOBS: [(&str, &str, &str); 3] = [
    ("latency", "DURATION", "each call takes that much longer"),
    ("hang", "on|DURATION", "calls hang until this is off, or for that long from now"),
    ("fail", "CODE[@RATE]", "calls fail, such as unavailable@10%"),
];

/// The calls that a knob can name.
pub(super) const METHODS: &[&str] = &[
    "Version",
    "Status",
    "RunPodSandbox",
    "StopPodSandbox",
    "RemovePodSandbox",
    "PodSandboxStatus",
    "ListPodSandbox",
    "StreamPodSandboxes",
    "CreateContainer",
    "StartContainer",
    "StopContainer",
    "RemoveContainer",
    "ContainerStatus",
    "ListContainers",
    "StreamContainers",
    "UpdateContainerResources",
    "ReopenContainerLog",
    "ExecSync",
    "GetContainerEvents",
    "ListImages",
    "ImageStatus",
    "PullImage",
    "RemoveImage",
];

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
    let knobs = KNOBS.iter().map(|knob| KnobHelp {
        usage: match knob.slot {
            RateSlot(_) => format!("{}=RATE", knob.name),
            Flag(_) => format!("{}=on", knob.name),
            Number(_) => format!("{}=NUMBER", knob.name),
            Bytes(_) => format!("{}=BYTES", knob.name),
            Span(_) => format!("{}=DURATION", knob.name),
        },
        about: knob.about,
    });
    let calls = CALL_KNOBS.iter().map(|(name, takes, about)| KnobHelp {
        usage: format!("CALLS.{name}={takes}"),
        about,
    });
    knobs.chain(calls).collect()
}

impl FaultProfile {
    /// Sets one knob from text: `KNOB=VALUE`, `KNOB` (the same as `KNOB=on`) or `KNOB=off`. Returns
    /// the name under which the knob is shown and counted.
    ///
    /// # Errors
    ///
    /// If the knob does not exist, or the value is not valid for it.
    pub fn set(&mut self, text: &str) -> Result<String, KnobError> {
        let (name, value) = text.split_once('=').unwrap_or((text, "on"));
        let (name, value) = (name.trim(), value.trim());
        let invalid = |wanted| KnobError::Value {
            knob: name.to_owned(),
            value: value.to_owned(),
            wanted,
        };
        let Some(knob) = KNOBS.iter().find(|k| k.name == name) else {
            let (calls, group, fault) = self.parse_call_knob(name)?;
            set_calls(calls, fault, value).map_err(invalid)?;
            self.remove_empty_groups();
            return Ok(format!("{group}.{fault}"));
        };
        match knob.slot {
            RateSlot(slot) => *slot(self) = rate(value).ok_or_else(|| invalid(RATE))?,
            Flag(slot) => *slot(self) = flag(value).ok_or_else(|| invalid("on or off"))?,
            Number(slot) => *slot(self) = count(value).ok_or_else(|| invalid(NUMBER))?,
            Bytes(slot) => *slot(self) = bytes(value).ok_or_else(|| invalid(BYTES))?,
            Span(slot) => *slot(self) = duration(value).ok_or_else(|| invalid(DURATION))?,
        }
        Ok(knob.name.to_owned())
    }

    /// The group of calls that a knob names, the name of the group, and the fault to set.
    fn parse_call_knob<'a>(
        &mut self,
        name: &'a str,
    ) -> Result<(&mut CallFaultProfile, String, &'a str), KnobError> {
        let unknown = || KnobError::Unknown {
            name: name.to_owned(),
            near: similar_knobs(name),
        };
        let (group, fault) = name.rsplit_once('.').ok_or_else(unknown)?;
        if !CALL_KNOBS.iter().any(|(n, ..)| *n == fault) {
            return Err(unknown());
        }
        let (calls, group) = match (group, group.strip_prefix("pod.")) {
            ("all", _) => (&mut self.all_calls, "all".to_owned()),
            (_, Some("*")) => (&mut self.all_pods, "pod.*".to_owned()),
            (_, Some(uid)) if !uid.is_empty() => (
                self.pods.entry(uid.to_owned()).or_default(),
                format!("pod.{uid}"),
            ),
            _ => {
                let method = METHODS.iter().find(|m| snake(m) == group || **m == group);
                let method = method.ok_or_else(unknown)?;
                (self.calls.entry(method).or_default(), snake(method))
            }
        };
        Ok((calls, group, fault))
    }

    /// Removes groups without faults.
    fn remove_empty_groups(&mut self) {
        self.calls.retain(|_, calls| !calls.is_off());
        self.pods.retain(|_, calls| !calls.is_off());
    }

    /// Every group of calls, with its name.
    fn all_call_fault_profiles(&self) -> impl Iterator<Item = (String, &CallFaultProfile)> {
        let fixed = [("all", &self.all_calls), ("pod.*", &self.all_pods)];
        let fixed = fixed
            .into_iter()
            .map(|(name, calls)| (name.to_owned(), calls));
        let methods = self.calls.iter().map(|(m, calls)| (snake(m), calls));
        let pods = self
            .pods
            .iter()
            .map(|(uid, calls)| (format!("pod.{uid}"), calls));
        fixed.chain(methods).chain(pods)
    }
}

/// One knob per line, only those that are on.
impl fmt::Display for FaultProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The table returns mutable slots, so this needs a copy.
        let mut profile = self.clone();
        for knob in KNOBS {
            let name = knob.name;
            match knob.slot {
                RateSlot(slot) => match *slot(&mut profile) {
                    Rate::Never => {}
                    rate => writeln!(f, "{name}={rate}")?,
                },
                Flag(slot) => {
                    if *slot(&mut profile) {
                        writeln!(f, "{name}=on")?;
                    }
                }
                Number(slot) | Bytes(slot) => {
                    if let Some(number) = slot(&mut profile) {
                        writeln!(f, "{name}={number}")?;
                    }
                }
                Span(slot) => {
                    let duration = *slot(&mut profile);
                    if !duration.is_zero() {
                        writeln!(f, "{name}={duration:?}")?;
                    }
                }
            }
        }
        for (name, calls) in self.all_call_fault_profiles() {
            if !calls.latency.is_zero() {
                writeln!(f, "{name}.latency={:?}", calls.latency)?;
            }
            match calls.hang {
                None => {}
                Some(Hang::On) => writeln!(f, "{name}.hang=on")?,
                Some(Hang::For(duration)) => writeln!(f, "{name}.hang={duration:?}")?,
            }
            if let Some(Failure { code, rate }) = calls.fail {
                writeln!(f, "{name}.fail={}@{rate}", code_name(code))?;
            }
        }
        Ok(())
    }
}

fn set_calls(calls: &mut CallFaultProfile, fault: &str, value: &str) -> Result<(), &'static str> {
    match fault {
        "latency" => calls.latency = duration(value).ok_or(DURATION)?,
        "hang" => {
            calls.hang = match (flag(value), duration(value)) {
                (Some(on), _) => on.then_some(Hang::On),
                (None, Some(duration)) => Some(Hang::For(duration)),
                (None, None) => return Err("on, off, or a duration, such as 10s"),
            }
        }
        _ => {
            const FAIL: &str = "a gRPC code, such as unavailable, or one with a rate, such as \
                                unavailable@10%, or off";
            let (code, often) = value.split_once('@').unwrap_or((value, "on"));
            let code = code.to_ascii_lowercase();
            let found = CODES.iter().find(|(name, _)| *name == code);
            calls.fail = match (found, rate(often)) {
                _ if flag(value) == Some(false) => None,
                (Some((_, code)), Some(rate)) => Some(Failure { code: *code, rate }),
                _ => return Err(FAIL),
            };
        }
    }
    Ok(())
}

/// `ListContainers` as `list_containers`.
pub(super) fn snake(method: &str) -> String {
    let mut snake = String::with_capacity(method.len() + 4);
    for c in method.chars() {
        if c.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}

/// The knobs with a similar name, or all knobs.
fn similar_knobs(name: &str) -> String {
    let first = name.split(['.', '_']).next().unwrap_or(name);
    let knobs = KNOBS.iter().map(|k| k.name.to_owned());
    let calls = METHODS.iter().map(|m| format!("{}.hang", snake(m)));
    let close: Vec<_> = knobs
        .clone()
        .chain(calls)
        .filter(|k| first.len() > 2 && (k.contains(first) || first.starts_with(k.as_str())))
        .collect();
    if close.is_empty() {
        let all: Vec<_> = knobs.collect();
        return format!(
            "there are {}, and CALLS.latency, CALLS.hang, CALLS.fail where CALLS is all, a call \
             such as list_containers, pod.UID or pod.*",
            all.join(", ")
        );
    }
    format!("similar: {}", close.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_knob_is_displayed_as_it_is_parsed() {
        let mut profile = FaultProfile::default();
        assert_eq!(profile.to_string(), "");
        let all = "drop=5%\nduplicate=0.1%\nswap=#3\nfreeze=100%\nsandbox.nil=1%\n\
                   containers.empty=2%\ncontainers.hole=3%\nstamp.zero=4%\nstamp.negative=5%\n\
                   stamp.seconds=6%\nstamp.future=7%\nstamp.pause=50ms\noversize=#1\n\
                   oversize.bytes=17000000\nsecond_subscriber=50%\nstream.end_after=0\nstream.mute=on\nlist.empty=8%\n\
                   list.pad=1024\nlist.limit=1048576\nlist.page=3000\nlist.empty_page=9%\n\
                   list.break_after=2\nlist.unimplemented=on\nnetwork.not_ready=on\nstatus.not_found=10%\n\
                   all.latency=20ms\npod.*.hang=on\nlist_containers.hang=180s\n\
                   version.fail=unavailable@10%\npod.u-1.hang=on\n";
        for line in all.lines() {
            let name = profile.set(line).unwrap();
            assert!(line.starts_with(&name), "{line}");
        }
        assert_eq!(profile.to_string(), all);
        assert_eq!(
            all.lines()
                .filter(|l| KNOBS.iter().any(|k| l.starts_with(&format!("{}=", k.name))))
                .count(),
            KNOBS.len()
        );
        for line in all.lines() {
            let (name, _) = line.split_once('=').unwrap();
            profile.set(&format!("{name}=off")).unwrap();
        }
        assert_eq!(profile, FaultProfile::default());
    }

    #[test]
    fn values_are_parsed_with_their_units() {
        let set = |text: &str| {
            let mut profile = FaultProfile::default();
            profile.set(text).map(|_| profile)
        };
        assert_eq!(set("drop").unwrap().events.drop, Rate::ALWAYS);
        assert_eq!(set("drop=0%").unwrap().events.drop, Rate::Never);
        assert_eq!(
            set("list.limit = 16MiB").unwrap().lists.limit,
            Some(16 << 20)
        );
        assert_eq!(
            set("stamp.pause=1.5s").unwrap().events.stamp_pause,
            Duration::from_millis(1500)
        );
        let hang = set("ListContainers.hang=3m").unwrap();
        let expected = Some(Hang::For(Duration::from_secs(180)));
        assert_eq!(hang.calls["ListContainers"].hang, expected);
        // A uid may contain dots.
        assert!(set("pod.a.b.hang").unwrap().pods.contains_key("a.b"));
        assert_eq!(Rate::percent(5), Rate::Millionths(50_000));
    }

    #[test]
    fn errors_name_the_value_and_what_is_allowed() {
        let error = |text: &str| FaultProfile::default().set(text).unwrap_err().to_string();
        assert_eq!(
            error("drop=often"),
            "drop=often: not a rate, such as 5%, 0.1%, on, off, or #3 for the third from now"
        );
        for (text, part) in [
            ("drop=101%", "not a rate"),
            ("drop=#0", "not a rate"),
            ("drop=5", "not a rate"),
            ("drop=NaN%", "not a rate"),
            ("stream.mute=5%", "not on or off"),
            ("list.page=many", "not a whole number"),
            ("list.page=-1", "not a whole number"),
            ("list.limit=16GB", "not a size"),
            ("list.limit=99999999999999999999MB", "not a size"),
            ("stamp.pause=-1s", "not a duration"),
            ("stamp.pause=inf s", "not a duration"),
            ("all.latency=5", "not a duration"),
            ("all.hang=maybe", "not on, off, or a duration"),
            ("version.fail=teapot", "not a gRPC code"),
            ("version.fail=unavailable@x", "not a gRPC code"),
            ("list_containers.slow=1s", "similar: "),
            ("stamp.past", "similar: stamp.zero"),
            ("drops=5%", "similar: drop"),
            ("pod..hang", "no knob \"pod..hang\""),
            ("", "there are drop, duplicate"),
            ("nonsense=5%", "there are drop, duplicate"),
        ] {
            assert!(error(text).contains(part), "{text}: {}", error(text));
        }
    }
}
