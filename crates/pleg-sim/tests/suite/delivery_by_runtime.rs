//! How each runtime's events reach its subscribers, and how they do not: reference/runtimes.md 1.1
//! and 1.3. (containerd 2's way is in `delivery.rs`.)

use std::time::Duration;

use crate::common::{Client, Events, idle, over_socket, sim, sim_of, soon};
use pleg_cri::v1::{self, GetEventsRequest, runtime_service_server::RuntimeService as _};
use pleg_sim::{ContainersWhileDown, Mode, Phase, Restart, Sim, Termination};
use tonic::{Code, Request};

/// Pods named `n`, two events each (CRI-O: one).
async fn pods(cri: &mut Client, count: usize) -> Vec<String> {
    let mut ids = Vec::new();
    for n in 0..count {
        ids.push(cri.run(&n.to_string()).await);
    }
    ids
}

/// A subscriber that does not read: its call only, without a connection's buffers.
async fn subscribe_and_do_not_read(sim: &Sim) -> tokio::task::JoinHandle<()> {
    let (service, before) = (sim.service(), sim.subscribers());
    let task = tokio::spawn(async move {
        let call = service.get_container_events(Request::new(GetEventsRequest {}));
        let _stream = call.await;
        std::future::pending::<()>().await;
    });
    soon(sim.wait_for_subscribers(before + 1)).await;
    task
}

// === one queue: containerd 1.7, CRI-O ≤ 1.27 ===

