//! Every knob fires, shows on the wire, and is counted: reference/runtimes.md 7.6.

use std::time::Duration;

use pleg_cri::v1::{self, ContainerEventResponse, GetEventsRequest};
use pleg_sim::{Chaos, Hang, KnobError, Mode, Rate, Sim};
use tonic::{Code, Status};

use crate::common::{Client, Events, golden, idle, sim, sim_of, soon};

/// A simulator with those knobs, a subscriber and a client.
async fn with(knobs: &[&str]) -> (Sim, Events, Client) {
    let mut chaos = Chaos::default();
    for knob in knobs {
        chaos.set(knob).unwrap();
    }
    let sim = sim().chaos(chaos).build();
    let events = Events::subscribe(&sim).await;
    let cri = Client::of(&sim).await;
    (sim, events, cri)
}

/// The events of a pod's start, where one is made worse by that knob: its third, CREATED(A).
async fn third(knob: &str) -> (Vec<ContainerEventResponse>, Vec<String>) {
    let (sim, mut events, mut cri) = with(&[&format!("{knob}=#3")]).await;
    let s = cri.run("p").await;
    let a = cri.create_and_start(&s, "a", "").await;
    let names = [(s.as_str(), "S"), (&a, "A")];
    let (mut raw, mut told) = (Vec::new(), Vec::new());
    while !events.is_silent().await {
        // `is_silent` has taken the event; what it takes, it keeps.
        let event = events.taken();
        told.push(golden(&event, &names));
        raw.push(event);
    }
    assert_eq!(sim.fired()[knob], 1);
    sim.shutdown().await;
    (raw, told)
}

const START: [&str; 4] = [
    "CREATED(S) READY []",
    "STARTED(S) READY []",
    "CREATED(A) READY [A:CREATED]",
    "STARTED(A) READY [A:RUNNING]",
];

