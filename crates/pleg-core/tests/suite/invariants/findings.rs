//! Histories in which an earlier release was wrong: one test per finding, or a few.

use std::sync::Arc;
use std::time::Duration;

use pleg_core::{
    CallErrorKind, ContainerDetails, ContainerState, Degraded, Details, EventProfile, EventType,
    Id, Inbox, LifecycleType, Mode, PodView, Report, ReportedState, SandboxState, Settings,
    StreamEnd,
};

use crate::script::{Script, container, exited, sandbox, status};
use crate::support::with_memory_limit;
use EventType::{Created, Deleted, Started, Stopped};
use LifecycleType::ContainerDied;

const MINUTE: u64 = 60_000;

fn s() -> Report {
    sandbox("s", "p", ReportedState::Running)
}

/// A list row of the report.
fn in_s(mut report: Report) -> Report {
    report.identity.sandbox = Some("s".into());
    report
}

fn ended(id: &str, code: i32, reason: &str) -> Report {
    in_s(exited(id, "p", code, reason))
}

/// A node with one pod and these running containers, listed and inspected.
fn listed(containers: &[&str]) -> Script {
    listed_with(Settings::default(), containers)
}

fn listed_with(settings: Settings, containers: &[&str]) -> Script {
    let polling = settings.mode == Mode::Polling;
    let mut t = match polling {
        true => Script::with(settings),
        false => Script::confirmed_with(settings),
    };
    let running = |id: &&str| container(id, "p", ReportedState::Running);
    t.node = vec![s()];
    t.node.extend(containers.iter().map(running));
    if !polling {
        // What exists is in the baseline of a new stream, so no event is expected for it.
        t.stream_ends(StreamEnd::Ended(None));
        t.subscribe();
    }
    t.run(5_000);
    assert_eq!(t.missed(), 0);
    t
}

fn containerd() -> EventProfile {
    let mut profile = EventProfile::UNKNOWN;
    profile.promises_started = true;
    profile.promises_stopped = true;
    profile.removal_suppresses_stopped = false;
    profile.splits_events_between_subscribers = true;
    profile
}

fn on_containerd(containers: &[&str]) -> Script {
    let mut t = listed(containers);
    t.machine.handle_profile(t.now(), containerd());
    t
}

fn of<'a>(view: &'a PodView, id: &str) -> &'a ContainerDetails {
    let mut all = view.status.containers.iter();
    &all.find(|c| c.id.as_str() == id)
        .expect("it exists")
        .details
}

fn period(t: &Script) -> u64 {
    t.machine.health(t.now()).period.as_secs()
}

fn is_unsettled(view: &PodView, id: &str) -> Option<bool> {
    let mut all = view.status.containers.iter();
    Some(all.find(|c| c.id.as_str() == id)?.unsettled)
}

/// A list shows a running container and its status call returns NotFound: the answer contains it,
/// after the pod was read once more.
#[test]
fn a1_answer_contains_listed_id_without_status() {
    let mut t = listed(&["c"]);
    t.hidden = vec!["c".into()];
    let waiter = t.wait("p", t.now());
    t.settle();
    assert!(t.answer_of(waiter).is_none(), "read once more");
    t.pass(99);
    assert_eq!(t.inspections_wanted(), 0);
    t.run(5);
    let view = t.view_for(waiter);
    assert_eq!(view.status.containers[0].state, ContainerState::Running);
    assert_eq!(is_unsettled(&view, "c"), Some(true));
    assert_eq!(is_unsettled(&t.get("p"), "c"), Some(true));
    assert!(view.inspected < view.as_of, "its details were not read");
}

/// The same for a container that was unknown.
#[test]
fn a1_answer_contains_new_id_without_status() {
    let mut t = listed(&[]);
    t.node.push(container("c", "p", ReportedState::Running));
    t.hidden = vec!["c".into()];
    let waiter = t.wait("p", t.now());
    t.run(200);
    let view = t.view_for(waiter);
    assert_eq!(is_unsettled(&view, "c"), Some(true));
    assert_eq!(t.said(LifecycleType::ContainerStarted, "c"), 1);
}

