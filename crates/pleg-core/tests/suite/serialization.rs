//! Feature `serde`: what is published can be written, and most of it read again.

use pleg_core::{
    CallErrorKind, Degraded, EventType, Health, Labels, NotReady, PodLifecycleEvent, Resources,
    TerminalRecord,
};
use serde_json::{Value, json, to_value};

use crate::script::{Script, exited, s};

/// A pod with a dead container.
fn dead() -> Script {
    let mut t = Script::confirmed();
    t.event(EventType::Created, "s", s(), &[]);
    t.event(
        EventType::Stopped,
        "c",
        s(),
        &[exited("c", "p", 3, "Error")],
    );
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
fn events_and_terminal_records_are_read_as_written() {
    let t = dead();
    t.events.iter().for_each(same::<PodLifecycleEvent>);
    t.ends.iter().for_each(same::<TerminalRecord>);
    let died = to_value(t.events.last().unwrap()).unwrap();
    assert_eq!(died["event"], "ContainerDied");
    assert_eq!(died["subject"]["exit_code"], 3);
}

#[test]
fn details_are_read_as_written_and_may_lack_fields() {
    let t = dead();
    let details = &t.view().status.containers[0].details;
    same(&**details);
    let some: Resources = serde_json::from_value(json!({ "memory_limit": 5 })).unwrap();
    assert_eq!((some.memory_limit, some.cpu_quota), (5, 0));
    same(&Labels::from([("app", "web"), ("tier", "")]));
}

#[test]
fn status_and_health_are_written() {
    let mut t = dead();
    t.relist();
    t.list_fails(CallErrorKind::Unavailable);
    let view: Value = to_value(t.view()).unwrap();
    assert_eq!(view["status"]["containers"][0]["state"], "Exited");
    let health: Health = t.health();
    let degraded: Vec<Degraded> = health.degraded(t.now());
    assert_eq!(
        to_value(&health).unwrap()["list_error"]["kind"],
        "Unavailable"
    );
    assert!(to_value(&degraded).unwrap()[0]["ListFailed"].is_object());
    same(&NotReady::Closed);
}