#[tokio::test(start_paused = true)]
async fn subscribers_compete() {
    for sim in [
        sim_of(Mode::Containerd17),
        sim().mode(Mode::Crio).runtime_version("1.27.5").build(),
    ] {
        let mut one = Events::subscribe(&sim).await;
        let mut two = Events::subscribe(&sim).await;
        let mut cri = Client::of(&sim).await;
        let ids = pods(&mut cri, 4).await;
        let per_pod = if sim.mode() == Mode::Crio { 1 } else { 2 };
        let mut subjects = Vec::new();
        for events in [&mut one, &mut two] {
            let mut taken = 0;
            while taken < 2 * per_pod {
                subjects.push(events.next().await.container_id);
                taken += 1;
            }
            assert!(events.is_silent().await, "alternate ones");
        }
        assert_eq!(subjects.len(), per_pod * ids.len());
        for id in &ids {
            assert_eq!(
                subjects.iter().filter(|s| *s == id).count(),
                per_pod,
                "each once"
            );
        }
        sim.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn each_dead_reader_eats_one_event() {
    let sim = sim_of(Mode::Containerd17);
    for _ in 0..3 {
        Events::subscribe(&sim).await.disconnect().await;
    }
    let mut alive = Events::subscribe(&sim).await;
    assert!(idle(&mut std::future::pending::<()>()).await);
    assert_eq!(sim.subscribers(), 4, "nobody has noticed");
    let mut cri = Client::of(&sim).await;
    let ids = pods(&mut cri, 2).await;
    let first = alive.next().await;
    assert_eq!(first.container_id, ids[1]);
    assert_eq!(
        first.container_event_type(),
        v1::ContainerEventType::ContainerStartedEvent,
        "three of four are lost"
    );
    assert!(alive.is_silent().await);
    assert_eq!(
        (sim.subscribers(), sim.held_events(), sim.dropped_events()),
        (1, 0, 0)
    );
    sim.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_backlog_is_stale_and_lacks_the_newest() {
    let sim = sim_of(Mode::Containerd17);
    let mut cri = Client::of(&sim).await;
    let ids = pods(&mut cri, 501).await;
    assert_eq!((sim.held_events(), sim.dropped_events()), (1000, 2));
    tokio::time::advance(Duration::from_secs(3 * 24 * 3600)).await;
    let mut events = Events::subscribe(&sim).await;
    for id in &ids[..500] {
        for _ in 0..2 {
            assert_eq!(events.next().await.container_id, *id);
        }
    }
    assert!(events.is_silent().await, "the newest are gone");
    assert_eq!(sim.held_events(), 0);
    sim.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_fills_the_queue_and_stops_nobody() {
    let sim = sim_of(Mode::Containerd17);
    let slow = subscribe_and_do_not_read(&sim).await;
    let mut cri = Client::of(&sim).await;
    pods(&mut cri, 510).await;
    assert_eq!(sim.held_events(), 1000);
    // Those on their way to it: one with its handler, the others in its connection.
    let lost = sim.dropped_events();
    assert!((15..20).contains(&lost), "{lost}");
    slow.abort();
    sim.shutdown().await;
}

// === drained for good: CRI-O ≥ 1.28 ===

#[tokio::test(start_paused = true)]
async fn crio_tells_all_subscribers() {
    let sim = sim_of(Mode::Crio);
    let mut cri = Client::of(&sim).await;
    // Before the first subscriber ever, events wait for it.
    let ids = pods(&mut cri, 3).await;
    assert_eq!(sim.held_events(), 3);
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
async fn crio_drops_the_newest_before_the_first_subscriber() {
    let sim = sim_of(Mode::Crio);
    let mut cri = Client::of(&sim).await;
    let ids = pods(&mut cri, 1002).await;
    assert_eq!((sim.held_events(), sim.dropped_events()), (1000, 2));
    let mut events = Events::subscribe(&sim).await;
    for id in &ids[..1000] {
        assert_eq!(events.next().await.container_id, *id);
    }
    assert!(events.is_silent().await);
    sim.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn crio_loses_what_nobody_reads_any_more() {
    let sim = sim_of(Mode::Crio);
    let mut cri = Client::of(&sim).await;
    Events::subscribe(&sim).await.disconnect().await;
    let lost = pods(&mut cri, 5).await;
    assert!(idle(&mut std::future::pending::<()>()).await);
    assert_eq!(
        (sim.subscribers(), sim.held_events(), sim.dropped_events()),
        (0, 0, 5)
    );
    let mut events = Events::subscribe(&sim).await;
    let s = cri.run("p").await;
    let told = events.next().await.container_id;
    assert_eq!(told, s);
    assert!(!lost.contains(&told));
    sim.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn crio_starves_all_behind_one_that_does_not_read() {
    let sim = sim_of(Mode::Crio);
    let slow = subscribe_and_do_not_read(&sim).await;
    let mut live = Events::subscribe(&sim).await;
    let mut cri = Client::of(&sim).await;
    // The runtime itself is never stopped.
    pods(&mut cri, 1100).await;
    let mut heard = 0;
    while !live.is_silent().await {
        live.next().await;
        heard += 1;
    }
    assert!(heard < 10, "{heard}");
    let (held, lost) = (
        sim.held_events(),
        usize::try_from(sim.dropped_events()).unwrap(),
    );
    assert_eq!(held, 1000);
    assert!((90..100).contains(&lost), "{lost}");
    // When it goes, the others get what is left.
    slow.abort();
    for _ in 0..held {
        live.next().await;
    }
    sim.shutdown().await;
}

// === no events ===

#[tokio::test(start_paused = true)]
async fn a_disabled_stream_ends_at_once_with_ok() {
    let sim = sim_of(Mode::CrioDisabled);
    let mut cri = Client::of(&sim).await;
    cri.run("p").await;
    let mut stream = soon(cri.0.get_container_events(GetEventsRequest {}))
        .await
        .unwrap()
        .into_inner();
    assert!(soon(stream.message()).await.unwrap().is_none());
    assert_eq!((sim.held_events(), sim.subscribers()), (0, 0));
    sim.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_old_containerd_has_no_stream() {
    let sim = sim_of(Mode::Unimplemented);
    let mut cri = Client::of(&sim).await;
    cri.run("p").await;
    let refused = soon(cri.0.get_container_events(GetEventsRequest {}))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
    assert_eq!(
        refused.message(),
        "method GetContainerEvents not implemented"
    );
    assert_eq!(
        cri.sandboxes(v1::PodSandboxFilter::default()).await.len(),
        1
    );
    sim.shutdown().await;
}

/// Streamed lists: only new versions have them.
#[tokio::test(start_paused = true)]
async fn list_streams_by_version() {
    for (mode, version, has) in [
        (Mode::Containerd17, "1.7.24", false),
        (Mode::Containerd2, "v2.3.4", false),
        (Mode::Containerd2, "v2.4.0", true),
        (Mode::Crio, "1.35.2", false),
        (Mode::Crio, "1.36.0", true),
        (Mode::CrioDisabled, "1.36.0", true),
    ] {
        let sim = sim().mode(mode).runtime_version(version).build();
        let mut cri = Client::of(&sim).await;
        let sandboxes = cri
            .0
            .stream_pod_sandboxes(v1::StreamPodSandboxesRequest::default());
        let sandboxes = soon(sandboxes).await.map(drop).map_err(|s| s.code());
        let containers = cri
            .0
            .stream_containers(v1::StreamContainersRequest::default());
        let containers = soon(containers).await.map(drop).map_err(|s| s.code());
        let expected = if has {
            Ok(())
        } else {
            Err(Code::Unimplemented)
        };
        assert_eq!((sandboxes, containers), (expected, expected), "{version}");
        let answer = soon(cri.0.version(v1::VersionRequest::default()))
            .await
            .unwrap();
        assert_eq!(answer.into_inner().runtime_version, version);
        sim.shutdown().await;
    }
}

// === starting, and starting again ===

#[tokio::test(start_paused = true)]
async fn a_starting_containerd_is_not_initialized() {
    for (version, code) in [("1.7.24", Code::Unknown), ("v2.4.0", Code::Unavailable)] {
        let sim = sim().mode(Mode::Starting).runtime_version(version).build();
        let mut cri = Client::of(&sim).await;
        let refused = soon(cri.0.version(v1::VersionRequest::default()))
            .await
            .unwrap_err();
        assert_eq!(refused.code(), code);
        assert_eq!(refused.message(), "server is not initialized yet");
        let stream = soon(cri.0.get_container_events(GetEventsRequest {})).await;
        assert_eq!(stream.unwrap_err().code(), code);
        assert_eq!(cri.try_run("p").await.unwrap_err().code(), code);
        assert_eq!(sim.phase(), Phase::Starting);
        sim.ready();
        cri.run("p").await;
        sim.shutdown().await;
    }
}

/// CRI-O has its socket long before it speaks.
#[tokio::test]
async fn a_silent_socket_accepts_and_says_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sim.sock");
    let sim = sim_of(Mode::Silent);
    let serving = sim.serve_unix(&path, std::future::pending()).unwrap();
    let mut raw = tokio::net::UnixStream::connect(&path).await.unwrap();
    let mut byte = [0];
    let mut said = Box::pin(tokio::io::AsyncReadExt::read(&mut raw, &mut byte));
    // Real time: what is shown is that nothing is said, for as long as anybody looks.
    assert!(
        tokio::time::timeout(Duration::from_millis(100), &mut said)
            .await
            .is_err()
    );
    sim.ready();
    // A server speaks first: its settings.
    assert_eq!(soon(said).await.unwrap(), 1);
    soon(serving.stop()).await;
    sim.shutdown().await;
}

/// 7.5, containerd: transport error, nobody there, not initialized, and nothing of before.
#[tokio::test]
async fn containerd_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sim.sock");
    for ending in [Termination::Sigterm, Termination::Sigkill] {
        let sim = sim_of(Mode::Containerd2);
        let serving = sim.serve_unix(&path, std::future::pending()).unwrap();
        let mut cri = over_socket(&path).await;
        let s = cri.run("p").await;
        let a = cri.create_and_start(&s, "a", "").await;
        let b = cri.create_and_start(&s, "b", "").await;
        assert!(sim.held_events() > 0);
        let mut stream = soon(cri.0.get_container_events(GetEventsRequest {}))
            .await
            .unwrap()
            .into_inner();
        for _ in 0..6 {
            soon(stream.message()).await.unwrap().unwrap();
        }
        soon(sim.go_down(ending)).await;
        assert!(soon(stream.message()).await.is_err(), "no clean end");
        assert_eq!(
            path.exists(),
            ending == Termination::Sigkill,
            "a killed one leaves it behind"
        );
        let refused = tokio::net::UnixStream::connect(&path)
            .await
            .unwrap_err()
            .kind();
        let expected = if ending == Termination::Sigkill {
            std::io::ErrorKind::ConnectionRefused
        } else {
            std::io::ErrorKind::NotFound
        };
        assert_eq!(refused, expected);
        assert!(sim.kill_container(&a, 3), "it ends while nobody can tell");
        soon(sim.wait_for_exit(&a)).await;
        soon(sim.come_up()).await;
        let mut cri = over_socket(&path).await;
        let refused = soon(cri.0.version(v1::VersionRequest::default()))
            .await
            .unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable);
        sim.ready();
        assert_eq!(cri.status(&a).await.unwrap().exit_code, 3);
        assert_eq!(
            cri.status(&b).await.unwrap().state(),
            v1::ContainerState::ContainerRunning
        );
        assert_eq!(
            (sim.held_events(), sim.subscribers()),
            (0, 0),
            "it is all forgotten"
        );
        let mut events = Events::subscribe(&sim).await;
        cri.stop(&b, 0).await;
        assert_eq!(events.next().await.container_id, b);
        soon(serving.stop()).await;
        sim.shutdown().await;
    }
}

/// 7.5, CRI-O: its streams end with OK, then its socket is silent for a while.
#[tokio::test(start_paused = true)]
async fn crio_says_goodbye() {
    let sim = sim_of(Mode::Crio);
    let mut told = Events::subscribe(&sim).await;
    let mut cri = Client::of(&sim).await;
    let s = cri.run("p").await;
    told.next().await;
    let mut pending = Events::subscribe(&sim).await;
    soon(sim.go_down(Termination::Sigterm)).await;
    assert!(told.try_next().await.unwrap().is_none());
    assert!(pending.try_next().await.unwrap().is_none());
    soon(sim.come_up()).await;
    let connecting = Client::of(&sim);
    let mut asking = Box::pin(async { connecting.await.try_run("silence").await });
    assert!(idle(&mut asking).await);
    drop(asking);
    sim.ready();
    let mut cri = Client::of(&sim).await;
    assert_eq!(
        cri.sandboxes(v1::PodSandboxFilter::default()).await[0].id,
        s
    );
    // A crash is no goodbye.
    let mut events = Events::subscribe(&sim).await;
    cri.run("q").await;
    events.next().await;
    soon(sim.go_down(Termination::Sigkill)).await;
    let end = loop {
        match events.try_next().await {
            Ok(Some(_)) => {}
            end => break end,
        }
    };
    assert!(end.is_err(), "it breaks");
    sim.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn containers_may_end_while_the_runtime_is_down() {
    for (meanwhile, end) in [
        (ContainersWhileDown::KeepRunning, (0, "")),
        (ContainersWhileDown::Exit(9), (9, "Error")),
        (ContainersWhileDown::Lost, (255, "Unknown")),
    ] {
        let sim = sim_of(Mode::Containerd17);
        let mut cri = Client::of(&sim).await;
        let s = cri.run("p").await;
        let a = cri.create_and_start(&s, "a", "").await;
        let restart = Restart {
            downtime: Duration::from_secs(5),
            startup: Duration::from_secs(5),
            containers: meanwhile,
            ..Restart::default()
        };
        soon(sim.restart(restart)).await;
        let mut cri = Client::of(&sim).await;
        let status = cri.status(&a).await.unwrap();
        assert_eq!((status.exit_code, status.reason.as_str()), end);
        assert_eq!(sim.held_events(), 0, "nothing of it is told");
        sim.shutdown().await;
    }
}
