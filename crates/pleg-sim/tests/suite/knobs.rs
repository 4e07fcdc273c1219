//! Tests that each knob fires, that a client sees its effect, and that the simulator counts it.

use std::time::Duration;

use pleg_cri::v1::{self, ContainerEventResponse};
use pleg_sim::{Mode, Sim};
use tonic::{Code, Status};

use crate::common::{
    Client, Events, event_text, idle, is_pending_when_idle, sim, sim_with_mode, with_timeout,
};

/// A simulator with the knobs, a subscriber and a client.
async fn sim_with_knobs(knobs: &str) -> (Sim, Events, Client) {
    let sim = sim().build();
    sim.control(knobs).await.unwrap();
    let events = Events::subscribe(&sim).await;
    let cri = Client::connect(&sim).await;
    (sim, events, cri)
}

/// The events of a pod's start.
async fn start_events(knobs: &str) -> (Sim, Vec<(ContainerEventResponse, String)>) {
    let (sim, mut events, mut cri) = sim_with_knobs(knobs).await;
    let s = cri.run("p").await;
    let a = match knobs.contains("create") {
        true => String::new(),
        false => cri.create_and_start(&s, "a", "").await,
    };
    let names = [(s.as_str(), "S"), (&a, "A")];
    let received = events.all().await.into_iter().map(|event| {
        let text = event_text(&event, &names);
        (event, text)
    });
    let received = received.collect();
    sim.shutdown().await;
    (sim, received)
}

const START: [&str; 4] = [
    "CREATED(S) READY []",
    "STARTED(S) READY []",
    "CREATED(A) READY [A:CREATED]",
    "STARTED(A) READY [A:RUNNING]",
];

/// Each case: the knobs, the events of a pod's start in the order of arrival, and the number of swapped pairs.
#[tokio::test(start_paused = true)]
async fn knobs_lose_duplicate_or_swap_events() {
    let [s1, s2, a1, a2] = START;
    for (knobs, expected, swapped) in [
        ("drop=#3", &[s1, s2, a2][..], 0),
        ("duplicate=#3", &[s1, s2, a1, a1, a2], 0),
        ("swap=#3", &[s1, s2, a2, a1], 1),
        ("swap", &[s2, s1, a2, a1], 2),
        // No event follows the delayed last event, so the runtime sends it after a timeout.
        ("swap=#4", &START, 0),
        // STARTED(S) is lost; CREATED(S) waits for CREATED(A), and is sent after it.
        ("swap=#1 drop=#2", &[a1, s1, a2], 1),
        ("swap=#1 drop=#2 create_container.fail=internal", &[s1], 0),
    ] {
        let (sim, received) = start_events(knobs).await;
        let text: Vec<_> = received.iter().map(|(_, text)| text).collect();
        assert_eq!(text, expected, "{knobs:?}");
        let fired = sim.fired().get("swap").copied().unwrap_or_default();
        assert_eq!(fired, swapped, "{knobs:?}");
    }
}

/// `#3`: each knob alters the third event that it can alter; `freeze` cannot alter the first, which has no predecessor.
#[tokio::test(start_paused = true)]
async fn knobs_change_statuses_or_timestamp_of_event() {
    let now = 1_700_000_000_000_000_000_i64;
    let with_hole = "CREATED(A) READY [?:CREATED, A:CREATED]";
    for (knob, at, text, stamp) in [
        ("sandbox.nil", 2, "CREATED(A) nil [A:CREATED]", now),
        ("containers.empty", 2, "CREATED(A) READY []", now),
        ("containers.hole", 2, with_hole, now),
        ("freeze", 3, "STARTED(A) READY [A:CREATED]", now),
        ("oversize", 2, START[2], now),
        ("stamp.zero", 2, START[2], 0),
        ("stamp.negative", 2, START[2], -6_795_364_578_871_345_152),
        ("stamp.seconds", 2, START[2], 1_700_000_000),
        ("stamp.future", 2, START[2], now + 3_600_000_000_000),
    ] {
        let (sim, received) = start_events(&format!("{knob}=#3")).await;
        assert_eq!(sim.fired()[knob], 1);
        let mut expected = START;
        expected[at] = text;
        let texts: Vec<_> = received.iter().map(|(_, text)| text).collect();
        assert_eq!(texts, expected, "{knob}");
        for (n, (event, _)) in received.iter().enumerate() {
            let difference = event.created_at - if n == 2 { stamp } else { now };
            assert!((0..1000).contains(&difference), "{knob}: {difference}");
            let bytes = prost::Message::encoded_len(event);
            let is_large = n == 2 && knob == "oversize";
            assert_eq!((5_000_000..5_001_000).contains(&bytes), is_large, "{bytes}");
        }
    }
}

