//! Tests of the conversion, with regular and irregular input.

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use pleg_runtime::core::{
    Arrival, ContainerDetails, Details, EventType, Hint, Instant, RuntimeEvent, SandboxDetails,
};
use prost::Message;

use super::*;

const T: i64 = 1_700_000_000_000_000_000;

/// The result of `convert`, and for each kind of irregular input the number that `convert` counted.
fn counted<R>(convert: impl FnOnce() -> R) -> (R, Vec<(String, u64)>) {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let result = metrics::with_local_recorder(&recorder, convert);
    let counters = snapshotter.snapshot().into_vec().into_iter();
    let kinds = counters.map(|(key, _, _, value)| {
        assert_eq!(key.key().name(), "pleg_irregular_input_total");
        let kind = key.key().labels().next().expect("a kind").value();
        let DebugValue::Counter(count) = value else {
            panic!("a counter")
        };
        (kind.to_owned(), count)
    });
    let mut kinds: Vec<_> = kinds.collect();
    kinds.sort();
    (result, kinds)
}

fn regular<R>(convert: impl FnOnce() -> R) -> R {
    let (result, kinds) = counted(convert);
    assert_eq!(kinds, []);
    result
}

fn one(kind: &str) -> Vec<(String, u64)> {
    vec![(kind.to_owned(), 1)]
}

/// Converts an event with every status that it contains.
fn event_of(event: v1::ContainerEventResponse) -> Option<RuntimeEvent> {
    let encoded = EncodedEvent::decode(&*event.encode_to_vec()).unwrap();
    super::event(encoded, true).unwrap()
}

