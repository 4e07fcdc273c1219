//! Tests a server that shuts down gracefully: it sends GOAWAY, answers the last call, and closes the connection.

use std::convert::Infallible;
use std::sync::Arc;

use futures::{StreamExt, stream};
use pleg::core::{EventType, LifecycleType, Settings};
use pleg_cri::v1::runtime_service_server::RuntimeServiceServer;
use pleg_sim::Sim;
use tokio::io::DuplexStream;
use tokio::sync::watch;
use tonic::transport::Server;

use crate::node::{MINUTE, MS, Node, SECOND};
use crate::pipe::{Break, FaultyPipe};

/// Connections to a server that sends GOAWAY when `send_goaway` is set.
fn graceful_server(sim: &Arc<Sim>) -> (FaultyPipe, watch::Sender<bool>) {
    let send_goaway = watch::Sender::new(false);
    let (sim, sender) = (sim.clone(), send_goaway.clone());
    let pipe = FaultyPipe::to(move |io: DuplexStream| {
        let mut requested = sender.subscribe();
        requested.mark_unchanged();
        let ends = async move {
            // If all senders are dropped, nobody can request a GOAWAY. Then this future never completes.
            if requested.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let service = RuntimeServiceServer::new(sim.service());
        let incoming = stream::iter([Ok::<_, Infallible>(io)]).chain(stream::pending());
        let serving = Server::builder()
            .add_service(service)
            .serve_with_incoming_shutdown(incoming, ends);
        tokio::spawn(serving);
    });
    (pipe, send_goaway)
}

/// During a list, the server sends GOAWAY. It answers this list, and the next list uses a new connection.
#[tokio::test(start_paused = true)]
async fn no_call_fails_when_the_server_sends_a_graceful_goaway() -> anyhow::Result<()> {
    let mut node = Node::up();
    let (pipe, send_goaway) = graceful_server(&node.sim);
    node.calls = pipe;
    let kubelet = node.kubelet()?;
    kubelet.run_pods(3).await?;
    let generator = node.start(Settings::default()).await?;
    for n in 1..=5 {
        node.set("stream_containers.latency=1s");
        let pleg = generator.pleg.clone();
        let list = tokio::spawn(async move { pleg.relist_now().await });
        node.pass(500 * MS).await;
        send_goaway.send_replace(true);
        list.await??;
        node.set("stream_containers.latency=0s");
        generator.pleg.relist_now().await?;
        assert_eq!(node.calls.dials(), 1 + n);
    }
    assert_eq!(generator.pleg.counters().lists_failed, 0);
    assert!(generator.is_well());
    node.check_and_end(generator, &kubelet).await
}

/// After GOAWAY, the event stream continues until its connection ends. Then the generator subscribes again at once.
#[tokio::test(start_paused = true)]
async fn goaway_does_not_end_the_event_stream() -> anyhow::Result<()> {
    let mut node = Node::up();
    let (pipe, send_goaway) = graceful_server(&node.sim);
    node.events = pipe;
    let kubelet = node.kubelet()?;
    let mut generator = node.start(Settings::default()).await?;
    send_goaway.send_replace(true);
    for n in 0..2 {
        let pod = kubelet.run_pod(&format!("pod-{n}")).await?;
        node.until(10 * MS, "the stream delivers an event", || {
            generator
                .recorder
                .log()
                .has(&pod.sandbox, EventType::Started)
        })
        .await?;
        kubelet.stop_pod(&pod).await?;
        node.until(10 * MS, "the event announces the end", || {
            generator.has(&pod.sandbox, LifecycleType::ContainerDied)
        })
        .await?;
        assert_eq!(node.events.dials(), 1 + n);
        assert!(generator.is_well(), "{:?}", generator.health());
        node.pass(MINUTE).await;
        if n == 0 {
            node.events.break_now(Break::End);
            node.pass(MS).await;
            assert!(!generator.is_well());
            node.until(3 * SECOND, "nothing is degraded", || generator.is_well())
                .await?;
        }
    }
    assert_eq!(generator.missed(), 0);
    node.check_and_end(generator, &kubelet).await
}
