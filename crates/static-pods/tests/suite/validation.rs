//! Values of pods that upstream's API server rejects.
//!
//! A row: `app` or `setup` (containers), `spec` or `metadata`; a path below it; fields there that make a valid pod
//! invalid; then the only fields below that path that must have errors; the value or problem; a part of the advice.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use static_pods::validation::{FieldError, validate};

/// A valid pod with this change.
fn changed(change: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {
            "initContainers": [{"name": "setup", "image": "shop:1"}],
            "containers": [{"name": "app", "image": "shop:1"}],
            "volumes": [{"name": "data", "emptyDir": {}}],
        },
    });
    json_patch::merge(&mut pod, change);
    pod
}

fn errors(pod: &Value) -> Vec<FieldError> {
    validate(&serde_json::from_value(pod.clone()).unwrap())
}

#[test]
fn error_of_each_wrong_value_names_its_field() {
    for row in WRONG.lines().map(str::trim).filter(|row| !row.is_empty()) {
        let cells: Vec<_> = row.split(" | ").collect();
        let [change, field, value, rule]: [&str; 4] = cells.try_into().unwrap();
        let (place, fields) = change.split_at(change.find('{').unwrap_or_default());
        let place = place.trim_end();
        let (root, path) = place.split_once(' ').unwrap_or((place, ""));
        let (root, pointer) = match root {
            "app" => ("spec.containers[0]", "/spec/containers/0"),
            "setup" => ("spec.initContainers[0]", "/spec/initContainers/0"),
            "spec" => ("spec", "/spec"),
            _ => ("metadata", "/metadata"),
        };
        let fields: Value = serde_saphyr::from_str(fields).unwrap();
        let names = path.split('.').filter(|name| !name.is_empty()).rev();
        let change = names.fold(fields, |fields, name| match name.strip_suffix("[0]") {
            Some(name) => json!({name: [fields]}),
            None => json!({name: fields}),
        });
        let mut pod = changed(&json!({}));
        json_patch::merge(pod.pointer_mut(pointer).unwrap(), &change);
        let errors = errors(&pod);
        let full = |field| {
            let names = [root, path, field].into_iter();
            let names = names.filter(|name| !name.is_empty());
            names.collect::<Vec<_>>().join(".")
        };
        let expected: BTreeSet<_> = field.split(' ').map(full).collect();
        let is_expected = |error: &FieldError| {
            let problem = &error.problem;
            expected.contains(&error.field) && problem.contains(value) && problem.contains(rule)
        };
        let is_right = errors.len() == expected.len() && errors.iter().all(is_expected);
        assert!(is_right, "{row}: {errors:?}");
        let parsed = crate::parse("web.json", &pod.to_string(), "node").err();
        assert!(parsed.is_some_and(|error| error.field.is_some()), "{row}");
    }
}

