//! List calls: filters, pages and cost.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{Client, sim, with_timeout};
use pleg_cri::v1::{
    self, ContainerFilter, ContainerState, ContainerStateValue, PodSandboxFilter, PodSandboxState,
    PodSandboxStateValue,
};
use pleg_sim::Mode;
use tonic::Code;

fn labels(key: &str, value: &str) -> BTreeMap<String, String> {
    [(key.to_owned(), value.to_owned())].into()
}

fn sandbox(id: &str) -> PodSandboxFilter {
    PodSandboxFilter {
        id: id.to_owned(),
        ..Default::default()
    }
}

fn container(id: &str, sandbox: &str) -> ContainerFilter {
    ContainerFilter {
        id: id.to_owned(),
        pod_sandbox_id: sandbox.to_owned(),
        ..Default::default()
    }
}

#[tokio::test]
async fn filtered_list_returns_only_matching_items() {
    let sim = sim().build();
    let mut cri = Client::connect(&sim).await;
    let (p, q) = (cri.run("p").await, cri.run("q").await);
    let a = cri.create_and_start(&p, "a", "").await;
    let b = cri.create(&p, "b", 0, "").await;
    let c = cri.create_and_start(&q, "a", "").await;
    cri.stop_sandbox(&q).await;

    let ready = PodSandboxState::SandboxReady.into();
    let with_state = PodSandboxFilter {
        state: Some(PodSandboxStateValue { state: ready }),
        ..Default::default()
    };
    let with_label = |id: &str| PodSandboxFilter {
        label_selector: labels("pod", "q"),
        ..sandbox(id)
    };
    for (filter, expected) in [
        (sandbox(""), &[&p, &q][..]),
        (sandbox(&q), &[&q]),
        (with_state, &[&p]),
        (with_label(""), &[&q]),
        (with_label(&p), &[]),
    ] {
        let rows = cri.sandboxes(filter.clone()).await.into_iter();
        let ids: BTreeSet<String> = rows.map(|row| row.id).collect();
        assert_eq!(
            ids,
            expected.iter().map(ToString::to_string).collect(),
            "{filter:?}"
        );
    }
    let with_state = |state: ContainerState| ContainerFilter {
        state: Some(ContainerStateValue {
            state: state.into(),
        }),
        ..Default::default()
    };
    let with_label = |id: &str| ContainerFilter {
        label_selector: labels("name", "a"),
        ..container(id, "")
    };
    for (filter, expected) in [
        (container("", ""), &[&a, &b, &c][..]),
        (container("", &p), &[&a, &b]),
        (with_state(ContainerState::ContainerRunning), &[&a]),
        (with_state(ContainerState::ContainerCreated), &[&b]),
        (with_state(ContainerState::ContainerExited), &[&c]),
        (with_label(""), &[&a, &c]),
        (with_label(&c), &[&c]),
    ] {
        let rows = cri.containers(filter.clone()).await.into_iter();
        let ids: BTreeSet<String> = rows.map(|row| row.id).collect();
        assert_eq!(
            ids,
            expected.iter().map(ToString::to_string).collect(),
            "{filter:?}"
        );
    }
    sim.shutdown().await;
}

/// There is no index: a filtered list costs as much as a complete one.
#[tokio::test]
async fn list_visits_every_item_with_any_filter() {
    const PODS: u64 = 12;
    let sim = sim().build();
    let mut cri = Client::connect(&sim).await;
    let (mut s, mut c) = (String::new(), String::new());
    for n in 0..PODS {
        s = cri.run(&n.to_string()).await;
        c = cri.create(&s, "a", 0, "").await;
    }
    let unknown = "0".repeat(64);
    let of_uid = PodSandboxFilter {
        label_selector: labels("io.kubernetes.pod.uid", "uid-3"),
        ..Default::default()
    };
    for (filter, rows) in [
        (sandbox(""), PODS),
        (sandbox(&s), 1),
        (of_uid, 1),
        (sandbox(&unknown), 0),
    ] {
        let before = sim.visited_items();
        let listed = cri.sandboxes(filter.clone()).await;
        assert_eq!(listed.len() as u64, rows, "{filter:?}");
        assert_eq!(sim.visited_items() - before, PODS, "{filter:?}");
        let filter = Some(filter);
        let request = v1::StreamPodSandboxesRequest { filter };
        with_timeout(cri.0.stream_pod_sandboxes(request))
            .await
            .unwrap();
        assert_eq!(sim.visited_items() - before, 2 * PODS);
    }
    let of_name = ContainerFilter {
        label_selector: labels("name", "a"),
        ..container(&c, &s)
    };
    for (filter, rows) in [
        (container("", ""), PODS),
        (container(&c, ""), 1),
        (container("", &s), 1),
        (of_name, 1),
        (container("", &unknown), 0),
    ] {
        let before = sim.visited_items();
        let listed = cri.containers(filter.clone()).await;
        assert_eq!(listed.len() as u64, rows, "{filter:?}");
        assert_eq!(sim.visited_items() - before, PODS, "{filter:?}");
        let filter = Some(filter);
        let request = v1::StreamContainersRequest { filter };
        with_timeout(cri.0.stream_containers(request))
            .await
            .unwrap();
        assert_eq!(sim.visited_items() - before, 2 * PODS);
    }

    let before = sim.visited_items();
    cri.sandbox_status(&s).await.unwrap();
    cri.status(&c).await.unwrap();
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
    let all = v1::StreamPodSandboxesRequest::default();
    let empty = cri.0.stream_pod_sandboxes(all.clone()).await.unwrap();
    let page = with_timeout(empty.into_inner().message()).await;
    assert_eq!(page.unwrap(), None, "an empty list has no page");

    let s = cri.run("p").await;
    cri.create(&s, "a", 0, "").await;
    cri.create(&s, "a", 1, "").await;
    let pages = cri.0.stream_pod_sandboxes(all).await.unwrap();
    let page = with_timeout(pages.into_inner().message()).await.unwrap();
    assert_eq!(page.unwrap().pod_sandboxes[0].id, s);
    let all = v1::StreamContainersRequest::default();
    let mut pages = cri.0.stream_containers(all).await.unwrap().into_inner();
    let page = with_timeout(pages.message()).await.unwrap();
    assert_eq!(page.unwrap().containers.len(), 2);
    assert_eq!(with_timeout(pages.message()).await.unwrap(), None);
    sim.shutdown().await;
}