/// The second read finds the status, or that the id is gone: the id is not unsettled.
#[test]
fn a1_second_read_settles_the_id() {
    for gone in [true, false] {
        let mut t = listed(&["c"]);
        t.hidden = vec!["c".into()];
        let waiter = t.wait("p", t.now());
        t.settle();
        t.hidden.clear();
        if gone {
            t.node.pop();
        }
        t.run(200);
        let unsettled = is_unsettled(&t.view_for(waiter), "c");
        assert_eq!(unsettled, (!gone).then_some(false));
    }
}

/// The second read fails: the first one answers.
#[test]
fn a1_first_read_answers_if_the_second_fails() {
    let mut t = listed(&["c"]);
    t.hidden = vec!["c".into()];
    let asked = t.now();
    let waiter = t.wait("p", asked);
    t.settle();
    t.pass(100);
    t.inspection_fails(&[]);
    let view = t.view_for(waiter);
    assert_eq!(is_unsettled(&view, "c"), Some(true));
    assert!(view.as_of > Some(asked));
}

/// An unsettled id is inspected again with backoff, and PodSync is announced when it is settled.
#[test]
fn a1_settling_is_announced() {
    let mut t = listed(&["c"]);
    t.hidden = vec!["c".into()];
    t.wait("p", t.now());
    t.run(300);
    let inspections = t.machine.counters().inspections;
    t.run(10_000);
    let tried = t.machine.counters().inspections - inspections;
    assert!((2..=6).contains(&tried), "{tried}");
    let before = t.said(LifecycleType::PodSync, "p");
    t.hidden.clear();
    t.run(10_000);
    assert_eq!(is_unsettled(&t.get("p"), "c"), Some(false));
    assert_eq!(t.said(LifecycleType::PodSync, "p"), before + 1);
}

/// A removed sandbox that is still listed and has no status is in the answer with its listed state.
#[test]
fn a1_answer_contains_removed_id_that_is_listed() {
    let mut t = listed(&[]);
    t.event(
        Deleted,
        "s",
        Some(sandbox("s", "p", ReportedState::Exited)),
        &[],
    );
    t.node[0] = sandbox("s", "p", ReportedState::Exited);
    t.hidden = vec!["s".into()];
    t.pass(5);
    let waiter = t.wait("p", t.now());
    t.run(200);
    let view = t.view_for(waiter);
    let sandbox = view.status.sandboxes.first().expect("it is listed");
    assert_eq!(sandbox.state, SandboxState::NotReady);
    assert!(sandbox.unsettled);
}

/// The container exits, its STOPPED is lost, a list finds it, and the kubelet starts another one,
/// whose events carry the status of the dead container.
fn restart_after_lost_stop(t: &mut Script) {
    t.node[1] = ended("c", 3, "Error");
    t.relist();
    t.settle();
    let dead = exited("c", "p", 3, "Error");
    t.node.push(container("d", "p", ReportedState::Created));
    let created = [dead.clone(), status("d", "p", ReportedState::Created)];
    t.event(Created, "d", Some(s()), &created);
    t.node[2] = container("d", "p", ReportedState::Running);
    let started = [dead, status("d", "p", ReportedState::Running)];
    t.event(Started, "d", Some(s()), &started);
}

#[test]
fn a2_restart_does_not_settle_pending_event() {
    let mut t = on_containerd(&["c"]);
    restart_after_lost_stop(&mut t);
    t.run(6_000);
    assert_eq!(t.missed(), 1);
    assert!(period(&t) <= 2, "it was cut, and one list was clean since");
}

#[test]
fn a2_removal_does_not_settle_pending_event() {
    for (profile, missed) in [(containerd(), 1), (EventProfile::UNKNOWN, 0)] {
        let mut t = on_containerd(&["c"]);
        t.machine.handle_profile(t.now(), profile);
        restart_after_lost_stop(&mut t);
        t.node.remove(1);
        t.event(
            Deleted,
            "c",
            Some(s()),
            &[status("d", "p", ReportedState::Running)],
        );
        t.run(6_000);
        assert_eq!(t.missed(), missed, "{profile:?}");
    }
}

