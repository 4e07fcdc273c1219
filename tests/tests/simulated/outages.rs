//! Runs the same scenario with many faults: of the connections, of the server, and of its calls.
//!
//! While a fault lasts, containers exit one after the other, and pod workers read their pods. In this time:
//! * Health reports the fault within 3 s, and the node is ready as invariant 12 defines.
//! * The generator announces an exit as soon as an event or a list can show it, and announces no removal.
//! * Connection attempts and calls stay within the bounds that follow from the default settings.
//!
//! After the fault, the generator announces every exit with its exit code, and uses the event stream again.

use std::ops::RangeInclusive;
use std::time::Duration;

use futures::future::join_all;
use h2::Reason;
use pleg::core::{NotReady, Settings};
use pleg::{Pleg, PodUid};
use pleg_tests::check::cached;
use pleg_tests::generator::Generator;
use pleg_tests::kubelet::Life;
use pleg_tests::recording::Calls;
use tokio::io::DuplexStream;
use tokio::task::JoinSet;

use crate::node::{MINUTE, MS, Node, SECOND};
use crate::pipe::{Accepting, Break};

/// Invariant 12: the node is not ready if the last complete list began more than three minutes ago.
const UNREADY_AFTER: Duration = MINUTE.saturating_mul(3);
/// The time limit from a fault's first effect until health reports it: 3 s, plus 1 ms until the test reads health.
const REPORTED_WITHIN: Duration = Duration::from_millis(3001);
/// The time between two reads of a pod worker.
const READ_EVERY: Duration = Duration::from_secs(10);
const PODS: i32 = 6;

/// The allowed number of subscribe calls in the first minute of most faults of the stream.
const FEW: RangeInclusive<u64> = 5..=10;
/// The allowed number of attempts to subscribe in the first minute if dials fail: one at once, 100 in the next 5 s
/// (one every 50 ms), and about 9 until 60 s (the pauses double from 100 ms, and have jitter).
const MANY: RangeInclusive<u64> = 100..=113;

/// A fault, and the expected behaviour.
struct Fault {
    name: &'static str,
    begin: fn(&Node),
    end: fn(&Node),
    lasts: Duration,
    /// Health reports one of these reasons during the whole fault.
    reported: &'static [&'static str],
    /// True if lists and pod reads succeed during the fault.
    reads: bool,
    /// True if the stream delivers events during the fault.
    events: bool,
    /// The allowed number of attempts to subscribe in the first minute. In every later minute at most 10 are allowed.
    subscribes: RangeInclusive<u64>,
    /// The maximum number of new connections for calls during the fault.
    dials: u64,
    /// True if each call fails at once during the fault.
    fails_at_once: bool,
    /// The time limit from the end of the fault until health reports no degradation and the node is ready.
    recovered_within: Duration,
}

/// The common fields of faults in which the stream fails and calls succeed.
const STREAM: Fault = Fault {
    name: "",
    begin: |_| {},
    end: serve,
    lasts: MINUTE,
    reported: &["stream_down"],
    reads: true,
    events: false,
    subscribes: FEW,
    dials: 0,
    fails_at_once: false,
    recovered_within: Duration::from_secs(62),
};

/// The common fields of faults in which calls fail or hang and the stream delivers events.
const CALLS: Fault = Fault {
    reported: &["list_failed"],
    reads: false,
    events: true,
    subscribes: 0..=0,
    dials: u64::MAX,
    ..STREAM
};

/// The common fields of faults in which neither calls nor the stream work.
const BOTH: Fault = Fault {
    reported: &["list_failed", "list_slow"],
    events: false,
    subscribes: MANY,
    fails_at_once: true,
    ..CALLS
};

