//! Tests the filters of list calls, and how many items a list visits.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{Client, sim};
use pleg_cri::v1;

/// Each case: a list call and its filter => the returned items. Sandbox q and its container c are stopped. States of
/// containers: 0 is created, 1 is running, 2 is exited; of sandboxes: 0 is ready.
const FILTERS: &str = "\
sandboxes => p q
sandboxes id=q => q
sandboxes id=unknown =>
sandboxes state=0 => p
sandboxes label=q => q
sandboxes id=p label=q =>
containers => a b c
containers sandbox=p => a b
containers sandbox=unknown =>
containers state=1 => a
containers state=0 => b
containers state=2 => c
containers label=a => a c
containers id=c label=a => c";

/// The simulator has no index: a filtered list costs as much as a complete one.
#[tokio::test]
async fn filtered_list_visits_all_and_returns_matching_items() {
    let sim = sim().build();
    let mut cri = Client::connect(&sim).await;
    let (p, q) = (cri.run("p").await, cri.run("q").await);
    let a = cri.create_and_start(&p, "a", "").await;
    let b = cri.create(&p, "b", 0, "").await;
    let c = cri.create_and_start(&q, "a", "").await;
    cri.stop_sandbox(&q).await;
    let ids = BTreeMap::from([("p", &p), ("q", &q), ("a", &a), ("b", &b), ("c", &c)]);
    for row in FILTERS.lines() {
        let (list, expected) = row.split_once(" =>").unwrap();
        let field = |key| list.split(' ').find_map(|word| word.strip_prefix(key));
        let id = |key| field(key).map_or("", |name| ids.get(name).map_or(name, |id| id));
        let state = field("state=").map(|state| state.parse().unwrap());
        let label_selector = |key: &str| {
            let labels = field("label=").map(|value| (key.to_owned(), value.to_owned()));
            labels.into_iter().collect()
        };
        let before = sim.visited_items();
        let (listed, visited) = if list.starts_with("sandboxes") {
            let filter = Some(v1::PodSandboxFilter {
                id: id("id=").to_owned(),
                state: state.map(|state| v1::PodSandboxStateValue { state }),
                label_selector: label_selector("pod"),
            });
            let request = v1::StreamPodSandboxesRequest {
                filter: filter.clone(),
            };
            cri.0.stream_pod_sandboxes(request).await.unwrap();
            let request = v1::ListPodSandboxRequest { filter };
            let rows = cri.0.list_pod_sandbox(request).await.unwrap().into_inner();
            (Vec::from_iter(rows.items.into_iter().map(|row| row.id)), 2)
        } else {
            let filter = Some(v1::ContainerFilter {
                id: id("id=").to_owned(),
                pod_sandbox_id: id("sandbox=").to_owned(),
                state: state.map(|state| v1::ContainerStateValue { state }),
                label_selector: label_selector("name"),
            });
            let request = v1::StreamContainersRequest {
                filter: filter.clone(),
            };
            cri.0.stream_containers(request).await.unwrap();
            let request = v1::ListContainersRequest { filter };
            let rows = cri.0.list_containers(request).await.unwrap().into_inner();
            let rows = rows.containers.into_iter();
            (rows.map(|row| row.id).collect(), 3)
        };
        let expected = expected.split_whitespace().map(|name| ids[name].clone());
        assert_eq!(BTreeSet::from_iter(listed), expected.collect(), "{row}");
        assert_eq!(sim.visited_items() - before, 2 * visited, "{row}");
    }
    let before = sim.visited_items();
    cri.sandbox_status(&p).await.unwrap();
    cri.status(&a).await.unwrap();
    assert_eq!(sim.visited_items(), before, "status calls visit no list");
    sim.shutdown().await;
}
