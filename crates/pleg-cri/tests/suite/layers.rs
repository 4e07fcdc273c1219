//! Tests that Tower layers wrap every call, and that every call has a span.

use std::io;
use std::sync::{Arc, Mutex};

use futures::{FutureExt as _, StreamExt as _};
use pleg_cri::{CallRequest, CallService};
use pleg_runtime::core::{CallError, CallErrorKind};
use pleg_runtime::{Runtime as _, Scope};
use pleg_sim::Sim;
use tower::layer::layer_fn;
use tower::util::MapRequestLayer;
use tower::{BoxError, ServiceExt as _, service_fn};
use tracing::Dispatch;
use tracing::subscriber::NoSubscriber;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::common::simulated;

#[tokio::test]
async fn tower_layer_sees_every_call() {
    let sim = Arc::new(Sim::builder().build());
    let paths = Arc::new(Mutex::new(vec![]));
    let seen = paths.clone();
    let record = MapRequestLayer::new(move |request: CallRequest| {
        let name = request.uri().path().rsplit('/').next();
        seen.lock().unwrap().push(name.unwrap().to_owned());
        request
    });
    let runtime = simulated(&sim).with_layer(record);
    runtime.version().await.unwrap();
    let scope = Scope::Node;
    runtime.list_sandboxes(&scope, &mut |_| ()).await.unwrap();
    // The call starts with the first poll.
    let mut events = runtime.subscribe().await.unwrap();
    assert!(events.next().now_or_never().is_none());
    runtime.client().list_images().await.unwrap();
    let seen = || paths.lock().unwrap().clone();
    for call in [
        "Version",
        "StreamPodSandboxes",
        "GetContainerEvents",
        "ListImages",
    ] {
        assert!(
            seen().iter().any(|path| path == call),
            "{call}: {:?}",
            seen()
        );
    }
    sim.shutdown().await;
}

fn missing() -> CallError {
    CallError::new("ListImages", CallErrorKind::NotFound, "injected")
}

#[tokio::test]
async fn error_of_a_tower_layer_fails_the_call() {
    let sim = Arc::new(Sim::builder().build());
    let inject = layer_fn(|inner: CallService| {
        service_fn(move |request: CallRequest| {
            let inner = inner.clone();
            async move {
                match request.uri().path().rsplit('/').next() {
                    Some("Version") => Err(BoxError::from(io::Error::other("no route"))),
                    Some("ListImages") => Err(BoxError::from(missing())),
                    _ => inner.oneshot(request).await,
                }
            }
        })
    });
    let runtime = simulated(&sim).with_layer(inject);
    let error = runtime.version().await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Unavailable, "{error:?}");
    assert!(error.message.contains("no route"), "{error:?}");
    let client = runtime.client();
    let error = client.list_images().await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::NotFound, "{error:?}");
    client.status().await.unwrap();
    sim.shutdown().await;
}

#[tokio::test]
async fn tower_layer_that_is_added_last_is_the_outermost() {
    let sim = Arc::new(Sim::builder().build());
    let order = Arc::new(Mutex::new(vec![]));
    let mark = |name: &'static str| {
        let order = order.clone();
        MapRequestLayer::new(move |request: CallRequest| {
            order.lock().unwrap().push(name);
            request
        })
    };
    let runtime = simulated(&sim)
        .with_layer(mark("first"))
        .with_layer(mark("last"));
    runtime.version().await.unwrap();
    assert_eq!(*order.lock().unwrap(), ["last", "first"]);
    sim.shutdown().await;
}

#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl io::Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Text {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn call_runs_in_a_tracing_span_with_operation_and_id() {
    let text = Text::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::DEBUG)
        .with_span_events(FmtSpan::NEW)
        .with_ansi(false)
        .with_writer(text.clone())
        .finish();
    // With only one subscriber, tracing decides once per span if it is enabled: in the first thread that reaches the
    // span. That may be the thread of another test, which has no subscriber. A second subscriber prevents this.
    let _second = Dispatch::new(NoSubscriber::new());
    let _default = tracing::subscriber::set_default(subscriber);
    let sim = Arc::new(Sim::builder().build());
    let runtime = simulated(&sim);
    let id = "c1".into();
    runtime.container_status(&id).await.unwrap_err();
    runtime.client().remove_container(&id).await.result.unwrap();
    let lines = String::from_utf8(text.0.lock().unwrap().clone()).unwrap();
    for span in [
        r#"cri{operation="ContainerStatus" id="c1"}"#,
        r#"cri{operation="RemoveContainer" id="c1"}"#,
    ] {
        assert!(lines.contains(span), "{span}: {lines}");
    }
    sim.shutdown().await;
}
