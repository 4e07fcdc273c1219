//! Real unix sockets in real time: a server that is killed and replaced by another one, and a reply that
//! is larger than the limit.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use pleg::core::{CallErrorKind, Degraded, LifecycleType, NotReady, Settings, StreamState};
use pleg::{Pleg, Subscription};
use pleg_cri::v1::runtime_service_server::{RuntimeService as _, RuntimeServiceServer};
use pleg_cri::{CriConfig, CriRuntime, Endpoint, v1};
use pleg_sim::Sim;
use pleg_tests::check::{Announcements, cached, compare_cache, listing};
use pleg_tests::kubelet::Kubelet;
use pleg_tests::wait::{until, until_ok};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::Request;
use tonic::transport::Server;

/// Long enough for any machine.
const SOON: Duration = Duration::from_secs(30);
/// The child reads from these where it serves, and the prefix of its pods.
const SOCKET: &str = "PLEG_FAULTS_SOCKET";
const PREFIX: &str = "PLEG_FAULTS_PREFIX";
/// Pods of each server.
const PODS: usize = 8;

fn endpoint(path: &Path) -> anyhow::Result<Endpoint> {
    Ok(format!("unix://{}", path.display()).parse()?)
}

fn client(path: &Path) -> anyhow::Result<CriRuntime> {
    Ok(CriRuntime::new(CriConfig::new(endpoint(path)?))?)
}

/// Not a test: the process that is killed. Serves pods on a socket until then.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "it is the process that another test kills"]
async fn serve_until_killed() -> anyhow::Result<()> {
    let (Ok(socket), Ok(prefix)) = (std::env::var(SOCKET), std::env::var(PREFIX)) else {
        return Ok(());
    };
    let seed = prefix.bytes().map(u64::from).sum();
    let sim = Sim::builder().seed(seed).build();
    let serving = sim.serve_unix(&socket, std::future::pending())?;
    let kubelet = Kubelet::at(
        &endpoint(Path::new(&socket))?,
        "app:1",
        "",
        Path::new("/tmp"),
    )?;
    for n in 0..PODS {
        kubelet.run_pod(&format!("{prefix}-{n}")).await?;
    }
    serving.stopped().await;
    Ok(())
}

/// A runtime in a process of its own.
struct Killable(Child);

impl Killable {
    /// Starts a server and waits until it serves its pods.
    async fn start(socket: &Path, prefix: &str) -> anyhow::Result<Self> {
        let child = Command::new(std::env::current_exe()?)
            .args(["--exact", "sockets::serve_until_killed", "--ignored"])
            .env(SOCKET, socket)
            .env(PREFIX, prefix)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        let server = Self(child);
        until(SOON, "it serves its pods", || async {
            let listed = listing(&client(socket).ok()?).await.ok()?;
            (listed.len() == PODS).then_some(())
        })
        .await?;
        Ok(server)
    }

