//! List calls: filters, pages and cost.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{Client, sim, with_timeout};
use pleg_cri::v1::{
    self, ContainerFilter, ContainerState, ContainerStateValue, PodSandboxFilter, PodSandboxState,
    PodSandboxStateValue,
};
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

/// There is no index: a filtered list costs as much as a complete one.
#[tokio::test]
async fn filtered_list_visits_all_and_returns_matching_items() {
    let sim = sim().build();
    let mut cri = Client::connect(&sim).await;
    let (p, q) = (cri.run("p").await, cri.run("q").await);
    let a = cri.create_and_start(&p, "a", "").await;
    let b = cri.create(&p, "b", 0, "").await;
    let c = cri.create_and_start(&q, "a", "").await;
    cri.stop_sandbox(&q).await;
    let unknown = "0".repeat(64);

    let state = PodSandboxState::SandboxReady.into();
    let with_state = PodSandboxFilter {
        state: Some(PodSandboxStateValue { state }),
        ..Default::default()
    };
    let with_label = |id: &str| PodSandboxFilter {
        label_selector: labels("pod", "q"),
        ..sandbox(id)
    };
    for (filter, expected) in [
        (sandbox(""), &[&p, &q][..]),
        (sandbox(&q), &[&q]),
        (sandbox(&unknown), &[]),
        (with_state, &[&p]),
        (with_label(""), &[&q]),
        (with_label(&p), &[]),
    ] {
        let before = sim.visited_items();
        let expected: BTreeSet<_> = expected.iter().copied().cloned().collect();
        let rows = cri.sandboxes(filter.clone()).await.into_iter();
        let ids: BTreeSet<_> = rows.map(|row| row.id).collect();
        assert_eq!(ids, expected, "{filter:?}");
        let filter = Some(filter);
        let request = v1::StreamPodSandboxesRequest { filter };
        let mut pages = cri.0.stream_pod_sandboxes(request).await.unwrap();
        // An empty list has no page.
        let page = with_timeout(pages.get_mut().message()).await.unwrap();
        let rows = page
            .map_or(Vec::new(), |page| page.pod_sandboxes)
            .into_iter();
        assert_eq!(rows.map(|row| row.id).collect::<BTreeSet<_>>(), expected);
        assert_eq!(sim.visited_items() - before, 2 * 2);
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
        (container("", &unknown), &[]),
        (with_state(ContainerState::ContainerRunning), &[&a]),
        (with_state(ContainerState::ContainerCreated), &[&b]),
        (with_state(ContainerState::ContainerExited), &[&c]),
        (with_label(""), &[&a, &c]),
        (with_label(&c), &[&c]),
    ] {
        let before = sim.visited_items();
        let rows = cri.containers(filter.clone()).await.into_iter();
        let ids: BTreeSet<_> = rows.map(|row| row.id).collect();
        let expected = expected.iter().copied().cloned().collect();
        assert_eq!(ids, expected, "{filter:?}");
        let filter = Some(filter);
        let request = v1::StreamContainersRequest { filter };
        let listed = with_timeout(cri.0.stream_containers(request)).await;
        listed.unwrap();
        assert_eq!(sim.visited_items() - before, 2 * 3);
    }
    let before = sim.visited_items();
    cri.sandbox_status(&p).await.unwrap();
    cri.status(&a).await.unwrap();
    assert_eq!(sim.visited_items(), before, "status calls visit no list");
    sim.shutdown().await;
}

/// A runtime that does not know the method reads no list.
#[tokio::test]
async fn unimplemented_streaming_list_visits_no_item_and_fires_no_list_fault() {
    let old = sim().runtime_version("v2.3.4").build();
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