/// Statuses inside an event that arrived while a list was in flight do not settle the event about
/// the dead container either.
#[test]
fn a2_event_of_sibling_during_a_list_does_not_settle_pending_event() {
    let mut t = on_containerd(&["c"]);
    t.node[1] = ended("c", 3, "Error");
    t.relist();
    t.pass(5);
    let statuses = [
        exited("c", "p", 3, "Error"),
        status("d", "p", ReportedState::Created),
    ];
    t.event(Created, "d", Some(s()), &statuses);
    t.node.push(container("d", "p", ReportedState::Created));
    t.settle();
    t.run(6_000);
    assert_eq!(t.missed(), 1);
}

#[test]
fn a2_own_event_settles_pending_event() {
    let mut t = on_containerd(&["c"]);
    restart_after_lost_stop(&mut t);
    t.pass(4_000);
    t.event(Stopped, "c", Some(s()), &[exited("c", "p", 3, "Error")]);
    t.run(6_000);
    assert_eq!(t.missed(), 0);
}

#[test]
fn a2_late_event_withdraws_miss() {
    let mut t = on_containerd(&["c"]);
    restart_after_lost_stop(&mut t);
    t.run(8_000);
    assert_eq!((t.missed(), t.machine.counters().missed_withdrawn), (1, 0));
    t.event(Stopped, "c", Some(s()), &[exited("c", "p", 3, "Error")]);
    assert_eq!((t.missed(), t.machine.counters().missed_withdrawn), (1, 1));
    assert_eq!(t.machine.health(t.now()).loss.missed, 0);
}

/// A STOPPED of an unknown container, with a start time: its STARTED was lost.
#[test]
fn a2_stopped_without_started_is_a_miss_unless_started_follows() {
    for late in [None, Some(Started)] {
        let mut t = on_containerd(&[]);
        let mut own = exited("c", "p", 0, "Completed");
        if let Details::Container(details) = &mut own.details {
            Arc::make_mut(details).started_at = own.identity.created_at;
        }
        t.event(Stopped, "c", Some(s()), std::slice::from_ref(&own));
        t.node.push(in_s(own.clone()));
        let lists = t.machine.counters().lists;
        t.pass(900);
        if let Some(late) = late {
            t.event(late, "c", Some(s()), &[own]);
        }
        t.run(200);
        let relisted = t.machine.counters().lists > lists;
        t.run(6_000);
        assert_eq!(t.missed(), u64::from(late.is_none()));
        assert_eq!(relisted, late.is_none(), "a relist after a second");
    }
}

#[test]
fn a2_deleted_without_stopped_is_a_miss() {
    let mut t = on_containerd(&["c"]);
    t.node.pop();
    t.event(Deleted, "c", Some(s()), &[]);
    t.run(6_000);
    assert_eq!(t.missed(), 1);
    let mut t = listed(&["c"]);
    t.node.pop();
    t.event(Deleted, "c", Some(s()), &[]);
    t.run(6_000);
    assert_eq!(t.missed(), 0, "an unknown runtime promises nothing");
}

/// Two misses and 1 %: the node is polled until the last ten minutes contain fewer. If the runtime
/// sends each event to one subscriber only, a second subscriber is named as the likely cause.
#[test]
fn a3_lossy_stream_is_polled_for_ten_minutes() {
    let mut t = on_containerd(&["c", "d"]);
    t.event(Started, "s", Some(s()), &[]);
    t.node[1] = ended("c", 0, "Completed");
    t.node[2] = ended("d", 0, "Completed");
    t.relist();
    t.settle();
    t.run(8_000);
    let health = t.machine.health(t.now());
    assert_eq!((health.loss.missed, health.period.as_secs()), (2, 1));
    let lossy = health.degraded(t.now());
    let lossy = lossy.iter().find(|d| d.as_str() == "stream_lossy");
    let text = lossy.expect("it is reported").to_string();
    assert!(
        text.contains("another subscriber is the likely cause"),
        "{text}"
    );
    let lists = t.machine.counters().lists;
    t.run(9 * MINUTE);
    assert!(t.machine.counters().lists - lists > 9 * 50, "polled");
    t.run(5 * MINUTE);
    assert_eq!(period(&t), 60);
    assert!(
        !t.machine
            .health(t.now())
            .degraded(t.now())
            .iter()
            .any(|d| matches!(d, Degraded::StreamLossy { .. }))
    );
}

