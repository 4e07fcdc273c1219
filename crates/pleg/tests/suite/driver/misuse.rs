//! Tests uses of the API that once failed silently: each now works, or causes a warning or a clear error.

#![deny(unfulfilled_lint_expectations)]

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use pleg::core::{CallErrorKind, EventType, Settings};
use pleg::{Clock, ContainerState, Instant, Pleg, StartError, WaitError};

use crate::support::{FakeRuntime, MINUTE, exited, pass, rarely, soon, synced};

/// Expects that each of these statements causes the compiler warning `unused_must_use`.
macro_rules! must_be_used {
    ($($result:expr;)*) => {
        $(#[expect(unused_must_use)] { $result; })*
    };
}

#[tokio::test(start_paused = true)]
async fn ignoring_a_new_handle_causes_a_compiler_warning() {
    let pleg = synced(&FakeRuntime::new(), rarely()).await;
    let mut builder = Pleg::builder(FakeRuntime::new());
    must_be_used! {
        Pleg::builder(FakeRuntime::new());
        Pleg::builder(FakeRuntime::new()).spawn().unwrap();
        builder.subscribe();
        builder.register_consumer("kubelet");
        builder.upstream_fifo();
        pleg.pod(&"p".into());
        pleg.subscribe();
        pleg.subscribe().events();
        pleg.subscribe_pod(&"p".into());
        pleg.register_consumer("kubelet").await.unwrap();
        pleg.health();
    }
}

/// The caller changed the container with a client that has its own clock.
#[tokio::test(start_paused = true)]
async fn caller_can_wait_with_an_instant_of_another_clock() {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let pleg = synced(&node, rarely()).await;
    pass(&pleg, MINUTE / 2).await;
    let other = Clock::start();
    node.put(exited("p", "c", 1));
    let ended = other.now();
    let view = soon(pleg.newer_than(&"p".into(), ended, MINUTE)).await;
    let status = view.unwrap().status;
    let container = status.container("c").unwrap();
    assert_eq!(container.state, ContainerState::Exited);
}

#[tokio::test(start_paused = true)]
async fn loop_over_events_ends_only_when_the_generator_ends() {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let mut builder = Pleg::builder(node.clone());
    let mut events = builder.subscribe().events();
    let pleg = builder.spawn().unwrap();
    soon(pleg.wait_until_synced()).await.unwrap();
    let mut seen = 0;
    while let Some(event) = soon(events.next()).await {
        seen += 1;
        match event.initial {
            true if seen == 2 => node.put_and_emit(exited("p", "c", 1), EventType::Stopped),
            true => {}
            false => pleg.shutdown().await,
        }
    }
    assert_eq!(seen, 3);
}

#[tokio::test(start_paused = true)]
async fn pod_handle_does_not_keep_the_generator_running() {
    let node = FakeRuntime::new();
    let pleg = synced(&node, Settings::default()).await;
    let (mut pod, now) = (pleg.pod(&"p".into()), pleg.now());
    drop(pleg);
    assert!(!soon(pod.changed()).await);
    assert_eq!(pod.newer_than(now, MINUTE).await, Err(WaitError::Closed));
}

/// In an earlier version, a caller kept getting the last status without an error after the generator had ended.
#[tokio::test(start_paused = true)]
async fn pod_status_is_an_error_after_the_generator_ended() {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let pleg = synced(&node, Settings::default()).await;
    let p = "p".into();
    assert_eq!(pleg.get(&p).status.error, None);
    pleg.shutdown().await;
    for view in [pleg.get(&p), pleg.snapshot().remove(0)] {
        let error = view.status.error.clone().unwrap();
        assert_eq!(error.kind, CallErrorKind::Unavailable);
        assert_eq!(error.to_string(), "pleg: the generator has shut down");
    }
    let answer = pleg.newer_than(&p, Instant::ORIGIN, MINUTE).await;
    assert_eq!(answer, Err(WaitError::Closed));
}

#[test]
fn spawn_outside_of_a_tokio_runtime_is_an_error() {
    let error = Pleg::builder(FakeRuntime::new()).spawn().unwrap_err();
    assert_eq!(error, StartError::NoRuntime);
}

/// `newer_than` needs a timer. On executors without tokio's timers, an earlier version of it panicked.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn newer_than_works_on_executors_without_tokio_timers() {
    let pleg = synced(&FakeRuntime::new(), Settings::default()).await;
    let wait = move || {
        let (uid, now) = ("p".into(), pleg.now());
        let mut wait = pin!(pleg.newer_than(&uid, now, MINUTE));
        let mut context = Context::from_waker(Waker::noop());
        loop {
            match wait.as_mut().poll(&mut context) {
                Poll::Ready(answer) => return answer,
                Poll::Pending => std::thread::yield_now(),
            }
        }
    };
    let answer = std::thread::spawn(wait).join().unwrap();
    assert!(!answer.unwrap().status.exists());
}
