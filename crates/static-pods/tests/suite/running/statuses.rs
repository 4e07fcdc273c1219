//! The status of each pod as `/pods` shows it, from the pod's start to its removal, compared with upstream's kubelet.
//!
//! A line `pod NAME | FIELDS OF THE POD | FIELDS OF ITS CONTAINER c` begins a scenario, and a line with `!` is an
//! action. The lines after an action are fields that the status must then have, all at the same time: each with its
//! value, and with upstream's function that sets it, unless that is the usual one. `c.state` is a field of the
//! container c, `Ready` a condition with its status, reason and message. `*` is any value, `-` none, `~TEXT` a value
//! that contains TEXT. Times and addresses of the simulated runtime are not compared.
//!
//! A line that names no function has fields that upstream sets in these functions, in files below `pkg`:
//!
//! * `kubelet_pods.go`: `getPhase` (`phase`), `generateAPIPodStatus` (`startTime`, `hostIP`, `hostIPs`, `PodScheduled`),
//!   `convertStatusToAPIStatus` (`podIP`, `podIPs`), `convertContainerStatusResources` (`resources`,
//!   `allocatedResources`), `convertToAPIContainerStatuses` (all other fields)
//! * `qos.go`: `ComputePodQOS` (`qosClass`)
//! * `generate.go`: `GeneratePodReadyToStartContainersCondition`, `GeneratePodInitializedCondition`,
//!   `GeneratePodReadyCondition`, `GenerateContainersReadyCondition` (the conditions)
//! * `prober_manager.go`: `UpdatePodStatus` (`ready`, `started`)

use futures::StreamExt as _;
use pleg::PodUid;
use pleg_kubelet::backoff::BackOffSettings;
use pleg_sim::Mode;
use serde_json::Value;

use super::node::Node;

/// The number of scenarios that run at a time.
const AT_ONCE: usize = 8;

