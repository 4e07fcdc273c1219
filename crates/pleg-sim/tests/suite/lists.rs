//! List calls: filters, pages and cost.

use std::collections::BTreeSet;

use crate::common::{Client, sim, with_timeout};
use pleg_cri::v1::{
    self, ContainerFilter, ContainerState, ContainerStateValue, PodSandboxFilter, PodSandboxState,
    PodSandboxStateValue,
};
use tonic::Code;

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
    let set = |ids: &[&String]| ids.iter().map(|id| (*id).clone()).collect::<BTreeSet<_>>();
    let label = |key: &str, value: &str| [(key.to_owned(), value.to_owned())].into();

    let filter = |id: &str| PodSandboxFilter {
        id: id.to_owned(),
        ..Default::default()
    };
    let state = PodSandboxState::SandboxReady.into();
    let ready = PodSandboxFilter {
        state: Some(PodSandboxStateValue { state }),
        ..Default::default()
    };
    let of_q = |id: &str| PodSandboxFilter {
        label_selector: label("pod", "q"),
        ..filter(id)
    };
    for (filter, expected) in [
        (filter(""), &[&p, &q][..]),
        (filter(&q), &[&q]),
        (filter(&unknown), &[]),
        (ready, &[&p]),
        (of_q(""), &[&q]),
        (of_q(&p), &[]),
    ] {
        let (before, filter) = (sim.visited_items(), Some(filter));
        let request = v1::ListPodSandboxRequest {
            filter: filter.clone(),
        };
        let rows = cri.0.list_pod_sandbox(request).await.unwrap().into_inner();
        let ids = rows.items.into_iter().map(|row| row.id);
        assert_eq!(ids.collect::<BTreeSet<_>>(), set(expected), "{filter:?}");
        let request = v1::StreamPodSandboxesRequest { filter };
        cri.0.stream_pod_sandboxes(request).await.unwrap();
        assert_eq!(sim.visited_items() - before, 2 * 2);
    }
    let filter = |id: &str, sandbox: &str| ContainerFilter {
        id: id.to_owned(),
        pod_sandbox_id: sandbox.to_owned(),
        ..Default::default()
    };
    let in_state = |state: ContainerState| ContainerFilter {
        state: Some(ContainerStateValue {
            state: state.into(),
        }),
        ..Default::default()
    };
    let named_a = |id: &str| ContainerFilter {
        label_selector: label("name", "a"),
        ..filter(id, "")
    };
    for (filter, expected) in [
        (filter("", ""), &[&a, &b, &c][..]),
        (filter("", &p), &[&a, &b]),
        (filter("", &unknown), &[]),
        (in_state(ContainerState::ContainerRunning), &[&a]),
        (in_state(ContainerState::ContainerCreated), &[&b]),
        (in_state(ContainerState::ContainerExited), &[&c]),
        (named_a(""), &[&a, &c]),
        (named_a(&c), &[&c]),
    ] {
        let (before, filter) = (sim.visited_items(), Some(filter));
        let request = v1::ListContainersRequest {
            filter: filter.clone(),
        };
        let rows = cri.0.list_containers(request).await.unwrap().into_inner();
        let ids = rows.containers.into_iter().map(|row| row.id);
        assert_eq!(ids.collect::<BTreeSet<_>>(), set(expected), "{filter:?}");
        let request = v1::StreamContainersRequest { filter };
        cri.0.stream_containers(request).await.unwrap();
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
async fn unimplemented_streaming_list_visits_nothing_and_fires_no_fault() {
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