    /// Sends SIGKILL. Only the socket is left.
    fn kill(mut self) -> anyhow::Result<()> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Killable {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_evented(pleg: &Pleg) -> bool {
    let is_confirmed = |s: &StreamState| {
        matches!(
            s,
            StreamState::Subscribed {
                confirmed: true,
                ..
            }
        )
    };
    is_confirmed(&pleg.health().current().stream) && pleg.health().degraded().is_empty()
}

async fn evented(pleg: &Pleg) -> anyhow::Result<()> {
    until(SOON, "it is evented", || {
        let evented = is_evented(pleg);
        async move { evented.then_some(()) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_server_is_replaced_by_another() -> anyhow::Result<()> {
    let dir = tempfile::Builder::new().prefix("pleg").tempdir()?;
    let socket = dir.path().join("cri.sock");
    let first = Killable::start(&socket, "first").await?;
    let mut builder = Pleg::builder(client(&socket)?);
    let mut events: Subscription = builder.subscribe();
    let pleg = builder.spawn()?;
    pleg.wait_until_synced().await?;
    evented(&pleg).await?;
    let before = cached(&pleg);
    assert_eq!(before.len(), PODS);

    let killed = pleg.now();
    first.kill()?;
    assert!(socket.exists(), "the killed server has removed its socket");
    let degraded = |what: &'static str| {
        let pleg = &pleg;
        move || {
            let degraded = pleg.health().degraded();
            let reported = degraded.iter().any(|d| d.as_str() == what);
            async move { reported.then_some(()) }
        }
    };
    until(SOON, "the lost stream is reported", degraded("stream_down")).await?;
    until(SOON, "a list fails", degraded("list_failed")).await?;
    let reported_after = pleg.now().since(killed);
    assert_eq!(pleg.health().ready(), Ok(()));
    assert_eq!(cached(&pleg), before, "no removal was reported");

    let second = Killable::start(&socket, "second").await?;
    let back = pleg.now();
    let observer = client(&socket)?;
    until_ok(SOON, "the cache is right", || {
        compare_cache(&pleg, &observer)
    })
    .await?;
    let right = pleg.now().since(back);
    evented(&pleg).await?;
    println!(
        "killed: reported after {reported_after:?}; replaced: cache right after {right:?}, evented \
         after {:?}",
        pleg.now().since(back)
    );
    let kubelet = Kubelet::at(&endpoint(&socket)?, "app:1", "", dir.path())?;
    let pod = kubelet.run_pod("announced").await?;
    let mut announced = Announcements::default();
    until(SOON, "the start is announced", || {
        announced.drain(&mut events);
        let started = announced.has(&pod.sandbox, LifecycleType::ContainerStarted);
        async move { started.then_some(()) }
    })
    .await?;
    assert!(!announced.sources().contains_key("stream"));
    kubelet.stop_pod(&pod).await?;
    until(SOON, "the stream delivers an event", || {
        announced.drain(&mut events);
        let ended = announced.has(&pod.sandbox, LifecycleType::ContainerDied);
        async move { ended.then_some(()) }
    })
    .await?;
    assert!(announced.sources().contains_key("stream"));
    for id in before.keys() {
        assert!(announced.has(id, LifecycleType::ContainerRemoved), "{id}");
    }
    for id in cached(&pleg).keys() {
        assert!(announced.has(id, LifecycleType::ContainerStarted), "{id}");
    }
    let wrong = announced.wrong(&kubelet.objects());
    assert!(wrong.is_empty(), "{wrong:#?}");
    pleg.shutdown().await;
    second.kill()
}

/// A pod whose listing takes so many bytes.
async fn fat_pod(sim: &Sim, name: &str, bytes: usize) -> anyhow::Result<()> {
    let uid = format!("uid-{name}");
    let config = v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: name.to_owned(),
            uid: uid.clone(),
            namespace: "fat".to_owned(),
            attempt: 0,
        }),
        labels: [("io.kubernetes.pod.uid".to_owned(), uid)].into(),
        annotations: [("fat".to_owned(), "x".repeat(bytes))].into(),
        ..v1::PodSandboxConfig::default()
    };
    let request = v1::RunPodSandboxRequest {
        config: Some(config),
        ..v1::RunPodSandboxRequest::default()
    };
    sim.service().run_pod_sandbox(Request::new(request)).await?;
    Ok(())
}

/// Serves the same runtime without its own limit of messages.
fn serve_without_limit(sim: &Sim, path: PathBuf) -> anyhow::Result<tokio::task::JoinHandle<()>> {
    let listener = UnixListener::bind(path)?;
    let service = RuntimeServiceServer::new(sim.service()).max_encoding_message_size(usize::MAX);
    let serving = Server::builder()
        .add_service(service)
        .serve_with_incoming(UnixListenerStream::new(listener));
    Ok(tokio::spawn(async move {
        let _ = serving.await;
    }))
}

/// Lists grow to 17 MiB, and the limit is 16 MiB. Health reports that lists fail, and events are still
/// used. The node is unready as invariant 12 defines. With a higher limit nothing is degraded.
#[tokio::test(flavor = "multi_thread")]
async fn reply_over_the_limit_is_reported_with_the_limit() -> anyhow::Result<()> {
    let dir = tempfile::Builder::new().prefix("pleg").tempdir()?;
    let socket = dir.path().join("cri.sock");
    let sim = Arc::new(Sim::builder().seed(5).build());
    // The runtime's own limit is higher than the client's.
    sim.set_knob("list.limit=80MiB")?;
    let serving = serve_without_limit(&sim, socket.clone())?;
    fat_pod(&sim, "small", 10).await?;
    let mut settings = Settings::default();
    settings.relist_period = Duration::from_millis(200);
    settings.relist_period_max = Duration::from_secs(1);
    settings.relist_period_unproven = Duration::from_secs(1);
    settings.unready_after = Duration::from_secs(4);
    let pleg = Pleg::builder(client(&socket)?)
        .settings(settings.clone())
        .spawn()?;
    pleg.wait_until_synced().await?;
    evented(&pleg).await?;
    for n in 0..17 {
        fat_pod(&sim, &format!("fat-{n}"), 1 << 20).await?;
    }
    let error = until(SOON, "a list fails", || {
        let degraded = pleg.health().degraded();
        let error = degraded.into_iter().find_map(|d| match d {
            Degraded::ListFailed { error } => Some(error),
            _ => None,
        });
        async move { error }
    })
    .await?;
    assert_eq!(error.kind, CallErrorKind::TooLarge, "{error}");
    println!("{error}");
    assert!(
        error.to_string().contains("16777216"),
        "the error contains no limit: {error}"
    );
    let last = pleg.health().current().last_list;
    assert_eq!(pleg.health().ready(), Ok(()));
    until(SOON, "the stream has delivered all events", || {
        let all = cached(&pleg).len() == 18;
        async move { all.then_some(()) }
    })
    .await?;
    let why = until(SOON, "it is not ready", || {
        let why = pleg.health().ready().err();
        async move { why }
    })
    .await?;
    assert!(matches!(why, NotReady::Stale { .. }), "{why}");
    let silent = last.map(|l| pleg.now().since(l)).unwrap_or_default();
    assert!(silent > settings.unready_after, "{silent:?}");
    assert_eq!(pleg.health().current().last_list, last);
    pleg.shutdown().await;

    let config = CriConfig::new(endpoint(&socket)?).with_message_limit(80 << 20);
    let observer = CriRuntime::new(config.clone())?;
    let pleg = Pleg::builder(CriRuntime::new(config)?)
        .settings(settings)
        .spawn()?;
    pleg.wait_until_synced().await?;
    until_ok(SOON, "the cache is right", || {
        compare_cache(&pleg, &observer)
    })
    .await?;
    assert_eq!((pleg.health().ready(), cached(&pleg).len()), (Ok(()), 18));
    evented(&pleg).await?;
    pleg.shutdown().await;
    serving.abort();
    sim.shutdown().await;
    Ok(())
}
