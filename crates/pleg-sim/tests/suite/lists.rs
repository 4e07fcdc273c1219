//! List calls: filters, pages and cost.

use crate::common::{Client, sim, with_timeout};
use pleg_cri::v1::{
    self, ContainerFilter, ContainerState, ContainerStateValue, PodSandboxFilter, PodSandboxState,
    PodSandboxStateValue,
};
use pleg_sim::Mode;
use tonic::Code;

#[tokio::test]
async fn filtered_list_returns_only_matching_items() {
    let sim = sim().build();
    let mut cri = Client::connect(&sim).await;
    let (p, q) = (cri.run("p").await, cri.run("q").await);
    let a = cri.create_and_start(&p, "a", "").await;
    let b = cri.create(&p, "b", 0, "").await;
    let c = cri.create_and_start(&q, "a", "").await;
    cri.stop_sandbox(&q).await;

    let mut sandboxes = async |filter| {
        let rows = cri.sandboxes(filter).await;
        rows.into_iter().map(|r| r.id).collect::<Vec<_>>()
    };
    let all = sandboxes(PodSandboxFilter::default()).await;
    assert_eq!(all.len(), 2);
    assert!(all.contains(&p) && all.contains(&q));
    let by_id = PodSandboxFilter {
        id: q.clone(),
        ..Default::default()
    };
    assert_eq!(sandboxes(by_id).await, [q.as_str()]);
    let state = Some(PodSandboxStateValue {
        state: PodSandboxState::SandboxReady.into(),
    });
    let ready = PodSandboxFilter {
        state,
        ..Default::default()
    };
    assert_eq!(sandboxes(ready).await, [p.as_str()]);
    let label_selector = [("pod".to_owned(), "q".to_owned())].into();
    let by_label = PodSandboxFilter {
        label_selector,
        ..Default::default()
    };
    assert_eq!(sandboxes(by_label.clone()).await, [q.as_str()]);
    assert!(
        sandboxes(PodSandboxFilter {
            id: p.clone(),
            ..by_label
        })
        .await
        .is_empty()
    );

    let mut containers = async |filter| {
        let mut ids: Vec<_> = cri
            .containers(filter)
            .await
            .into_iter()
            .map(|r| r.id)
            .collect();
        ids.sort();
        ids
    };
    let sorted = |mut ids: Vec<String>| {
        ids.sort();
        ids
    };
    let all = sorted(vec![a.clone(), b.clone(), c.clone()]);
    assert_eq!(containers(ContainerFilter::default()).await, all);
    let of_pod = ContainerFilter {
        pod_sandbox_id: p.clone(),
        ..Default::default()
    };
    assert_eq!(containers(of_pod).await, sorted(vec![a.clone(), b.clone()]));
    let state = |s: ContainerState| Some(ContainerStateValue { state: s.into() });
    for (s, id) in [
        (ContainerState::ContainerRunning, &a),
        (ContainerState::ContainerCreated, &b),
        (ContainerState::ContainerExited, &c),
    ] {
        let filter = ContainerFilter {
            state: state(s),
            ..Default::default()
        };
        assert_eq!(containers(filter).await, [id.as_str()]);
    }
    let label_selector = [("name".to_owned(), "a".to_owned())].into();
    let by_label = ContainerFilter {
        label_selector,
        ..Default::default()
    };
    assert_eq!(
        containers(by_label.clone()).await,
        sorted(vec![a.clone(), c.clone()])
    );
    let one = ContainerFilter {
        id: c.clone(),
        ..by_label
    };
    assert_eq!(containers(one).await, [c.as_str()]);
    sim.shutdown().await;
}