const FAULTS: &[Fault] = &[
    Fault {
        name: "connections are refused",
        begin: |node| replace_both(node, Accepting::Refused),
        ..BOTH
    },
    Fault {
        name: "connections are dropped after they are accepted",
        begin: |node| replace_both(node, Accepting::Dropped),
        ..BOTH
    },
    Fault {
        name: "a server accepts connections and sends nothing",
        begin: |node| replace_both(node, Accepting::Silent),
        end: |node| {
            serve(node);
            node.events.break_now(Break::End);
            node.calls.break_now(Break::End);
        },
        lasts: MINUTE.saturating_mul(5),
        subscribes: 0..=10,
        dials: 12,
        fails_at_once: false,
        ..BOTH
    },
    Fault {
        name: "calls are answered with GOAWAY",
        begin: |node| replace(&node.calls, Accepting::By(too_many_calls)),
        fails_at_once: true,
        end: |node| node.calls.set_accepting(Accepting::Served),
        ..CALLS
    },
    Fault {
        name: "lists hang",
        begin: |node| node.set("stream_pod_sandboxes.hang=on"),
        end: |node| node.set("stream_pod_sandboxes.hang=off"),
        lasts: Duration::from_secs(200),
        reported: &["list_slow", "list_failed"],
        dials: 0,
        // The last list that hangs fails only at its deadline. The deadline of lists has grown to two minutes by then.
        recovered_within: Duration::from_secs(122),
        ..CALLS
    },
    Fault {
        name: "a list stalls in the middle of a message",
        begin: |node| node.calls.break_after(100, Break::Stall),
        end: |node| node.calls.resume(),
        lasts: Duration::from_secs(94),
        reported: &["list_slow", "list_failed"],
        dials: 0,
        ..CALLS
    },
    Fault {
        name: "the connection of calls is dead until it is cut",
        begin: |node| node.calls.break_now(Break::Stall),
        end: |node| node.calls.break_now(Break::Reset),
        lasts: MINUTE.saturating_mul(6),
        reported: &["list_slow", "list_failed"],
        dials: 0,
        recovered_within: Duration::from_secs(2),
        ..CALLS
    },
    Fault {
        name: "connections for the stream are refused",
        begin: |node| replace(&node.events, Accepting::Refused),
        lasts: MINUTE.saturating_mul(4),
        subscribes: MANY,
        ..STREAM
    },
    Fault {
        name: "subscribe calls fail",
        begin: |node| {
            node.set("get_container_events.fail=unavailable");
            node.events.break_now(Break::Reset);
        },
        end: |node| node.set("get_container_events.fail=off"),
        lasts: MINUTE.saturating_mul(5),
        ..STREAM
    },
    Fault {
        name: "streams end as soon as they are subscribed",
        begin: |node| {
            node.set("stream.end_after=0");
            node.events.break_now(Break::End);
        },
        end: |node| node.set("stream.end_after=off"),
        lasts: MINUTE.saturating_mul(5),
        // A runtime whose events are disabled also ends each stream at once with OK. So the generator assumes that
        // events are disabled, and subscribes only once a minute.
        subscribes: 1..=2,
        ..STREAM
    },
    Fault {
        name: "streams are cut as soon as they are subscribed",
        begin: |node| replace(&node.events, Accepting::Cut(20)),
        lasts: MINUTE.saturating_mul(5),
        ..STREAM
    },
    Fault {
        name: "subscribe calls are answered with GOAWAY: enhance your calm",
        begin: |node| replace(&node.events, Accepting::By(too_many_calls)),
        ..STREAM
    },
    Fault {
        name: "subscribe calls are answered with GOAWAY: internal error",
        begin: |node| replace(&node.events, Accepting::By(internal_error)),
        ..STREAM
    },
];

fn replace(pipe: &crate::pipe::FaultyPipe, by: Accepting) {
    pipe.set_accepting(by);
    pipe.break_now(Break::Reset);
}

fn replace_both(node: &Node, by: Accepting) {
    replace(&node.events, by);
    replace(&node.calls, by);
}

fn serve(node: &Node) {
    node.events.set_accepting(Accepting::Served);
    node.calls.set_accepting(Accepting::Served);
}

fn too_many_calls(io: DuplexStream) {
    tokio::spawn(go_away(io, Reason::ENHANCE_YOUR_CALM));
}

fn internal_error(io: DuplexStream) {
    tokio::spawn(go_away(io, Reason::INTERNAL_ERROR));
}

/// Serves a connection: accepts a call, and answers the call with GOAWAY.
async fn go_away(io: DuplexStream, why: Reason) {
    let Ok(mut connection) = h2::server::handshake(io).await else {
        return;
    };
    if let Some(Ok(_call)) = connection.accept().await {
        connection.abrupt_shutdown(why);
        // Wait until the server has sent GOAWAY and the client has closed the connection.
        while let Some(Ok(_)) = connection.accept().await {}
    }
}