/// Lists without a miss do not lengthen the period while an earlier list waits for its verdict.
#[test]
fn a3_list_does_not_lengthen_the_period_while_an_event_is_pending() {
    let mut t = on_containerd(&["c"]);
    t.node[1] = ended("c", 0, "Completed");
    t.relist();
    t.settle();
    let before = period(&t);
    for _ in 0..4 {
        t.run(1_000);
        t.relist();
        t.settle();
        assert_eq!(period(&t), before);
    }
    t.event(Stopped, "c", Some(s()), &[exited("c", "p", 0, "Completed")]);
    assert!(period(&t) > before);
}

/// Every list succeeds and takes a minute and a second.
#[test]
fn a12_lists_of_a_minute_leave_the_node_ready() {
    let mut t = Script::new();
    t.list(&[]);
    t.subscribe();
    t.event(Started, "s", Some(s()), &[]);
    t.node = vec![s()];
    let (mut since, mut listed) = (None, false);
    for second in 0..3_600_u64 {
        t.pass(1_000);
        if t.lists_wanted() > 0 && second - *since.get_or_insert(second) >= 61 {
            t.list(&[s()]);
            while t.inspection_wanted().is_some() {
                t.inspect(&[s()], &[]);
            }
            (since, listed) = (None, true);
        }
        let now = t.now();
        let ready = t.machine.health(now).ready(now);
        assert!(!listed || ready.is_ok(), "{second} s: {ready:?}");
    }
}

/// The runtime is down for ten minutes, while a worker asks for its pod every ten seconds.
#[test]
fn a4_outage_delays_no_death() {
    let mut t = listed(&["c"]);
    t.stream_ends(StreamEnd::Ended(None));
    for ms in 0..600_000_u64 {
        if ms % 10_000 == 0 {
            t.wait("p", t.now());
        }
        t.pass(1);
        while t.lists_wanted() > 0 {
            t.list_fails(CallErrorKind::Unavailable);
        }
        while t.inspection_wanted().is_some() {
            t.inspection_fails(&[]);
        }
    }
    t.node[1] = ended("c", 3, "Error");
    t.subscribe();
    let back = t.now();
    while t.said(ContainerDied, "c") == 0 && t.now().since(back) < Duration::from_secs(120) {
        t.run(1);
    }
    assert!(t.now().since(back) < Duration::from_secs(2));
}

/// After the outage a container exits with an event without statuses: its exit code is read.
#[test]
fn a4_exit_code_is_read_after_an_outage() {
    let mut t = listed(&["c"]);
    t.stream_ends(StreamEnd::Ended(None));
    for ms in 0..70_000_u64 {
        if ms % 10_000 == 0 {
            t.wait("p", t.now());
        }
        t.pass(1);
        while t.lists_wanted() > 0 {
            t.list_fails(CallErrorKind::Unavailable);
        }
        while t.inspection_wanted().is_some() {
            t.inspection_fails(&[]);
        }
    }
    t.subscribe();
    t.run(20_000);
    t.node[1] = ended("c", 3, "Error");
    t.event(Stopped, "c", Some(s()), &[]);
    t.run(100);
    let died = t.announced.iter().find(|a| a.0 == ContainerDied);
    assert_eq!(died.map(|a| a.3), Some(Some(3)));
}

/// An inspection that fails counts against its pod only if the runtime as a whole works.
#[test]
fn a4_failure_in_an_outage_does_not_count_against_the_pod() {
    for outage in [true, false] {
        let mut t = listed(&["c"]);
        if outage {
            t.relist();
            t.list_fails(CallErrorKind::Unavailable);
        }
        t.wait("p", t.now());
        t.inspection_fails(&[]);
        let failing = t.machine.health(t.now()).failing;
        assert_eq!(failing, usize::from(!outage));
    }
}

