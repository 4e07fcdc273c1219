//! Valid manifests run. Their values are close to those that a validation rule refuses.

use pleg_sim::Mode;

use super::node::{Node, manifest};

const LABELS: &str = "{app.kubernetes.io/name: Web_1.x, short: '', example.com/a: b}";

/// Valid fields of a pod, one set per pod.
const PODS: [&str; 12] = [
    "restartPolicy: Never, imagePullSecrets: [{name: registry}], terminationGracePeriodSeconds: 0",
    "dnsPolicy: ClusterFirstWithHostNet, hostNetwork: true",
    "dnsPolicy: Default, enableServiceLinks: false, hostname: web-1, subdomain: shop, shareProcessNamespace: true",
    "priorityClassName: system-node-critical, priority: 2000001000, preemptionPolicy: Never",
    "tolerations: [{operator: Exists}, {key: a/b, effect: NoExecute, tolerationSeconds: 0}]",
    "nodeSelector: {kubernetes.io/os: linux}, os: {name: linux}, nodeName: 'n'",
    "hostPID: true, hostIPC: true, shareProcessNamespace: false, serviceAccountName: ''",
    "securityContext: {runAsUser: 0, runAsGroup: 2147483647, fsGroup: 65534, supplementalGroups: [1]}",
    "securityContext: {sysctls: [{name: net.ipv4.tcp_syncookies, value: '1'}]}",
    "securityContext: {seccompProfile: {type: RuntimeDefault}, fsGroupChangePolicy: Always}",
    "os: {name: linux}, initContainers: [{name: a, image: 'app:1', command: [exit, '0', '1']},
        {name: b, image: 'app:1', restartPolicy: Always, livenessProbe: {exec: {command: [a]}}, lifecycle: {stopSignal: SIGRTMIN+1}}]",
    "volumes: [{name: a, hostPath: {path: /, type: ''}}, {name: b, emptyDir: {sizeLimit: 1Gi}}]",
];

/// Valid fields of a container, one set per container. Each of their pods has the volume `v`.
const CONTAINERS: [&str; 18] = [
    "restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]",
    "imagePullPolicy: Never, terminationMessagePolicy: FallbackToLogsOnError, terminationMessagePath: /dev/log",
    "env: [{name: 'A B', value: ''}, {name: a.b-c, value: '$(A B)'}, {name: '1', value: x}]",
    "env: [{name: A, valueFrom: {fieldRef: {fieldPath: \"metadata.labels['example.com/a']\"}}},
        {name: B, value: '', valueFrom: {fieldRef: {apiVersion: v1, fieldPath: status.podIP}}}]",
    "ports: [{containerPort: 80, name: a-1}, {containerPort: 80, name: b, protocol: UDP}]",
    "ports: [{containerPort: 80, hostPort: 8080, hostIP: 10.0.0.1},
        {containerPort: 80, hostPort: 8080, hostIP: '10.0.0.2'}, {containerPort: 81, hostPort: 0}]",
    "resources: {limits: {memory: 128Mi}, requests: {cpu: 1}}",
    "resources: {limits: {cpu: 500m}, requests: {cpu: 0.5, ephemeral-storage: 1e3, memory: 0}}",
    "resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired},
        {resourceName: memory, restartPolicy: NotRequired}]",
    "livenessProbe: {tcpSocket: {port: web}, initialDelaySeconds: 0, successThreshold: 1},
        ports: [{name: web, containerPort: 80}]",
    "readinessProbe: {httpGet: {port: 80, path: /a, httpHeaders: [{name: X-A, value: ''}]},
        successThreshold: 3, timeoutSeconds: 0}",
    "startupProbe: {exec: {command: [a, '']}, failureThreshold: 100, periodSeconds: 1}",
    "securityContext: {privileged: true, allowPrivilegeEscalation: true, procMount: Default}",
    "securityContext: {allowPrivilegeEscalation: false, capabilities: {add: [NET_ADMIN], drop: [ALL]}}",
    "securityContext: {runAsNonRoot: true, runAsUser: 1, seccompProfile: {type: Unconfined}}",
    "volumeMounts: [{name: v, mountPath: data}, {name: v, mountPath: /data}]",
    "volumeMounts: [{name: v, mountPath: /a, mountPropagation: HostToContainer, subPath: ''}]",
    "volumeMounts: [{name: v, mountPath: /a, readOnly: true, recursiveReadOnly: IfPossible}]",
];

#[tokio::test]
async fn valid_values_are_not_refused_and_their_pods_run() {
    let node = Node::up(Mode::Containerd2).await;
    let container = "name: c, image: 'registry.example.com:5000/app:1'";
    let pods = PODS.map(|fields| format!("{{containers: [{{{container}}}], {fields}}}"));
    let volume = "volumes: [{name: v, emptyDir: {}}]";
    let containers =
        CONTAINERS.map(|fields| format!("{{containers: [{{{container}, {fields}}}], {volume}}}"));
    let specs = pods.iter().chain(&containers).enumerate();
    let set = |at, spec| node.set_manifest(manifest(&format!("p{at}"), LABELS, spec));
    let uids = specs.map(|(at, spec)| (spec, set(at, spec)));
    let uids: Vec<_> = uids.collect();
    for (spec, uid) in &uids {
        let what = format!("running: {spec}");
        node.until(uid, &what, |node| node.is_running(uid)).await;
    }
    let running = node.kubelet.running();
    assert_eq!(running, uids.into_iter().map(|(_, uid)| uid).collect());
}