/// The runtime copies the statuses for an event, and takes the timestamp a second later: the container exits meanwhile.
#[tokio::test(start_paused = true)]
async fn stamp_pause_knob_makes_statuses_older_than_event_timestamp() {
    let (sim, mut events, mut cri) = sim_with_knobs("stamp.pause=1s").await;
    let s = cri.run("p").await;
    let a = cri.create(&s, "a", 0, "app exit 1 500").await;
    cri.try_start(&a).await.unwrap();
    tokio::time::advance(Duration::from_secs(5)).await;
    let names = [(s.as_str(), "S"), (&a, "A")];
    let received = events.all().await;
    assert_eq!(event_text(&received[3], &names), START[3]);
    let ended = cri.status(&a).await.unwrap().finished_at;
    assert!(received[3].created_at > ended, "stamped after the exit");
    assert_eq!(sim.fired()["stamp.pause"], 5);
    sim.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn stream_knobs_end_or_mute_event_stream() {
    let (sim, mut events, mut cri) = sim_with_knobs("stream.end_after=1").await;
    cri.run("p").await;
    events.next().await;
    assert!(events.try_next().await.unwrap().is_none(), "a clean end");
    sim.set_knob("stream.end_after=0").unwrap();
    let mut at_once = cri.stream().await.unwrap();
    assert_eq!(with_timeout(at_once.message()).await.unwrap(), None);
    assert_eq!(sim.fired()["stream.end_after"], 2);
    sim.shutdown().await;

    // A muted stream stays muted after `reset` turned all knobs off; a stream that is opened later is not muted.
    let (sim, mut muted, mut cri) = sim_with_knobs("stream.mute").await;
    cri.run("p").await;
    idle().await;
    sim.control("reset").await.unwrap();
    cri.run("q").await;
    assert!(muted.all().await.is_empty());
    assert_eq!(sim.counts().subscribers, 1, "the runtime notices nothing");
    let mut live = Events::subscribe(&sim).await;
    let r = cri.run("r").await;
    assert_eq!(live.next().await.container_id, r);
    assert!(muted.all().await.is_empty());
    sim.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn same_seed_gives_same_ids_and_loses_same_events() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let (sim, mut events, mut cri) = sim_with_knobs("drop=20%").await;
        for n in 0..200 {
            cri.run(&n.to_string()).await;
        }
        let received = events.all().await.into_iter();
        let received: Vec<_> = received.map(|e| (e.container_id, e.created_at)).collect();
        let lost = sim.fired()["drop"];
        assert_eq!(received.len() as u64 + lost, 400);
        assert!((50..110).contains(&lost), "{lost} of 400");
        runs.push(received);
        sim.shutdown().await;
    }
    assert_eq!(runs[0][0].0.len(), 64);
    assert_eq!(runs[0], runs[1]);
}

// === calls ===