/// A field, its value, and upstream's file and function that set it.
type Expected = [&'static str; 3];

struct Life {
    name: &'static str,
    spec: String,
    /// An action, and the fields expected after it.
    steps: Vec<(&'static str, Vec<Expected>)>,
}

fn lives() -> Vec<Life> {
    let mut lives: Vec<Life> = Vec::new();
    for line in TABLE.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if let Some(name) = cells[0].strip_prefix("pod ") {
            let container = format!("name: c, image: 'app:1', {}", cells[2]);
            let spec = format!("{{{} containers: [{{{container}}}]}}", cells[1]);
            let steps = vec![("", Vec::new())];
            lives.push(Life { name, spec, steps });
            continue;
        }
        let life = lives.last_mut().unwrap();
        if let Some(action) = cells[0].strip_prefix("! ") {
            life.steps.push((action, Vec::new()));
            continue;
        }
        let (_, expected) = life.steps.last_mut().unwrap();
        let source = cells.get(1).copied().unwrap_or("as usual");
        expected.extend(cells[0].split("; ").map(|row| {
            let (field, value) = row.split_once(' ').unwrap_or((row, ""));
            [field, value.trim(), source]
        }));
    }
    lives
}

fn field(status: &Value, path: &str) -> Value {
    let named = |list: &str, key: &str, name: &str| {
        let mut items = status[list].as_array().into_iter().flatten();
        items.find(|item| item[key] == name).cloned()
    };
    if path.starts_with(char::is_uppercase) {
        let condition = named("conditions", "type", path).unwrap_or_default();
        let words = ["status", "reason", "message"].map(|key| condition[key].as_str());
        let words: Vec<_> = words.into_iter().flatten().collect();
        return words.join(" ").into();
    }
    let (object, path) = match path.split_once('.') {
        Some((name, path)) => {
            let lists = ["containerStatuses", "initContainerStatuses"];
            let found = lists.iter().find_map(|list| named(list, "name", name));
            (found.unwrap_or_default(), path)
        }
        None => (status.clone(), path),
    };
    let found = object.pointer(&format!("/{path}"));
    found.cloned().unwrap_or_default()
}

fn is_so(found: &Value, expected: &str) -> bool {
    let text = found.as_str();
    match expected {
        "-" => found.is_null() || text == Some(""),
        "*" => !found.is_null() && text != Some(""),
        _ => match expected.strip_prefix('~') {
            Some(part) => text.is_some_and(|text| text.contains(part)),
            None => text.map_or_else(|| found.to_string(), str::to_owned) == expected,
        },
    }
}

/// Performs an action. `uid` is `None` until the scenario has set its pod.
async fn act(node: &Node, uid: Option<&PodUid>, action: &str) {
    let words: Vec<&str> = action.split(' ').collect();
    match (&words[..], uid) {
        (["knob", knob], _) => node.knob(knob),
        (["kill", name, code], Some(uid)) => {
            let id = field(&node.status(uid), &format!("{name}.containerID"));
            let id = id.as_str().and_then(|id| id.rsplit('/').next());
            let code = code.parse().unwrap();
            let killed = node.sim.kill_container(id.unwrap_or_default(), code);
            assert!(killed, "{action}");
        }
        (["message", text], Some(uid)) => {
            let file = node.dir.path().join(format!("pods/{uid}/containers/c/0"));
            std::fs::write(file, text).unwrap();
        }
        (["delete"], Some(uid)) => {
            node.workers.delete(uid);
            node.until_gone(uid).await;
        }
        _ => panic!("{action} is no action"),
    }
}

/// Runs one scenario. Returns the rows that do not match.
async fn live(life: Life) -> Vec<String> {
    let node = Node::with_back_off(Mode::Containerd2, BackOffSettings::default()).await;
    let mut uid = None;
    for (action, expected) in life.steps {
        if !action.is_empty() {
            act(&node, uid.as_ref(), action).await;
        }
        if expected.is_empty() {
            continue;
        }
        let uid = uid.get_or_insert_with(|| node.set("web", &life.spec));
        let wrong = || {
            let status = node.status(uid);
            let row = |[path, value, source]: &Expected| {
                let found = field(&status, path);
                let text = format!("{}: {path} is {found}, not {value}: {source}", life.name);
                (!is_so(&found, value)).then_some(text)
            };
            expected.iter().filter_map(row).collect::<Vec<_>>()
        };
        if !node.is_soon(|| wrong().is_empty()).await {
            return wrong();
        }
    }
    Vec::new()
}

#[tokio::test]
async fn pod_statuses_match_upstream_from_start_to_removal() {
    let all = lives();
    assert!(all.len() >= 40, "{}", all.len());
    let lives = futures::stream::iter(all).map(live);
    let wrong: Vec<_> = lives.buffer_unordered(AT_ONCE).concat().await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

const TABLE: &str = r#"
pod running | |
    phase Running; qosClass BestEffort; startTime *; hostIP 127.0.0.1; hostIPs [{"ip":"127.0.0.1"}]; podIP *
    podIPs/0/ip *; PodReadyToStartContainers True; Initialized True; Ready True; ContainersReady True
    PodScheduled True; initContainerStatuses -; ephemeralContainerStatuses -; c.image *; c.imageID *
    c.containerID ~containerd://; c.ready true; c.started true; c.restartCount 0; c.state/running/startedAt *
    c.lastState -; c.resources -; c.volumeMounts -
    reason -; message - | kubelet_pods.go generateAPIPodStatus
    ! delete
pod completes | restartPolicy: Never, | command: [exit, '0', '5']
    phase Succeeded; Initialized True PodCompleted; c.ready false; c.started false; c.state/running -
    c.state/terminated/exitCode 0; c.state/terminated/reason Completed; c.state/terminated/startedAt *
    c.state/terminated/finishedAt *; c.state/terminated/containerID ~containerd://; c.restartCount 0
    Ready False PodCompleted | generate.go GeneratePodReadyConditionForTerminalPhase
    ContainersReady False PodCompleted | generate.go GenerateContainersReadyConditionForTerminalPhase
pod fails | restartPolicy: Never, | command: [exit, '3', '5']
    phase Failed; Initialized True; c.state/terminated/exitCode 3; c.state/terminated/reason Error
    Ready False PodFailed | generate.go GeneratePodReadyConditionForTerminalPhase
    ContainersReady False PodFailed | generate.go GenerateContainersReadyConditionForTerminalPhase
pod crashes-on-failure | restartPolicy: OnFailure, | command: [exit, '4', '5']
    phase Running; Ready False ContainersNotReady containers with unready status: [c]; c.restartCount 1
    c.containerID *; c.lastState/terminated/containerID *; c.lastState/terminated/exitCode 4
    c.state/waiting/reason CrashLoopBackOff | kuberuntime_manager.go doBackOff
    c.state/waiting/message ~back-off 10s restarting failed container=c pod=web-n_default( | kuberuntime_manager.go doBackOff
pod completes-always | | command: [exit, '0', '5']
    phase Running; c.lastState/terminated/reason Completed; c.restartCount 1
    c.state/waiting/reason CrashLoopBackOff | kuberuntime_manager.go doBackOff
pod out-of-memory | restartPolicy: Never, | command: [oom, '5']
    phase Failed
    c.state/terminated/reason OOMKilled; c.state/terminated/exitCode 137 | kuberuntime_container.go toKubeContainerStatus
pod start-fails | restartPolicy: Never, | command: [fail-start]
    phase Failed
    c.state/terminated/exitCode 128; c.state/terminated/reason StartError | kuberuntime_container.go toKubeContainerStatus
    c.state/terminated/startedAt 1970-01-01T00:00:00Z | kuberuntime_container.go toKubeContainerStatus
pod killed-and-restarted | |
    c.state/running/startedAt *
    ! kill c 5
    phase Running; Ready True; c.state/running/startedAt *; c.restartCount 1; c.lastState/terminated/exitCode 5
    c.lastState/terminated/reason Error
    ! kill c 6
    c.restartCount 1; c.lastState/terminated/exitCode 6
    c.state/waiting/reason CrashLoopBackOff | kuberuntime_manager.go doBackOff
pod killed-with-message | restartPolicy: Never, |
    c.state/running/startedAt *
    ! message unlucky
    ! kill c 9
    phase Failed
    c.state/terminated/message unlucky | kuberuntime_container.go getTerminationMessage
pod killed-with-message-and-restarted | |
    c.state/running/startedAt *
    ! message unlucky
    ! kill c 3
    c.state/running/startedAt *; c.lastState/terminated/exitCode 3
    c.lastState/terminated/message unlucky | kuberuntime_container.go getTerminationMessage
pod init-runs | initContainers: [{name: i, image: 'app:1'}], |
    phase Pending; Initialized False ContainersNotInitialized containers with incomplete status: [i]
    Ready False ContainersNotReady containers with unready status: [c]; i.state/running/startedAt *; i.started true
    i.ready false; c.state/waiting/reason PodInitializing; c.state/waiting/message -; c.image app:1; c.imageID -
    c.containerID -; c.started false
    ! kill i 0
    phase Running; Initialized True; i.state/terminated/reason Completed; i.ready true; i.started false
pod init-fails-never | restartPolicy: Never, initContainers: [{name: i, image: 'app:1', command: [exit, '2', '5']}, {name: b, image: 'app:1'}], |
    phase Failed; Initialized False ContainersNotInitialized containers with incomplete status: [i b]
    initContainerStatuses/0/name i; initContainerStatuses/1/name b; b.state/waiting/reason PodInitializing
    i.state/terminated/exitCode 2; i.ready false; c.state/waiting/reason PodInitializing
pod init-fails-always | initContainers: [{name: i, image: 'app:1', command: [exit, '2', '5']}], |
    phase Pending; i.lastState/terminated/exitCode 2; i.restartCount 1; c.state/waiting/reason PodInitializing
    i.state/waiting/reason CrashLoopBackOff | kuberuntime_manager.go doBackOff
pod sidecar-runs | initContainers: [{name: s, image: 'app:1', restartPolicy: Always}], |
    phase Running; s.state/running/startedAt *; s.started true; s.ready true; Initialized True
    ! kill s 7
    s.restartCount 1; s.lastState/terminated/exitCode 7; phase Running
pod sidecar-of-a-job | restartPolicy: Never, initContainers: [{name: s, image: 'app:1', restartPolicy: Always}], | command: [exit, '0', '50']
    phase Succeeded; s.state/terminated/exitCode 0; c.state/terminated/exitCode 0
pod sidecar-startup-fails | initContainers: [{name: s, image: 'app:1', restartPolicy: Always, startupProbe: {exec: {command: [exit, '1', '0']}, failureThreshold: 99}}], |
    phase Pending; s.started false; Initialized False ContainersNotInitialized containers with incomplete status: [s]
    c.state/waiting/reason PodInitializing
pod one-of-two-ends | restartPolicy: Never, | command: [exit, '3', '5']}, {name: a, image: 'app:2'
    phase Running; Ready False ContainersNotReady containers with unready status: [c]; containerStatuses/0/name a
    containerStatuses/1/name c; a.image *; a.ready true; c.ready false
    ! kill a 0
    phase Failed
pod restart-rule | restartPolicy: Never, | restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]
    c.state/running/startedAt *
    ! kill c 42
    phase Running; c.state/running/startedAt *
    c.restartCount 1 | helpers.go ShouldContainerBeRestarted
    ! kill c 1
    phase Failed
    c.restartCount 1 | helpers.go ShouldContainerBeRestarted
pod readiness-fails | | readinessProbe: {exec: {command: [exit, '1', '0']}}}, {name: a, image: 'app:1', readinessProbe: {exec: {command: [exit, '1', '0']}}
    phase Running; PodReadyToStartContainers True; Initialized True
    Ready False ContainersNotReady containers with unready status: [c a]
    ContainersReady False ContainersNotReady containers with unready status: [c a]; PodScheduled True; c.started true
    c.ready false
pod readiness-succeeds | | readinessProbe: {exec: {command: [exit, '0', '0']}}
    Ready True; c.ready true
pod startup-fails | | startupProbe: {exec: {command: [exit, '1', '0']}, failureThreshold: 99}
    phase Running; c.state/running/startedAt *; c.started false; c.ready false
pod startup-succeeds | | startupProbe: {exec: {command: [exit, '0', '0']}}
    c.started true; c.ready true
pod liveness-fails | | livenessProbe: {exec: {command: [exit, '1', '0']}, failureThreshold: 1}
    c.restartCount 1; c.lastState/terminated/exitCode 0
pod guaranteed | | resources: {limits: {cpu: '0.1', memory: 536870912}}
    qosClass Guaranteed; c.resources/limits {"cpu":"100m","memory":"512Mi"}
    c.resources/requests {"cpu":"100m","memory":"536870912"}; c.allocatedResources {"cpu":"100m","memory":"536870912"}
pod mounts | volumes: [{name: v, emptyDir: {}}], | volumeMounts: [{name: v, mountPath: /v}, {name: v, mountPath: /r, readOnly: true}]
    c.volumeMounts/0 {"mountPath":"/v","name":"v"}
    c.volumeMounts/1 {"mountPath":"/r","name":"v","readOnly":true,"recursiveReadOnly":"Disabled"}
pod host-network | hostNetwork: true, |
    PodReadyToStartContainers True
    podIP 127.0.0.1; podIPs [{"ip":"127.0.0.1"}] | kubelet_pods.go generateAPIPodStatus
pod pull-fails | |
    ! knob pull_image.fail=unavailable
    phase Pending; c.imageID -; PodReadyToStartContainers True
    c.state/waiting/reason ImagePullBackOff | image_manager.go EnsureImageExists
    c.state/waiting/message ~Back-off pulling image "app:1": ErrImagePull: | image_manager.go EnsureImageExists
    ! knob pull_image.fail=off
    c.state/running/startedAt *; c.restartCount 0
pod pull-fails-first | |
    ! knob pull_image.fail=unavailable
    c.state/waiting/reason ErrImagePull; c.state/waiting/message * | image_manager.go EnsureImageExists
pod never-pulled | | imagePullPolicy: Never
    phase Pending
    c.state/waiting/reason ErrImageNeverPull | image_manager.go EnsureImageExists
    c.state/waiting/message Container image "app:1" is not present with pull policy of Never | image_manager.go EnsureImageExists
pod image-name | | imagePullPolicy: Always}, {name: a, image: 'Bad'
    phase Pending; a.image Bad; c.state/running/startedAt *
    a.state/waiting/reason InvalidImageName | image_manager.go EnsureImageExists
pod create-fails | |
    ! knob create_container.fail=unavailable
    phase Pending; c.restartCount 0
    c.state/waiting/reason CreateContainerError | kuberuntime_container.go startContainer
    ! knob create_container.fail=off
    c.state/running/startedAt *; c.restartCount 0
pod config-fails | volumes: [{name: v, emptyDir: {}}], | volumeMounts: [{name: v, mountPath: /v, subPathExpr: $(NONE)}]
    phase Pending
    c.state/waiting/reason CreateContainerConfigError | kubelet_pods.go makeMounts
    c.state/waiting/message ~subPathExpr: the variable NONE is missing | kubelet_pods.go makeMounts
pod sandbox-fails | |
    ! knob run_pod_sandbox.fail=unavailable
    phase Pending; PodReadyToStartContainers False; c.state {"waiting":{"reason":"ContainerCreating"}}; c.imageID -
    c.ready false; podIP -; Initialized True
    ! knob run_pod_sandbox.fail=off
    c.state/running/startedAt *; c.restartCount 0
pod hook-fails | | lifecycle: {postStart: {exec: {command: [exit, '1', '0']}}}
    phase Running; c.lastState/terminated/exitCode 0; c.restartCount 1
pod deadline | activeDeadlineSeconds: 4, |
    c.state/terminated/exitCode 0; PodReadyToStartContainers False
    phase Failed; reason DeadlineExceeded | active_deadline.go ShouldEvict
    message Pod was active on the node longer than the specified deadline | active_deadline.go ShouldEvict
    Ready False PodFailed | generate.go GeneratePodReadyConditionForTerminalPhase
pod node-selector | nodeSelector: {disk: ssd}, |
    phase Failed | kubelet.go rejectPod
    reason NodeAffinity | predicate.go Admit
    message Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector | predicate.go Admit
    containerStatuses -; conditions -; hostIP -; qosClass BestEffort | kubelet.go rejectPod
    startTime * | status_manager.go updateStatusInternal
pod too-large | | resources: {requests: {cpu: 1Gi}}
    phase Failed | kubelet.go rejectPod
    reason OutOfcpu | predicate.go Admit
    message ~Pod was rejected: Node didn't have enough resource: cpu, requested: 1073741824000, used: 0, capacity: | predicate.go Admit
    qosClass Burstable | kubelet.go rejectPod
pod device | | resources: {limits: {example.com/gpu: 1}}
    reason OutOfexample.com/gpu | predicate.go Admit
pod windows | os: {name: windows}, |
    reason PodOSNotSupported; message Pod was rejected: Failed to admit pod as the OS field doesn't match node OS | predicate.go Admit
pod unsafe-sysctl | securityContext: {sysctls: [{name: kernel.msgmax, value: '1'}]}, |
    reason SysctlForbidden; message Pod was rejected: forbidden sysctl: "kernel.msgmax" not allowlisted | allowlist.go Admit
"#;
