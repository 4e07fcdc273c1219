//! Every knob fires, is visible on the wire, and is counted.

use std::time::Duration;

use pleg_cri::v1::{self, ContainerEventResponse};
use pleg_sim::{FaultProfile, Hang, KnobError, Mode, Rate, Sim};
use tonic::{Code, Status};

use crate::common::{
    Client, Events, event_text, is_pending_when_idle, sim, sim_with_mode, with_timeout,
};

/// A simulator with the knobs, a subscriber and a client.
async fn sim_with_knobs(knobs: &[&str]) -> (Sim, Events, Client) {
    let mut profile = FaultProfile::default();
    for knob in knobs {
        profile.set(knob).unwrap();
    }
    let sim = sim().fault_profile(profile).build();
    let events = Events::subscribe(&sim).await;
    let cri = Client::connect(&sim).await;
    (sim, events, cri)
}

/// The events of a pod's start. The knob fires for the third event, CREATED(A).
async fn start_events_with(knob: &str) -> (Vec<ContainerEventResponse>, Vec<String>) {
    let (sim, mut events, mut cri) = sim_with_knobs(&[&format!("{knob}=#3")]).await;
    let s = cri.run("p").await;
    let a = cri.create_and_start(&s, "a", "").await;
    let names = [(s.as_str(), "S"), (&a, "A")];
    let (mut raw, mut received) = (Vec::new(), Vec::new());
    while !events.is_silent().await {
        // `is_silent` keeps the event that it received.
        let event = events.take_kept();
        received.push(event_text(&event, &names));
        raw.push(event);
    }
    assert_eq!(sim.fired()[knob], 1);
    sim.shutdown().await;
    (raw, received)
}

const START: [&str; 4] = [
    "CREATED(S) READY []",
    "STARTED(S) READY []",
    "CREATED(A) READY [A:CREATED]",
    "STARTED(A) READY [A:RUNNING]",
];