/// The first complete list after an outage ends the backoff of every pod, unless another one did so
/// within the last minute.
#[test]
fn a4_outages_end_a_backoff_once_a_minute() {
    let mut t = listed(&["c"]);
    t.stream_ends(StreamEnd::Ended(None));
    let mut outage_ends_backoff = || {
        t.relist();
        t.list_fails(CallErrorKind::Unavailable);
        t.request_relist("p");
        t.inspection_fails(&[]);
        assert_eq!(t.inspections_wanted(), 0, "the pod waits out its backoff");
        let rows = t.node.clone();
        t.relist_shows(&rows);
        let ends = t.inspections_wanted() == 1;
        t.pass(1_000);
        let backoff_is_over = t.inspections_wanted() == 1;
        t.run(30_000);
        (ends, backoff_is_over)
    };
    assert_eq!(outage_ends_backoff(), (true, true));
    assert_eq!(outage_ends_backoff(), (false, true));
    assert_eq!(outage_ends_backoff(), (true, true));
}

/// containerd before 2.3: the reason becomes OOMKilled after the event.
#[test]
fn a5_late_reason_is_read_whoever_saw_the_end_first() {
    for first in ["waiter", "list", "poll"] {
        let mode = match first {
            "poll" => Mode::Polling,
            _ => Mode::Evented,
        };
        let mut settings = Settings::default();
        settings.mode = mode;
        let mut t = listed_with(settings, &["c"]);
        match first {
            "waiter" => {
                t.wait("p", t.now());
            }
            "list" => t.relist(),
            _ => {}
        }
        t.node[1] = ended("c", 137, "Error");
        match first {
            "poll" => t.run(1_100),
            _ => {
                t.settle();
                t.event(Stopped, "c", Some(s()), &[exited("c", "p", 137, "Error")]);
                t.run(500);
            }
        }
        t.node[1] = ended("c", 137, "OOMKilled");
        t.run(30 * MINUTE);
        assert_eq!(&*of(&t.get("p"), "c").reason, "OOMKilled", "{first}");
        assert_eq!(t.machine.counters().exit_reads, 1, "{first}");
    }
}

#[test]
fn a5_reason_of_initial_exit_is_not_read_again() {
    let mut t = Script::new();
    t.node = vec![s(), ended("c", 137, "Error")];
    t.settle();
    t.run(10_000);
    assert_eq!(t.machine.counters().exit_reads, 0);
}

fn memory(view: &PodView) -> i64 {
    of(view, "c")
        .resources
        .as_ref()
        .expect("it has")
        .memory_limit
}

/// A resize is read, and an event with statuses from before it arrives while the read is in flight,
/// or after it.
#[test]
fn a7_older_status_in_an_event_does_not_hide_a_resize() {
    for during in [true, false] {
        let mut t = listed(&[]);
        let old = with_memory_limit(container("c", "p", ReportedState::Running), 200);
        t.node = vec![s(), old, container("d", "p", ReportedState::Running)];
        t.relist();
        t.settle();
        assert_eq!(memory(&t.get("p")), 200);
        t.node[1] = with_memory_limit(container("c", "p", ReportedState::Running), 400);
        t.request_reinspect("p");
        if !during {
            t.settle();
            assert_eq!(memory(&t.get("p")), 400);
        }
        t.pass(5);
        let stale = with_memory_limit(status("c", "p", ReportedState::Running), 200);
        let statuses = [stale, exited("d", "p", 0, "Completed")];
        t.event(Stopped, "d", Some(s()), &statuses);
        t.node[2] = ended("d", 0, "Completed");
        if !during {
            assert_eq!(memory(&t.get("p")), 400, "what was inspected stands");
        }
        t.settle();
        assert_eq!(memory(&t.get("p")), 400);
        let inspections = t.machine.counters().inspections;
        t.run(30 * MINUTE);
        assert_eq!(memory(&t.get("p")), 400);
        assert_eq!(t.machine.counters().inspections, inspections);
    }
}

