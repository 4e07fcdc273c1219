//! The proxy that the tests on real containerd put in front of a daemon.

use pleg::runtime::Runtime;
use pleg_cri::{CriConfig, CriRuntime, v1};
use pleg_sim::Sim;
use pleg_tests::kubelet::Kubelet;
use pleg_tests::stream_proxy::{Stream, StreamProxy};
use tonic::Code;

#[tokio::test(flavor = "multi_thread")]
async fn event_stream_ends_and_is_refused_while_calls_are_forwarded() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let sim = Sim::builder().seed(1).build();
    let socket = dir.path().join("sim.sock");
    let _serving = sim.serve_unix(&socket, std::future::pending())?;
    let behind = format!("unix://{}", socket.display()).parse()?;
    let proxy = StreamProxy::start(&dir.path().join("proxy.sock"), &behind, Stream::Forwarded)?;
    let runtime = CriRuntime::new(CriConfig::new(proxy.endpoint.clone()))?;
    let kubelet = Kubelet::at(&proxy.endpoint, "app:1", "", dir.path())?;
    let subscribe = async || {
        let request = v1::GetEventsRequest::default();
        runtime.runtime_client().get_container_events(request).await
    };

    // The headers may arrive with the first event.
    let (subscribed, pod) = tokio::join!(subscribe(), async {
        sim.wait_for_subscribers(1).await;
        kubelet.run_pod("first").await
    });
    let mut events = subscribed?.into_inner();
    let event = events.message().await?;
    assert_eq!(
        event.map(|e| e.container_id),
        Some(pod?.sandbox.to_string())
    );
    assert_eq!(proxy.forwarded(), 1);

    proxy.set(Stream::Away);
    // Events in flight arrive first.
    let end = loop {
        if let Err(end) = events.message().await {
            break end;
        }
    };
    assert_eq!(end.code(), Code::Unavailable, "{end}");
    let refused = subscribe().await.err().map(|e| e.code());
    assert_eq!(refused, Some(Code::Unavailable));
    proxy.set(Stream::NeverOffered);
    let refused = subscribe().await.err().map(|e| e.code());
    assert_eq!(refused, Some(Code::Unimplemented));
    runtime.version().await?;

    proxy.set(Stream::Forwarded);
    // The runtime may send some events to the closed subscriber.
    let pods = async {
        for n in 0.. {
            kubelet.run_pod(&format!("later-{n}")).await?;
        }
        anyhow::Ok(())
    };
    let subscribed = tokio::select! {
        subscribed = subscribe() => subscribed?,
        failed = pods => return failed,
    };
    assert!(subscribed.into_inner().message().await?.is_some());
    assert_eq!(proxy.forwarded(), 2);
    Ok(())
}
