//! Tests the constructors that return a generator's builder and a CRI client of the same runtime.

use std::time::Duration;

use pleg::cri::{ConfigError, CriConfig, CriRuntime};
use pleg::{ConnectError, ContainerState, Pleg};
use pleg_sim::{Mode, Sim};
use pleg_tests::kubelet::Life;

use crate::node::Node;

#[tokio::test]
async fn view_newer_than_a_call_shows_effect_of_the_call() {
    let node = Node::up();
    let (builder, client) = Pleg::connect_with(node.observer_client().unwrap());
    let pleg = builder.spawn().unwrap();

    let kubelet = node.kubelet().unwrap();
    let pod = kubelet.run_pod("pod").await.unwrap();
    let id = kubelet.create(&pod, "app", 0, Life::UntilStopped);
    let id = id.await.unwrap();
    let started = client.start_container(&id).await;
    started.result.unwrap();

    let within = Duration::from_secs(20);
    let view = pleg.newer_than(&pod.uid, started.ended, within).await;
    let view = view.unwrap();
    let container = view.status.containers.first().unwrap();
    assert_eq!(container.id, id);
    assert_eq!(container.state, ContainerState::Running);
    pleg.shutdown().await;
    node.sim.shutdown().await;
}

#[tokio::test]
async fn generator_never_subscribes_to_crio_that_crashes_on_disconnect() {
    let node = Node::of(Sim::builder().mode(Mode::Crio).runtime_version("1.31.0"));
    let (builder, _client) = Pleg::connect_with(node.observer_client().unwrap());
    let pleg = builder.spawn().unwrap();
    let mut health = pleg.health();
    while health.current().stream.declined().is_none() {
        assert!(health.changed().await);
    }
    let why = "cri-o 1.31.0 may crash when a client ends its event stream";
    assert_eq!(health.current().stream.declined(), Some(why));
    pleg.shutdown().await;
    node.sim.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn generator_and_client_of_one_connect_call_share_one_clock() {
    let (builder, client) = Pleg::connect("unix:///nowhere/at/all.sock").unwrap();
    tokio::time::advance(Duration::from_secs(5)).await;
    let pleg = builder.spawn().unwrap();
    // Two calls of one clock never return the same instant.
    let (first, second) = (pleg.now(), client.clock().now());
    assert!(second > first);
    assert!(second.since(first) < Duration::from_micros(1));
    pleg.shutdown().await;
}

#[test]
fn connect_error_names_the_cause() {
    let error = Pleg::connect("tcp://10.0.0.1").unwrap_err();
    assert!(matches!(error, ConnectError::Endpoint(_)), "{error:?}");
    let error = Pleg::connect("unix:///run/x.sock").unwrap_err();
    assert_eq!(error, ConnectError::Config(ConfigError::NoRuntime));
    let advice = "there is no tokio runtime: create the CRI client inside of one";
    assert_eq!(error.to_string(), advice);
}

/// `connect_with` needs no current tokio runtime: the new client uses the tokio runtime of the given client.
#[test]
fn second_client_can_be_created_outside_of_a_tokio_runtime() {
    let tokio = tokio::runtime::Runtime::new().unwrap();
    let config = CriConfig::new("unix:///nowhere/at/all.sock".parse().unwrap());
    let runtime = tokio.block_on(async { CriRuntime::new(config).unwrap() });
    let (_builder, client) = Pleg::connect_with(runtime);
    assert!(tokio.block_on(client.version()).is_err());
}
