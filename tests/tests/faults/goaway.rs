//! Servers that say goodbye: GOAWAY in good order, as one does that shuts down, and with an error,
//! as one does that has had enough of its client.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::{StreamExt, stream};
use h2::Reason;
use pleg::core::{LifecycleType, Settings};
use pleg_cri::v1::runtime_service_server::RuntimeServiceServer;
use pleg_sim::Sim;
use pleg_tests::line::Line;
use tokio::io::DuplexStream;
use tokio::sync::watch;
use tonic::transport::Server;

use crate::inside::{Inside, MINUTE, MS, SECOND};

/// A line to the runtime whose server says goodbye when told to, and ends a connection when its
/// last call is answered.
fn polite(sim: &Arc<Sim>) -> (Line, watch::Sender<bool>) {
    let goodbye = watch::Sender::new(false);
    let (sim, told) = (sim.clone(), goodbye.clone());
    let line = Line::to(move |io: DuplexStream| {
        let mut told = told.subscribe();
        told.mark_unchanged();
        let ends = async move {
            // Without a sender nobody says goodbye.
            if told.changed().await.is_err() {
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
    (line, goodbye)
}

/// A goodbye in the middle of a list: the list is answered, the next one goes to a new connection,
/// and nothing has failed.
#[tokio::test(start_paused = true)]
async fn a_goodbye_in_good_order_costs_no_call() -> anyhow::Result<()> {
    let mut node = Inside::up();
    let (line, goodbye) = polite(&node.sim);
    node.calls = line;
    let kubelet = node.kubelet()?;
    node.run_pods(&kubelet, 3).await?;
    let mut generator = node.start(Settings::default()).await?;
    for n in 1..=5 {
        node.trouble.slow_down("StreamContainers", SECOND);
        let pleg = generator.pleg.clone();
        let list = tokio::spawn(async move { pleg.relist_now().await });
        node.pass(500 * MS).await;
        goodbye.send_replace(true);
        list.await??;
        node.trouble.heal();
        generator.pleg.relist_now().await?;
        assert_eq!(node.calls.dials(), 1 + n);
    }
    assert_eq!(generator.pleg.counters().lists_failed, 0);
    assert!(generator.is_well());
    generator.check(&kubelet).await?;
    node.end(generator).await;
    Ok(())
}

/// A goodbye to the event stream: it goes on for as long as it stands. When it ends, a new one is
/// asked for at once.
#[tokio::test(start_paused = true)]
async fn a_goodbye_to_the_stream_does_not_end_it() -> anyhow::Result<()> {
    let mut node = Inside::up();
    let (line, goodbye) = polite(&node.sim);
    node.events = line;
    let kubelet = node.kubelet()?;
    let mut generator = node.start(Settings::default()).await?;
    goodbye.send_replace(true);
    for n in 0..2 {
        let pod = kubelet.run_pod(&format!("pod-{n}")).await?;
        node.until(10 * MS, "the stream tells", || {
            generator.has(&pod.sandbox, LifecycleType::ContainerStarted)
        })
        .await?;
        assert_eq!(node.events.dials(), 1 + n);
        assert!(generator.is_well(), "{:?}", generator.health());
        node.pass(MINUTE).await;
        if n == 0 {
            node.events.break_now(pleg_tests::line::Break::End);
            node.pass(MS).await;
            assert!(!generator.is_well());
            node.until(3 * SECOND, "all is well", || generator.is_well())
                .await?;
        }
    }
    assert_eq!(generator.missed(), 0);
    generator.check(&kubelet).await?;
    node.end(generator).await;
    Ok(())
}

/// A server that takes a call and answers with GOAWAY.
async fn rude(io: DuplexStream, why: Reason, calls: Arc<AtomicU64>) {
    let Ok(mut connection) = h2::server::handshake(io).await else {
        return;
    };
    let Some(Ok(_call)) = connection.accept().await else {
        return;
    };
    calls.fetch_add(1, Ordering::Relaxed);
    connection.abrupt_shutdown(why);
    // Until the goodbye is out and the client has closed.
    while let Some(Ok(_)) = connection.accept().await {}
}

/// For a minute each call on that line is answered with GOAWAY.
async fn a_minute_of(why: Reason, of_the_stream: bool) -> anyhow::Result<()> {
    let mut node = Inside::up();
    let kubelet = node.kubelet()?;
    node.run_pods(&kubelet, 2).await?;
    let calls = Arc::new(AtomicU64::new(0));
    let enough = watch::Sender::new(false);
    let line = {
        let (sim, calls, enough) = (node.sim.clone(), calls.clone(), enough.subscribe());
        Line::to(move |io| {
            if *enough.borrow() {
                sim.serve_stream(io);
            } else {
                tokio::spawn(rude(io, why, calls.clone()));
            }
        })
    };
    if of_the_stream {
        node.events = line;
    } else {
        node.calls = line;
    }
    let mut generator = node.spawn(Settings::default())?;
    let named = node
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
    println!("{why:?}: {how} named within {named:?}, {asked} calls in the first minute");
    assert!(asked >= 5, "it does try");
    // One list a second, and two calls for each probe.
    assert!(asked <= if of_the_stream { 10 } else { 70 }, "{asked}");
    assert_eq!(generator.pleg.health().ready().is_ok(), of_the_stream);
    enough.send_replace(true);
    node.until(MINUTE + 3 * SECOND, "all is well", || generator.is_well())
        .await?;
    generator.check(&kubelet).await?;
    node.end(generator).await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_told_to_calm_down() -> anyhow::Result<()> {
    a_minute_of(Reason::ENHANCE_YOUR_CALM, true).await
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_meets_an_internal_error() -> anyhow::Result<()> {
    a_minute_of(Reason::INTERNAL_ERROR, true).await
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_told_to_calm_down() -> anyhow::Result<()> {
    a_minute_of(Reason::ENHANCE_YOUR_CALM, false).await
}
