//! Restarts with the event sequences of each runtime: containers crash again and again, and two containers of the same
//! name never run at the same time.

use std::collections::BTreeMap;
use std::time::Duration;

use pleg::runtime::clock::Clock;
use pleg_cri::CriRuntime;
use pleg_cri::v1::{ContainerState, ListContainersRequest};
use pleg_kubelet::names;
use pleg_sim::Mode;

use super::node::Node;

const PODS: u32 = 5;
const RESTARTS: u64 = 10;
const CRASHING: &str = "{initContainers: [{name: i, image: 'app:1', command: [exit, '0', '1']}],
    containers: [{name: c, image: 'app:1', command: [exit, '3', '5']}, {name: web, image: 'app:1'}]}";

async fn crash(mode: Mode, kills_runtime: bool) {
    let node = Node::up(mode).await;
    let watched = tokio::spawn(never_two_run(node.runtime(), node.kubelet.pleg.clock()));
    let uids = (0..PODS).map(|n| node.set(&format!("p{n}"), CRASHING));
    let uids: Vec<_> = uids.collect();
    for uid in &uids {
        if kills_runtime {
            node.sim.control("restart kill down=50ms").await.unwrap();
        }
        // Each restart has its own time limit: on a busy machine, ten restarts may take longer than one limit.
        for restart in 1..=RESTARTS {
            let count = |node: &Node| node.container(uid)["restartCount"].as_u64();
            let is_restarted = |node: &Node| count(node) >= Some(restart);
            node.until(uid, "restarted", is_restarted).await;
        }
        let last = |node: &Node| {
            let code = &node.container(uid)["lastState"]["terminated"]["exitCode"];
            assert!(code.is_null() || *code == 3, "{mode:?}: {code}");
            *code == 3
        };
        node.until(uid, "in the last state", last).await;
    }
    for uid in &uids {
        node.workers.delete(uid);
        node.until_gone(uid).await;
    }
    assert!(!watched.is_finished(), "two containers of one name ran");
    watched.abort();
}

/// Panics when two containers of the same pod and name run at the same time.
async fn never_two_run(runtime: CriRuntime, clock: Clock) {
    let mut client = runtime.runtime_client();
    loop {
        let listed = client.list_containers(ListContainersRequest::default());
        let mut running = BTreeMap::<_, u32>::new();
        // A runtime that is down does not answer.
        let containers = listed.await.map(|listed| listed.into_inner().containers);
        for container in containers.into_iter().flatten() {
            if container.state() == ContainerState::ContainerRunning {
                let uid = container.labels[names::POD_UID].clone();
                let name = container.labels[names::CONTAINER_NAME].clone();
                *running.entry((uid, name)).or_default() += 1;
            }
        }
        assert!(running.values().all(|count| *count == 1), "{running:?}");
        let next = clock.now().after(Duration::from_millis(1));
        clock.sleep_until(next).await;
    }
}

#[tokio::test]
async fn no_runtime_runs_two_containers_of_one_name_at_once() {
    let events = [Mode::Containerd17, Mode::Containerd2, Mode::Crio];
    let none = [Mode::CrioDisabled, Mode::Unimplemented];
    for mode in events.into_iter().chain(none) {
        crash(mode, false).await;
    }
    crash(Mode::Crio, true).await;
}