#[tokio::test(start_paused = true)]
async fn health_reports_each_outage_and_the_generator_recovers_in_time() -> anyhow::Result<()> {
    for fault in FAULTS {
        Box::pin(survive(fault))
            .await
            .map_err(|error| error.context(fault.name))?;
    }
    Ok(())
}

async fn survive(fault: &Fault) -> anyhow::Result<()> {
    let node = Node::up();
    let kubelet = node.kubelet()?;
    let mut generator = node.start(Settings::default()).await?;
    let (mut containers, mut uids, mut workers) = (Vec::new(), Vec::new(), JoinSet::new());
    for n in 0..PODS {
        let pod = kubelet.run_pod(&format!("pod-{n}")).await?;
        let life = Life::UntilTerminated { code: 10 + n };
        containers.push(kubelet.run(&pod, "app", 0, life).await?);
        let offset = READ_EVERY * n.unsigned_abs() / PODS.unsigned_abs();
        workers.spawn(ask(generator.pleg.clone(), pod.uid.clone(), offset));
        uids.push(pod.uid);
    }
    generator.wait_until_cache_equals_list(SECOND).await?;
    let known = cached(&generator.pleg);
    let dials = (node.events.dials(), node.calls.dials());
    let calls = generator.recorder.log().calls;

    (fault.begin)(&node);
    let pleg = generator.pleg.clone();
    let list = tokio::spawn(async move { pleg.relist_now().await });
    let is_reported = |generator: &Generator| {
        let degraded = generator.degraded();
        let fails = fault.fails_at_once && !fault.events;
        let down = !fails || degraded.contains(&"stream_down");
        down && fault.reported.iter().any(|how| degraded.contains(how))
    };
    let reported_after = node
        .until(REPORTED_WITHIN, "health reports the fault", || {
            is_reported(&generator)
        })
        .await?;
    let (began, mut minutes) = (node.clock.now(), vec![calls]);
    for (code, id) in (10..).zip(&containers) {
        anyhow::ensure!(node.sim.kill_container(id.as_str(), code), "{id} runs");
        let killed = node.clock.now();
        let announced = |generator: &mut Generator| {
            generator.drain();
            generator.announced.died(id).is_some()
        };
        let soon = match (fault.events, fault.reads) {
            (true, _) => Some(10 * MS),
            // The generator relists every second now.
            (false, true) => Some(SECOND + 10 * MS),
            (false, false) => None,
        };
        if let Some(soon) = soon {
            let what = "the exit is announced";
            node.until(soon, what, || announced(&mut generator)).await?;
        }
        while node.clock.now() < killed.after(fault.lasts / PODS.unsigned_abs()) {
            node.pass(100 * MS).await;
            check_readiness(&node, &generator)?;
            anyhow::ensure!(is_reported(&generator), "{:?}", generator.degraded());
            if node.clock.now() >= began.after(MINUTE * u32::try_from(minutes.len())?) {
                minutes.push(generator.recorder.log().calls);
            }
        }
        anyhow::ensure!(announced(&mut generator) == soon.is_some(), "{id}");
        if fault.reads {
            all_are_answered(&node, &generator, &uids).await?;
        }
    }
    if minutes.len() == 1 {
        minutes.push(generator.recorder.log().calls);
    }
    check_attempts(fault, &minutes)?;
    let dialled = (node.events.dials() - dials.0, node.calls.dials() - dials.1);
    let made = calls_between(calls, generator.recorder.log().calls);
    anyhow::ensure!(dialled.0 <= made.subscribes, "{dialled:?} dials, {made:?}");
    let most = fault.dials.min(unary(made));
    anyhow::ensure!(dialled.1 <= most, "{dialled:?} dials, {made:?}");
    let left = cached(&generator.pleg);
    anyhow::ensure!(left.keys().eq(known.keys()), "{left:?}, before {known:?}");

    (fault.end)(&node);
    let back = node.clock.now();
    let recovered_after = node
        .until(fault.recovered_within, "nothing is degraded", || {
            generator.is_well() && generator.pleg.health().ready().is_ok()
        })
        .await?;
    println!(
        "{}: reported after {reported_after:?}; {dialled:?} dials for events and calls; {made:?}; recovered after \
         {recovered_after:?}",
        fault.name
    );
    generator.drain();
    for (code, id) in (10..).zip(&containers) {
        let Some((at, Some(known))) = generator.announced.died(id) else {
            anyhow::bail!("{id} ended with {code}: {:?}", generator.announced.died(id));
        };
        anyhow::ensure!(known == code, "{id} ended with {code}, announced {known}");
        let late = at.since(back);
        anyhow::ensure!(late <= 2 * SECOND, "{id} is announced {late:?} later");
    }
    let _ = list.await?;
    workers.shutdown().await;
    assert_eq!(generator.missed(), 0);
    generator.check(&kubelet).await?;
    generator
        .wait_until_events_are_used(&kubelet, "afterwards")
        .await?;
    node.end(generator).await;
    Ok(())
}

