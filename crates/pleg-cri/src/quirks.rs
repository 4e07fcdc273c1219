//! The table of quirks: runtime behavior that the CRI does not specify, and how this project
//! handles it.
//!
//! Code in this crate that handles a quirk often names it in a comment. `pleg-core` gets the result of `event_profile`.

use std::fmt::Write as _;

use pleg_runtime::RuntimeVersion;
use pleg_runtime::core::EventProfile;

/// Behavior of a runtime that the CRI does not specify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quirk {
    /// The quirk's name, which comments in the code use.
    pub name: &'static str,
    /// The affected runtimes.
    pub runtime: &'static str,
    /// The affected versions.
    pub versions: &'static str,
    /// The behavior of the runtime.
    pub behavior: &'static str,
    /// The reaction of this project.
    pub handling: &'static str,
}

const fn quirk(
    name: &'static str,
    runtime: &'static str,
    versions: &'static str,
    behavior: &'static str,
    handling: &'static str,
) -> Quirk {
    Quirk {
        name,
        runtime,
        versions,
        behavior,
        handling,
    }
}

/// The properties of a runtime version's event stream. Follows the entries "competing subscribers", "crash on
/// disconnect" and "removal suppresses STOPPED" of the table.
pub fn event_profile(runtime: &RuntimeVersion) -> EventProfile {
    // A version that cannot be read is that of a development build, so it counts as the newest.
    let version = release(&runtime.version);
    let is_before = |other| version.is_some_and(|version| version < other);
    let mut profile = EventProfile::UNKNOWN;
    match runtime.name.as_str() {
        "containerd" => {
            profile.removal_suppresses_stopped = false;
            profile.splits_events_between_subscribers = is_before((2, 0));
        }
        "cri-o" => {
            profile.splits_events_between_subscribers = is_before((1, 28));
            profile.disconnect_may_crash = is_before((1, 33)) && !is_before((1, 28));
        }
        _ => {}
    }
    profile
}

/// The reason why a program must not subscribe to the events of this runtime, if any: the end of the stream may crash
/// the runtime, or the stream takes events from another subscriber. `other` is the reason to expect another subscriber,
/// if any. Follows the entries "competing subscribers" and "crash on disconnect" of the table.
pub fn stream_hazard(runtime: &RuntimeVersion, other: Option<&str>) -> Option<String> {
    let profile = event_profile(runtime);
    let RuntimeVersion { name, version, .. } = runtime;
    if profile.disconnect_may_crash {
        let what = "may crash when a client ends its event stream";
        return Some(format!("{name} {version} {what}"));
    }
    let other = other.filter(|_| profile.splits_events_between_subscribers)?;
    let what = "gives each event to one subscriber only";
    Some(format!("{name} {version} {what}, and {other}"))
}

