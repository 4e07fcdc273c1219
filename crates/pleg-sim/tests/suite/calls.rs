//! Status calls, images, and calls that are rejected.

use crate::common::{Client, connect, container_config, pod_config, sim};
use pleg_cri::v1::{self, image_service_client::ImageServiceClient};
use pleg_sim::{Mode, Sim};
use tonic::Code;

#[tokio::test]
async fn status_calls_return_every_field() {
    let sim = sim().build();
    let mut cri = Client::connect(&sim).await;
    let s = cri.run("p").await;
    let response = cri.sandbox_status(&s).await.unwrap();
    let filled = (response.timestamp, response.containers_statuses.len());
    assert_eq!(filled, (0, 0), "containerd fills neither");
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
    let namespace_options = v1::NamespaceOption {
        network: v1::NamespaceMode::Node.into(),
        ..Default::default()
    };
    let security_context = v1::LinuxSandboxSecurityContext {
        namespace_options: Some(namespace_options),
        ..Default::default()
    };
    host.linux = Some(v1::LinuxPodSandboxConfig {
        security_context: Some(security_context),
        ..Default::default()
    });
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
async fn invalid_calls_are_rejected_with_codes_of_containerd() {
    let sim = sim().build();
    let mut cri = Client::connect(&sim).await;
    let s = cri.run("p").await;
    let create = async |cri: &mut Client, sandbox: &str, name| {
        let config = container_config(name, 0, "");
        let created = cri.try_create(sandbox, config, v1::PodSandboxConfig::default());
        created.await.unwrap_err()
    };
    let error = cri.try_run("p").await.unwrap_err();
    assert_eq!(error.code(), Code::Unknown);
    let reserved = "failed to reserve sandbox name \"p_default_uid-p_0\"";
    assert!(error.message().starts_with(reserved) && error.message().contains(&s));

    let unknown = "0".repeat(64);
    for missing in [
        cri.status(&unknown).await.map(drop),
        cri.sandbox_status(&unknown).await.map(drop),
        cri.try_start(&unknown).await,
    ] {
        assert_eq!(missing.unwrap_err().code(), Code::NotFound);
    }
    let missing = create(&mut cri, &unknown, "a").await;
    assert_eq!(missing.code(), Code::NotFound);
    // No error if there is nothing to stop or remove.
    cri.stop(&unknown, 0).await;
    cri.remove(&unknown).await;
    cri.stop_sandbox(&unknown).await;
    cri.remove_sandbox(&unknown).await;

    let a = cri.create_and_start(&s, "a", "").await;
    let again = cri.try_start(&a).await.unwrap_err();
    assert_eq!(again.message(), "container is in CONTAINER_RUNNING state");
    let taken = create(&mut cri, &s, "a").await;
    let reserved = "failed to reserve container name \"a_p_default_uid-p_0\"";
    assert!(taken.message().starts_with(reserved) && taken.message().contains(&a));
    let q = cri.run("q").await;
    let b = cri.create(&q, "b", 0, "").await;
    cri.stop_sandbox(&q).await;
    let not_ready = format!("sandbox container {q:?} is not running");
    let refused = cri.try_start(&b).await.unwrap_err();
    assert_eq!(refused.message(), not_ready);
    let refused = create(&mut cri, &q, "c").await;
    assert_eq!(refused.message(), not_ready);
    // `ExecSync` returns the exit code that the command specifies, and sends no event.
    for (command, code) in [("true", 0), ("false", 1), ("sh -c exit 3", 3)] {
        let request = v1::ExecSyncRequest {
            container_id: a.clone(),
            cmd: command.split_whitespace().map(str::to_owned).collect(),
            ..Default::default()
        };
        let response = cri.0.exec_sync(request).await.unwrap().into_inner();
        assert_eq!(response.exit_code, code, "{command}");
    }
    let request = v1::ExecSyncRequest {
        container_id: a.clone(),
        cmd: vec!["exit 0 60000".into()],
        timeout: 1,
    };
    let error = cri.0.exec_sync(request).await.unwrap_err();
    assert_eq!(error.code(), Code::DeadlineExceeded);
    cri.stop(&a, 0).await;
    let request = v1::ExecSyncRequest {
        container_id: a,
        ..Default::default()
    };
    let exited = cri.0.exec_sync(request).await.unwrap_err();
    assert_eq!(exited.message(), "container is in CONTAINER_EXITED state");
    sim.shutdown().await;
}

#[tokio::test]
async fn pulled_image_is_listed_until_it_is_removed() {
    let sim = sim().build();
    let mut images = ImageServiceClient::new(connect(&sim).await);
    let spec = Some(v1::ImageSpec {
        image: "app:1".into(),
        ..Default::default()
    });
    let status = v1::ImageStatusRequest {
        image: spec.clone(),
        verbose: false,
    };
    let unknown = images.image_status(status.clone()).await.unwrap();
    assert_eq!(unknown.into_inner().image, None);
    let pull = v1::PullImageRequest {
        image: spec.clone(),
        ..Default::default()
    };
    let pulled = images.pull_image(pull).await.unwrap().into_inner();
    let status = images.image_status(status).await.unwrap().into_inner();
    let image = status.image.unwrap();
    assert_eq!(image.id, pulled.image_ref);
    let all = v1::ListImagesRequest::default();
    let list = images.list_images(all.clone()).await.unwrap();
    assert_eq!(list.into_inner().images, [image]);
    let remove = v1::RemoveImageRequest { image: spec };
    images.remove_image(remove).await.unwrap();
    let list = images.list_images(all).await.unwrap();
    assert!(list.into_inner().images.is_empty());
    sim.shutdown().await;
}

#[tokio::test]
async fn same_seed_gives_same_ids() {
    let mut ids = Vec::new();
    for _ in 0..2 {
        let sim = sim().build();
        ids.push(Client::connect(&sim).await.run("p").await);
        sim.shutdown().await;
    }
    assert_eq!(ids[0], ids[1]);
    assert_eq!(ids[0].len(), 64);
}

/// conmon of CRI-O opens the log, containerd makes its directory.
#[tokio::test]
async fn crio_refuses_a_container_whose_log_directory_is_missing() {
    let logs = tempfile::tempdir().unwrap();
    for (mode, is_refused) in [(Mode::Crio, true), (Mode::Containerd2, false)] {
        let sim = Sim::builder().mode(mode).build();
        let mut cri = Client::connect(&sim).await;
        let mut pod = pod_config("web");
        pod.log_directory = logs.path().to_string_lossy().into_owned();
        let sandbox = cri.try_run_as(pod.clone()).await.unwrap();
        let mut create = async |attempt, log_path: &str| {
            let mut config = container_config("c", attempt, "");
            log_path.clone_into(&mut config.log_path);
            cri.try_create(&sandbox, config, pod.clone()).await
        };
        let missing = create(0, "c/0.log").await;
        assert_eq!(missing.is_err(), is_refused, "{mode}: {missing:?}");
        if let Err(status) = missing {
            assert!(
                status.message().contains("Failed to open log file"),
                "{status}"
            );
        }
        std::fs::create_dir_all(logs.path().join("c")).unwrap();
        create(1, "c/1.log").await.unwrap();
        create(2, "2.log").await.unwrap();
        std::fs::remove_dir(logs.path().join("c")).unwrap();
    }
}
