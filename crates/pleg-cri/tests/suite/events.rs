//! The event stream: when it opens, what it hands over, how it ends.
use std::time::Duration;

use crate::common::{Fake, Told, client, config, event};
use futures::StreamExt;
use pleg_cri::{CriRuntime, Events, v1};
use pleg_runtime::Runtime;
use pleg_runtime::core::{CallError, CallErrorKind, EventType, RuntimeEvent};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::Status;

type Sent = Result<v1::ContainerEventResponse, Status>;

const A_WHILE: Duration = Duration::from_millis(150);
const LONG: Duration = Duration::from_secs(10);

fn fake() -> (Fake, mpsc::Sender<Sent>) {
    let (sender, receiver) = mpsc::channel(16);
    (
        Fake::told(Told {
            events: Some(receiver),
            withhold_head: true,
            ..Told::default()
        }),
        sender,
    )
}

async fn next(events: &mut Events) -> Option<Result<RuntimeEvent, CallError>> {
    timeout(LONG, events.next()).await.expect("in time")
}

async fn next_id(events: &mut Events) -> String {
    next(events).await.unwrap().unwrap().id.to_string()
}

#[tokio::test]
async fn the_stream_is_pending_until_the_first_event_and_then_delivers_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let (fake, sender) = fake();
    let _serving = fake.serve(&path);
    // The deadline of calls is not the stream's.
    let hasty = config(&path).with_call_deadline(Duration::from_millis(20));
    let runtime = CriRuntime::new(hasty).unwrap();
    let mut events = runtime.subscribe().await.unwrap();
    timeout(A_WHILE, std::future::pending::<()>())
        .await
        .unwrap_err();
    assert!(
        fake.calls().is_empty(),
        "nothing is issued before the first poll"
    );
    timeout(A_WHILE, events.next())
        .await
        .expect_err("nothing to tell yet");
    assert_eq!(fake.calls(), ["GetContainerEvents"]);
    for id in ["a", "b", "c"] {
        sender.send(Ok(event(id))).await.unwrap();
    }
    let first = next(&mut events).await.unwrap().unwrap();
    assert_eq!((first.id.as_str(), first.event), ("a", EventType::Started));
    assert_eq!(
        (next_id(&mut events).await, next_id(&mut events).await),
        ("b".into(), "c".into())
    );
    timeout(A_WHILE, events.next())
        .await
        .expect_err("nothing more yet");
}

#[tokio::test]
async fn the_end_is_none_and_stays_none() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let (fake, sender) = fake();
    let _serving = fake.serve(&path);
    let mut events = client(&path).subscribe().await.unwrap();
    sender.send(Ok(event("a"))).await.unwrap();
    drop(sender);
    assert_eq!(next_id(&mut events).await, "a");
    assert!(next(&mut events).await.is_none());
    assert!(next(&mut events).await.is_none());
}

#[tokio::test]
async fn a_stream_that_is_switched_off_ends_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let (fake, sender) = fake();
    drop(sender);
    let _serving = fake.serve(&path);
    let mut events = client(&path).subscribe().await.unwrap();
    assert!(next(&mut events).await.is_none());
}

#[tokio::test]
async fn an_error_is_told_and_then_it_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let (fake, sender) = fake();
    let _serving = fake.serve(&path);
    let runtime = client(&path);
    let mut events = runtime.subscribe().await.unwrap();
    sender.send(Ok(event("a"))).await.unwrap();
    sender.send(Err(Status::aborted("enough"))).await.unwrap();
    assert_eq!(next_id(&mut events).await, "a");
    let error = next(&mut events).await.unwrap().unwrap_err();
    assert_eq!(
        (error.operation, error.kind),
        ("GetContainerEvents", CallErrorKind::Failed)
    );
    assert!(next(&mut events).await.is_none());
    // The fake has no second stream to give.
    let mut events = runtime.subscribe().await.unwrap();
    let error = next(&mut events).await.unwrap().unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Unimplemented);
    assert!(next(&mut events).await.is_none());
}

#[tokio::test]
async fn a_stream_that_is_cut_is_unavailable_whether_it_lived_or_not() {
    for lived in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let (fake, sender) = fake();
        let serving = fake.serve(&path);
        let mut events = client(&path).subscribe().await.unwrap();
        if lived {
            sender.send(Ok(event("a"))).await.unwrap();
            assert_eq!(next_id(&mut events).await, "a");
        } else {
            timeout(A_WHILE, events.next())
                .await
                .expect_err("nothing to tell yet");
        }
        drop(serving);
        let error = next(&mut events).await.unwrap().unwrap_err();
        assert_eq!(error.kind, CallErrorKind::Unavailable, "{lived} {error:?}");
        assert!(next(&mut events).await.is_none());
    }
}

#[tokio::test]
async fn an_event_over_the_limit_ends_the_stream() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let (fake, sender) = fake();
    let _serving = fake.serve(&path);
    let runtime = CriRuntime::new(config(&path).with_message_limit(1 << 20)).unwrap();
    let mut events = runtime.subscribe().await.unwrap();
    sender.send(Ok(event(&"x".repeat(2 << 20)))).await.unwrap();
    let error = next(&mut events).await.unwrap().unwrap_err();
    assert_eq!(error.kind, CallErrorKind::TooLarge);
    assert!(next(&mut events).await.is_none());
}

#[tokio::test]
async fn an_event_about_nothing_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let (fake, sender) = fake();
    let _serving = fake.serve(&path);
    let mut events = client(&path).subscribe().await.unwrap();
    sender.send(Ok(event(""))).await.unwrap();
    sender.send(Ok(event("a"))).await.unwrap();
    assert_eq!(next_id(&mut events).await, "a");
}

#[tokio::test]
async fn there_is_no_stream_without_a_connection() {
    let dir = tempfile::tempdir().unwrap();
    let error = client(&dir.path().join("s")).subscribe().await.unwrap_err();
    assert_eq!(
        (error.operation, error.kind),
        ("GetContainerEvents", CallErrorKind::Unavailable)
    );
}
