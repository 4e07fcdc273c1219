//! Tests status calls, and calls that the simulator rejects.

use crate::common::{Client, container_config, namespaces, pod_config, sim, sim_with_mode};
use pleg_cri::v1;
use pleg_sim::Mode;
use tonic::Code;

#[tokio::test]
async fn status_calls_return_metadata_address_image_and_resources() {
    let sim = sim().build();
    let mut cri = Client::connect(&sim).await;
    let s = cri.run("p").await;
    let response = cri.sandbox_status(&s).await.unwrap();
    let filled = (response.timestamp, response.containers_statuses.len());
    assert_eq!(filled, (0, 0), "containerd sets neither");
    let status = response.status.unwrap();
    assert_eq!(status.metadata, pod_config("p").metadata);
    assert_eq!(status.labels["pod"], "p");
    assert_eq!(status.network.unwrap().ip, "10.88.0.1");

    let a = cri.create(&s, "a", 2, "").await;
    let status = cri.status(&a).await.unwrap();
    assert_eq!(status.metadata, container_config("a", 2, "").metadata);
    assert!(status.image_ref.starts_with("sha256:"));
    assert_eq!((status.started_at, status.finished_at), (0, 0));
    let resources = v1::LinuxContainerResources {
        cpu_shares: 512,
        ..Default::default()
    };
    let request = v1::UpdateContainerResourcesRequest {
        container_id: a.clone(),
        linux: Some(resources.clone()),
        ..Default::default()
    };
    cri.0.update_container_resources(request).await.unwrap();
    let updated = cri.status(&a).await.unwrap().resources.unwrap();
    assert_eq!(updated.linux.unwrap(), resources);

    let mut host = pod_config("h");
    namespaces(&mut host).network = v1::NamespaceMode::Node.into();
    let request = v1::RunPodSandboxRequest {
        config: Some(host),
        runtime_handler: "runc".into(),
    };
    let h = cri.0.run_pod_sandbox(request).await.unwrap().into_inner();
    let status = cri.sandbox_status(&h.pod_sandbox_id).await.unwrap();
    let status = status.status.unwrap();
    let shown = (status.network.unwrap().ip, &*status.runtime_handler);
    assert_eq!(shown, (String::new(), "runc"));
    sim.shutdown().await;
}

#[tokio::test]
async fn simulator_rejects_invalid_calls_with_codes_of_containerd() {
    let sim = sim().build();
    let mut cri = Client::connect(&sim).await;
    let s = cri.run("p").await;
    let a = cri.create_and_start(&s, "a", "").await;
    let q = cri.run("q").await;
    let b = cri.create(&q, "b", 0, "").await;
    cri.stop_sandbox(&q).await;
    let mut creating = cri.clone();
    let mut create = async |sandbox: &str, name| {
        let config = container_config(name, 0, "");
        let created = creating.try_create(sandbox, config, Default::default());
        created.await.map(drop)
    };
    let unknown = "0".repeat(64);
    let not_found = format!("{unknown:?}: not found");
    let not_ready = format!("sandbox container {q:?} is not running");
    let pod_taken = format!("name \"p_default_uid-p_0\" is reserved for {s:?}");
    let taken = format!("name \"a_p_default_uid-p_0\" is reserved for {a:?}");
    let running = "container is in CONTAINER_RUNNING state";
    for (call, message) in [
        (cri.try_run(pod_config("p")).await.map(drop), &*pod_taken),
        (cri.status(&unknown).await.map(drop), &not_found),
        (cri.sandbox_status(&unknown).await.map(drop), &not_found),
        (cri.try_start(&unknown).await, &not_found),
        (create(&unknown, "a").await, &not_found),
        (create(&s, "a").await, &taken),
        (create(&q, "c").await, &not_ready),
        (cri.try_start(&b).await, &not_ready),
        (cri.try_start(&a).await, running),
    ] {
        let error = call.unwrap_err();
        let is_missing = error.code() == Code::NotFound;
        assert_eq!(is_missing, message == not_found, "{error}");
        assert!(is_missing || error.code() == Code::Unknown, "{error}");
        assert!(error.message().ends_with(message), "{error}, not {message}");
    }
    // The runtime returns no error if there is nothing to stop or remove.
    cri.stop(&unknown, 0).await;
    cri.remove(&unknown).await;
    cri.stop_sandbox(&unknown).await;
    cri.remove_sandbox(&unknown).await;
    cri.stop(&a, 0).await;
    let request = v1::ExecSyncRequest {
        container_id: a,
        ..Default::default()
    };
    let exited = cri.0.exec_sync(request).await.unwrap_err();
    assert_eq!(exited.message(), "container is in CONTAINER_EXITED state");
    sim.shutdown().await;
}

/// conmon of CRI-O opens the log and does not make its directory. containerd makes the directory.
#[tokio::test]
async fn crio_refuses_a_container_whose_log_directory_is_missing() {
    for (mode, is_refused) in [(Mode::Crio, true), (Mode::Containerd2, false)] {
        let sim = sim_with_mode(mode);
        let mut cri = Client::connect(&sim).await;
        let mut pod = pod_config("p");
        pod.log_directory = "relative".to_owned();
        assert_eq!(cri.try_run(pod.clone()).await.is_err(), is_refused);
        let sandbox = cri.run("q").await;
        let mut config = container_config("c", 0, "");
        config.log_path = "c/0.log".to_owned();
        let created = cri.try_create(&sandbox, config, pod).await;
        assert_eq!(created.is_err(), is_refused, "{mode}: {created:?}");
        sim.shutdown().await;
    }
}
