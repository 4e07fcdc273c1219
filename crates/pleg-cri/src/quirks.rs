//! What runtimes do that the contract does not say, and what is done about it: one table.
//!
//! Where code acts on a quirk, its comment names the entry. Pure data.

use std::fmt::Write as _;

use pleg_runtime::RuntimeVersion;
use pleg_runtime::core::EventProfile;

/// A way in which a runtime differs from what one would expect of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quirk {
    /// The name by which the code refers to it.
    pub name: &'static str,
    /// Which runtimes.
    pub runtime: &'static str,
    /// Which versions of them.
    pub versions: &'static str,
    /// What they do.
    pub quirk: &'static str,
    /// What we do.
    pub what_we_do: &'static str,
}

const fn quirk(
    name: &'static str,
    runtime: &'static str,
    versions: &'static str,
    quirk: &'static str,
    what_we_do: &'static str,
) -> Quirk {
    Quirk {
        name,
        runtime,
        versions,
        quirk,
        what_we_do,
    }
}

/// What a runtime of that version can be expected to report. The sources are the entries "events
/// are shared out", "disconnecting crashes it" and "removal hides an end" of the table.
pub fn event_profile(runtime: &RuntimeVersion) -> EventProfile {
    let version = release(&runtime.version);
    let mut profile = EventProfile::UNKNOWN;
    match runtime.name.as_str() {
        "containerd" => {
            profile.promises_started = true;
            profile.promises_stopped = true;
            profile.removal_suppresses_stopped = false;
            profile.shares_events_out = version < Some((2, 0));
        }
        "cri-o" => {
            profile.shares_events_out = version < Some((1, 28));
            profile.disconnect_may_crash = (Some((1, 28))..Some((1, 33))).contains(&version);
        }
        _ => {}
    }
    profile
}

