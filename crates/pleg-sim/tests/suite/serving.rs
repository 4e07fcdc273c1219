//! Tests the simulator's sockets, connections and generated pods (the workload), and its shutdown while calls hang.

use std::{collections::BTreeSet, os::unix::net::UnixListener, time::Duration};

use crate::common::{Client, Events, is_pending_when_idle, sim, with_timeout};
use pleg_cri::v1::{self, runtime_service_server::RuntimeService as _};
use pleg_sim::{Mode, Sim, WorkloadConfig, WorkloadHandle};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    task::JoinHandle,
};
use tonic::Status;

#[tokio::test]
async fn server_replaces_only_socket_files_without_a_listener() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sim.sock");
    let sim = sim().build();
    let serving = sim.serve_unix(&path, std::future::pending()).unwrap();
    let s = Client::connect_unix(&path).await.run("p").await;
    let again = sim.serve_unix(&path, std::future::pending());
    assert!(again.unwrap_err().to_string().contains("is in use"));
    with_timeout(serving.stop()).await;
    assert!(!path.exists());

    // The next server replaces a socket file that no process listens on, and serves the same node.
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let serving = sim.serve_unix(&path, async { drop(ended.await) }).unwrap();
    let mut cri = Client::connect_unix(&path).await;
    assert_eq!(cri.sandboxes().await[0].id, s);
    end.send(()).unwrap();
    with_timeout(serving.stopped()).await;
    assert!(!path.exists());

    // A server does not replace a file that is not a socket.
    std::fs::write(&path, "mine").unwrap();
    let rejected = sim.serve_unix(&path, std::future::pending());
    let reason = rejected.unwrap_err().to_string();
    assert!(reason.contains("exists and is not a socket"), "{reason}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    let missing = dir.path().join("missing/socket");
    let rejected = sim.serve_unix(&missing, std::future::pending());
    let reason = rejected.unwrap_err().to_string();
    assert!(reason.starts_with("cannot bind"), "{reason}");
    with_timeout(sim.shutdown()).await;
}

#[tokio::test(start_paused = true)]
async fn workload_creates_restarts_and_removes_pods() {
    let sim = Sim::builder().seed(1).build();
    let mut events = Events::subscribe(&sim).await;
    let mut config = WorkloadConfig::default();
    (config.seed, config.pods) = (3, 4);
    let _ = sim.spawn_workload(config);
    let (mut kinds, mut codes) = (BTreeSet::new(), BTreeSet::new());
    let mut restarted = false;
    for _ in 0..400 {
        let event = events.next().await;
        kinds.insert(event.container_event_type);
        for c in &event.containers_statuses {
            restarted |= c.metadata.as_ref().is_some_and(|m| m.attempt > 0);
            if c.state() == v1::ContainerState::ContainerExited {
                codes.insert(c.exit_code);
            }
        }
    }
    assert_eq!(kinds.len(), 4, "all kinds of events");
    assert!(codes.contains(&0) && codes.len() > 2, "{codes:?}");
    assert!(restarted);
    let mut cri = Client::connect(&sim).await;
    assert!((1..=4).contains(&cri.sandboxes().await.len()));
    with_timeout(sim.shutdown()).await;
}

/// Like grpc-go, the simulator closes a connection at the client's fourth HTTP/2 ping within five minutes.
#[tokio::test]
async fn too_many_pings_close_the_connection() {
    let (mut client, server) = tokio::io::duplex(64 << 10);
    let sim = sim().build();
    sim.serve_stream(server);
    let start = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    client.write_all(start).await.unwrap();
    let ping = b"\0\0\x08\x06\0\0\0\0\0 a ping ";
    for _ in 0..3 {
        client.write_all(ping).await.unwrap();
    }
    let mut received = Vec::new();
    let end = client.read_to_end(&mut received);
    let end = tokio::time::timeout(Duration::from_millis(200), end);
    assert!(end.await.is_err(), "the connection is still open");
    client.write_all(ping).await.unwrap();
    let end = with_timeout(client.read_to_end(&mut received)).await;
    end.unwrap();
    let is_goaway = received.ends_with(b"\0\0\0\x0btoo_many_pings");
    assert!(is_goaway, "{received:?}");
    sim.shutdown().await;
}

// === shutdown ===