/// There is no index: a filtered list costs as much as a complete one.
#[tokio::test]
async fn list_visits_every_item_with_any_filter() {
    const PODS: u64 = 12;
    let sim = sim().build();
    let mut cri = Client::connect(&sim).await;
    let (mut sandbox, mut container) = (String::new(), String::new());
    for n in 0..PODS {
        sandbox = cri.run(&n.to_string()).await;
        container = cri.create(&sandbox, "a", 0, "").await;
    }
    let uid = ("io.kubernetes.pod.uid".to_owned(), "uid-3".to_owned());
    let name = ("name".to_owned(), "a".to_owned());

    for (filter, rows) in [
        (PodSandboxFilter::default(), PODS),
        (
            PodSandboxFilter {
                id: sandbox.clone(),
                ..Default::default()
            },
            1,
        ),
        (
            PodSandboxFilter {
                label_selector: [uid].into(),
                ..Default::default()
            },
            1,
        ),
        (
            PodSandboxFilter {
                id: "0".repeat(64),
                ..Default::default()
            },
            0,
        ),
    ] {
        let before = sim.visited_items();
        let listed = cri.sandboxes(filter.clone()).await;
        assert_eq!(listed.len() as u64, rows, "{filter:?}");
        assert_eq!(sim.visited_items() - before, PODS, "{filter:?}");
        let request = v1::StreamPodSandboxesRequest {
            filter: Some(filter.clone()),
        };
        with_timeout(cri.0.stream_pod_sandboxes(request))
            .await
            .unwrap();
        assert_eq!(sim.visited_items() - before, 2 * PODS, "{filter:?}");
    }
    for (filter, rows) in [
        (ContainerFilter::default(), PODS),
        (
            ContainerFilter {
                id: container.clone(),
                ..Default::default()
            },
            1,
        ),
        (
            ContainerFilter {
                pod_sandbox_id: sandbox.clone(),
                ..Default::default()
            },
            1,
        ),
        (
            ContainerFilter {
                id: container.clone(),
                pod_sandbox_id: sandbox.clone(),
                label_selector: [name].into(),
                ..Default::default()
            },
            1,
        ),
        (
            ContainerFilter {
                pod_sandbox_id: "0".repeat(64),
                ..Default::default()
            },
            0,
        ),
    ] {
        let before = sim.visited_items();
        let listed = cri.containers(filter.clone()).await;
        assert_eq!(listed.len() as u64, rows, "{filter:?}");
        assert_eq!(sim.visited_items() - before, PODS, "{filter:?}");
        let request = v1::StreamContainersRequest {
            filter: Some(filter.clone()),
        };
        with_timeout(cri.0.stream_containers(request))
            .await
            .unwrap();
        assert_eq!(sim.visited_items() - before, 2 * PODS, "{filter:?}");
    }

    let before = sim.visited_items();
    cri.sandbox_status(&sandbox).await.unwrap();
    cri.status(&container).await.unwrap();
    assert_eq!(sim.visited_items(), before, "status calls visit no list");
    sim.shutdown().await;
}

/// A runtime that does not know the method reads no list.
#[tokio::test]
async fn unimplemented_streaming_list_visits_no_item_and_fires_no_list_fault() {
    let old = sim()
        .mode(Mode::Containerd2)
        .runtime_version("v2.3.4")
        .build();
    let turned_off = sim().build();
    turned_off.set_knob("list.unimplemented").unwrap();
    for sim in [old, turned_off] {
        sim.set_knob("list.empty").unwrap();
        let mut cri = Client::connect(&sim).await;
        let s = cri.run("p").await;
        cri.create(&s, "a", 0, "").await;
        let before = sim.visited_items();
        let request = v1::StreamPodSandboxesRequest::default();
        let refused = with_timeout(cri.0.stream_pod_sandboxes(request)).await;
        assert_eq!(refused.unwrap_err().code(), Code::Unimplemented);
        let request = v1::StreamContainersRequest::default();
        let refused = with_timeout(cri.0.stream_containers(request)).await;
        assert_eq!(refused.unwrap_err().code(), Code::Unimplemented);
        assert_eq!(sim.visited_items(), before);
        assert!(!sim.fired().contains_key("list.empty"));
        sim.shutdown().await;
    }
}

#[tokio::test]
async fn streaming_list_returns_pages_and_no_page_when_empty() {
    let sim = sim().build();
    let mut cri = Client::connect(&sim).await;
    let mut pages = cri
        .0
        .stream_pod_sandboxes(v1::StreamPodSandboxesRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert!(
        with_timeout(pages.message()).await.unwrap().is_none(),
        "an empty list has no page"
    );

    let s = cri.run("p").await;
    cri.create(&s, "a", 0, "").await;
    cri.create(&s, "a", 1, "").await;
    let mut pages = cri
        .0
        .stream_containers(v1::StreamContainersRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        with_timeout(pages.message())
            .await
            .unwrap()
            .unwrap()
            .containers
            .len(),
        2
    );
    assert!(with_timeout(pages.message()).await.unwrap().is_none());
    let mut pages = cri
        .0
        .stream_pod_sandboxes(v1::StreamPodSandboxesRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        with_timeout(pages.message())
            .await
            .unwrap()
            .unwrap()
            .pod_sandboxes[0]
            .id,
        s
    );
    sim.shutdown().await;
}
