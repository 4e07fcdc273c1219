//! Tests the event stream: how it opens, delivers events and ends.
use std::sync::Arc;
use std::time::Duration;

use crate::common::{Fake, TestServer, event, failure, simulated};
use futures::StreamExt;
use pleg_cri::{CriRuntime, Events, v1};
use pleg_runtime::Runtime;
use pleg_runtime::core::{CallError, CallErrorKind, EventType, RuntimeEvent};
use pleg_sim::{Mode, Sim};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::Status;

type Sent = Result<v1::ContainerEventResponse, Status>;

const SHORT: Duration = Duration::from_millis(150);
const LONG: Duration = Duration::from_secs(10);

fn fake() -> (Fake, mpsc::Sender<Sent>) {
    let (sender, receiver) = mpsc::channel(16);
    let fake = Fake::with(|s| (s.events, s.delay_headers) = (Some(receiver), true));
    (fake, sender)
}

async fn next(events: &mut Events) -> Option<Result<RuntimeEvent, CallError>> {
    timeout(LONG, events.next()).await.expect("in time")
}

async fn next_id(events: &mut Events) -> String {
    next(events).await.unwrap().unwrap().id.to_string()
}

#[tokio::test]
async fn event_stream_is_pending_until_its_first_event_arrives() {
    let (fake, sender) = fake();
    let server = fake.serve();
    // The event stream stays open for longer than the deadline of calls.
    let config = server
        .config()
        .with_call_deadline(Duration::from_millis(20));
    let runtime = CriRuntime::new(config).unwrap();
    let mut events = runtime.subscribe().await.unwrap();
    timeout(SHORT, std::future::pending::<()>())
        .await
        .unwrap_err();
    assert!(
        fake.calls().is_empty(),
        "the call starts with the first poll"
    );
    let calls = async {
        loop {
            let polled = timeout(SHORT, events.next()).await;
            polled.expect_err("no event yet");
            let calls = fake.calls();
            if !calls.is_empty() {
                return calls;
            }
        }
    };
    let calls = timeout(LONG, calls).await.expect("the call in time");
    assert_eq!(calls, ["GetContainerEvents"]);
    for id in ["a", "b", "c"] {
        sender.send(Ok(event(id))).await.unwrap();
    }
    let first = next(&mut events).await.unwrap().unwrap();
    assert_eq!((first.id.as_str(), first.event), ("a", EventType::Started));
    assert_eq!(
        (next_id(&mut events).await, next_id(&mut events).await),
        ("b".into(), "c".into())
    );
    timeout(SHORT, events.next())
        .await
        .expect_err("no more events");
}

#[tokio::test]
async fn ended_event_stream_keeps_returning_none() {
    let (fake, sender) = fake();
    let server = fake.serve();
    let mut events = server.client().subscribe().await.unwrap();
    sender.send(Ok(event("a"))).await.unwrap();
    drop(sender);
    assert_eq!(next_id(&mut events).await, "a");
    assert!(next(&mut events).await.is_none());
    assert!(next(&mut events).await.is_none());
}

#[tokio::test]
async fn event_stream_ends_at_once_if_runtime_disables_events() {
    let (fake, sender) = fake();
    drop(sender);
    let server = fake.serve();
    let mut events = server.client().subscribe().await.unwrap();
    assert!(next(&mut events).await.is_none());
}

#[tokio::test]
async fn event_stream_ends_after_an_error() {
    let (fake, sender) = fake();
    let server = fake.serve();
    let runtime = server.client();
    let mut events = runtime.subscribe().await.unwrap();
    sender.send(Ok(event("a"))).await.unwrap();
    sender.send(Err(Status::aborted("enough"))).await.unwrap();
    assert_eq!(next_id(&mut events).await, "a");
    let error = next(&mut events).await.unwrap().unwrap_err();
    assert_eq!(
        failure(&error),
        ("GetContainerEvents", CallErrorKind::Failed)
    );
    assert!(next(&mut events).await.is_none());
    // The fake runtime returns `Unimplemented` for a second event stream.
    let mut events = runtime.subscribe().await.unwrap();
    let error = next(&mut events).await.unwrap().unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Unimplemented);
    assert!(next(&mut events).await.is_none());
}

#[tokio::test]
async fn event_stream_fails_as_unavailable_when_its_connection_is_lost() {
    for had_event in [false, true] {
        let (fake, sender) = fake();
        let server = fake.serve();
        let mut events = server.client().subscribe().await.unwrap();
        if had_event {
            sender.send(Ok(event("a"))).await.unwrap();
            assert_eq!(next_id(&mut events).await, "a");
        } else {
            timeout(SHORT, events.next())
                .await
                .expect_err("no event yet");
        }
        drop(server);
        let error = next(&mut events).await.unwrap().unwrap_err();
        assert_eq!(
            error.kind,
            CallErrorKind::Unavailable,
            "{had_event} {error:?}"
        );
        assert!(next(&mut events).await.is_none());
    }
}

#[tokio::test]
async fn event_above_message_limit_ends_event_stream() {
    let (fake, sender) = fake();
    let server = fake.serve();
    let runtime = CriRuntime::new(server.config().with_message_limit(1 << 20)).unwrap();
    let mut events = runtime.subscribe().await.unwrap();
    sender.send(Ok(event(&"x".repeat(2 << 20)))).await.unwrap();
    let error = next(&mut events).await.unwrap().unwrap_err();
    assert_eq!(error.kind, CallErrorKind::TooLarge);
    assert!(next(&mut events).await.is_none());
}

#[tokio::test]
async fn event_without_id_is_skipped() {
    let (fake, sender) = fake();
    let server = fake.serve();
    let mut events = server.client().subscribe().await.unwrap();
    sender.send(Ok(event(""))).await.unwrap();
    sender.send(Ok(event("a"))).await.unwrap();
    assert_eq!(next_id(&mut events).await, "a");
}

#[tokio::test]
async fn subscribe_without_a_running_runtime_fails_as_unavailable() {
    let server = TestServer::stopped();
    let error = server.client().subscribe().await.unwrap_err();
    assert_eq!(
        failure(&error),
        ("GetContainerEvents", CallErrorKind::Unavailable)
    );
}

#[tokio::test]
async fn other_subscriber_is_a_hazard_only_if_runtime_splits_events() {
    for (mode, is_shared) in [(Mode::Containerd17, true), (Mode::Containerd2, false)] {
        let sim = Arc::new(Sim::builder().mode(mode).build());
        assert_eq!(simulated(&sim).stream_hazard().await, Ok(None));
        let runtime = simulated(&sim).with_subscriber_check(|| Some("a kubelet runs".to_owned()));
        let why = runtime.stream_hazard().await.unwrap().unwrap_or_default();
        assert_eq!(why.ends_with("and a kubelet runs"), is_shared, "{why}");
        sim.shutdown().await;
    }
}
