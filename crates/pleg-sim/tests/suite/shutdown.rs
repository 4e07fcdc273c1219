//! Shutdown while calls hang: everything ends within a bounded time.

use std::{path::Path, time::Duration};

use pleg_cri::v1;
use pleg_sim::{Mode, Serving, Sim, WorkloadConfig, WorkloadHandle};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    task::JoinHandle,
};
use tonic::Status;

use crate::common::{
    Client, connect_unix, is_pending_when_idle, sim, subscribe_and_do_not_read, with_timeout,
};

/// In paused time. Longer than any grace period.
const MAX_SHUTDOWN: Duration = Duration::from_secs(5);

async fn bounded<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(MAX_SHUTDOWN, future)
        .await
        .expect("in time")
}

/// A call that hangs, and has arrived.
async fn hung_call(sim: &Sim, mut cri: Client) -> JoinHandle<Result<(), Status>> {
    sim.set_knob("list_containers.hang").unwrap();
    let call = tokio::spawn(async move {
        let request = v1::ListContainersRequest::default();
        cri.0.list_containers(request).await.map(drop)
    });
    let arrived = async {
        while sim.fired().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    with_timeout(arrived).await;
    call
}

/// A simulator and a call over the socket that hangs.
async fn with_hung_call(path: &Path) -> (Sim, Serving, JoinHandle<Result<(), Status>>, Client) {
    let sim = sim().build();
    let serving = sim.serve_unix(path, std::future::pending()).unwrap();
    let cri = connect_unix(path).await;
    let call = hung_call(&sim, cri.clone()).await;
    (sim, serving, call, cri)
}

#[tokio::test]
async fn serving_stops_while_a_call_hangs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sim.sock");
    let (sim, serving, call, _cri) = with_hung_call(&path).await;
    with_timeout(serving.stop()).await;
    assert!(!path.exists());
    assert!(
        with_timeout(call).await.unwrap().is_err(),
        "the connection is cut"
    );
    with_timeout(sim.shutdown()).await;
}

#[tokio::test]
async fn shutdown_ends_hung_calls_and_removes_sockets() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sim.sock");
    let control = dir.path().join("sim.sock.ctl");
    let (sim, serving, call, _cri) = with_hung_call(&path).await;
    let controlling = sim.serve_control(&control).unwrap();
    // A control command that takes an hour does not delay the shutdown.
    let mut connection = UnixStream::connect(&control).await.unwrap();
    connection.write_all(b"restart down=60m\n").await.unwrap();
    assert!(
        with_timeout(call).await.unwrap().is_err(),
        "the runtime went down"
    );
    with_timeout(sim.shutdown()).await;
    assert!(!path.exists() && !control.exists());
    let mut response = Vec::new();
    with_timeout(connection.read_to_end(&mut response))
        .await
        .unwrap();
    with_timeout(serving.stopped()).await;
    with_timeout(controlling.stopped()).await;
}

/// CRI-O waits for its clients, with a timeout.
#[tokio::test(start_paused = true)]
async fn graceful_stop_is_bounded_while_a_call_hangs() {
    let sim = sim().mode(Mode::Crio).build();
    let cri = Client::connect(&sim).await;
    let call = hung_call(&sim, cri).await;
    bounded(sim.control("down")).await.unwrap();
    assert!(bounded(call).await.unwrap().is_err());
    bounded(sim.shutdown()).await;
}

/// The creation of 100 pods.
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
    // Far more events than the subscriber's buffer holds.
    let subscriber = subscribe_and_do_not_read(&sim).await;
    let workload = workload(&sim);
    assert!(
        is_pending_when_idle(&mut Box::pin(workload.filled())).await,
        "the workload is blocked"
    );
    bounded(sim.shutdown()).await;
    subscriber.abort();
}
