//! Event delivery of containerd 2, and connections that are cut.

use std::{collections::BTreeSet, time::Duration};

use crate::common::{
    Client, Events, is_pending_when_idle, sim, subscribe_and_do_not_read, with_timeout,
};
use futures::StreamExt as _;
use pleg_cri::v1::{self, GetEventsRequest, runtime_service_server::RuntimeService as _};
use tonic::{Code, Request};

#[tokio::test(start_paused = true)]
async fn response_headers_arrive_with_first_event() {
    let sim = sim().build();
    let mut events = Events::subscribe(&sim).await;
    let mut cri = Client::connect(&sim).await;
    let version = cri.version().await.unwrap();
    let names = (&*version.runtime_name, &*version.runtime_api_version);
    assert_eq!(names, ("containerd", "v1"));
    // Every task is idle, and there is no response.
    assert!(is_pending_when_idle(&mut std::future::pending::<()>()).await);
    assert!(!events.has_headers());
    let s = cri.run("p").await;
    assert_eq!(events.next().await.container_id, s);
    assert!(events.has_headers());
    sim.shutdown().await;
}

#[tokio::test]
async fn every_subscriber_gets_every_event() {
    let sim = sim().build();
    let mut one = Events::subscribe(&sim).await;
    let mut two = Events::subscribe(&sim).await;
    let mut cri = Client::connect(&sim).await;
    let s = cri.run("p").await;
    let a = cri.create_and_start(&s, "a", "").await;
    let names = [(s.as_str(), "S"), (&a, "A")];
    let received = one.next_as_text(4, &names).await;
    assert_eq!(received, two.next_as_text(4, &names).await);
    assert_eq!(received[3], "STARTED(A) READY [A:RUNNING]");
    sim.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn events_are_kept_five_minutes_for_next_subscriber() {
    let sim = sim().build();
    let mut cri = Client::connect(&sim).await;
    let old = cri.run("old").await;
    tokio::time::advance(Duration::from_secs(299)).await;
    let new = cri.run("new").await;
    assert_eq!(sim.counts().held, 4);
    tokio::time::advance(Duration::from_secs(2)).await;
    // The two events of the old pod are more than five minutes old.
    let mut events = Events::subscribe(&sim).await;
    let names = [(old.as_str(), "OLD"), (&new, "NEW")];
    let of_new = ["CREATED(NEW) READY []", "STARTED(NEW) READY []"];
    assert_eq!(events.next_as_text(2, &names).await, of_new);
    assert_eq!((sim.counts().held, sim.counts().discarded), (0, 2));
    // The next subscriber gets none of these.
    let mut late = Events::subscribe(&sim).await;
    cri.stop_sandbox(&new).await;
    let stopped = ["STOPPED(NEW) NOTREADY []"];
    assert_eq!(late.next_as_text(1, &names).await, stopped);
    assert_eq!(events.next_as_text(1, &names).await, stopped);
    sim.shutdown().await;
}

/// After the event that reveals the disconnect, the channel still has capacity, and the runtime
/// picks at random between sending and noticing. So the number of lost events varies.
#[tokio::test(start_paused = true)]
async fn dead_subscriber_loses_varying_number_of_events() {
    let mut lost = BTreeSet::new();
    for seed in 0..16 {
        let sim = sim().seed(seed).build();
        Events::subscribe(&sim).await.disconnect().await;
        let mut cri = Client::connect(&sim).await;
        let mut sent = 0;
        while sim.counts().held == 0 {
            // Every task is idle, and the runtime has not noticed.
            assert!(is_pending_when_idle(&mut std::future::pending::<()>()).await);
            assert_eq!(sim.counts().subscribers, 1);
            cri.run(&format!("p{sent}")).await;
            sent += 2;
            assert!(sent < 50, "never noticed");
        }
        assert_eq!(sim.counts().subscribers, 0);
        lost.insert(sent - sim.counts().held);
        // A live subscriber beside a dead one loses nothing.
        Events::subscribe(&sim).await.disconnect().await;
        let mut alive = Events::subscribe(&sim).await;
        let s = cri.run("q").await;
        while alive.next().await.container_id != s {}
        sim.shutdown().await;
    }
    assert!(lost.len() > 2 && !lost.contains(&0), "{lost:?}");
}

/// A subscriber that does not read blocks everything that sends an event, without a time limit.
#[tokio::test(start_paused = true)]
async fn slow_subscriber_blocks_the_runtime() {
    let sim = sim().build();
    let service = sim.service();
    let mut cri = Client::connect(&sim).await;
    // In-process: no socket buffers between the runtime and its subscriber.
    let subscribing = tokio::spawn({
        let service = service.clone();
        async move {
            service
                .get_container_events(Request::new(GetEventsRequest {}))
                .await
        }
    });
    with_timeout(sim.wait_for_subscribers(1)).await;
    let mut pods = 0;
    let mut blocked = loop {
        let mut client = cri.clone();
        let name = format!("p{pods}");
        let mut run = tokio::spawn(async move { client.try_run(&name).await });
        if is_pending_when_idle(&mut run).await {
            break run;
        }
        pods += 1;
        assert!(pods < 100, "never blocked");
    };
    // 100 in the channel, and a few in transit.
    assert!((50..=52).contains(&pods), "blocked after {pods} pods");
    let hour = tokio::time::timeout(Duration::from_secs(3600), &mut blocked);
    assert!(hour.await.is_err());
    // Reads still work, and show the pod whose events are blocked.
    let rows = cri.sandboxes(v1::PodSandboxFilter::default()).await;
    assert_eq!(rows.len(), pods + 1);
    // When the subscriber reads, everything proceeds.
    let mut events = subscribing.await.unwrap().unwrap().into_inner();
    for _ in 0..2 * (pods + 1) {
        with_timeout(events.next()).await.unwrap().unwrap();
    }
    with_timeout(blocked).await.unwrap().unwrap();
    with_timeout(sim.shutdown()).await;
    assert!(with_timeout(events.next()).await.is_none());
}

/// A blocked runtime can still be shut down.
#[tokio::test(start_paused = true)]
async fn shutdown_of_blocked_runtime_leaves_no_task() {
    let sim = sim().build();
    let cri = Client::connect(&sim).await;
    let slow = subscribe_and_do_not_read(&sim).await;
    for n in 0.. {
        let mut client = cri.clone();
        let mut run = tokio::spawn(async move {
            let s = client.try_run(&format!("p{n}")).await?;
            client.create_and_start(&s, "a", "").await;
            Ok::<_, tonic::Status>(s)
        });
        if is_pending_when_idle(&mut run).await {
            run.abort();
            let _ = run.await;
            break;
        }
    }
    slow.abort();
    let _ = slow.await;
    with_timeout(sim.shutdown()).await;
    drop(cri);
    assert!(is_pending_when_idle(&mut std::future::pending::<()>()).await);
    let metrics = tokio::runtime::Handle::current().metrics();
    assert_eq!(metrics.num_alive_tasks(), 0);
}

#[tokio::test]
async fn cut_connection_ends_stream_with_error() {
    let sim = sim().build();
    let mut events = Events::subscribe(&sim).await;
    let mut waiting = Events::subscribe(&sim).await;
    let mut cri = Client::connect(&sim).await;
    let s = cri.run("p").await;
    events.next().await;
    events.next().await;
    sim.control("cut").await.unwrap();
    let error = events.try_next().await.unwrap_err();
    assert_ne!(error.code(), Code::Ok);
    waiting.next().await;
    // A new connection sees the same node.
    let mut cri = Client::connect(&sim).await;
    let rows = cri.sandboxes(v1::PodSandboxFilter::default()).await;
    assert_eq!(rows[0].id, s);
    sim.shutdown().await;
}
