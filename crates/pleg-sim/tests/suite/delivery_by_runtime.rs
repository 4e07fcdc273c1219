//! Event delivery of each runtime, and its startup and restart. (`delivery.rs` tests containerd 2.)

use std::time::Duration;

use crate::common::{
    Client, Events, connect_unix, is_pending_when_idle, sim, sim_with_mode,
    subscribe_and_do_not_read, with_timeout,
};
use pleg_cri::v1;
use pleg_sim::{Mode, Phase};
use tonic::Code;

/// Creates pods named by number, with two events each (CRI-O: one).
async fn run_pods(cri: &mut Client, count: usize) -> Vec<String> {
    let mut ids = Vec::new();
    for n in 0..count {
        ids.push(cri.run(&n.to_string()).await);
    }
    ids
}

// === one queue: containerd 1.7, CRI-O up to 1.27 ===

#[tokio::test(start_paused = true)]
async fn each_event_goes_to_one_of_two_subscribers() {
    for sim in [
        sim_with_mode(Mode::Containerd17),
        sim().mode(Mode::Crio).runtime_version("1.27.5").build(),
    ] {
        let mut one = Events::subscribe(&sim).await;
        let mut two = Events::subscribe(&sim).await;
        let mut cri = Client::connect(&sim).await;
        let ids = run_pods(&mut cri, 4).await;
        let per_pod = if sim.control("show").await.unwrap().contains("cri-o") {
            1
        } else {
            2
        };
        let mut subjects = Vec::new();
        for events in [&mut one, &mut two] {
            for _ in 0..2 * per_pod {
                subjects.push(events.next().await.container_id);
            }
            assert!(events.is_silent().await, "the other subscriber got these");
        }
        assert_eq!(subjects.len(), per_pod * ids.len());
        for id in &ids {
            let received = subjects.iter().filter(|s| *s == id).count();
            assert_eq!(received, per_pod, "each once");
        }
        sim.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn each_dead_subscriber_loses_one_event() {
    let sim = sim_with_mode(Mode::Containerd17);
    for _ in 0..3 {
        Events::subscribe(&sim).await.disconnect().await;
    }
    let mut alive = Events::subscribe(&sim).await;
    assert!(is_pending_when_idle(&mut std::future::pending::<()>()).await);
    assert_eq!(sim.counts().subscribers, 4, "the runtime has not noticed");
    let mut cri = Client::connect(&sim).await;
    let ids = run_pods(&mut cri, 2).await;
    let first = alive.next().await;
    assert_eq!(first.container_id, ids[1]);
    assert_eq!(
        first.container_event_type(),
        v1::ContainerEventType::ContainerStartedEvent,
        "three of four are lost"
    );
    assert!(alive.is_silent().await);
    let counts = (
        sim.counts().subscribers,
        sim.counts().held,
        sim.counts().dropped,
    );
    assert_eq!(counts, (1, 0, 0));
    sim.shutdown().await;
}

/// containerd 1.7 sends two events for each pod, CRI-O sends one.
#[tokio::test(start_paused = true)]
async fn full_queue_drops_newest_events_and_keeps_old_ones() {
    for (mode, per_pod, pods) in [(Mode::Containerd17, 2, 501), (Mode::Crio, 1, 1002)] {
        let sim = sim_with_mode(mode);
        let mut cri = Client::connect(&sim).await;
        let ids = run_pods(&mut cri, pods).await;
        assert_eq!((sim.counts().held, sim.counts().dropped), (1000, 2));
        tokio::time::advance(Duration::from_secs(3 * 24 * 3600)).await;
        let mut events = Events::subscribe(&sim).await;
        for id in &ids[..1000 / per_pod] {
            for _ in 0..per_pod {
                assert_eq!(events.next().await.container_id, *id);
            }
        }
        assert!(events.is_silent().await, "the newest events are dropped");
        assert_eq!(sim.counts().held, 0);
        sim.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn slow_subscriber_fills_queue_and_does_not_block_runtime() {
    let sim = sim_with_mode(Mode::Containerd17);
    let slow = subscribe_and_do_not_read(&sim).await;
    let mut cri = Client::connect(&sim).await;
    run_pods(&mut cri, 510).await;
    assert_eq!(sim.counts().held, 1000);
    // In transit: one with the handler, the others in its connection.
    let lost = sim.counts().dropped;
    assert!((15..20).contains(&lost), "{lost}");
    slow.abort();
    sim.shutdown().await;
}

// === always drained: CRI-O since 1.28 ===

#[tokio::test(start_paused = true)]
async fn crio_sends_every_event_to_every_subscriber() {
    let sim = sim_with_mode(Mode::Crio);
    let mut cri = Client::connect(&sim).await;
    // Events wait for the first subscriber.
    let ids = run_pods(&mut cri, 3).await;
    assert_eq!(sim.counts().held, 3);
    let mut one = Events::subscribe(&sim).await;
    for id in &ids {
        assert_eq!(one.next().await.container_id, *id);
    }
    let mut two = Events::subscribe(&sim).await;
    let s = cri.run("p").await;
    for events in [&mut one, &mut two] {
        assert_eq!(events.next().await.container_id, s);
        assert!(events.is_silent().await);
    }
    sim.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn crio_loses_events_after_last_subscriber_left() {
    let sim = sim_with_mode(Mode::Crio);
    let mut cri = Client::connect(&sim).await;
    Events::subscribe(&sim).await.disconnect().await;
    let lost = run_pods(&mut cri, 5).await;
    assert!(is_pending_when_idle(&mut std::future::pending::<()>()).await);
    let counts = (
        sim.counts().subscribers,
        sim.counts().held,
        sim.counts().dropped,
    );
    assert_eq!(counts, (0, 0, 5));
    let mut events = Events::subscribe(&sim).await;
    let s = cri.run("p").await;
    let received = events.next().await.container_id;
    assert_eq!(received, s);
    assert!(!lost.contains(&received));
    sim.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn crio_slow_subscriber_delays_all_others() {
    let sim = sim_with_mode(Mode::Crio);
    let slow = subscribe_and_do_not_read(&sim).await;
    let mut live = Events::subscribe(&sim).await;
    let mut cri = Client::connect(&sim).await;
    // The runtime itself never waits.
    run_pods(&mut cri, 1100).await;
    let mut received = 0;
    while !live.is_silent().await {
        live.next().await;
        received += 1;
    }
    assert!(received < 10, "{received}");
    let (held, lost) = (sim.counts().held, sim.counts().dropped);
    assert_eq!(held, 1000);
    assert!((90..100).contains(&lost), "{lost}");
    // After it leaves, the others get the remaining events.
    slow.abort();
    for _ in 0..held {
        live.next().await;
    }
    sim.shutdown().await;
}

// === no events ===

/// CRI-O with its default configuration ends the stream with OK; containerd 1.6 has none.
#[tokio::test(start_paused = true)]
async fn runtime_without_events_keeps_none() {
    for mode in [Mode::CrioDisabled, Mode::Unimplemented] {
        let sim = sim_with_mode(mode);
        let mut cri = Client::connect(&sim).await;
        cri.run("p").await;
        match cri.stream().await {
            Ok(mut stream) => {
                assert_eq!(mode, Mode::CrioDisabled);
                assert_eq!(with_timeout(stream.message()).await.unwrap(), None);
            }
            Err(rejected) => {
                assert_eq!(mode, Mode::Unimplemented);
                assert_eq!(rejected.code(), Code::Unimplemented);
                let expected = "method GetContainerEvents not implemented";
                assert_eq!(rejected.message(), expected);
            }
        }
        let rows = cri.sandboxes(v1::PodSandboxFilter::default()).await;
        let counts = sim.counts();
        assert_eq!((rows.len(), counts.held, counts.subscribers), (1, 0, 0));
        sim.shutdown().await;
    }
}

// === startup and restart ===

#[tokio::test(start_paused = true)]
async fn starting_containerd_fails_every_call() {
    for (version, code) in [("1.7.24", Code::Unknown), ("v2.4.0", Code::Unavailable)] {
        let sim = sim().mode(Mode::Starting).runtime_version(version).build();
        let mut cri = Client::connect(&sim).await;
        let rejected = cri.version().await.unwrap_err();
        assert_eq!(rejected.code(), code);
        assert_eq!(rejected.message(), "server is not initialized yet");
        assert_eq!(cri.stream().await.unwrap_err().code(), code);
        assert_eq!(cri.try_run("p").await.unwrap_err().code(), code);
        assert_eq!(sim.phase(), Phase::Starting);
        sim.control("ready").await.unwrap();
        cri.run("p").await;
        sim.shutdown().await;
    }
}

/// CRI-O has its socket long before it responds.
#[tokio::test]
async fn silent_socket_accepts_and_does_not_respond() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sim.sock");
    let sim = sim_with_mode(Mode::Silent);
    let serving = sim.serve_unix(&path, std::future::pending()).unwrap();
    let mut raw = tokio::net::UnixStream::connect(&path).await.unwrap();
    let mut byte = [0];
    let mut received = Box::pin(tokio::io::AsyncReadExt::read(&mut raw, &mut byte));
    // Real time: nothing arrives for as long as this waits.
    let silence = tokio::time::timeout(Duration::from_millis(100), &mut received);
    assert!(silence.await.is_err());
    sim.control("ready").await.unwrap();
    // The server sends its settings first.
    assert_eq!(with_timeout(received).await.unwrap(), 1);
    with_timeout(serving.stop()).await;
    sim.shutdown().await;
}

/// containerd: transport error, no listener, not initialized, and no earlier event.
#[tokio::test]
async fn containerd_restart_breaks_streams_and_forgets_events() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sim.sock");
    for (down, leaves_file, refusal) in [
        ("down", false, std::io::ErrorKind::NotFound),
        // A killed process leaves its socket file.
        ("down kill", true, std::io::ErrorKind::ConnectionRefused),
    ] {
        let sim = sim_with_mode(Mode::Containerd2);
        let serving = sim.serve_unix(&path, std::future::pending()).unwrap();
        let mut cri = connect_unix(&path).await;
        let s = cri.run("p").await;
        let a = cri.create_and_start(&s, "a", "").await;
        let b = cri.create_and_start(&s, "b", "").await;
        assert!(sim.counts().held > 0);
        let mut stream = cri.stream().await.unwrap();
        for _ in 0..6 {
            with_timeout(stream.message()).await.unwrap().unwrap();
        }
        with_timeout(sim.control(down)).await.unwrap();
        let end = with_timeout(stream.message()).await;
        assert!(end.is_err(), "the stream does not end with OK");
        assert_eq!(path.exists(), leaves_file);
        let refused = tokio::net::UnixStream::connect(&path).await.unwrap_err();
        assert_eq!(refused.kind(), refusal);
        // It exits while there is no process.
        sim.control(&format!("exit {a} 3")).await.unwrap();
        with_timeout(sim.control("up")).await.unwrap();
        let mut cri = connect_unix(&path).await;
        let rejected = cri.version().await.unwrap_err();
        assert_eq!(rejected.code(), Code::Unavailable);
        sim.control("ready").await.unwrap();
        assert_eq!(cri.status(&a).await.unwrap().exit_code, 3);
        let other = cri.status(&b).await.unwrap().state();
        assert_eq!(other, v1::ContainerState::ContainerRunning);
        let left = (sim.counts().held, sim.counts().subscribers);
        assert_eq!(left, (0, 0), "queue and subscribers are gone");
        let mut events = Events::subscribe(&sim).await;
        cri.stop(&b, 0).await;
        assert_eq!(events.next().await.container_id, b);
        with_timeout(serving.stop()).await;
        sim.shutdown().await;
    }
}

/// CRI-O: streams end with OK, then the socket does not respond for a while.
#[tokio::test(start_paused = true)]
async fn crio_graceful_stop_ends_streams_with_ok() {
    let sim = sim_with_mode(Mode::Crio);
    let mut streaming = Events::subscribe(&sim).await;
    let mut cri = Client::connect(&sim).await;
    let s = cri.run("p").await;
    streaming.next().await;
    let mut pending = Events::subscribe(&sim).await;
    with_timeout(sim.control("down")).await.unwrap();
    assert!(streaming.try_next().await.unwrap().is_none());
    assert!(pending.try_next().await.unwrap().is_none());
    with_timeout(sim.control("up")).await.unwrap();
    let connecting = Client::connect(&sim);
    let mut request = Box::pin(async { connecting.await.try_run("silence").await });
    assert!(is_pending_when_idle(&mut request).await);
    drop(request);
    sim.control("ready").await.unwrap();
    let mut cri = Client::connect(&sim).await;
    let rows = cri.sandboxes(v1::PodSandboxFilter::default()).await;
    assert_eq!(rows[0].id, s);
    // A killed process does not end its streams with OK.
    let mut events = Events::subscribe(&sim).await;
    cri.run("q").await;
    events.next().await;
    with_timeout(sim.control("down kill")).await.unwrap();
    let end = loop {
        match events.try_next().await {
            Ok(Some(_)) => {}
            end => break end,
        }
    };
    assert!(end.is_err(), "the stream does not end with OK");
    sim.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn container_exit_while_runtime_is_down_sends_no_event() {
    for (meanwhile, end) in [
        ("run", (0, "")),
        ("end:9", (9, "Error")),
        ("lost", (255, "Unknown")),
    ] {
        let sim = sim_with_mode(Mode::Containerd17);
        let mut cri = Client::connect(&sim).await;
        let s = cri.run("p").await;
        let a = cri.create_and_start(&s, "a", "").await;
        let restart = format!("restart down=5s starting=5s containers={meanwhile}");
        with_timeout(sim.control(&restart)).await.unwrap();
        let mut cri = Client::connect(&sim).await;
        let status = cri.status(&a).await.unwrap();
        assert_eq!((status.exit_code, status.reason.as_str()), end);
        assert_eq!(sim.counts().held, 0, "no event is queued");
        sim.shutdown().await;
    }
}
