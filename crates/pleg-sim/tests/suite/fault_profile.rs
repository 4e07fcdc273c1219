//! Every knob fires, is visible on the wire, and is counted.

use std::time::Duration;

use pleg_cri::v1::{self, ContainerEventResponse};
use pleg_sim::{Mode, Sim};
use tonic::{Code, Status};

use crate::common::{
    Client, Events, event_text, is_pending_when_idle, sim, sim_with_mode, with_timeout,
};

/// A simulator with the knobs, a subscriber and a client.
async fn sim_with_knobs(knobs: &[&str]) -> (Sim, Events, Client) {
    let sim = sim().build();
    sim.control(&knobs.join(" ")).await.unwrap();
    let events = Events::subscribe(&sim).await;
    let cri = Client::connect(&sim).await;
    (sim, events, cri)
}

/// The events of a pod's start.
async fn start_events(knobs: &[&str]) -> (Sim, Vec<(ContainerEventResponse, String)>) {
    let (sim, mut events, mut cri) = sim_with_knobs(knobs).await;
    let s = cri.run("p").await;
    let a = match knobs.iter().any(|k| k.starts_with("create")) {
        true => String::new(),
        false => cri.create_and_start(&s, "a", "").await,
    };
    let names = [(s.as_str(), "S"), (&a, "A")];
    let mut received = Vec::new();
    while !events.is_silent().await {
        // `is_silent` keeps the event that it received.
        let event = events.take_kept();
        let text = event_text(&event, &names);
        received.push((event, text));
    }
    sim.shutdown().await;
    (sim, received)
}

const START: [&str; 4] = [
    "CREATED(S) READY []",
    "STARTED(S) READY []",
    "CREATED(A) READY [A:CREATED]",
    "STARTED(A) READY [A:RUNNING]",
];

/// The knobs, the events of a pod's start in the order of arrival, and how many pairs were swapped.
#[tokio::test(start_paused = true)]
async fn event_is_lost_sent_twice_or_swapped() {
    let [s1, s2, a1, a2] = START;
    for (knobs, expected, swapped) in [
        (&["drop=#3"][..], &[s1, s2, a2][..], 0),
        (&["duplicate=#3"], &[s1, s2, a1, a1, a2], 0),
        (&["swap=#3"], &[s1, s2, a2, a1], 1),
        (&["swap"], &[s2, s1, a2, a1], 2),
        // There is no next event after the last one, so it is sent after a timeout.
        (&["swap=#4"], &START, 0),
        // STARTED(S) is lost; CREATED(S) waits for CREATED(A), and is sent after it.
        (&["swap=#1", "drop=#2"], &[a1, s1, a2], 1),
        (
            &["swap=#1", "drop=#2", "create_container.fail=internal"],
            &[s1],
            0,
        ),
    ] {
        let (sim, received) = start_events(knobs).await;
        let text: Vec<_> = received.iter().map(|(_, text)| text).collect();
        assert_eq!(text, expected, "{knobs:?}");
        let fired = sim.fired().get("swap").copied().unwrap_or_default();
        assert_eq!(fired, swapped, "{knobs:?}");
    }
}

/// The knob fires for the third event, CREATED(A); freeze for the fourth: the first has no previous one.
#[tokio::test(start_paused = true)]
async fn event_has_other_statuses_or_another_timestamp() {
    let [s1, s2, a1, a2] = START;
    let now = 1_700_000_000_000_000_000_i64;
    for (knob, expected, stamp) in [
        (
            "sandbox.nil",
            [s1, s2, "CREATED(A) nil [A:CREATED]", a2],
            now,
        ),
        ("containers.empty", [s1, s2, "CREATED(A) READY []", a2], now),
        (
            "containers.hole",
            [s1, s2, "CREATED(A) READY [?:CREATED, A:CREATED]", a2],
            now,
        ),
        ("freeze", [s1, s2, a1, "STARTED(A) READY [A:CREATED]"], now),
        ("oversize", START, now),
        ("stamp.zero", START, 0),
        ("stamp.negative", START, -6_795_364_578_871_345_152),
        ("stamp.seconds", START, 1_700_000_000),
        ("stamp.future", START, now + 3_600_000_000_000),
    ] {
        let (sim, received) = start_events(&[&format!("{knob}=#3")]).await;
        assert_eq!(sim.fired()[knob], 1);
        let text: Vec<_> = received.iter().map(|(_, text)| text).collect();
        assert_eq!(text, expected, "{knob}");
        let [.., (third, _), (last, _)] = &received[..] else {
            panic!("no events");
        };
        let difference = third.created_at - stamp;
        assert!((0..1000).contains(&difference), "{knob}: {difference}");
        assert!((now..now + 1000).contains(&last.created_at));
        let bytes = prost::Message::encoded_len(third);
        let is_large = (5_000_000..5_001_000).contains(&bytes);
        assert_eq!(is_large, knob == "oversize", "{bytes}");
        let hole = v1::ContainerStatus::default();
        let has_hole = third.containers_statuses.contains(&hole);
        assert_eq!(has_hole, knob == "containers.hole");
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
    sim.control("reset").await.unwrap();
    cri.run("q").await;
    assert!(muted.is_silent().await);
    assert_eq!(sim.counts().subscribers, 1, "the runtime notices nothing");
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
    sim.control("reset").await.unwrap();
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