/// Major and minor version of `1.7.24~ds1` or `v2.1.9`.
fn release(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version
        .trim_start_matches('v')
        .split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Every quirk that is known.
pub const QUIRKS: &[Quirk] = &[
    // The stream.
    quirk(
        "silent loss",
        "all",
        "all",
        "events get lost without a number, a marker or an error that would tell",
        "full lists for ever; a stream that is well only lengthens their period, misses are counted",
    ),
    quirk(
        "stamped after reading",
        "all",
        "all",
        "created_at of an event is later than the statuses in it; two events of one id may come \
         swapped",
        "created_at orders nothing; states are joined, so a late one cannot do harm",
    ),
    quirk(
        "headers come with the first event",
        "all",
        "all (grpc-go)",
        "the response to GetContainerEvents begins with the first event, on a quiet node after \
         hours",
        "the call is issued inside the stream and stays pending there; no deadline on it, nor on \
         its channel",
    ),
    quirk(
        "pings are punished",
        "all",
        "all (grpc-go)",
        "HTTP/2 pings more often than every 5 min end the connection with too_many_pings",
        "no HTTP/2 keepalive and no adaptive window; signs of life are calls with a deadline",
    ),
    quirk(
        "zombie subscribers",
        "all",
        "all",
        "a subscriber that is gone is noticed with the next event, which is lost with it \
         (1.7: one event for each)",
        "one long-lived stream, never renewed without need; a list right after every subscribe",
    ),
    quirk(
        "a slow reader hurts the runtime",
        "all",
        "all",
        "a subscriber that stops reading blocks containerd's own calls, and starves CRI-O's other \
         subscribers",
        "the reader only drains: no call, no lock, no waiting for a consumer",
    ),
    quirk(
        "large events",
        "all",
        "all",
        "an event or a list may be as large as the runtime's own limit (containerd 16 MiB, CRI-O \
         80 MiB); one over ours ends the call",
        "16 MiB by default, configurable to 80; TooLarge is an error of its own",
    ),
    quirk(
        "no event for it",
        "all",
        "all",
        "an OOM reason that comes late, a resize, a failed start and a runtime's own cleaning up \
         cause no event",
        "inspections and lists compare state, details and presence; a non-zero exit is read once \
         more",
    ),
    quirk(
        "stale backlog",
        "containerd",
        "1.7: up to 1000 events of any age; >= 2: 5 min",
        "the first subscriber gets what happened while there was none",
        "an unknown id is believed only if its created_at is plausible, a known one is joined",
    ),
    quirk(
        "events are shared out",
        "containerd; CRI-O",
        "1.7; <= 1.27",
        "every event goes to one subscriber only: a second one takes them away",
        "misses are counted; while the stream loses, the node is relisted every second, and health \
         names the likely cause",
    ),
    quirk(
        "events not offered",
        "containerd",
        "<= 1.6, or with cri in disabled_plugins",
        "GetContainerEvents is Unimplemented",
        "lists alone; asked again every 60 s",
    ),
    quirk(
        "events switched off",
        "CRI-O",
        "all, unless enable_pod_events",
        "GetContainerEvents ends at once with OK",
        "told apart from a loss; lists alone, asked again every 60 s",
    ),
    quirk(
        "clean end on stop",
        "CRI-O",
        "all",
        "a stream that lived ends with OK when CRI-O stops",
        "an end is a loss of the stream, whatever its code: subscribe again, then list",
    ),
    quirk(
        "disconnecting crashes it",
        "CRI-O",
        "1.28 to 1.32 (cri-o#9004)",
        "a subscriber that leaves may crash the whole runtime",
        "one long-lived stream, never renewed without need",
    ),
    // What events carry.
    quirk(
        "nil sandbox status",
        "containerd",
        "1.7",
        "a sandbox's DELETED carries no sandbox status",
        "nothing is concluded from it; the pod is found by its id",
    ),
    quirk(
        "absurd created_at",
        "containerd",
        ">= 2",
        "the sandbox status in a DELETED was created at -6795364578871345152",
        "a time outside 1973..2100 is no time; counted",
    ),
    quirk(
        "partial container statuses",
        "all",
        "containerd: of this sandbox, none if the list failed; CRI-O: of the pod's uid",
        "an event's statuses are never the whole pod for certain",
        "what an event does not mention is untouched",
    ),
    quirk(
        "empty container statuses",
        "CRI-O",
        "1.31.0 to 1.34.11 (cri-o#9663)",
        "elements of containers_statuses without any field",
        "an element without an id is dropped and counted",
    ),
    quirk(
        "deleted while it exists",
        "CRI-O",
        "<= 1.27.0",
        "a container that stops is told as DELETED",
        "a DELETED whose own statuses still show the id is only a hint",
    ),
    quirk(
        "no sandbox events",
        "CRI-O",
        "all",
        "a sandbox's CREATED and DELETED are never sent, nor a DELETED of containers removed with \
         it",
        "a pod whose sandboxes are all NotReady is inspected until it is gone",
    ),
    quirk(
        "removal hides an end",
        "CRI-O",
        "all",
        "an id that is removed as soon as it has stopped may never report STOPPED",
        "removal voids a pending STOPPED, and a DELETED alone proves no loss",
    ),
    quirk(
        "listed after deletion",
        "containerd",
        ">= 2",
        "lists show a sandbox for a while after its DELETED",
        "what is believed Removed is overruled by two reads >= 10 s apart only",
    ),
    // Calls.
    quirk(
        "container statuses of a sandbox status",
        "containerd; CRI-O",
        "containerd 2.0.0 to 2.0.2; CRI-O before 1.29.9, 1.30.6, 1.31.1",
        "PodSandboxStatus has a timestamp but no container statuses, or a timestamp in seconds",
        "neither is used: ListContainers and ContainerStatus, stamped by our own clock",
    ),
    quirk(
        "stuck running",
        "containerd",
        "1.7 to 1.7.33, 2.0.0 to 2.0.8",
        "a container that ended while the daemon was down stays RUNNING for ever",
        "the runtime says so in every answer: not guessed at",
    ),
    quirk(
        "exits told late",
        "containerd",
        "all",
        "an exit that cannot be handled is tried again for up to 5 min",
        "no alarm: the lists say RUNNING too, and the event comes when it comes",
    ),
    quirk(
        "no sandbox id in a status",
        "all",
        "all (CRI v1 has no such field)",
        "ContainerStatus does not say which sandbox the container is in",
        "an inspection adds it from the list row",
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
        "calls fail with \"server is not initialized yet\" until the plugin is up",
        "Unavailable, whatever the code",
    ),
    quirk(
        "accepts before it serves",
        "CRI-O",
        "all",
        "while it restores, connecting succeeds and nothing is answered",
        "every call has a deadline, and health shows the call in flight",
    ),
    quirk(
        "codes of a lost connection",
        "all",
        "all (tonic)",
        "a lost connection is Unknown, Cancelled or Internal, depending on the moment",
        "a status that the transport made up is Unavailable, whatever its code",
    ),
];

/// The table in Markdown, for documents.
pub fn table() -> String {
    let mut table =
        "| quirk | runtime | versions | what it does | what we do |\n|---|---|---|---|---|\n"
            .to_owned();
    for Quirk {
        name,
        runtime,
        versions,
        quirk,
        what_we_do,
    } in QUIRKS
    {
        // Writing to a string cannot fail.
        let _ = writeln!(
            table,
            "| {name} | {runtime} | {versions} | {quirk} | {what_we_do} |"
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_has_a_name_of_its_own_and_fits_into_the_table() {
        let names: std::collections::BTreeSet<_> = QUIRKS.iter().map(|quirk| quirk.name).collect();
        assert_eq!(names.len(), QUIRKS.len());
        for line in table().lines() {
            assert_eq!(line.matches('|').count(), 6, "{line}");
        }
    }

    #[test]
    fn profile_follows_name_and_version() {
        let profile = |name: &str, version: &str| {
            event_profile(&RuntimeVersion {
                name: name.to_owned(),
                version: version.to_owned(),
                api: "v1".to_owned(),
            })
        };
        for (version, shared) in [
            ("1.7.24~ds1", true),
            ("v2.1.9", false),
            ("2.4.0-beta.1", false),
        ] {
            let containerd = profile("containerd", version);
            assert_eq!(containerd.shares_events_out, shared, "{version}");
            assert!(containerd.promises_stopped && !containerd.removal_suppresses_stopped);
        }
        for (version, shared, crashes) in [
            ("1.27.1", true, false),
            ("1.28.0", false, true),
            ("1.32.13", false, true),
            ("1.33.0", false, false),
        ] {
            let crio = profile("cri-o", version);
            let (s, c) = (crio.shares_events_out, crio.disconnect_may_crash);
            assert_eq!((s, c), (shared, crashes), "{version}");
            assert!(!crio.promises_stopped && crio.removal_suppresses_stopped);
        }
        assert_eq!(profile("docker", "1"), EventProfile::UNKNOWN);
    }

    /// A comment that names a quirk names one that is in the table.
    #[test]
    fn code_names_only_quirks_that_exist() {
        let sources = [
            include_str!("convert.rs"),
            include_str!("error.rs"),
            include_str!("events.rs"),
            include_str!("runtime.rs"),
            include_str!("transport.rs"),
        ];
        let mut named = 0;
        for source in sources {
            // A comment may break its line between the word and the name.
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
        assert!(named >= 8, "the comments are found at all: {named}");
    }
}
