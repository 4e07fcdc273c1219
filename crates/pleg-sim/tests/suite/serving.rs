//! Unix sockets, faults in code, and the workload.

use std::{collections::BTreeSet, os::unix::net::UnixListener, time::Duration};

use crate::common::{Client, Events, connect, connect_unix, sim, with_timeout};
use pleg_cri::v1::{self, runtime_service_client::RuntimeServiceClient};
use pleg_sim::{Sim, WorkloadConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

#[tokio::test]
async fn socket_is_served_again_after_stop() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sim.sock");
    let sim = sim().build();
    let serving = sim.serve_unix(&path, std::future::pending()).unwrap();
    let s = connect_unix(&path).await.run("p").await;
    let again = sim.serve_unix(&path, std::future::pending());
    assert!(again.unwrap_err().to_string().contains("is in use"));
    with_timeout(serving.stop()).await;
    assert!(!path.exists());

    // A socket file that no process listens on is replaced; the node is unchanged.
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let serving = sim.serve_unix(&path, async { drop(ended.await) }).unwrap();
    let mut cri = connect_unix(&path).await;
    let rows = cri.sandboxes(v1::PodSandboxFilter::default()).await;
    assert_eq!(rows[0].id, s);
    end.send(()).unwrap();
    with_timeout(serving.stopped()).await;
    assert!(!path.exists());
    with_timeout(sim.shutdown()).await;
}

#[tokio::test]
async fn file_that_is_not_a_socket_is_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, "mine").unwrap();
    let sim = sim().build();
    let rejected = sim.serve_unix(&path, std::future::pending());
    let reason = rejected.unwrap_err().to_string();
    assert!(reason.contains("exists and is not a socket"), "{reason}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    let missing = dir.path().join("missing/socket");
    let rejected = sim.serve_unix(&missing, std::future::pending());
    let reason = rejected.unwrap_err().to_string();
    assert!(reason.starts_with("cannot bind"), "{reason}");
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
    let pods = cri.sandboxes(v1::PodSandboxFilter::default()).await;
    assert!(!pods.is_empty() && pods.len() <= 4);
    with_timeout(sim.shutdown()).await;
}

/// The fourth ping within five minutes closes the connection.
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

/// Runtimes send no date. A real one would make the length of a response depend on real time.
#[tokio::test]
async fn date_of_a_response_is_fixed() {
    let sim = sim().build();
    let mut client = RuntimeServiceClient::new(connect(&sim).await);
    let request = v1::ListContainersRequest::default();
    let response = with_timeout(client.list_containers(request)).await.unwrap();
    let date = response.metadata().get("date").unwrap();
    assert_eq!(date, "Thu, 01 Jan 1970 00:00:00 GMT");
    sim.shutdown().await;
}
