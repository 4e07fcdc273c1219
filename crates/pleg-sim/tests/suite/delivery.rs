//! How events reach subscribers, and how they do not: reference/runtimes.md 1.1.

use std::{collections::BTreeSet, time::Duration};

use crate::common::{Client, Events, idle, sim, soon};
use futures::StreamExt as _;
use pleg_cri::v1::{self, GetEventsRequest, runtime_service_server::RuntimeService as _};
use tonic::{Code, Request};

#[tokio::test(start_paused = true)]
async fn headers_come_with_the_first_event() {
    let sim = sim().build();
    let mut events = Events::subscribe(&sim).await;
    let mut cri = Client::of(&sim).await;
    let version = cri
        .0
        .version(v1::VersionRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (
            version.runtime_name.as_str(),
            version.runtime_api_version.as_str()
        ),
        ("containerd", "v1")
    );
    // Nothing is under way any more, and there is no answer.
    assert!(idle(&mut std::future::pending::<()>()).await);
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
    let mut cri = Client::of(&sim).await;
    let s = cri.run("p").await;
    let a = cri.create_and_start(&s, "a", "").await;
    let names = [(s.as_str(), "S"), (&a, "A")];
    let told = one.told(4, &names).await;
    assert_eq!(told, two.told(4, &names).await);
    assert_eq!(told[3], "STARTED(A) READY [A:RUNNING]");
    sim.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn events_are_held_for_the_first_subscriber() {
    let sim = sim().build();
    let mut cri = Client::of(&sim).await;
    let old = cri.run("old").await;
    tokio::time::advance(Duration::from_secs(299)).await;
    let new = cri.run("new").await;
    assert_eq!(sim.held_events(), 4);
    tokio::time::advance(Duration::from_secs(2)).await;
    // The old pod's two are over five minutes old by now.
    let mut events = Events::subscribe(&sim).await;
    let names = [(old.as_str(), "OLD"), (&new, "NEW")];
    assert_eq!(
        events.told(2, &names).await,
        ["CREATED(NEW) READY []", "STARTED(NEW) READY []"]
    );
    assert_eq!((sim.held_events(), sim.discarded_events()), (0, 2));
    // The next one gets nothing of it.
    let mut late = Events::subscribe(&sim).await;
    cri.stop_sandbox(&new).await;
    let stopped = ["STOPPED(NEW) NOTREADY []"];
    assert_eq!(late.told(1, &names).await, stopped);
    assert_eq!(events.told(1, &names).await, stopped);
    sim.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_dead_subscriber_eats_an_event() {
    let sim = sim().build();
    let events = Events::subscribe(&sim).await;
    events.disconnect().await;
    // Nothing is under way any more, and the runtime still believes in it.
    assert!(idle(&mut std::future::pending::<()>()).await);
    assert_eq!(sim.subscribers(), 1);
    let mut cri = Client::of(&sim).await;
    let mut told = 0;
    while sim.held_events() == 0 {
        cri.run(&format!("p{told}")).await;
        told += 2;
        assert!(idle(&mut std::future::pending::<()>()).await);
        assert!(told < 50, "it is noticed some time");
    }
    assert_eq!(sim.subscribers(), 0);
    assert!(sim.held_events() < told, "at least the first event is lost");
    // A live one beside a dead one loses nothing.
    let dead = Events::subscribe(&sim).await;
    dead.disconnect().await;
    let mut alive = Events::subscribe(&sim).await;
    let s = cri.run("q").await;
    while alive.next().await.container_id != s {}
    sim.shutdown().await;
}

/// After the event that shows it its end, its channel has room still, and the runtime's choice
/// between that and the end is even: some dead subscribers eat more than others.
#[tokio::test(start_paused = true)]
async fn a_dead_subscriber_may_eat_further_events() {
    let mut eaten = BTreeSet::new();
    for seed in 0..16 {
        let sim = sim().seed(seed).build();
        Events::subscribe(&sim).await.disconnect().await;
        let mut cri = Client::of(&sim).await;
        let mut told = 0;
        while sim.held_events() == 0 {
            assert!(idle(&mut std::future::pending::<()>()).await);
            cri.run(&format!("p{told}")).await;
            told += 2;
            assert!(told < 50, "it is noticed some time");
        }
        eaten.insert(told - sim.held_events());
        sim.shutdown().await;
    }
    assert!(eaten.len() > 2, "{eaten:?}");
}

/// A subscriber that does not read stops whoever has something to tell, without a time limit.
#[tokio::test(start_paused = true)]
async fn a_slow_subscriber_blocks_the_runtime() {
    let sim = sim().build();
    let service = sim.service();
    let mut cri = Client::of(&sim).await;
    // In-process: no socket buffers between the runtime and its subscriber.
    let subscribing = tokio::spawn({
        let service = service.clone();
        async move {
            service
                .get_container_events(Request::new(GetEventsRequest {}))
                .await
        }
    });
    soon(sim.wait_for_subscribers(1)).await;
    let mut pods = 0;
    let mut blocked = loop {
        let mut client = cri.clone();
        let name = format!("p{pods}");
        let mut run = tokio::spawn(async move { client.try_run(&name).await });
        if idle(&mut run).await {
            break run;
        }
        pods += 1;
        assert!(pods < 100, "never blocked");
    };
    // 100 in the channel, and the few that are on their way.
    assert!((50..=52).contains(&pods), "blocked after {pods} pods");
    assert!(
        tokio::time::timeout(Duration::from_secs(3600), &mut blocked)
            .await
            .is_err()
    );
    // Reads go on, and show the pod that is not told of yet.
    let rows = cri.sandboxes(v1::PodSandboxFilter::default()).await;
    assert_eq!(rows.len(), pods + 1);
    // As it reads, everything goes on.
    let mut events = subscribing.await.unwrap().unwrap().into_inner();
    for _ in 0..2 * (pods + 1) {
        soon(events.next()).await.unwrap().unwrap();
    }
    soon(blocked).await.unwrap().unwrap();
    soon(sim.shutdown()).await;
    assert!(soon(events.next()).await.is_none());
}

/// A blocked runtime can still be shut down.
#[tokio::test(start_paused = true)]
async fn shutdown_leaves_no_task() {
    let sim = sim().build();
    let cri = Client::of(&sim).await;
    let service = sim.service();
    let subscribing = tokio::spawn(async move {
        service
            .get_container_events(Request::new(GetEventsRequest {}))
            .await
    });
    soon(sim.wait_for_subscribers(1)).await;
    for n in 0.. {
        let mut client = cri.clone();
        let mut run = tokio::spawn(async move {
            let s = client.try_run(&format!("p{n}")).await?;
            client.create_and_start(&s, "a", "").await;
            Ok::<_, tonic::Status>(s)
        });
        if idle(&mut run).await {
            run.abort();
            let _ = run.await;
            break;
        }
    }
    drop(soon(subscribing).await);
    soon(sim.shutdown()).await;
    drop(cri);
    assert!(idle(&mut std::future::pending::<()>()).await);
    assert_eq!(
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks(),
        0
    );
}

#[tokio::test]
async fn a_cut_connection_ends_the_stream_with_an_error() {
    let sim = sim().build();
    let mut events = Events::subscribe(&sim).await;
    let mut waiting = Events::subscribe(&sim).await;
    let mut cri = Client::of(&sim).await;
    let s = cri.run("p").await;
    events.next().await;
    events.next().await;
    sim.sever_connections();
    let error = events.try_next().await.unwrap_err();
    assert_ne!(error.code(), Code::Ok);
    waiting.next().await;
    // The world goes on for who connects anew.
    let mut cri = Client::of(&sim).await;
    assert_eq!(
        cri.sandboxes(v1::PodSandboxFilter::default()).await[0].id,
        s
    );
    sim.shutdown().await;
}