/// Fails the test if the future takes over five seconds (CRI-O's graceful stop takes up to two). Needs paused time.
async fn bounded<T>(future: impl Future<Output = T>) -> T {
    let in_time = tokio::time::timeout(Duration::from_secs(5), future).await;
    in_time.expect("in time")
}

/// A call that has arrived and hangs.
async fn hung_call(sim: &Sim, mut cri: Client) -> JoinHandle<Result<(), Status>> {
    sim.set_knob("list_containers.hang").unwrap();
    let before = sim.fired();
    let call = tokio::spawn(async move { cri.containers().await.map(drop) });
    let arrived = async {
        while sim.fired() == before {
            tokio::task::yield_now().await;
        }
    };
    with_timeout(arrived).await;
    call
}

/// A hung CRI call does not delay its server's stop; an hour-long `restart` does not delay the simulator's shutdown.
#[tokio::test]
async fn hung_calls_delay_neither_server_stop_nor_simulator_shutdown() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sim.sock");
    let control = dir.path().join("sim.sock.ctl");
    let sim = sim().build();
    let serving = sim.serve_unix(&path, std::future::pending()).unwrap();
    let call = hung_call(&sim, Client::connect_unix(&path).await).await;
    with_timeout(serving.stop()).await;
    assert!(!path.exists());
    let cut = with_timeout(call).await.unwrap();
    assert!(cut.is_err(), "the connection is cut");

    let serving = sim.serve_unix(&path, std::future::pending()).unwrap();
    let controlling = sim.serve_control(&control).unwrap();
    let call = hung_call(&sim, Client::connect_unix(&path).await).await;
    let mut connection = UnixStream::connect(&control).await.unwrap();
    connection.write_all(b"restart down=60m\n").await.unwrap();
    let cut = with_timeout(call).await.unwrap();
    assert!(cut.is_err(), "the runtime went down");
    with_timeout(sim.shutdown()).await;
    assert!(!path.exists() && !control.exists());
    let mut response = Vec::new();
    let end = with_timeout(connection.read_to_end(&mut response)).await;
    end.unwrap();
    with_timeout(serving.stopped()).await;
    with_timeout(controlling.stopped()).await;
}

/// CRI-O's graceful stop waits until its clients have disconnected, but no longer than two seconds.
#[tokio::test(start_paused = true)]
async fn crio_graceful_stop_times_out_if_a_call_hangs() {
    let sim = sim().mode(Mode::Crio).build();
    let cri = Client::connect(&sim).await;
    let call = hung_call(&sim, cri).await;
    bounded(sim.control("down")).await.unwrap();
    assert!(bounded(call).await.unwrap().is_err());
    bounded(sim.shutdown()).await;
}

/// Starts a workload that creates 100 pods.
fn workload(sim: &Sim) -> WorkloadHandle {
    let mut config = WorkloadConfig::default();
    (config.pods, config.full) = (100, true);
    sim.spawn_workload(config)
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_a_workload_whose_call_hangs() {
    for (knob, is_filled) in [
        ("list_containers.hang", true),
        ("run_pod_sandbox.hang", false),
    ] {
        let sim = sim().build();
        sim.set_knob(knob).unwrap();
        let workload = workload(&sim);
        let mut filled = Box::pin(workload.filled());
        assert_eq!(is_pending_when_idle(&mut filled).await, !is_filled);
        assert_eq!(sim.fired()[knob], 1);
        bounded(sim.shutdown()).await;
        bounded(workload.filled()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_a_workload_that_a_slow_subscriber_blocks() {
    let sim = sim().mode(Mode::Containerd2).build();
    // The subscriber does not read, and there are far more events than its buffer holds. The test calls the service
    // without a connection, which would have more buffers.
    let service = sim.service();
    let subscriber = tokio::spawn(async move {
        let request = tonic::Request::new(v1::GetEventsRequest {});
        let _stream = service.get_container_events(request).await;
        std::future::pending::<()>().await;
    });
    with_timeout(sim.wait_for_subscribers(1)).await;
    let workload = workload(&sim);
    let is_blocked = is_pending_when_idle(&mut Box::pin(workload.filled())).await;
    assert!(is_blocked);
    let mut cri = Client::connect(&sim).await;
    assert!(!bounded(cri.containers()).await.unwrap().is_empty());
    drop(cri);
    subscriber.abort();
    let _ = subscriber.await;
    bounded(sim.shutdown()).await;
    let metrics = tokio::runtime::Handle::current().metrics();
    assert_eq!(metrics.num_alive_tasks(), 0);
}