/// The major and minor version in a text such as `1.7.24~ds1` or `v2.1.9`.
fn release(version: &str) -> Option<(u32, u32)> {
    let numbers = version.trim_start_matches('v');
    let mut numbers = numbers.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// All known quirks.
pub const QUIRKS: &[Quirk] = &[
    // The stream.
    quirk(
        "silent event loss",
        "all",
        "all",
        "events are lost without a sequence number, marker or error that shows it",
        "periodic complete lists; while no event is missed, their period grows; missed events are \
         counted",
    ),
    quirk(
        "timestamp after statuses",
        "all",
        "all",
        "created_at of an event is later than its statuses; two events of one id may arrive in \
         the wrong order",
        "created_at is not used to order events; states are joined, so a late event is harmless",
    ),
    quirk(
        "headers with the first event",
        "all",
        "all (grpc-go)",
        "the response headers of GetContainerEvents arrive with the first event, which on a quiet \
         node may take hours",
        "the call starts with the first poll of the stream and stays pending; neither the call nor \
         its channel has a timeout",
    ),
    quirk(
        "too_many_pings",
        "all",
        "all (grpc-go)",
        "HTTP/2 pings more often than every 5 min close the connection with too_many_pings",
        "no HTTP/2 keepalive and no adaptive window; calls with deadlines detect a dead runtime",
    ),
    quirk(
        "dead subscribers",
        "all",
        "all",
        "the runtime notices a disconnected subscriber only when it sends the next event, which \
         is lost (1.7: one event for each subscriber)",
        "one long-lived stream, renewed only if necessary; a list right after every subscribe call",
    ),
    quirk(
        "slow subscriber blocks the runtime",
        "all",
        "all",
        "a subscriber that does not read blocks calls of containerd, and delays the other \
         subscribers of CRI-O",
        "the reader drains the stream: no call that it makes delays that, it takes no lock held \
         elsewhere, and it waits for no consumer",
    ),
    quirk(
        "large messages",
        "all",
        "all",
        "an event or a list may be as large as the runtime's limit (containerd 16 MiB, CRI-O \
         80 MiB); a message above the client's limit fails the call",
        "the limit is 16 MiB by default and configurable up to 80 MiB; the error kind is TooLarge",
    ),
    quirk(
        "changes without an event",
        "all",
        "all",
        "a late OOM reason, a resize, a failed start and the runtime's own cleanup cause no event",
        "relists compare states and presence, and one status of the node is read every 15 s; after a \
         non-zero exit code the status is read once more",
    ),
    quirk(
        "replayed events",
        "containerd",
        "1.7: up to 1000 events of any age; >= 2: 5 min",
        "the first subscriber gets the events from the time without subscribers",
        "an event of an unknown id causes a read, which shows whether the id exists; a life that no \
         read has shown is announced only if its events are younger than the stream",
    ),
    quirk(
        "competing subscribers",
        "containerd; CRI-O",
        "1.7; <= 1.27",
        "every event goes to one subscriber only, so a second subscriber takes a share of them",
        "not subscribed to in Mode::Auto while another program may be; missed events are counted; \
         while the stream loses events, the node is relisted every second, and health names the \
         likely cause",
    ),
    quirk(
        "no event stream",
        "containerd",
        "<= 1.6, or with cri in disabled_plugins",
        "GetContainerEvents is Unimplemented",
        "lists only; the call is retried every 60 s",
    ),
    quirk(
        "events disabled",
        "CRI-O",
        "all, unless enable_pod_events",
        "GetContainerEvents ends immediately with OK",
        "distinguished from a lost stream; lists only; the call is retried every 60 s",
    ),
    quirk(
        "stream ends with OK on stop",
        "CRI-O",
        "all",
        "an established stream ends with OK when CRI-O stops",
        "the stream is lost, with any code: subscribe again, then list",
    ),
    quirk(
        "crash on disconnect",
        "CRI-O",
        "1.28 to 1.32 (cri-o#9004)",
        "a subscriber that disconnects may crash the runtime",
        "not subscribed to in Mode::Auto; otherwise one long-lived stream, renewed only if \
         necessary",
    ),
    // The content of events.
    quirk(
        "nil sandbox status",
        "containerd",
        "1.7",
        "DELETED of a sandbox has no sandbox status",
        "the pod that has the id is read; an unknown id causes a relist",
    ),
    quirk(
        "invalid created_at",
        "containerd",
        ">= 2",
        "the sandbox status in DELETED has the created_at -6795364578871345152",
        "a time outside 1973..2100 is ignored and counted",
    ),
    quirk(
        "partial container statuses",
        "all",
        "containerd: of this sandbox, none if the list failed; CRI-O: of the pod's uid",
        "the statuses of an event may not be the whole pod",
        "ids that an event does not contain are not changed",
    ),
    quirk(
        "empty container statuses",
        "CRI-O",
        "1.31.0 to 1.34.11 (cri-o#9663)",
        "containers_statuses has elements without any field",
        "an element without an id is skipped",
    ),
    quirk(
        "DELETED on stop",
        "CRI-O",
        "<= 1.27.0",
        "DELETED is sent for a container that stops",
        "a DELETED with a status of its id, other than a sandbox that is not ready, only causes a \
         read",
    ),
    quirk(
        "no sandbox events",
        "CRI-O",
        "all",
        "no CREATED and DELETED for sandboxes, and no DELETED for containers that are removed with \
         their sandbox",
        "reads establish everything: relists find new sandboxes and prove removals, and a worker \
         that waits causes a read",
    ),
    quirk(
        "removal suppresses STOPPED",
        "CRI-O",
        "all",
        "no STOPPED may be sent for an id that is removed right after it has stopped",
        "after a removal no STOPPED is expected, and a DELETED without STOPPED proves no loss",
    ),
    quirk(
        "listed after DELETED",
        "containerd",
        ">= 2",
        "lists show a sandbox for a while after its DELETED",
        "an id that a read shows exists; after a DELETED its pod is read again, with growing pauses",
    ),
    // Calls.
    quirk(
        "container statuses in PodSandboxStatus",
        "containerd; CRI-O",
        "containerd 2.0.0 to 2.0.2; CRI-O before 1.29.9, 1.30.6, 1.31.1",
        "PodSandboxStatus has a timestamp but no container statuses, or a timestamp in seconds",
        "neither is used; containers are read with ListContainers and ContainerStatus, and reads \
         are timed by the local clock",
    ),
    quirk(
        "stays RUNNING",
        "containerd",
        "1.7 to 1.7.33, 2.0.0 to 2.0.8",
        "a container that exits while the daemon is down stays RUNNING forever",
        "not handled: every response of the runtime shows RUNNING",
    ),
    quirk(
        "late STOPPED",
        "containerd",
        "all",
        "containerd retries to handle a failed exit for up to 5 min",
        "not handled: lists also show RUNNING until STOPPED is sent",
    ),
    quirk(
        "no sandbox id in ContainerStatus",
        "all",
        "all (CRI v1 has no such field)",
        "ContainerStatus does not contain the id of the container's sandbox",
        "an inspection takes it from the list row",
    ),
    quirk(
        "no streaming lists",
        "containerd; CRI-O",
        "< 2.4; < 1.36",
        "StreamPodSandboxes and StreamContainers are Unimplemented",
        "unary lists; streaming is tried again on the next connection",
    ),
    quirk(
        "starting",
        "containerd",
        "1.7: Unknown; >= 2: Unavailable",
        "calls fail with \"server is not initialized yet\" until the CRI plugin is ready",
        "the error kind is Unavailable, with either code",
    ),
    quirk(
        "no response during startup",
        "CRI-O",
        "all",
        "while CRI-O restores its state, it accepts connections and does not respond",
        "every call has a deadline, and health shows the call in flight",
    ),
    quirk(
        "codes of a lost connection",
        "all",
        "all (tonic)",
        "after a lost connection the code is Unknown, Cancelled or Internal, depending on the time",
        "for a status from the transport the error kind is Unavailable, with any code",
    ),
];

/// The table as Markdown.
pub fn table() -> String {
    let mut table =
        "| quirk | runtime | versions | behavior | handling |\n|---|---|---|---|---|\n".to_owned();
    for Quirk {
        name,
        runtime,
        versions,
        behavior,
        handling,
    } in QUIRKS
    {
        // Writing to a string cannot fail.
        let _ = writeln!(
            table,
            "| {name} | {runtime} | {versions} | {behavior} | {handling} |"
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quirk_names_are_unique_and_no_quirk_breaks_markdown_table() {
        let names: std::collections::BTreeSet<_> = QUIRKS.iter().map(|quirk| quirk.name).collect();
        assert_eq!(names.len(), QUIRKS.len());
        for line in table().lines() {
            assert_eq!(line.matches('|').count(), 6, "{line}");
        }
    }

    #[test]
    fn event_profile_is_chosen_by_runtime_name_and_version() {
        let profile =
            |name: &str, version: &str| event_profile(&RuntimeVersion::new(name, version));
        for (version, shared) in [
            ("1.7.24~ds1", true),
            ("v2.1.9", false),
            ("2.4.0-beta.1", false),
        ] {
            let containerd = profile("containerd", version);
            assert_eq!(
                containerd.splits_events_between_subscribers, shared,
                "{version}"
            );
            assert!(!containerd.removal_suppresses_stopped);
        }
        for (version, shared, crashes) in [
            ("1.27.1", true, false),
            ("1.28.0", false, true),
            ("1.32.13", false, true),
            ("1.33.0", false, false),
        ] {
            let crio = profile("cri-o", version);
            let (s, c) = (
                crio.splits_events_between_subscribers,
                crio.disconnect_may_crash,
            );
            assert_eq!((s, c), (shared, crashes), "{version}");
            assert!(crio.removal_suppresses_stopped);
        }
        assert_eq!(profile("docker", "1"), EventProfile::UNKNOWN);
    }

    #[test]
    fn reason_not_to_subscribe_depends_on_runtime_and_other_subscribers() {
        let hazard = |(name, version), other| {
            stream_hazard(&RuntimeVersion::new(name, version), other).unwrap_or_default()
        };
        let (containerd, crio, other) = (("containerd", "1.7.24"), ("cri-o", "1.32.13"), Some("x"));
        let crash = "cri-o 1.32.13 may crash when a client ends its event stream";
        let shared = "containerd 1.7.24 gives each event to one subscriber only, and x";
        assert_eq!(
            [hazard(crio, None), hazard(containerd, other)],
            [crash, shared]
        );
        let unharmed = [hazard(containerd, None), hazard(("cri-o", "1.33.0"), other)];
        assert_eq!(unharmed, ["", ""]);
    }

    #[test]
    fn quirks_named_in_comments_exist() {
        let sources = [
            include_str!("convert.rs"),
            include_str!("convert/brief.rs"),
            include_str!("error.rs"),
            include_str!("events.rs"),
            include_str!("runtime.rs"),
            include_str!("transport.rs"),
        ];
        let mut named = 0;
        for source in sources {
            // A comment may have a line break between `quirk` and the name of the quirk: join its lines.
            let source = source
                .replace("\n///", "")
                .replace("\n//!", "")
                .replace("\n    ///", "");
            for mention in source.split("uirk `").skip(1) {
                let name = mention.split('`').next().unwrap_or_default();
                assert!(QUIRKS.iter().any(|quirk| quirk.name == name), "{name}");
                named += 1;
            }
        }
        assert!(named >= 8, "too few comments were found: {named}");
    }
}