#[tokio::test(start_paused = true)]
async fn events_are_lost_doubled_swapped() {
    let [s1, s2, a1, a2] = START;
    assert_eq!(third("drop").await.1, [s1, s2, a2]);
    assert_eq!(third("duplicate").await.1, [s1, s2, a1, a1, a2]);
    assert_eq!(third("swap").await.1, [s1, s2, a2, a1]);
    // The last one has no successor, and comes all the same.
    let (sim, mut events, mut cri) = with(&["swap=#2"]).await;
    let s = cri.run("p").await;
    let told = events.told(2, &[(&s, "S")]).await;
    assert_eq!(told, [s1, s2]);
    sim.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn events_carry_too_little_or_old_news() {
    let [s1, s2, _, a2] = START;
    assert_eq!(
        third("sandbox.nil").await.1[2],
        "CREATED(A) nil [A:CREATED]"
    );
    assert_eq!(third("containers.empty").await.1[2], "CREATED(A) READY []");
    let (raw, told) = third("containers.hole").await;
    assert_eq!(told[2], "CREATED(A) READY [?:CREATED, A:CREATED]");
    assert!(
        raw[2]
            .containers_statuses
            .iter()
            .any(|c| c.id.is_empty() && c.metadata.is_none())
    );
    // The first event has none before it: cases are counted from the second.
    let (_, told) = third("freeze").await;
    assert_eq!(told, [s1, s2, START[2], "STARTED(A) READY [A:CREATED]"]);
    let (raw, told) = third("oversize").await;
    assert_eq!(told[3], a2);
    let bytes = prost::Message::encoded_len(&raw[2]);
    assert!((5_000_000..5_001_000).contains(&bytes), "{bytes}");
    assert_eq!(told.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn stamps_are_absurd() {
    let now = 1_700_000_000_000_000_000_i64;
    for (knob, expected) in [
        ("stamp.zero", 0),
        ("stamp.negative", -6_795_364_578_871_345_152),
        ("stamp.seconds", 1_700_000_000),
        ("stamp.future", now + 3_600_000_000_000),
    ] {
        let (raw, told) = third(knob).await;
        assert_eq!(told, START, "only the stamp is wrong");
        let off = raw[2].created_at - expected;
        assert!((0..1000).contains(&off), "{knob}: {}", raw[2].created_at);
        assert!((now..now + 1000).contains(&raw[3].created_at));
    }
}

/// A pause between the statuses and the stamp: the later stamp shows the older state.
#[tokio::test(start_paused = true)]
async fn a_snapshot_is_older_than_its_stamp() {
    let (sim, mut events, mut cri) = with(&["stamp.pause=1s"]).await;
    let s = cri.run("p").await;
    let a = cri.create(&s, "a", 0, "app exit 1 500").await;
    cri.start(&a).await;
    let names = [(s.as_str(), "S"), (&a, "A")];
    let mut told = Vec::new();
    for _ in 0..5 {
        let event = events.next().await;
        told.push((golden(&event, &names), event.created_at));
    }
    assert_eq!(told[3].0, "STARTED(A) READY [A:RUNNING]");
    assert_eq!(told[4].0, "STOPPED(A) READY [A:EXITED=1 Error]");
    let ended = cri.status(&a).await.unwrap().finished_at;
    assert!(
        told[3].1 > ended,
        "stamped after the end that it does not show"
    );
    assert_eq!(sim.fired()["stamp.pause"], 5);
    sim.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn streams_end_or_say_nothing() {
    let (sim, mut events, mut cri) = with(&["stream.end_after=1"]).await;
    cri.run("p").await;
    events.next().await;
    assert!(events.try_next().await.unwrap().is_none(), "a clean end");
    sim.set_knob("stream.end_after=0").unwrap();
    let mut at_once = soon(cri.0.get_container_events(GetEventsRequest {}))
        .await
        .unwrap();
    assert!(soon(at_once.get_mut().message()).await.unwrap().is_none());
    assert_eq!(sim.fired()["stream.end_after"], 2);
    sim.shutdown().await;

    // One that was silenced stays silent; one that comes later hears.
    let (sim, mut dead, mut cri) = with(&["stream.mute"]).await;
    cri.run("p").await;
    assert!(idle(&mut std::future::pending::<()>()).await);
    sim.set_chaos(Chaos::default());
    cri.run("q").await;
    assert!(dead.is_silent().await);
    assert_eq!(sim.subscribers(), 1, "the runtime notices nothing");
    let mut live = Events::subscribe(&sim).await;
    let r = cri.run("r").await;
    assert_eq!(live.next().await.container_id, r);
    assert!(dead.is_silent().await);
    sim.shutdown().await;
}

/// A share of the events, by rng: the same ones of one seed.
#[tokio::test(start_paused = true)]
async fn rates_are_seeded() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let (sim, mut events, mut cri) = with(&["drop=20%"]).await;
        for n in 0..200 {
            cri.run(&n.to_string()).await;
        }
        let mut stamps = Vec::new();
        while !events.is_silent().await {
            stamps.push(events.taken().created_at);
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

async fn version(cri: &mut Client) -> Result<(), Status> {
    cri.0.version(v1::VersionRequest::default()).await.map(drop)
}

async fn listed(cri: &mut Client) -> Result<usize, Status> {
    let rows = cri
        .0
        .list_containers(v1::ListContainersRequest::default())
        .await?;
    Ok(rows.into_inner().containers.len())
}

async fn within(time: Duration, what: impl Future) -> bool {
    tokio::time::timeout(time, what).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn calls_are_late_or_fail() {
    let (sim, _events, mut cri) = with(&["version.latency=2s", "all.latency=1s"]).await;
    assert!(!within(Duration::from_millis(2990), version(&mut cri)).await);
    assert!(within(Duration::from_millis(3010), version(&mut cri)).await);
    assert!(within(Duration::from_millis(1010), listed(&mut cri)).await);
    assert_eq!(
        (sim.fired()["version.latency"], sim.fired()["all.latency"]),
        (2, 4)
    );
    sim.control("calm").await.unwrap();
    sim.set_knob("version.fail=unavailable@#2").unwrap();
    version(&mut cri).await.unwrap();
    assert_eq!(
        version(&mut cri).await.unwrap_err().code(),
        Code::Unavailable
    );
    version(&mut cri).await.unwrap();
    assert_eq!(sim.fired()["version.fail"], 1);
    sim.shutdown().await;
}

/// containerd #9770: lists hang for a while, and then all go on.
#[tokio::test(start_paused = true)]
async fn lists_hang_for_a_while() {
    let (sim, _events, mut cri) = with(&[]).await;
    sim.set_knob("list_containers.hang=10s").unwrap();
    tokio::time::advance(Duration::from_secs(4)).await;
    version(&mut cri).await.unwrap();
    assert!(!within(Duration::from_secs(5), listed(&mut cri)).await);
    assert!(
        within(Duration::from_millis(1100), listed(&mut cri)).await,
        "ten seconds are over"
    );
    assert!(within(Duration::from_millis(10), listed(&mut cri)).await);
    assert_eq!(
        sim.fired()["list_containers.hang"],
        2,
        "each call that hung"
    );
    // Without an end: until it is turned off, and then those that waited go on, too.
    sim.set_knob("list_containers.hang").unwrap();
    let expected = Some(Hang::On);
    assert_eq!(sim.chaos().calls["ListContainers"].hang, expected);
    let mut waiting = Box::pin(async move { listed(&mut cri).await });
    assert!(!within(Duration::from_secs(3600), &mut waiting).await);
    sim.set_knob("drop=5%").unwrap();
    assert!(idle(&mut waiting).await, "that was another knob");
    sim.set_knob("list_containers.hang=off").unwrap();
    assert_eq!(soon(waiting).await.unwrap(), 0);
    sim.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn pods_hang() {
    let (sim, _events, mut cri) = with(&["pod.uid-p.hang"]).await;
    let (p, q) = (cri.run("p").await, cri.run("q").await);
    let sandbox = |id: &str| {
        let (mut cri, id) = (cri.clone(), id.to_owned());
        async move { cri.sandbox_status(&id).await.map(drop) }
    };
    assert!(within(Duration::from_millis(10), sandbox(&q)).await);
    assert!(!within(Duration::from_secs(10), sandbox(&p)).await);
    // What names no pod goes on.
    assert!(within(Duration::from_millis(10), listed(&mut cri.clone())).await);
    sim.set_knob("pod.*.hang").unwrap();
    assert!(!within(Duration::from_secs(10), sandbox(&q)).await);
    assert_eq!(
        (sim.fired()["pod.uid-p.hang"], sim.fired()["pod.*.hang"]),
        (1, 1)
    );
    sim.set_chaos(Chaos::default());
    assert!(within(Duration::from_millis(10), sandbox(&p)).await);
    sim.shutdown().await;
}

// === lists ===

/// The sizes of the pages of a streamed list, and how it ends.
async fn pages(cri: &mut Client) -> (Vec<usize>, Result<(), Status>) {
    let mut sizes = Vec::new();
    let request = v1::StreamContainersRequest::default();
    let mut stream = match soon(cri.0.stream_containers(request)).await {
        Ok(stream) => stream.into_inner(),
        Err(status) => return (sizes, Err(status)),
    };
    loop {
        match soon(stream.message()).await {
            Ok(Some(page)) => sizes.push(page.containers.len()),
            Ok(None) => return (sizes, Ok(())),
            Err(status) => return (sizes, Err(status)),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn streamed_lists_come_in_any_pages() {
    let (sim, _events, mut cri) = with(&[]).await;
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
        let (told, how) = pages(&mut cri).await;
        assert_eq!((told.as_slice(), code(how)), (sizes, end), "{knob}");
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

/// Lists over the limit of the runtime: containerd has 16 MiB, CRI-O 80.
#[tokio::test(start_paused = true)]
async fn lists_are_too_large() {
    for (mode, limit) in [(Mode::Containerd2, 16 << 20), (Mode::Crio, 80 << 20)] {
        let sim = sim_of(mode);
        let mut cri = Client::of(&sim).await;
        cri.0 = cri.0.max_decoding_message_size(usize::MAX);
        let s = cri.run("p").await;
        for n in 0..4 {
            cri.create(&s, &format!("c{n}"), 0, "").await;
        }
        // Four rows: a little below, and a little above.
        sim.set_knob(&format!("list.pad={}", limit / 4 - 1000))
            .unwrap();
        assert_eq!(listed(&mut cri).await.unwrap(), 4, "{mode}");
        sim.set_knob(&format!("list.pad={}", limit / 4)).unwrap();
        let refused = listed(&mut cri).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{mode}");
        let words = "grpc: trying to send message larger than max (";
        assert!(refused.message().starts_with(words), "{refused}");
        let (_, end) = pages(&mut cri).await;
        assert_eq!(end.unwrap_err().code(), Code::ResourceExhausted, "{mode}");
        // In smaller pages it goes.
        sim.set_knob("list.page=2").unwrap();
        assert_eq!(pages(&mut cri).await.0, [2, 2], "{mode}");
        sim.set_knob("list.limit=1KiB").unwrap();
        assert!(listed(&mut cri).await.is_err());
        assert!(sim.fired()["list.limit"] > 0 && sim.fired()["list.pad"] > 0);
        sim.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_exists_is_denied() {
    let (sim, _events, mut cri) = with(&["status.not_found=#2"]).await;
    let s = cri.run("p").await;
    let a = cri.create(&s, "a", 0, "").await;
    cri.sandbox_status(&s).await.unwrap();
    assert_eq!(cri.status(&a).await.unwrap_err().code(), Code::NotFound);
    cri.status(&a).await.unwrap();
    assert_eq!(sim.fired()["status.not_found"], 1);
    sim.set_knob("status.not_found").unwrap();
    assert_eq!(
        cri.sandbox_status(&s).await.unwrap_err().code(),
        Code::NotFound
    );
    assert_eq!(listed(&mut cri).await.unwrap(), 1, "lists show it");
    sim.shutdown().await;
}

/// As plain data, in code.
#[tokio::test(start_paused = true)]
async fn chaos_is_plain_data() {
    let (sim, mut events, mut cri) = with(&[]).await;
    let mut chaos = Chaos::default();
    chaos.events.duplicate = Rate::ALWAYS;
    sim.set_chaos(chaos.clone());
    assert_eq!(sim.chaos(), chaos);
    cri.run("p").await;
    for _ in 0..4 {
        events.next().await;
    }
    assert!(events.is_silent().await);
    let refused = sim.set_knob("duplicate=often");
    assert!(matches!(refused, Err(KnobError::Value { .. })));
    assert_eq!(sim.chaos(), chaos, "a wrong knob changes nothing");
    sim.shutdown().await;
}