const WRONG: &str = r#"
    metadata {name: null} | name | missing | write a name
    metadata {namespace: a.b} | namespace | "a.b" | lower-case letters, digits and -,
    metadata {labels: {"a b": ''}} | labels | "a b" | a domain and / may come before
    metadata labels {a: '-'} | a | "-" | value of a label: use
    metadata {annotations: {"/a": ''}} | annotations | "/a" | a domain and /
    app {name: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx} | name | xxx | at most 63
    app {name: setup} | name | "setup" | rename one
    spec {hostname: a.-, subdomain: a.-} | hostname subdomain | "a.-" | digits and -,
    spec {priorityClassName: A, serviceAccountName: A, nodeName: A, volumes: [{emptyDir: {}, name: A}], hostAliases: [{hostnames: [A], ip: '10.0.0.1'}]} | priorityClassName serviceAccountName nodeName volumes[0].name hostAliases[0].hostnames[0] | "A" | lower-case
    spec {runtimeClassName: ''} | runtimeClassName | "" | lower-case
    spec {containers: []} | containers | no container | write at least one
    spec {restartPolicy: Once, initContainers: [{image: a, name: i, restartPolicy: Once}]} | restartPolicy initContainers[0].restartPolicy | "Once" | none of Always, OnFailure, Never
    spec {dnsPolicy: Cluster} | dnsPolicy | "Cluster" | ClusterFirst, ClusterFirstWithHostNet, Default
    spec {dnsPolicy: None} | dnsPolicy | "None" | write dnsConfig.nameservers
    spec dnsConfig {nameservers: ['::1', '::2', '::3', '::4']} | nameservers | 4 | at most 3
    spec {activeDeadlineSeconds: 0} | activeDeadlineSeconds | 0 | from 1 to 2147483647
    spec {terminationGracePeriodSeconds: -1, volumes: [{emptyDir: {sizeLimit: '-1'}, name: data}]} | terminationGracePeriodSeconds volumes[0].emptyDir.sizeLimit | -1 | write 0 or more
    spec {hostAliases: [{hostnames: [db], ip: host}], dnsConfig: {nameservers: [host]}} | hostAliases[0].ip dnsConfig.nameservers[0] | "host" | IP address
    spec {hostPID: true, shareProcessNamespace: true} | shareProcessNamespace | true | with hostPID
    spec {hostIPC: true, hostUsers: false} | hostIPC | true | with hostUsers: false
    spec {preemptionPolicy: Always} | preemptionPolicy | "Always" | Never, PreemptLowerPriority
    spec os {name: plan9} | name | "plan9" | linux, windows
    spec nodeSelector {a: b c} | a | "b c" | value of a label
    spec {nodeSelector: {a/b/c: ''}, readinessGates: [{conditionType: a/b/c}], tolerations: [{key: a/b/c}]} | nodeSelector readinessGates[0].conditionType tolerations[0].key | "a/b/c" | not a key
    spec tolerations[0] {key: a, operator: In} | operator | "In" | Exists, Equal
    spec tolerations[0] {effect: Evict, key: a} | effect | "Evict" | NoSchedule, PreferNoSchedule, NoExecute
    spec tolerations[0] {value: a} | operator | "Equal" | needs a key
    spec tolerations[0] {operator: Exists, value: a} | value | "a" | with operator: Exists
    spec tolerations[0] {key: a, tolerationSeconds: 5} | tolerationSeconds | 5 | effect: NoExecute
    spec {volumes: [{emptyDir: {}, hostPath: {path: /a}, name: data}]} | volumes[0] | emptyDir and hostPath | keep one
    spec volumes[0] {hostPath: {path: ''}, name: data} | hostPath.path | "" | begin it with /
    spec volumes[0] {hostPath: {path: /a/../b}, name: data} | hostPath.path | "/a/../b" | leave out ..
    spec volumes[0] {hostPath: {path: /a, type: Folder}, name: data} | hostPath.type | "Folder" | DirectoryOrCreate, Directory
    spec volumes[0] {emptyDir: {medium: Disk}, name: data} | emptyDir.medium | "Disk" | use Memory, HugePages
    app volumeMounts[0] {mountPath: /data, name: date} | name | "date" | add it to spec.volumes
    app volumeMounts[0] {mountPath: '', name: data} | mountPath | "" | write a path
    app volumeMounts[0] {mountPath: '/a:b', name: data} | mountPath | "/a:b" | without a colon
    app {volumeMounts: [{mountPath: /a, name: data}, {mountPath: /a, name: data}]} | volumeMounts[1].mountPath | "/a" | change one
    app volumeMounts[0] {mountPath: /data, name: data, subPath: /a} | subPath | "/a" | do not begin it with /
    app {volumeMounts: [{mountPath: /data, name: data, subPathExpr: '../a'}], securityContext: {seccompProfile: {localhostProfile: '../a', type: Localhost}}} | volumeMounts[0].subPathExpr securityContext.seccompProfile.localhostProfile | "../a" | leave out ..
    app volumeMounts[0] {mountPath: /data, name: data, subPath: a, subPathExpr: a} | subPathExpr | subPath | keep one
    app volumeMounts[0] {mountPath: /data, mountPropagation: Both, name: data} | mountPropagation | "Both" | None, HostToContainer, Bidirectional
    app volumeMounts[0] {mountPath: /data, mountPropagation: Bidirectional, name: data} | mountPropagation | "Bidirectional" | needs a privileged container
    app volumeMounts[0] {mountPath: /data, name: data, recursiveReadOnly: 'Yes'} | recursiveReadOnly | "Yes" | Disabled, IfPossible, Enabled
    app volumeMounts[0] {mountPath: /data, name: data, recursiveReadOnly: Enabled} | recursiveReadOnly | "Enabled" | readOnly: true
    app {image: ''} | image | missing | write an image
    app {image: 'shop:1 '} | image | "shop:1 " | remove the spaces
    app {imagePullPolicy: Sometimes} | imagePullPolicy | "Sometimes" | Always, IfNotPresent, Never
    app {restartPolicyRules: []} | restartPolicyRules | rules add to a restartPolicy | write one
    app {restartPolicy: Never, restartPolicyRules: [{action: Stop}]} | restartPolicyRules[0].action | "Stop" | Restart, RestartAllContainers
    app {restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: Is}}]} | restartPolicyRules[0].exitCodes.operator | "Is" | In, NotIn
    app {terminationMessagePolicy: Logs} | terminationMessagePolicy | "Logs" | File, FallbackToLogsOnError
    app {terminationMessagePath: log} | terminationMessagePath | "log" | begin it with /
    app resizePolicy[0] {resourceName: disk, restartPolicy: NotRequired} | resourceName | "disk" | cpu, memory
    app resizePolicy[0] {resourceName: cpu, restartPolicy: Restart} | restartPolicy | "Restart" | NotRequired, RestartContainer
    app {resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}, {resourceName: cpu, restartPolicy: NotRequired}]} | resizePolicy[1].resourceName | "cpu" | remove one
    setup {livenessProbe: {tcpSocket: {port: 80}}, lifecycle: {preStop: {sleep: {seconds: 1}}}, resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}]} | livenessProbe lifecycle resizePolicy | init containers | remove it
    app {env: [{name: A=B, value: ''}], envFrom: [{configMapRef: {name: a}, prefix: A=B}]} | env[0].name envFrom[0].prefix | "A=B" | except =
    app env[0] {name: A, valueFrom: {}} | valueFrom | empty | write a source
    app env[0] {name: A, value: x, valueFrom: {fieldRef: {fieldPath: metadata.name}}} | valueFrom | "x" | keep one
    app env[0] {name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}, secretKeyRef: {key: k, name: s}}} | valueFrom | fieldRef and secretKeyRef | keep one
    app env[0] {name: A, valueFrom: {fieldRef: {fieldPath: spec.hostname}}} | valueFrom.fieldRef.fieldPath | "spec.hostname" | metadata.name
    app env[0] {name: A, valueFrom: {fieldRef: {fieldPath: "metadata.labels['a b']"}}} | valueFrom.fieldRef.fieldPath | a b | metadata.labels['KEY']
    app env[0] {name: A, valueFrom: {resourceFieldRef: {resource: limits.gpu}}} | valueFrom.resourceFieldRef.resource | "limits.gpu" | use cpu, memory
    app ports[0] {containerPort: 80, hostPort: 65536} | hostPort | 65536 | from 0 to 65535
    app ports[0] {containerPort: 80, hostIP: eth0} | hostIP | "eth0" | 10.0.0.1
    app ports[0] {containerPort: 80, protocol: HTTP} | protocol | "HTTP" | TCP, UDP, SCTP
    app ports[0] {containerPort: 80, name: a-long-port-name} | name | "a-long-port-name" | at most 15
    app ports[0] {containerPort: 80, name: '80'} | name | "80" | at least one letter
    app ports[0] {containerPort: 80, name: a--b} | name | "a--b" | single -
    spec {volumes: [{emptyDir: {}, name: web}, {emptyDir: {}, name: web}], containers: [{image: 'shop:1', name: app, ports: [{containerPort: 80, hostPort: 8080, name: web}, {containerPort: 81, name: web}]}]} | volumes[1].name containers[0].ports[1].name | "web" | rename one
    app {ports: [{containerPort: 80, hostPort: 8080, name: web}, {containerPort: 81, hostPort: 8080}]} | ports[1].hostPort | 8080/TCP | change one
    spec {containers: [{image: 'shop:1', name: app, ports: [{containerPort: 80, hostPort: 8080}]}], hostNetwork: true} | containers[0].ports[0].hostPort | 8080 | on the host network
    spec {containers: [{image: 'shop:1', name: app, ports: [{containerPort: 80}, {containerPort: 80}]}], hostNetwork: true} | containers[0].ports[1].containerPort | 80/TCP | change one
    app {livenessProbe: {}} | livenessProbe | nothing | exec, httpGet, tcpSocket and grpc
    app {livenessProbe: {exec: {command: [a]}, tcpSocket: {port: 80}}} | livenessProbe | exec and tcpSocket | keep one
    app {livenessProbe: {exec: {command: []}}, startupProbe: {exec: {}}, lifecycle: {postStart: {exec: {command: []}}}} | livenessProbe.exec.command startupProbe.exec.command lifecycle.postStart.exec.command | [] is empty | write a command
    app {livenessProbe: {httpGet: {port: 80, scheme: FTP}}, lifecycle: {postStart: {httpGet: {port: 80, scheme: FTP}}}} | livenessProbe.httpGet.scheme lifecycle.postStart.httpGet.scheme | "FTP" | HTTP, HTTPS
    app {livenessProbe: {httpGet: {port: 0}}, readinessProbe: {grpc: {port: 0}}, lifecycle: {preStop: {httpGet: {port: 0}}}, ports: [{containerPort: 0}]} | livenessProbe.httpGet.port readinessProbe.grpc.port lifecycle.preStop.httpGet.port ports[0].containerPort | 0 | from 1 to 65535
    app livenessProbe.httpGet {httpHeaders: [{name: a b, value: ''}], port: 80} | httpHeaders[0].name | "a b" | letters, digits and -
    app livenessProbe.tcpSocket {port: '80'} | port | "80" | without quotes
    app livenessProbe.tcpSocket {port: Web} | port | "Web" | name of a port
    app {livenessProbe: {initialDelaySeconds: -1, periodSeconds: -1, timeoutSeconds: -1, failureThreshold: -1, successThreshold: -1, tcpSocket: {port: 80}}, resources: {limits: {cpu: '-1'}}, lifecycle: {preStop: {sleep: {seconds: -1}}}} | livenessProbe.initialDelaySeconds livenessProbe.periodSeconds livenessProbe.timeoutSeconds livenessProbe.failureThreshold livenessProbe.successThreshold resources.limits.cpu lifecycle.preStop.sleep.seconds | -1 | 0 or more
    app {livenessProbe: {successThreshold: 2, tcpSocket: {port: 80}}, startupProbe: {successThreshold: 2, tcpSocket: {port: 80}}} | livenessProbe.successThreshold startupProbe.successThreshold | 2 | write 1
    app livenessProbe {tcpSocket: {port: 80}, terminationGracePeriodSeconds: 0} | terminationGracePeriodSeconds | 0 | 1 or more
    app readinessProbe {tcpSocket: {port: 80}, terminationGracePeriodSeconds: 3} | terminationGracePeriodSeconds | 3 | remove it
    app lifecycle {preStop: {}} | preStop | nothing | exec, httpGet and sleep
    app lifecycle {preStop: {exec: {command: [a]}, sleep: {seconds: 1}}} | preStop | exec and sleep | keep one
    app lifecycle {stopSignal: SIGTERM} | stopSignal | "SIGTERM" | write spec.os.name
    spec {os: {name: linux}, initContainers: [{image: a, name: i, lifecycle: {stopSignal: SIGNAL}}]} | initContainers[0].lifecycle.stopSignal | "SIGNAL" | such as SIGTERM
    app lifecycle.postStart.httpGet {port: 80, httpHeaders: [{name: '', value: a}]} | httpHeaders[0].name | "" | letters, digits and -
    app resources {limits: {memry: 24Mi}} | limits | "memry" | use cpu, memory, ephemeral-storage, hugepages-SIZE
    app resources {requests: {kubernetes.io/gpu: '1'}} | requests | "kubernetes.io/gpu" | a domain such as example.com/gpu
    app resources.limits {memory: 64MB} | memory | "64MB" | 128Mi
    app resources {requests: {cpu: '2'}, limits: {cpu: 1500m}} | requests.cpu | 2 is greater than the limit 1500m | raise the limit
    app resources.limits {example.com/gpu: 500m} | example.com/gpu | 500m | whole number
    app resources {requests: {a.b/gpu: '1'}, limits: {a.b/gpu: '2'}} | requests.a.b/gpu | 1 is not the limit 2 | same amount
    app resources.requests {a.b/gpu: '1'} | a.b/gpu | 1 has no limit | same limit
    app {resources: {limits: {hugepages-2Mi: 4Mi}}} | resources | hugepages-2Mi | needs cpu or memory
    spec securityContext {runAsUser: -1, runAsGroup: -1, fsGroup: -1, supplementalGroups: [1, -1]} | runAsUser runAsGroup fsGroup supplementalGroups[1] | -1 | from 0 to 2147483647
    spec securityContext {fsGroupChangePolicy: Never} | fsGroupChangePolicy | "Never" | OnRootMismatch, Always
    spec securityContext {supplementalGroupsPolicy: All} | supplementalGroupsPolicy | "All" | Merge, Strict
    spec securityContext {seLinuxChangePolicy: All} | seLinuxChangePolicy | "All" | Recursive, MountOption
    spec securityContext.sysctls[0] {name: net..a, value: '1'} | name | "net..a" | kernel.shm_rmid_forced
    spec securityContext {sysctls: [{name: net.a, value: '1'}, {name: net.a, value: '2'}]} | sysctls[1].name | "net.a" | remove one
    spec {hostNetwork: true, securityContext: {sysctls: [{name: net.core.somaxconn, value: '1'}]}} | securityContext.sysctls[0].name | somaxconn | with hostNetwork
    spec {hostIPC: true, securityContext: {sysctls: [{name: kernel.shmmax, value: '1'}]}} | securityContext.sysctls[0].name | shmmax | with hostIPC
    spec securityContext {appArmorProfile: {type: Strict}, seccompProfile: {type: Strict}} | appArmorProfile.type seccompProfile.type | "Strict" | RuntimeDefault, Localhost, Unconfined
    spec securityContext.seccompProfile {type: Localhost} | localhostProfile | missing | path of the profile
    spec securityContext.seccompProfile {localhostProfile: a.json, type: RuntimeDefault} | localhostProfile | "a.json" | write type: Localhost
    app securityContext.seccompProfile {} | type | missing | RuntimeDefault
    app securityContext {runAsUser: 2147483648, runAsGroup: 2147483648} | runAsUser runAsGroup | 2147483648 | from 0 to 2147483647
    app securityContext {allowPrivilegeEscalation: false, privileged: true} | allowPrivilegeEscalation | false | with privileged: true
    app securityContext {allowPrivilegeEscalation: false, capabilities: {add: [CAP_SYS_ADMIN]}} | allowPrivilegeEscalation | false | with the capability CAP_SYS_ADMIN
    app securityContext {procMount: All} | procMount | "All" | Default, Unmasked
    app securityContext {procMount: Unmasked} | procMount | "Unmasked" | hostUsers: false
"#;

#[test]
fn validation_refuses_annotations_larger_than_256_kibibytes() {
    let annotations = json!({"a": "x".repeat(256 << 10)});
    let pod = changed(&json!({"metadata": {"annotations": annotations}}));
    let problem = "262145 bytes are too many: write at most 262144";
    let expected = FieldError::new("metadata.annotations", problem);
    assert_eq!(errors(&pod), [expected]);
}

#[test]
fn validation_finds_all_errors_in_order_of_list_elements() {
    let container =
        |at| json!({"name": format!("c{at}"), "image": "a", "ports": [{"containerPort": 0}]});
    let containers: Vec<_> = (0..12).map(container).collect();
    let change = json!({"metadata": {"name": "A"}, "spec": {"containers": containers}});
    let found = errors(&changed(&change)).into_iter();
    let ports = (0..12).map(|at| format!("spec.containers[{at}].ports[0].containerPort"));
    let expected = std::iter::once("metadata.name".to_owned()).chain(ports);
    assert!(found.map(|error| error.field).eq(expected));
}