/// An inspection is in flight that reads a resize, and a STOPPED arrives: the status is one of an earlier
/// state, and its details are neither taken nor counted as read.
#[test]
fn a7_event_during_a_read_of_a_resize_does_not_hide_it() {
    let mut t = listed(&[]);
    let old = with_memory_limit(container("c", "p", ReportedState::Running), 200);
    t.node = vec![s(), old];
    t.relist();
    t.settle();
    let resized = with_memory_limit(container("c", "p", ReportedState::Running), 400);
    t.request_reinspect("p");
    t.pass(5);
    t.event(
        Stopped,
        "c",
        Some(s()),
        &[with_memory_limit(exited("c", "p", 1, "Error"), 200)],
    );
    t.node[1] = with_memory_limit(ended("c", 1, "Error"), 400);
    let before = t.now();
    t.inspect(&[s(), resized], &[]);
    assert!(
        t.get("p").inspected < Some(before),
        "the old limit is not as of this read"
    );
    t.settle();
    assert_eq!(memory(&t.get("p")), 400);
}

/// A list showed the exit; its inspection is in flight; an event without statuses arrives; the
/// inspection reads the exit code, or fails.
#[test]
fn a10_first_status_releases_died() {
    for reads in [true, false] {
        let mut t = listed(&["c"]);
        t.relist_shows(&[s(), container("c", "p", ReportedState::Exited)]);
        t.event(Stopped, "c", None, &[]);
        assert_eq!(t.said(ContainerDied, "c"), 0);
        match reads {
            true => t.inspect(&[s(), ended("c", 3, "Error")], &[]),
            false => t.inspection_fails(&[]),
        }
        assert_eq!(t.said(ContainerDied, "c"), 1);
    }
}

/// An inspection is in flight when an event without statuses arrives. It reads the status of the
/// exited container.
#[test]
fn a10_inspection_under_way_releases_died() {
    let mut t = listed(&["c"]);
    t.request_relist("p");
    t.pass(5);
    t.event(Stopped, "c", None, &[]);
    assert_eq!(t.said(ContainerDied, "c"), 0);
    t.inspect(&[s(), ended("c", 3, "Error")], &[]);
    let died = t.announced.iter().find(|a| a.0 == ContainerDied);
    assert_eq!(died.map(|a| a.3), Some(Some(3)));
}

/// A partial inspection that returned the id's own status releases it, too.
#[test]
fn a10_partial_inspection_releases_what_it_read() {
    let mut t = listed(&["c", "d"]);
    t.relist_shows(&[
        s(),
        container("c", "p", ReportedState::Exited),
        container("d", "p", ReportedState::Exited),
    ]);
    t.inspection_fails(&[ended("c", 3, "Error")]);
    let codes = |id: &str| {
        let died = t
            .announced
            .iter()
            .find(|a| a.0 == ContainerDied && a.1 == id);
        died.map(|a| a.3)
    };
    assert_eq!((codes("c"), codes("d")), (Some(Some(3)), Some(None)));
}

#[test]
fn a10_stopped_with_unknown_status_waits_for_the_exit_code() {
    let mut t = listed(&["c"]);
    t.node[1] = ended("c", 3, "Error");
    t.event(
        Stopped,
        "c",
        Some(s()),
        &[status("c", "p", ReportedState::Unknown)],
    );
    t.run(3_000);
    let died = t.announced.iter().find(|a| a.0 == ContainerDied);
    assert_eq!(died.map(|a| a.3), Some(Some(3)));
}

/// Events are wrong repeatedly, and reads overrule them: an unbounded number of incarnations.
#[test]
fn a11_inbox_is_bounded_whatever_ends_an_incarnation() {
    let mut t = listed(&["c"]);
    let from = t.events.len();
    for _ in 0..2_000 {
        t.event(Stopped, "c", Some(s()), &[exited("c", "p", 0, "")]);
        for _ in 0..2 {
            t.relist();
            t.settle();
            t.run(200);
        }
    }
    let mut inbox = Inbox::new(64);
    t.events.drain(from..).for_each(|event| inbox.push(event));
    assert!(inbox.len() <= 130, "{}", inbox.len());
    assert!(inbox.take_missed().is_some());
}

