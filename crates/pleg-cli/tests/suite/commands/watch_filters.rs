//! The filters of `pleg watch`, on a runtime.

use serde_json::Value;

use super::run::{Running, Sim, remove_pod, run_job};

/// The pods and types of the events up to that one.
async fn shown(watch: &mut Running, last: &str) -> Vec<String> {
    let mut shown = Vec::new();
    loop {
        let event = watch.event().await;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (pod, kind) = (text(&event["pod"]["name"]), text(&event["kind"]));
        let what = format!("{pod} {kind} {}", text(&event["type"]));
        if !what.ends_with("PodSync") {
            shown.push(what.clone());
        }
        if what == last {
            return shown;
        }
    }
}

/// The selector also matches the last event of a pod, which has no labels any more.
#[tokio::test]
async fn pods_are_selected_by_label_until_they_are_gone() {
    let sim = Sim::start().await;
    let labels = "io.kubernetes.pod.uid,io.kubernetes.pod.uid!=uid-one";
    let mut of_label = sim.run(&["watch", "-o", "json", "-l", labels]);
    let mut all = sim.run(&["watch", "-o", "json"]);
    for watch in [&mut of_label, &mut all] {
        let synced = watch.line().await.expect("the end of the initial events");
        assert!(synced.contains("\"Synced\""), "{synced}");
    }
    for name in ["one", "two"] {
        let pod = run_job(&sim.kubelet, name, 1).await;
        // What is removed before it was read is not announced.
        shown(&mut all, &format!("{name} container ContainerDied")).await;
        remove_pod(&sim.kubelet, &pod).await;
    }
    let mut events = shown(&mut of_label, "two sandbox ContainerRemoved").await;
    // A container that is started at once may not be seen as created.
    events.retain(|event| !event.ends_with("ContainerChanged"));
    assert!(events.iter().all(|e| e.starts_with("two ")), "{events:?}");
    assert_eq!(events.len(), 6, "{events:?}");
}