async fn within(time: Duration, what: impl Future) -> bool {
    tokio::time::timeout(time, what).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn latency_knob_delays_and_fail_knob_fails_calls() {
    let (sim, _events, mut cri) = sim_with_knobs("version.latency=2s all.latency=1s").await;
    assert!(!within(Duration::from_millis(2990), cri.version()).await);
    assert!(within(Duration::from_millis(3010), cri.version()).await);
    assert!(within(Duration::from_millis(1010), cri.containers()).await);
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

/// As in containerd #9770, lists hang for a while, and then all of them proceed.
#[tokio::test(start_paused = true)]
async fn list_hangs_until_duration_ends_or_knob_is_off() {
    let (sim, _events, mut cri) = sim_with_knobs("").await;
    sim.set_knob("list_containers.hang=10s").unwrap();
    tokio::time::advance(Duration::from_secs(4)).await;
    cri.version().await.unwrap();
    assert!(!within(Duration::from_secs(2), cri.containers()).await);
    assert!(!within(Duration::from_secs(3), pages(&mut cri)).await);
    let after_ten_seconds = within(Duration::from_millis(1100), cri.containers()).await;
    assert!(after_ten_seconds);
    assert!(within(Duration::from_millis(10), pages(&mut cri)).await);
    assert_eq!(sim.fired()["list_containers.hang"], 3, "each call");
    // Without a duration, calls hang until the knob is turned off. Then the waiting calls proceed.
    sim.set_knob("list_containers.hang").unwrap();
    let mut waiting = Box::pin(async move { cri.containers().await });
    assert!(!within(Duration::from_secs(3600), &mut waiting).await);
    sim.set_knob("drop=5%").unwrap();
    assert!(is_pending_when_idle(&mut waiting).await, "another knob");
    sim.set_knob("list_containers.hang=off").unwrap();
    assert!(with_timeout(waiting).await.is_ok());
    sim.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn pod_hang_knob_hangs_only_calls_that_name_the_pod() {
    let (sim, _events, mut cri) = sim_with_knobs("pod.uid-p.hang").await;
    let (p, q) = (cri.run("p").await, cri.run("q").await);
    let sandbox = |id: &str| {
        let (mut cri, id) = (cri.clone(), id.to_owned());
        async move { cri.sandbox_status(&id).await.map(drop) }
    };
    assert!(within(Duration::from_millis(10), sandbox(&q)).await);
    assert!(!within(Duration::from_secs(10), sandbox(&p)).await);
    // Calls that name no pod proceed.
    assert!(within(Duration::from_millis(10), cri.clone().containers()).await);
    sim.set_knob("pod.*.hang").unwrap();
    assert!(!within(Duration::from_secs(10), sandbox(&q)).await);
    let fired = sim.fired();
    assert_eq!((fired["pod.uid-p.hang"], fired["pod.*.hang"]), (1, 1));
    sim.control("reset").await.unwrap();
    assert!(within(Duration::from_millis(10), sandbox(&p)).await);
    sim.shutdown().await;
}

// === lists ===

/// The sizes of the pages of a streaming list, and the gRPC code of its failure.
async fn pages(cri: &mut Client) -> (Vec<usize>, Option<Code>) {
    let mut sizes = Vec::new();
    let read = async {
        let request = v1::StreamContainersRequest::default();
        let mut stream = cri.0.stream_containers(request).await?.into_inner();
        while let Some(page) = stream.message().await? {
            sizes.push(page.containers.len());
        }
        Ok::<_, Status>(())
    };
    let end = with_timeout(read).await.err();
    (sizes, end.map(|status| status.code()))
}

#[tokio::test(start_paused = true)]
async fn list_knobs_determine_pages_and_error_of_streaming_list() {
    let (sim, _events, mut cri) = sim_with_knobs("").await;
    let s = cri.run("p").await;
    for n in 0..5 {
        cri.create(&s, &format!("c{n}"), 0, "").await;
    }
    for (knob, sizes, end) in [
        ("list.page=off", &[5][..], None),
        ("list.page=2", &[2, 2, 1], None),
        ("list.empty_page", &[0, 2, 2, 1], None),
        ("list.empty_page=off", &[2, 2, 1], None),
        ("list.break_after=2", &[2, 2], Some(Code::Internal)),
        ("list.break_after=0", &[], Some(Code::Internal)),
        ("list.break_after=off", &[2, 2, 1], None),
        ("list.empty", &[], None),
        ("list.unimplemented", &[], Some(Code::Unimplemented)),
        ("list.unimplemented=off", &[], None),
        ("list.empty=off", &[2, 2, 1], None),
        ("list_containers.fail=aborted", &[], Some(Code::Aborted)),
    ] {
        sim.set_knob(knob).unwrap();
        assert_eq!(pages(&mut cri).await, (sizes.to_vec(), end), "{knob}");
    }
    let both = sim.control("list.empty list.unimplemented");
    both.await.unwrap();
    let request = v1::StreamPodSandboxesRequest::default();
    let refused = with_timeout(cri.0.stream_pod_sandboxes(request)).await;
    assert_eq!(refused.unwrap_err().code(), Code::Unimplemented);
    // With `list.unimplemented`, the simulator rejects the call before it reads the list, so no other knob fires.
    assert_eq!(sim.visited_items(), 5 * 10);
    let fired = sim.fired();
    for (knob, times) in [
        ("list.page", 9),
        ("list.empty_page", 1),
        ("list.break_after", 2),
        ("list.empty", 2),
        ("list.unimplemented", 2),
    ] {
        assert_eq!(fired[knob], times, "{knob} of {fired:?}");
    }
    sim.shutdown().await;
}

/// The limit of containerd is 16 MiB.
#[tokio::test(start_paused = true)]
async fn list_above_message_limit_fails() {
    let sim = sim_with_mode(Mode::Containerd2);
    let mut cri = Client::connect(&sim).await;
    cri.0 = cri.0.max_decoding_message_size(usize::MAX);
    let s = cri.run("p").await;
    for n in 0..4 {
        cri.create(&s, &format!("c{n}"), 0, "").await;
    }
    // The four containers together are slightly smaller than 16 MiB, and then slightly larger.
    let limit = 16 << 20;
    let fits = format!("list.pad={}", limit / 4 - 1000);
    sim.set_knob(&fits).unwrap();
    assert_eq!(cri.containers().await.unwrap().len(), 4);
    sim.set_knob(&format!("list.pad={}", limit / 4)).unwrap();
    let rejected = cri.containers().await.unwrap_err();
    assert_eq!(rejected.code(), Code::ResourceExhausted);
    let words = "grpc: trying to send message larger than max (";
    assert!(rejected.message().starts_with(words), "{rejected}");
    assert_eq!(pages(&mut cri).await.1, Some(Code::ResourceExhausted));
    // With two containers per page, each message is smaller than 16 MiB.
    sim.set_knob("list.page=2").unwrap();
    assert_eq!(pages(&mut cri).await.0, [2, 2]);
    sim.set_knob("list.limit=1KiB").unwrap();
    assert!(cri.containers().await.is_err());
    assert!(sim.fired()["list.limit"] > 0 && sim.fired()["list.pad"] > 0);
    sim.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn not_found_knob_hides_status_of_existing_id() {
    let (sim, _events, mut cri) = sim_with_knobs("status.not_found=#2").await;
    let s = cri.run("p").await;
    let a = cri.create(&s, "a", 0, "").await;
    cri.sandbox_status(&s).await.unwrap();
    assert_eq!(cri.status(&a).await.unwrap_err().code(), Code::NotFound);
    cri.status(&a).await.unwrap();
    assert_eq!(sim.fired()["status.not_found"], 1);
    sim.set_knob("status.not_found").unwrap();
    let missing = cri.sandbox_status(&s).await.unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
    assert_eq!(cri.containers().await.unwrap().len(), 1, "lists show it");
    sim.shutdown().await;
}