#[test]
fn a13_cancelled_waiter_leaves_no_timer() {
    let mut t = listed(&["c"]);
    let before = t.machine.clone();
    let day = Duration::from_secs(24 * 3600);
    let after = |n: u64| t.now().after(day).after(Duration::from_millis(n));
    let instants: Vec<_> = (0..100).map(after).collect();
    for after in instants {
        let waiter = t.wait("p", after);
        t.machine.cancel(waiter);
    }
    assert_eq!(t.machine.poll_timeout(), before.poll_timeout());
    assert_eq!(format!("{:?}", t.machine), format!("{before:?}"));
}

#[test]
fn a13_waiter_for_a_future_instant_is_not_failed_by_an_earlier_read() {
    let mut t = listed(&[]);
    let waiter = t.wait("p", t.now().after(Duration::from_secs(30)));
    t.request_relist("p");
    t.inspection_fails(&[]);
    assert!(t.answer_of(waiter).is_none());
}

/// A container whose label names another uid than its sandbox's metadata belongs to its sandbox's
/// pod, as soon as its sandbox is known.
#[test]
fn a15_container_moves_to_the_pod_of_its_sandbox() {
    let mut t = Script::confirmed();
    t.node = vec![sandbox("s", "m", ReportedState::Running)];
    t.relist();
    t.settle();
    t.run(2_000);
    t.node.push(container("c", "l", ReportedState::Running));
    t.event(
        Started,
        "c",
        None,
        &[status("c", "l", ReportedState::Running)],
    );
    t.run(5_000);
    let ids = |t: &Script, pod: &str| -> Vec<Id> {
        let view = t.get(pod);
        view.status
            .containers
            .iter()
            .map(|c| c.id.clone())
            .collect()
    };
    assert_eq!((ids(&t, "m"), ids(&t, "l")), (vec!["c".into()], vec![]));
    let mut dead = exited("c", "l", 3, "Error");
    dead.identity.sandbox = Some("s".into());
    t.node[1] = dead;
    t.event(
        Stopped,
        "c",
        Some(sandbox("s", "m", ReportedState::Running)),
        &[],
    );
    t.run(2_000);
    assert_eq!(t.said(ContainerDied, "c"), 1);
}

/// The sandbox becomes known after its container.
#[test]
fn a15_container_moves_when_its_sandbox_is_learned() {
    let mut t = Script::confirmed();
    t.node = vec![container("c", "l", ReportedState::Running)];
    t.relist();
    t.settle();
    assert_eq!(t.get("l").status.containers.len(), 1);
    t.node.push(sandbox("s", "m", ReportedState::Running));
    t.event(
        Started,
        "s",
        Some(sandbox("s", "m", ReportedState::Running)),
        &[],
    );
    t.run(3_000);
    assert_eq!(t.get("m").status.containers.len(), 1);
    assert!(t.get("l").status.is_nothing());
}

/// A read that was issued in the outage fails after the list that ends it has shown an exit.
#[test]
fn a4_read_that_failed_in_the_outage_does_not_release_died() {
    let mut t = listed(&["c"]);
    t.stream_ends(StreamEnd::Ended(None));
    t.relist();
    t.list_fails(CallErrorKind::Unavailable);
    t.wait("p", t.now());
    assert_eq!(t.inspections_wanted(), 1);
    t.node[1] = ended("c", 3, "Error");
    t.relist();
    let rows = t.node.clone();
    t.list(&rows);
    t.inspection_fails(&[]);
    t.run(10_000);
    let died = t.announced.iter().find(|a| a.0 == ContainerDied);
    assert_eq!(died.map(|a| a.3), Some(Some(3)));
}

/// A read fails before the first list of the outage does, and so counts against its pod.
#[test]
fn a4_failure_before_the_first_failed_list_does_not_release_died() {
    let mut t = listed(&["c"]);
    t.stream_ends(StreamEnd::Ended(None));
    t.wait("p", t.now());
    t.inspection_fails(&[]);
    t.relist();
    t.list_fails(CallErrorKind::Unavailable);
    t.node[1] = ended("c", 3, "Error");
    let rows = t.node.clone();
    t.relist_shows(&rows);
    t.run(10_000);
    let died = t.announced.iter().find(|a| a.0 == ContainerDied);
    assert_eq!(died.map(|a| a.3), Some(Some(3)));
}