fn pod_labels() -> BTreeMap<String, String> {
    [(POD_UID, "uid"), (POD_NAME, "web"), (POD_NAMESPACE, "prod")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

fn sandbox() -> v1::PodSandboxStatus {
    v1::PodSandboxStatus {
        id: "s".into(),
        metadata: Some(v1::PodSandboxMetadata {
            name: "web".into(),
            uid: "uid".into(),
            namespace: "prod".into(),
            attempt: 2,
        }),
        created_at: T,
        ..Default::default()
    }
}

fn container(state: v1::ContainerState) -> v1::ContainerStatus {
    v1::ContainerStatus {
        id: "c".into(),
        metadata: Some(v1::ContainerMetadata {
            name: "app".into(),
            attempt: 3,
        }),
        state: state.into(),
        created_at: T,
        labels: pod_labels(),
        ..Default::default()
    }
}

fn event() -> v1::ContainerEventResponse {
    v1::ContainerEventResponse {
        container_id: "c".into(),
        container_event_type: v1::ContainerEventType::ContainerStoppedEvent.into(),
        created_at: T,
        pod_sandbox_status: Some(sandbox()),
        containers_statuses: vec![container(v1::ContainerState::ContainerExited)],
    }
}

fn container_details(report: Report) -> Arc<ContainerDetails> {
    let Details::Container(details) = report.details else {
        panic!("a container")
    };
    details
}

fn sandbox_details(report: Report) -> Arc<SandboxDetails> {
    let Details::Sandbox(details) = report.details else {
        panic!("a sandbox")
    };
    details
}

#[test]
fn sandbox_identity_comes_from_metadata() {
    let report = regular(|| sandbox_status(sandbox())).unwrap();
    assert_eq!(report.id.as_str(), "s");
    assert_eq!(report.shown, ReportedState::Running);
    let mut expected = Identity::new(Kind::Sandbox);
    expected.pod = Some("uid".into());
    expected.unlabelled = true;
    expected.namespace = Some("prod".into());
    expected.pod_name = Some("web".into());
    expected.attempt = 2;
    expected.created_at = Some(WallTime::from_nanos(T));
    assert_eq!(report.identity, expected);
}

#[test]
fn sandbox_without_metadata_is_identified_by_labels() {
    let bare = v1::PodSandboxStatus {
        metadata: None,
        ..sandbox()
    };
    let labelled = v1::PodSandboxStatus {
        labels: pod_labels(),
        ..bare.clone()
    };
    let identity = regular(|| sandbox_status(labelled)).unwrap().identity;
    assert_eq!(identity.pod, Some("uid".into()));
    assert_eq!(identity.pod_name.as_deref(), Some("web"));
    let identity = regular(|| sandbox_status(bare)).unwrap().identity;
    assert_eq!((identity.pod, identity.namespace), (None, None));
}

#[test]
fn states_map_as_in_kubelet_and_invalid_states_are_counted() {
    use ReportedState::{Created, Exited, Running, Unknown};
    let container = |state| v1::Container {
        id: "c".into(),
        state,
        created_at: T,
        ..Default::default()
    };
    for (state, shown) in (0..).zip([Created, Running, Exited, Unknown]) {
        let row = regular(|| container_row(container(state)));
        assert_eq!(row.unwrap().shown, shown);
    }
    let sandbox = |state| v1::PodSandboxStatus { state, ..sandbox() };
    for (state, shown) in [(0, Running), (1, Exited)] {
        let status = regular(|| sandbox_status(sandbox(state)));
        assert_eq!(status.unwrap().shown, shown);
    }
    for (report, kinds) in [
        counted(|| container_row(container(-1))),
        counted(|| sandbox_status(sandbox(7))),
    ] {
        assert_eq!(report.unwrap().shown, Unknown);
        assert_eq!(kinds, one("unknown_enum_value"));
    }
}

#[test]
fn pod_of_container_comes_from_labels_and_sandbox_from_row() {
    let report = regular(|| container_status(container(v1::ContainerState::ContainerRunning)));
    let identity = report.unwrap().identity;
    let mut expected = Identity::new(Kind::Container);
    expected.pod = Some("uid".into());
    expected.namespace = Some("prod".into());
    expected.pod_name = Some("web".into());
    expected.name = Some("app".into());
    expected.attempt = 3;
    expected.created_at = Some(WallTime::from_nanos(T));
    assert_eq!(identity, expected);
    let row = v1::Container {
        id: "c".into(),
        pod_sandbox_id: "s".into(),
        created_at: T,
        image_ref: "sha256:1".into(),
        ..Default::default()
    };
    let report = regular(|| container_row(row)).unwrap();
    assert_eq!(report.identity.sandbox, Some("s".into()));
    assert_eq!(report.identity.pod, None, "an unlabelled container");
    assert_eq!(&*container_details(report).image_ref, "sha256:1");
}

#[test]
fn exit_code_is_set_only_after_exit() {
    use v1::ContainerState::{
        ContainerCreated, ContainerExited, ContainerRunning, ContainerUnknown,
    };
    let code = |state| {
        let report = regular(|| container_status(container(state))).unwrap();
        container_details(report).exit_code
    };
    let states = [
        ContainerCreated,
        ContainerRunning,
        ContainerUnknown,
        ContainerExited,
    ];
    assert_eq!(states.map(code), [None, None, None, Some(0)]);
}

#[test]
fn container_status_is_converted_with_all_details() {
    let linux = v1::LinuxContainerResources {
        cpu_quota: 50_000,
        memory_limit_in_bytes: 1 << 20,
        cpuset_cpus: "0-1".into(),
        unified: [("memory.high".to_owned(), "1".to_owned())].into(),
        ..Default::default()
    };
    let status = v1::ContainerStatus {
        started_at: T + 1,
        finished_at: T + 2,
        exit_code: 137,
        reason: "OOMKilled".into(),
        message: "too much".into(),
        log_path: "/log".into(),
        image: Some(v1::ImageSpec {
            image: "nginx".into(),
            ..Default::default()
        }),
        image_id: "id".into(),
        image_ref: "sha256:1".into(),
        annotations: [("a".to_owned(), "1".to_owned())].into(),
        resources: Some(v1::ContainerResources { linux: Some(linux) }),
        ..container(v1::ContainerState::ContainerExited)
    };
    let report = regular(|| container_status(status.clone())).unwrap();
    let mut sent = event();
    sent.containers_statuses = vec![status];
    let event = event_of(sent).unwrap();
    assert_eq!(
        (event.id.as_str(), event.event, event.created_at),
        ("c", EventType::Stopped, T)
    );
    assert_eq!(event.containers, std::slice::from_ref(&report));
    let details = container_details(report);
    assert_eq!(details.started_at, Some(WallTime::from_nanos(T + 1)));
    assert_eq!(details.finished_at, Some(WallTime::from_nanos(T + 2)));
    assert_eq!(details.exit_code, Some(137));
    let texts = [&details.reason, &details.message, &details.log_path];
    assert_eq!(texts.map(|text| &**text), ["OOMKilled", "too much", "/log"]);
    let image = [&details.image, &details.image_id, &details.image_ref];
    assert_eq!(image.map(|text| &**text), ["nginx", "id", "sha256:1"]);
    let set = details.resources.clone().unwrap();
    assert_eq!([set.cpu_quota, set.memory_limit], [50_000, 1 << 20]);
    assert_eq!((&*set.cpuset_cpus, set.unified.len()), ("0-1", 1));
    assert_eq!(details.labels.get(POD_UID), Some("uid"));
    assert_eq!(details.annotations.get("a"), Some("1"));
}

#[test]
fn invalid_pod_ip_addresses_are_dropped_and_counted() {
    let ip = |ip: &str| v1::PodIp { ip: ip.into() };
    let network = v1::PodSandboxNetworkStatus {
        ip: "10.0.0.1".into(),
        additional_ips: vec![ip("fd00::1"), ip(""), ip("\x1b[31m")],
    };
    let status = v1::PodSandboxStatus {
        network: Some(network),
        ..sandbox()
    };
    let (report, kinds) = counted(|| sandbox_status(status));
    let ips = sandbox_details(report.unwrap()).ips.clone();
    assert_eq!(
        ips.iter().map(|ip| &**ip).collect::<Vec<_>>(),
        ["10.0.0.1", "fd00::1"]
    );
    assert_eq!(kinds, one("invalid_address"));
}

#[test]
fn implausible_times_are_ignored() {
    // Go's zero time, zero, seconds, milliseconds.
    for created_at in [
        -6_795_364_578_871_345_152,
        0,
        T / 1_000_000_000,
        T / 1_000_000,
    ] {
        let status = v1::PodSandboxStatus {
            created_at,
            ..sandbox()
        };
        let (report, kinds) = counted(|| sandbox_status(status));
        assert_eq!(report.unwrap().identity.created_at, None);
        assert_eq!(kinds, one("invalid_time"));
    }
    let status = v1::ContainerStatus {
        finished_at: -1,
        ..container(v1::ContainerState::ContainerRunning)
    };
    let (report, kinds) = counted(|| container_status(status));
    assert_eq!(container_details(report.unwrap()).finished_at, None);
    assert_eq!(kinds, one("invalid_time"));
}

#[test]
fn row_status_or_event_without_id_is_dropped_and_counted() {
    for (dropped, kinds) in [
        counted(|| sandbox_row(v1::PodSandbox::default()).is_none()),
        counted(|| container_row(v1::Container::default()).is_none()),
        counted(|| sandbox_status(v1::PodSandboxStatus::default()).is_none()),
        counted(|| event_of(v1::ContainerEventResponse::default()).is_none()),
    ] {
        assert!(dropped);
        assert!(kinds.contains(&one("no_id")[0]), "{kinds:?}");
    }
}

#[test]
fn irregular_parts_of_an_event_are_counted_and_left_out() {
    use v1::ContainerEventType::ContainerDeletedEvent;
    type Change = fn(&mut v1::ContainerEventResponse);
    // Each case: a change of the event, irregular kinds counted, and (has a sandbox, number of containers) shown.
    let cases: [(Change, &[&str], (bool, usize)); 8] = [
        (|_| (), &[], (true, 1)),
        // cri-o#9663.
        (
            |e| e.containers_statuses.insert(0, Default::default()),
            &["no_id"],
            (true, 1),
        ),
        (
            |e| e.pod_sandbox_status = None,
            &["no_sandbox_status"],
            (false, 1),
        ),
        (
            |e| e.pod_sandbox_status = Some(Default::default()),
            &["no_id", "no_sandbox_status"],
            (false, 1),
        ),
        (
            |e| e.containers_statuses.clear(),
            &["no_subject_status"],
            (true, 0),
        ),
        // Regular: DELETED without a status of the deleted container, and a sandbox event without containers.
        (
            |e| {
                e.set_container_event_type(ContainerDeletedEvent);
                e.containers_statuses.clear();
            },
            &[],
            (true, 0),
        ),
        (
            |e| {
                e.container_id = "s".into();
                e.containers_statuses.clear();
            },
            &[],
            (true, 0),
        ),
        (
            |e| e.container_event_type = 42,
            &["unknown_enum_value"],
            (true, 1),
        ),
    ];
    for (change, irregular, shown) in cases {
        let mut sent = event();
        change(&mut sent);
        let (event, kinds) = counted(|| event_of(sent));
        let event = event.unwrap();
        assert_eq!((event.sandbox.is_some(), event.containers.len()), shown);
        let irregular = irregular.iter().flat_map(|kind| one(kind));
        assert_eq!(kinds, irregular.collect::<Vec<_>>());
    }
}

#[test]
fn label_that_is_not_utf8_is_left_out() {
    let mut bytes = event().encode_to_vec();
    let at = bytes.windows(4).rposition(|text| text == b"prod").unwrap();
    bytes[at] = 0xff;
    let event = || super::event(EncodedEvent::decode(&*bytes).unwrap(), false);
    let (event, kinds) = counted(|| event().unwrap().unwrap());
    assert_eq!(kinds, one("invalid_label"));
    assert_eq!(event.containers[0].identity.namespace, None);
}

#[test]
fn conversion_of_an_event_with_a_malformed_status_fails() {
    // Appends a truncated status to the event: of the sandbox (field 0x22), or of one more container (0x2a).
    for field in [0x22, 0x2a] {
        let bytes = [event().encode_to_vec(), vec![field, 1, 0x0a]].concat();
        for whole in [false, true] {
            let event = super::event(EncodedEvent::decode(&*bytes).unwrap(), whole);
            assert!(event.is_err(), "{event:?}");
        }
    }
}

#[test]
fn long_labels_are_dropped_if_all_together_are_too_large() {
    let (long, half) = ("x".repeat(MAX_LABELS), "x".repeat(MAX_LABELS / 2));
    let bounded = |b: &str| {
        let pairs = [("a", "1"), ("b", b)].map(|(key, value)| (key.to_owned(), value.to_owned()));
        labels(&pairs.into())
    };
    assert_eq!(bounded(&long), Labels::from([("a", "1")]));
    assert_eq!(bounded(&half).get("b"), Some(&*half));
}

/// Brief and full decoding of an event give the same [`Hint`] for the reconciler, if the event has no annotations.
#[test]
fn brief_and_full_decoding_of_events_give_the_same_hint() {
    let sandbox = v1::PodSandboxStatus {
        network: Some(v1::PodSandboxNetworkStatus {
            ip: "10.0.0.1".into(),
            ..Default::default()
        }),
        runtime_handler: "kata".into(),
        labels: pod_labels(),
        ..sandbox()
    };
    let other = v1::ContainerStatus {
        id: "other".into(),
        ..container(v1::ContainerState::ContainerRunning)
    };
    let unlabelled = v1::ContainerStatus {
        labels: BTreeMap::new(),
        ..container(v1::ContainerState::ContainerExited)
    };
    let own = container(v1::ContainerState::ContainerExited);
    for id in ["c", "s", "gone"] {
        for sandbox in [None, Some(sandbox.clone())] {
            for statuses in [
                vec![],
                vec![other.clone()],
                vec![other.clone(), own.clone()],
                vec![unlabelled.clone()],
            ] {
                let sent = v1::ContainerEventResponse {
                    container_id: id.into(),
                    pod_sandbox_status: sandbox.clone(),
                    containers_statuses: statuses,
                    ..event()
                };
                let hint = |whole| {
                    let encoded = EncodedEvent::decode(&*sent.encode_to_vec()).unwrap();
                    let event = super::event(encoded, whole).unwrap().unwrap();
                    let arrival = Arrival {
                        event,
                        arrived: Instant::from_nanos(1),
                        wall: WallTime::from_nanos(T),
                    };
                    Hint::new(arrival, None)
                };
                assert_eq!(hint(false), hint(true), "{sent:?}");
            }
        }
    }
}