/// Acts as the worker of a pod: requests a new view every 10 s, for the first time after `offset`.
async fn ask(pleg: Pleg, uid: PodUid, offset: Duration) {
    let mut at = pleg.now().after(offset);
    loop {
        pleg.clock().sleep_until(at).await;
        let _ = pleg.newer_than(&uid, pleg.now(), READ_EVERY).await;
        at = at.after(READ_EVERY);
    }
}

/// Checks that every pod worker gets a new view within 5 s.
async fn all_are_answered(
    node: &Node,
    generator: &Generator,
    uids: &[PodUid],
) -> anyhow::Result<()> {
    let began = node.clock.now();
    let answers = uids
        .iter()
        .map(|uid| generator.pleg.newer_than(uid, began, 5 * SECOND));
    for answer in join_all(answers).await {
        let view = answer?;
        anyhow::ensure!(view.as_of >= Some(began), "stale: {view:?}");
    }
    Ok(())
}

/// Checks that the node is ready if and only if the last complete list began within the last three minutes.
fn check_readiness(node: &Node, generator: &Generator) -> anyhow::Result<()> {
    let (health, ready) = (generator.health(), generator.pleg.health().ready());
    let silent = health.last_list.map(|last| node.clock.now().since(last));
    let is_right = match ready {
        Ok(()) => silent <= Some(UNREADY_AFTER),
        Err(NotReady::Stale { .. }) => silent > Some(UNREADY_AFTER),
        Err(_) => false,
    };
    anyhow::ensure!(is_right, "{ready:?}, the last list began {silent:?} ago");
    Ok(())
}

/// Checks the numbers of calls in each minute of a fault.
fn check_attempts(fault: &Fault, minutes: &[Calls]) -> anyhow::Result<()> {
    let spent = minutes
        .windows(2)
        .map(|pair| calls_between(pair[0], pair[1]));
    for (minute, calls) in spent.enumerate() {
        let bounds = match minute {
            0 => fault.subscribes.clone(),
            _ => 0..=10,
        };
        let in_bounds = bounds.contains(&calls.subscribes);
        anyhow::ensure!(in_bounds, "minute {minute}: {calls:?}");
        if fault.fails_at_once {
            // The generator relists every second, and omits the container list if the sandbox list fails.
            assert!((55..=65).contains(&calls.full_lists), "{calls:?}");
            // Allowed status calls: one probe of the runtime (after failed calls, `Version` probes it) and, if events
            // arrive, one for each pod, after an event. Allowed list calls of pods: two for each pod and second.
            let pods = u64::from(PODS.unsigned_abs());
            assert!(
                calls.statuses <= if fault.events { 1 + pods } else { 1 },
                "{calls:?}"
            );
            assert!(calls.pod_lists <= 2 * 61 * pods, "{calls:?}");
            // Allowed `Version` calls: one after each failed read (one of these reads may be from before this minute),
            // and one runtime probe every 15 s.
            let reads = 1 + calls.full_lists + calls.pod_lists / 2 + calls.statuses;
            assert!(calls.versions <= reads + 5, "{calls:?}");
        }
    }
    Ok(())
}

fn calls_between(before: Calls, now: Calls) -> Calls {
    Calls {
        full_lists: now.full_lists - before.full_lists,
        pod_lists: now.pod_lists - before.pod_lists,
        statuses: now.statuses - before.statuses,
        subscribes: now.subscribes - before.subscribes,
        versions: now.versions - before.versions,
    }
}

const fn unary(calls: Calls) -> u64 {
    calls.full_lists + calls.pod_lists + calls.statuses + calls.versions
}
