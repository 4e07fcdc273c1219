//! Tests event streams over gRPC, and how each runtime starts and restarts.

use crate::common::{
    Client, Events, idle, is_pending_when_idle, pod_config, sim, sim_with_mode, with_timeout,
};
use pleg_cri::v1;
use pleg_sim::{Mode, Phase};
use tonic::Code;

#[tokio::test(start_paused = true)]
async fn response_headers_arrive_with_first_event() {
    let sim = sim().build();
    let mut events = Events::subscribe(&sim).await;
    let mut cri = Client::connect(&sim).await;
    let version = cri.version().await.unwrap();
    let names = (&*version.runtime_name, &*version.runtime_api_version);
    assert_eq!(names, ("containerd", "v1"));
    // Before the first event, the subscriber gets no response headers, even after every task is idle.
    idle().await;
    assert!(!events.has_headers());
    let s = cri.run("p").await;
    assert_eq!(events.next().await.container_id, s);
    assert!(events.has_headers());
    sim.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn runtime_without_event_stream_queues_no_events() {
    for mode in [Mode::CrioDisabled, Mode::Unimplemented] {
        let sim = sim_with_mode(mode);
        let mut cri = Client::connect(&sim).await;
        cri.run("p").await;
        match (mode, cri.stream().await) {
            (Mode::CrioDisabled, Ok(mut stream)) => {
                let end = with_timeout(stream.message()).await.unwrap();
                assert!(end.is_none());
            }
            (_, refused) => {
                let refused = refused.unwrap_err();
                assert_eq!(refused.code(), Code::Unimplemented, "{mode}");
                let text = "method GetContainerEvents not implemented";
                assert_eq!(refused.message(), text);
            }
        }
        assert_eq!((cri.sandboxes().await.len(), sim.counts().queued), (1, 0));
        sim.shutdown().await;
    }
}

// === startup and restart ===

#[tokio::test(start_paused = true)]
async fn containerd_fails_every_call_while_starting() {
    for (version, code) in [("1.7.24", Code::Unknown), ("v2.4.0", Code::Unavailable)] {
        let sim = sim().mode(Mode::Starting).runtime_version(version).build();
        let mut cri = Client::connect(&sim).await;
        let rejected = cri.version().await.unwrap_err();
        assert_eq!(rejected.code(), code);
        assert_eq!(rejected.message(), "server is not initialized yet");
        assert_eq!(cri.stream().await.unwrap_err().code(), code);
        let refused = cri.try_run(pod_config("p")).await.unwrap_err();
        assert_eq!(refused.code(), code);
        assert_eq!(sim.phase(), Phase::Starting);
        sim.control("ready").await.unwrap();
        cri.run("p").await;
        sim.shutdown().await;
    }
}

/// If containerd stops, its streams fail and it refuses connections. While it starts, calls fail. The new process does
/// not send events that the old one had queued.
#[tokio::test]
async fn containerd_restart_breaks_streams_and_drops_queued_events() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sim.sock");
    for (down, leaves_file, refusal) in [
        ("down", false, std::io::ErrorKind::NotFound),
        // A killed process leaves its socket file.
        ("down kill", true, std::io::ErrorKind::ConnectionRefused),
    ] {
        let sim = sim_with_mode(Mode::Containerd2);
        let serving = sim.serve_unix(&path, std::future::pending()).unwrap();
        let mut cri = Client::connect_unix(&path).await;
        let s = cri.run("p").await;
        let a = cri.create_and_start(&s, "a", "").await;
        let b = cri.create_and_start(&s, "b", "").await;
        assert!(sim.counts().queued > 0);
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
        // The container `a` exits while the runtime is down.
        sim.control(&format!("exit {a} 3")).await.unwrap();
        with_timeout(sim.control("up")).await.unwrap();
        let mut cri = Client::connect_unix(&path).await;
        let rejected = cri.version().await.unwrap_err();
        assert_eq!(rejected.code(), Code::Unavailable);
        sim.control("ready").await.unwrap();
        assert_eq!(cri.status(&a).await.unwrap().exit_code, 3);
        let other = cri.status(&b).await.unwrap().state();
        assert_eq!(other, v1::ContainerState::ContainerRunning);
        let left = (sim.counts().queued, sim.counts().subscribers);
        assert_eq!(left, (0, 0), "queue and subscribers are gone");
        let mut events = Events::subscribe(&sim).await;
        cri.stop(&b, 0).await;
        assert_eq!(events.next().await.container_id, b);
        with_timeout(serving.stop()).await;
        sim.shutdown().await;
    }
}

/// CRI-O ends its streams with OK when it stops. During startup, connections get no response.
#[tokio::test(start_paused = true)]
async fn crio_graceful_stop_ends_streams_with_ok() {
    let sim = sim_with_mode(Mode::Silent);
    let connecting = Client::connect(&sim);
    let mut request = Box::pin(async { connecting.await.version().await });
    assert!(is_pending_when_idle(&mut request).await);
    sim.control("ready").await.unwrap();
    with_timeout(request).await.unwrap();
    let mut streaming = Events::subscribe(&sim).await;
    let mut cri = Client::connect(&sim).await;
    let s = cri.run("p").await;
    streaming.next().await;
    let mut pending = Events::subscribe(&sim).await;
    with_timeout(sim.control("down")).await.unwrap();
    assert!(streaming.try_next().await.unwrap().is_none());
    assert!(pending.try_next().await.unwrap().is_none());
    with_timeout(sim.control("up")).await.unwrap();
    sim.control("ready").await.unwrap();
    let mut cri = Client::connect(&sim).await;
    assert_eq!(cri.sandboxes().await[0].id, s);
    // A killed process does not end its streams with OK.
    let mut events = Events::subscribe(&sim).await;
    cri.run("q").await;
    events.all().await;
    with_timeout(sim.control("down kill")).await.unwrap();
    assert!(events.try_next().await.is_err());
    sim.shutdown().await;
}
