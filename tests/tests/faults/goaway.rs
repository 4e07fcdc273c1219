//! GOAWAY: a graceful one, as from a server that shuts down, and one with an error.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::{StreamExt, stream};
use h2::Reason;
use pleg::core::{EventType, LifecycleType, Settings};
use pleg_cri::v1::runtime_service_server::RuntimeServiceServer;
use pleg_sim::Sim;
use pleg_tests::faulty_pipe::FaultyPipe;
use tokio::io::DuplexStream;
use tokio::sync::watch;
use tonic::transport::Server;

use crate::in_process::{InProcess, MINUTE, MS, SECOND};

/// Connections to a server that sends GOAWAY when `send_goaway` is set, and closes a connection when its
/// last call is answered.
fn graceful_server(sim: &Arc<Sim>) -> (FaultyPipe, watch::Sender<bool>) {
    let send_goaway = watch::Sender::new(false);
    let (sim, sender) = (sim.clone(), send_goaway.clone());
    let pipe = FaultyPipe::to(move |io: DuplexStream| {
        let mut requested = sender.subscribe();
        requested.mark_unchanged();
        let ends = async move {
            // Without a sender there is no GOAWAY.
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

/// GOAWAY during a list: the list is answered, the next one uses a new connection, and nothing fails.
#[tokio::test(start_paused = true)]
async fn graceful_goaway_fails_no_call() -> anyhow::Result<()> {
    let mut node = InProcess::up();
    let (pipe, send_goaway) = graceful_server(&node.sim);
    node.calls = pipe;
    let kubelet = node.kubelet()?;
    node.run_pods(&kubelet, 3).await?;
    let generator = node.start(Settings::default()).await?;
    for n in 1..=5 {
        node.faults.slow_down("StreamContainers", SECOND);
        let pleg = generator.pleg.clone();
        let list = tokio::spawn(async move { pleg.relist_now().await });
        node.pass(500 * MS).await;
        send_goaway.send_replace(true);
        list.await??;
        node.faults.clear();
        generator.pleg.relist_now().await?;
        assert_eq!(node.calls.dials(), 1 + n);
    }
    assert_eq!(generator.pleg.counters().lists_failed, 0);
    assert!(generator.is_well());
    node.check_and_end(generator, &kubelet).await
}

/// GOAWAY to the event stream: it continues until the connection ends. Then a new one is requested at
/// once.
#[tokio::test(start_paused = true)]
async fn goaway_does_not_end_the_stream() -> anyhow::Result<()> {
    let mut node = InProcess::up();
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
        // A read follows 250 ms after the event.
        node.until(300 * MS, "the start is announced", || {
            generator.has(&pod.sandbox, LifecycleType::ContainerStarted)
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
            node.events.break_now(pleg_tests::faulty_pipe::Break::End);
            node.pass(MS).await;
            assert!(!generator.is_well());
            node.until(3 * SECOND, "nothing is degraded", || generator.is_well())
                .await?;
        }
    }
    assert_eq!(generator.missed(), 0);
    node.check_and_end(generator, &kubelet).await
}

/// A server that takes a call and answers with GOAWAY.
async fn abrupt_server(io: DuplexStream, why: Reason, calls: Arc<AtomicU64>) {
    let Ok(mut connection) = h2::server::handshake(io).await else {
        return;
    };
    let Some(Ok(_call)) = connection.accept().await else {
        return;
    };
    calls.fetch_add(1, Ordering::Relaxed);
    connection.abrupt_shutdown(why);
    // Wait until it is sent and the client has closed.
    while let Some(Ok(_)) = connection.accept().await {}
}

/// For a minute each call on that connection is answered with GOAWAY.
async fn goaway_for_a_minute(why: Reason, of_the_stream: bool) -> anyhow::Result<()> {
    let mut node = InProcess::up();
    let kubelet = node.kubelet()?;
    node.run_pods(&kubelet, 2).await?;
    let calls = Arc::new(AtomicU64::new(0));
    let is_serving = watch::Sender::new(false);
    let pipe = {
        let (sim, calls, is_serving) = (node.sim.clone(), calls.clone(), is_serving.subscribe());
        FaultyPipe::to(move |io| {
            if *is_serving.borrow() {
                sim.serve_stream(io);
            } else {
                tokio::spawn(abrupt_server(io, why, calls.clone()));
            }
        })
    };
    if of_the_stream {
        node.events = pipe;
    } else {
        node.calls = pipe;
    }
    let generator = node.spawn(Settings::default())?;
    let reported_after = node
        .until(3 * SECOND, "it is reported", || {
            !generator.degraded().is_empty()
        })
        .await?;
    let how = if of_the_stream {
        "stream_down"
    } else {
        "list_failed"
    };
    assert!(generator.is_degraded(how), "{:?}", generator.degraded());
    node.pass(MINUTE - SECOND).await;
    let asked = calls.load(Ordering::Relaxed);
    println!("{why:?}: {how} reported after {reported_after:?}, {asked} calls in a minute");
    assert!(asked >= 5, "too few attempts");
    // Each second a list, with which retries of pods share the connection, and then a `Version`; and the probes.
    let most = if of_the_stream { 10 } else { 130 };
    assert!(
        asked <= most,
        "{asked}: {:?}",
        generator.recorder.log().calls
    );
    assert_eq!(generator.pleg.health().ready().is_ok(), of_the_stream);
    is_serving.send_replace(true);
    node.until(MINUTE + 3 * SECOND, "nothing is degraded", || {
        generator.is_well()
    })
    .await?;
    node.check_and_end(generator, &kubelet).await
}

#[tokio::test(start_paused = true)]
async fn enhance_your_calm_on_the_stream_is_reported_and_retried() -> anyhow::Result<()> {
    goaway_for_a_minute(Reason::ENHANCE_YOUR_CALM, true).await
}

#[tokio::test(start_paused = true)]
async fn internal_error_on_the_stream_is_reported_and_retried() -> anyhow::Result<()> {
    goaway_for_a_minute(Reason::INTERNAL_ERROR, true).await
}

#[tokio::test(start_paused = true)]
async fn enhance_your_calm_on_calls_is_reported_and_retried() -> anyhow::Result<()> {
    goaway_for_a_minute(Reason::ENHANCE_YOUR_CALM, false).await
}