#[tokio::test(start_paused = true)]
async fn event_is_lost_sent_twice_or_swapped() {
    let [s1, s2, a1, a2] = START;
    assert_eq!(start_events_with("drop").await.1, [s1, s2, a2]);
    assert_eq!(start_events_with("duplicate").await.1, [s1, s2, a1, a1, a2]);
    assert_eq!(start_events_with("swap").await.1, [s1, s2, a2, a1]);
    // There is no next event after the last one, so it is sent after a timeout.
    let (sim, mut events, mut cri) = sim_with_knobs(&["swap=#2"]).await;
    let s = cri.run("p").await;
    let received = events.next_as_text(2, &[(&s, "S")]).await;
    assert_eq!(received, [s1, s2]);
    assert!(!sim.fired().contains_key("swap"), "nothing was swapped");
    sim.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn swap_of_every_event_swaps_pairs_and_counts_each_pair_once() {
    let [s1, s2, a1, a2] = START;
    let (sim, mut events, mut cri) = sim_with_knobs(&["swap"]).await;
    let s = cri.run("p").await;
    let a = cri.create_and_start(&s, "a", "").await;
    let received = events.next_as_text(4, &[(&s, "S"), (&a, "A")]).await;
    assert_eq!(received, [s2, s1, a2, a1]);
    assert_eq!(sim.fired()["swap"], 2);
    sim.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn lost_event_is_not_swapped_with_the_one_before() {
    let [s1, _, a1, a2] = START;
    // STARTED(S) is lost; CREATED(S) is held until CREATED(A), and sent after it.
    let (sim, mut events, mut cri) = sim_with_knobs(&["swap=#1", "drop=#2"]).await;
    let s = cri.run("p").await;
    let a = cri.create_and_start(&s, "a", "").await;
    let names = [(s.as_str(), "S"), (&a, "A")];
    assert_eq!(events.next_as_text(3, &names).await, [a1, s1, a2]);
    assert_eq!(sim.fired()["swap"], 1);
    sim.shutdown().await;
    // Nothing follows the lost event, so CREATED(S) is sent after the timeout.
    let (sim, mut events, mut cri) = sim_with_knobs(&["swap=#1", "drop=#2"]).await;
    let s = cri.run("p").await;
    assert_eq!(events.next_as_text(1, &[(&s, "S")]).await, [s1]);
    assert!(!sim.fired().contains_key("swap"), "nothing was swapped");
    sim.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn event_carries_missing_or_old_statuses() {
    let [s1, s2, _, a2] = START;
    let (_, received) = start_events_with("sandbox.nil").await;
    assert_eq!(received[2], "CREATED(A) nil [A:CREATED]");
    let (_, received) = start_events_with("containers.empty").await;
    assert_eq!(received[2], "CREATED(A) READY []");
    let (raw, received) = start_events_with("containers.hole").await;
    assert_eq!(received[2], "CREATED(A) READY [?:CREATED, A:CREATED]");
    let hole = v1::ContainerStatus::default();
    assert!(raw[2].containers_statuses.contains(&hole));
    // The first event has no previous one, so cases are counted from the second.
    let (_, received) = start_events_with("freeze").await;
    assert_eq!(received, [s1, s2, START[2], "STARTED(A) READY [A:CREATED]"]);
    let (raw, received) = start_events_with("oversize").await;
    assert_eq!(received[3], a2);
    let bytes = prost::Message::encoded_len(&raw[2]);
    assert!((5_000_000..5_001_000).contains(&bytes), "{bytes}");
    assert_eq!(received.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn timestamp_is_invalid() {
    let now = 1_700_000_000_000_000_000_i64;
    for (knob, expected) in [
        ("stamp.zero", 0),
        ("stamp.negative", -6_795_364_578_871_345_152),
        ("stamp.seconds", 1_700_000_000),
        ("stamp.future", now + 3_600_000_000_000),
    ] {
        let (raw, received) = start_events_with(knob).await;
        assert_eq!(received, START, "only the timestamp differs");
        let difference = raw[2].created_at - expected;
        assert!((0..1000).contains(&difference), "{knob}: {difference}");
        assert!((now..now + 1000).contains(&raw[3].created_at));
    }
}

/// A pause between the statuses and the timestamp: the later timestamp shows the older state.
#[tokio::test(start_paused = true)]
async fn statuses_are_older_than_the_timestamp() {
    let (sim, mut events, mut cri) = sim_with_knobs(&["stamp.pause=1s"]).await;
    let s = cri.run("p").await;
    let a = cri.create(&s, "a", 0, "app exit 1 500").await;
    cri.start(&a).await;
    let names = [(s.as_str(), "S"), (&a, "A")];
    let mut received = Vec::new();
    for _ in 0..5 {
        let event = events.next().await;
        received.push((event_text(&event, &names), event.created_at));
    }
    assert_eq!(received[3].0, "STARTED(A) READY [A:RUNNING]");
    assert_eq!(received[4].0, "STOPPED(A) READY [A:EXITED=1 Error]");
    let ended = cri.status(&a).await.unwrap().finished_at;
    assert!(received[3].1 > ended, "stamped after the exit");
    assert_eq!(sim.fired()["stamp.pause"], 5);
    sim.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn stream_ends_early_or_is_muted() {
    let (sim, mut events, mut cri) = sim_with_knobs(&["stream.end_after=1"]).await;
    cri.run("p").await;
    events.next().await;
    assert!(events.try_next().await.unwrap().is_none(), "a clean end");
    sim.set_knob("stream.end_after=0").unwrap();
    let mut at_once = cri.stream().await.unwrap();
    assert_eq!(with_timeout(at_once.message()).await.unwrap(), None);
    assert_eq!(sim.fired()["stream.end_after"], 2);
    sim.shutdown().await;

    // A muted stream stays muted; a later stream is not.
    let (sim, mut muted, mut cri) = sim_with_knobs(&["stream.mute"]).await;
    cri.run("p").await;
    assert!(is_pending_when_idle(&mut std::future::pending::<()>()).await);
    sim.set_fault_profile(FaultProfile::default());
    cri.run("q").await;
    assert!(muted.is_silent().await);
    assert_eq!(sim.subscribers(), 1, "the runtime notices nothing");
    let mut live = Events::subscribe(&sim).await;
    let r = cri.run("r").await;
    assert_eq!(live.next().await.container_id, r);
    assert!(muted.is_silent().await);
    sim.shutdown().await;
}

/// The knob hits the same events for the same seed.
#[tokio::test(start_paused = true)]
async fn rate_hits_same_events_for_same_seed() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let (sim, mut events, mut cri) = sim_with_knobs(&["drop=20%"]).await;
        for n in 0..200 {
            cri.run(&n.to_string()).await;
        }
        let mut stamps = Vec::new();
        while !events.is_silent().await {
            stamps.push(events.take_kept().created_at);
        }
        let lost = sim.fired()["drop"];
        assert_eq!(stamps.len() as u64 + lost, 400);
        assert!((50..110).contains(&lost), "{lost} of 400");
        runs.push(stamps);
        sim.shutdown().await;
    }
    assert_eq!(runs[0], runs[1]);
}

// === calls ===

async fn listed(cri: &mut Client) -> Result<usize, Status> {
    let rows = cri.0.list_containers(v1::ListContainersRequest::default());
    Ok(rows.await?.into_inner().containers.len())
}

async fn within(time: Duration, what: impl Future) -> bool {
    tokio::time::timeout(time, what).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn call_is_delayed_or_fails() {
    let (sim, _events, mut cri) = sim_with_knobs(&["version.latency=2s", "all.latency=1s"]).await;
    assert!(!within(Duration::from_millis(2990), cri.version()).await);
    assert!(within(Duration::from_millis(3010), cri.version()).await);
    assert!(within(Duration::from_millis(1010), listed(&mut cri)).await);
    let fired = sim.fired();
    assert_eq!((fired["version.latency"], fired["all.latency"]), (2, 4));
    sim.control("reset").await.unwrap();
    sim.set_knob("version.fail=unavailable@#2").unwrap();
    cri.version().await.unwrap();
    let failed = cri.version().await.unwrap_err();
    assert_eq!(failed.code(), Code::Unavailable);
    cri.version().await.unwrap();
    assert_eq!(sim.fired()["version.fail"], 1);
    sim.shutdown().await;
}

/// containerd #9770: lists hang for a while, and then all proceed.
#[tokio::test(start_paused = true)]
async fn list_hangs_until_duration_ends_or_knob_is_off() {
    let (sim, _events, mut cri) = sim_with_knobs(&[]).await;
    sim.set_knob("list_containers.hang=10s").unwrap();
    tokio::time::advance(Duration::from_secs(4)).await;
    cri.version().await.unwrap();
    assert!(!within(Duration::from_secs(5), listed(&mut cri)).await);
    let after_ten_seconds = within(Duration::from_millis(1100), listed(&mut cri)).await;
    assert!(after_ten_seconds);
    assert!(within(Duration::from_millis(10), listed(&mut cri)).await);
    assert_eq!(sim.fired()["list_containers.hang"], 2, "each call");
    // Without a duration, calls hang until the knob is turned off. Then those that waited proceed.
    sim.set_knob("list_containers.hang").unwrap();
    let expected = Some(Hang::On);
    assert_eq!(sim.fault_profile().calls["ListContainers"].hang, expected);
    let mut waiting = Box::pin(async move { listed(&mut cri).await });
    assert!(!within(Duration::from_secs(3600), &mut waiting).await);
    sim.set_knob("drop=5%").unwrap();
    assert!(is_pending_when_idle(&mut waiting).await, "another knob");
    sim.set_knob("list_containers.hang=off").unwrap();
    assert_eq!(with_timeout(waiting).await.unwrap(), 0);
    sim.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn calls_that_name_a_pod_hang() {
    let (sim, _events, mut cri) = sim_with_knobs(&["pod.uid-p.hang"]).await;
    let (p, q) = (cri.run("p").await, cri.run("q").await);
    let sandbox = |id: &str| {
        let (mut cri, id) = (cri.clone(), id.to_owned());
        async move { cri.sandbox_status(&id).await.map(drop) }
    };
    assert!(within(Duration::from_millis(10), sandbox(&q)).await);
    assert!(!within(Duration::from_secs(10), sandbox(&p)).await);
    // Calls that name no pod proceed.
    assert!(within(Duration::from_millis(10), listed(&mut cri.clone())).await);
    sim.set_knob("pod.*.hang").unwrap();
    assert!(!within(Duration::from_secs(10), sandbox(&q)).await);
    let fired = sim.fired();
    assert_eq!((fired["pod.uid-p.hang"], fired["pod.*.hang"]), (1, 1));
    sim.set_fault_profile(FaultProfile::default());
    assert!(within(Duration::from_millis(10), sandbox(&p)).await);
    sim.shutdown().await;
}

// === lists ===

/// The sizes of the pages of a streaming list, and how it ends.
async fn pages(cri: &mut Client) -> (Vec<usize>, Result<(), Status>) {
    let mut sizes = Vec::new();
    let request = v1::StreamContainersRequest::default();
    let mut stream = match with_timeout(cri.0.stream_containers(request)).await {
        Ok(stream) => stream.into_inner(),
        Err(status) => return (sizes, Err(status)),
    };
    loop {
        match with_timeout(stream.message()).await {
            Ok(Some(page)) => sizes.push(page.containers.len()),
            Ok(None) => return (sizes, Ok(())),
            Err(status) => return (sizes, Err(status)),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn streaming_list_follows_page_knobs() {
    let (sim, _events, mut cri) = sim_with_knobs(&[]).await;
    let s = cri.run("p").await;
    for n in 0..5 {
        cri.create(&s, &format!("c{n}"), 0, "").await;
    }
    let code = |end: Result<(), Status>| end.err().map(|s| s.code());
    for (knob, sizes, end) in [
        ("list.page=off", &[5][..], None),
        ("list.page=1", &[1, 1, 1, 1, 1], None),
        ("list.page=3000", &[5], None),
        ("list.page=2", &[2, 2, 1], None),
        ("list.empty_page", &[0, 2, 2, 1], None),
        ("list.empty_page=off", &[2, 2, 1], None),
        ("list.break_after=2", &[2, 2], Some(Code::Internal)),
        ("list.break_after=0", &[], Some(Code::Internal)),
        ("list.break_after=off", &[2, 2, 1], None),
        ("list.empty", &[], None),
        ("list.empty=off", &[2, 2, 1], None),
        ("list.unimplemented", &[], Some(Code::Unimplemented)),
        ("list.unimplemented=off", &[2, 2, 1], None),
    ] {
        sim.set_knob(knob).unwrap();
        let (received, how) = pages(&mut cri).await;
        assert_eq!((received.as_slice(), code(how)), (sizes, end), "{knob}");
    }
    let fired = sim.fired();
    for (knob, times) in [
        ("list.page", 11),
        ("list.empty_page", 1),
        ("list.break_after", 2),
        ("list.empty", 1),
        ("list.unimplemented", 1),
    ] {
        assert_eq!(fired[knob], times, "{knob} of {fired:?}");
    }
    sim.shutdown().await;
}

/// Lists above the message limit of the runtime: 16 MiB for containerd, 80 MiB for CRI-O.
#[tokio::test(start_paused = true)]
async fn list_above_message_limit_fails() {
    for (mode, limit) in [(Mode::Containerd2, 16 << 20), (Mode::Crio, 80 << 20)] {
        let sim = sim_with_mode(mode);
        let mut cri = Client::connect(&sim).await;
        cri.0 = cri.0.max_decoding_message_size(usize::MAX);
        let s = cri.run("p").await;
        for n in 0..4 {
            cri.create(&s, &format!("c{n}"), 0, "").await;
        }
        // Four items: slightly below the limit, and slightly above.
        let fits = format!("list.pad={}", limit / 4 - 1000);
        sim.set_knob(&fits).unwrap();
        assert_eq!(listed(&mut cri).await.unwrap(), 4, "{mode}");
        sim.set_knob(&format!("list.pad={}", limit / 4)).unwrap();
        let rejected = listed(&mut cri).await.unwrap_err();
        assert_eq!(rejected.code(), Code::ResourceExhausted, "{mode}");
        let words = "grpc: trying to send message larger than max (";
        assert!(rejected.message().starts_with(words), "{rejected}");
        let (_, end) = pages(&mut cri).await;
        assert_eq!(end.unwrap_err().code(), Code::ResourceExhausted, "{mode}");
        // In smaller pages, the list is within the limit.
        sim.set_knob("list.page=2").unwrap();
        assert_eq!(pages(&mut cri).await.0, [2, 2], "{mode}");
        sim.set_knob("list.limit=1KiB").unwrap();
        assert!(listed(&mut cri).await.is_err());
        assert!(sim.fired()["list.limit"] > 0 && sim.fired()["list.pad"] > 0);
        sim.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn status_of_existing_id_is_not_found() {
    let (sim, _events, mut cri) = sim_with_knobs(&["status.not_found=#2"]).await;
    let s = cri.run("p").await;
    let a = cri.create(&s, "a", 0, "").await;
    cri.sandbox_status(&s).await.unwrap();
    assert_eq!(cri.status(&a).await.unwrap_err().code(), Code::NotFound);
    cri.status(&a).await.unwrap();
    assert_eq!(sim.fired()["status.not_found"], 1);
    sim.set_knob("status.not_found").unwrap();
    let missing = cri.sandbox_status(&s).await.unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
    assert_eq!(listed(&mut cri).await.unwrap(), 1, "lists show it");
    sim.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn invalid_knob_changes_nothing() {
    let (sim, mut events, mut cri) = sim_with_knobs(&[]).await;
    let mut profile = FaultProfile::default();
    profile.events.duplicate = Rate::ALWAYS;
    sim.set_fault_profile(profile.clone());
    assert_eq!(sim.fault_profile(), profile);
    cri.run("p").await;
    for _ in 0..4 {
        events.next().await;
    }
    assert!(events.is_silent().await);
    let rejected = sim.set_knob("duplicate=often");
    assert!(matches!(rejected, Err(KnobError::Value { .. })));
    assert_eq!(sim.fault_profile(), profile, "nothing is changed");
    sim.shutdown().await;
}
