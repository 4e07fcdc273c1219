//! Runs the agent's container image in a pod like that of `deploy/kubernetes/daemonset.yaml`. The agent watches the
//! runtime that runs this pod.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::bail;
use pleg_cri::v1;
use pleg_tests::daemon::{Daemon, Version};
use pleg_tests::environment::built;
use pleg_tests::wait::until;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::{SOON, with_daemon};

const IMAGE: &str = "localhost/pleg:test";
/// The directory in which the agent finds the runtime's socket.
const MOUNTED: &str = "/run/containerd";

#[tokio::test(flavor = "multi_thread")]
async fn agent_in_a_pod_reads_the_runtime_that_runs_it() -> anyhow::Result<()> {
    with_daemon(Version::V2, async |daemon| {
        let archive = daemon.dir.join("pleg.tar");
        build(&archive)?;
        daemon.import(&archive, IMAGE)?;
        let logs = daemon.dir.join("logs");
        start(daemon, &logs).await?;
        let log = logs.join("agent.log");
        let address = until(SOON, "the address", || async { address(&log) }).await?;
        let page = until(SOON, "ready", || async {
            let page = get(&address, "/readyz?verbose").await.ok()?;
            page.starts_with("HTTP/1.1 200 ").then_some(page)
        });
        let page = page.await?;
        assert!(page.contains("[+]list ok"), "{page}");
        for line in [
            "pleg_running_pods 1\n",
            "pleg_running_containers{container_state=\"running\"} 1\n",
            "pleg_runtime_info{name=\"containerd\",",
        ] {
            until(SOON, line, || async {
                let metrics = get(&address, "/metrics").await.ok()?;
                metrics.contains(line).then_some(())
            })
            .await?;
        }
        Ok(())
    })
    .await
}

/// Builds the image from the program that cargo has built with this test.
fn build(archive: &Path) -> anyhow::Result<()> {
    let program = built("pleg")?;
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../scripts/image.py");
    let mut command = Command::new(script);
    let built = command.arg(program).arg(archive).arg(IMAGE).output()?;
    if !built.status.success() {
        bail!("{}", String::from_utf8_lossy(&built.stderr));
    }
    Ok(())
}

/// Starts the pod of the daemon set, in the network and PID namespaces of the host.
async fn start(daemon: &Daemon, logs: &Path) -> anyhow::Result<()> {
    let node = v1::NamespaceOption {
        network: v1::NamespaceMode::Node.into(),
        pid: v1::NamespaceMode::Node.into(),
        ..v1::NamespaceOption::default()
    };
    let pod = v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: "pleg-agent".to_owned(),
            uid: "uid-agent".to_owned(),
            namespace: "pleg".to_owned(),
            attempt: 0,
        }),
        log_directory: logs.to_string_lossy().into_owned(),
        labels: [("io.kubernetes.pod.uid".to_owned(), "uid-agent".to_owned())].into(),
        linux: Some(v1::LinuxPodSandboxConfig {
            cgroup_parent: daemon.cgroup.clone(),
            security_context: Some(v1::LinuxSandboxSecurityContext {
                namespace_options: Some(node.clone()),
                ..v1::LinuxSandboxSecurityContext::default()
            }),
            ..v1::LinuxPodSandboxConfig::default()
        }),
        ..v1::PodSandboxConfig::default()
    };
    let client = daemon.runtime()?.client();
    let sandbox = client
        .run_pod_sandbox(pod.clone(), "")
        .await
        .into_result()?;
    let created = client.create_container(&sandbox, container(daemon, node), pod);
    let id = created.await.into_result()?;
    Ok(client.start_container(&id).await.into_result()?)
}

fn container(daemon: &Daemon, namespaces: v1::NamespaceOption) -> v1::ContainerConfig {
    let endpoint = format!("--runtime-endpoint=unix://{MOUNTED}/containerd.sock");
    let args = ["agent", &endpoint, "--listen=127.0.0.1:0"].map(str::to_owned);
    v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata {
            name: "agent".to_owned(),
            attempt: 0,
        }),
        image: Some(v1::ImageSpec {
            image: IMAGE.to_owned(),
            ..v1::ImageSpec::default()
        }),
        args: args.into(),
        log_path: "agent.log".to_owned(),
        labels: [
            ("io.kubernetes.pod.uid".to_owned(), "uid-agent".to_owned()),
            (
                "io.kubernetes.container.name".to_owned(),
                "agent".to_owned(),
            ),
        ]
        .into(),
        mounts: vec![v1::Mount {
            container_path: MOUNTED.to_owned(),
            host_path: daemon.dir.join("run").to_string_lossy().into_owned(),
            readonly: true,
            // Without the daemon set's HostToContainer: it needs a shared root mount, which a test machine may lack.
            ..v1::Mount::default()
        }],
        linux: Some(v1::LinuxContainerConfig {
            security_context: Some(v1::LinuxContainerSecurityContext {
                namespace_options: Some(namespaces),
                readonly_rootfs: true,
                no_new_privs: true,
                capabilities: Some(v1::Capability {
                    drop_capabilities: vec!["ALL".to_owned()],
                    add_capabilities: vec!["SYS_PTRACE".to_owned()],
                    ..v1::Capability::default()
                }),
                ..v1::LinuxContainerSecurityContext::default()
            }),
            ..v1::LinuxContainerConfig::default()
        }),
        ..v1::ContainerConfig::default()
    }
}

/// The address of the agent's HTTP server, which the agent writes to its log.
pub(crate) fn address(log: &Path) -> Option<String> {
    let log = std::fs::read_to_string(log).ok()?;
    let (_, rest) = log.split_once("; http://")?;
    Some(rest.split_once(' ')?.0.to_owned())
}

pub(crate) async fn get(address: &str, path: &str) -> anyhow::Result<String> {
    let call = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut response = String::new();
        stream.read_to_string(&mut response).await?;
        Ok(response)
    };
    tokio::time::timeout(SOON, call).await?
}
