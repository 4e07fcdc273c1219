//! Feature `serde`: all published types can be serialized, and those without a `CallError` deserialized.

use pleg_core::{CallErrorKind, Labels, NotReady, PodLifecycleEvent, Resources};
use serde_json::{json, to_value};

use crate::script::Script;

/// A pod with a dead container.
fn dead() -> Script {
    let mut t = Script::with(&["web"]);
    t.exits("web", 3);
    t
}

fn same<T>(value: &T)
where
    T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug,
{
    let text = serde_json::to_string(value).unwrap();
    assert_eq!(serde_json::from_str::<T>(&text).unwrap(), *value, "{text}");
}

#[test]
fn events_and_details_survive_serialization_and_fields_may_be_missing() {
    let t = dead();
    same(&*t.status("p").containers[0].details);
    t.announced.iter().for_each(same::<PodLifecycleEvent>);
    let died = to_value(t.announced.last()).unwrap();
    assert_eq!(died["event"], "ContainerDied");
    assert_eq!(died["subject"]["exit_code"], 3);
    let some: Resources = serde_json::from_value(json!({ "memory_limit": 5 })).unwrap();
    assert_eq!((some.memory_limit, some.cpu_quota), (5, 0));
    same(&Labels::from([("app", "web"), ("tier", "")]));
}

#[test]
fn status_and_health_can_be_serialized() {
    let mut t = dead();
    t.node.relists_fail = Some(CallErrorKind::Unavailable);
    t.relist();
    let view = to_value(&t.cache["p"]).unwrap();
    assert_eq!(view["status"]["containers"][0]["state"], "Exited");
    let health = to_value((t.health(), t.health().degraded(t.now()))).unwrap();
    assert_eq!(health[0]["list_error"]["kind"], "Unavailable");
    assert!(health[1][0]["ListFailed"].is_object());
    same(&NotReady::Closed);
}
