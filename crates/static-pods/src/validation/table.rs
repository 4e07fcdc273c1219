//! The rules, one per line.

/// Each rule has the path of a field (see [`fields_at`](pleg_kubelet::fields_at); `spec~` means the pod and each of its
/// containers), and a check of the field's value (see [`problems`](super::texts::problems)).
///
/// Instead of a check, a rule may have `if`, the [conditions](super::holds) under which a field is wrong, and the
/// problem. Its path is `OBJECT FIELD`, and its conditions are about OBJECT. If FIELD is `.`, errors name OBJECT.
pub(super) const RULES: &str = r#"
metadata name: if !name: it is missing: write a name
metadata.annotations: keys annotation key
metadata.labels: keys key
metadata.labels.*: label value
metadata.name: subdomain
metadata.namespace: empty or label
spec: if !spec: it is missing: write the containers of the pod
spec containers: if !containers: there is no container: write at least one
spec dnsPolicy: if dnsPolicy=None !dnsConfig.nameservers: "None" needs name servers: write dnsConfig.nameservers
spec hostIPC: if hostIPC=true hostUsers=false: true is not allowed with hostUsers: false: remove one
spec hostNetwork: if hostNetwork=true hostUsers=false: true is not allowed with hostUsers: false: remove one
spec hostPID: if hostPID=true hostUsers=false: true is not allowed with hostUsers: false: remove one
spec shareProcessNamespace: if shareProcessNamespace=true hostPID=true: true is not allowed together with hostPID: remove one
spec.activeDeadlineSeconds: from 1 to 2147483647
spec.dnsConfig.nameservers: at most 3 elements
spec.dnsConfig.nameservers.[]: ip
spec.dnsPolicy: one of ClusterFirst, ClusterFirstWithHostNet, Default, None
spec.hostAliases.hostnames.[]: subdomain
spec.hostAliases.ip: ip
spec.hostname: empty or label
spec.nodeName: empty or subdomain
spec.nodeSelector: keys key
spec.nodeSelector.*: label value
spec.os.name: one of linux, windows
spec.preemptionPolicy: one of Never, PreemptLowerPriority
spec.priorityClassName: empty or subdomain
spec.readinessGates.conditionType: key
spec.restartPolicy: one of Always, OnFailure, Never
spec.runtimeClassName: subdomain
spec.serviceAccountName: empty or subdomain
spec.subdomain: empty or label
spec.terminationGracePeriodSeconds: at least 0
spec.tolerations operator: if !key !operator: "Equal" needs a key: write one, or operator: Exists
spec.tolerations operator: if !key operator operator!=Exists: {} needs a key: write one, or operator: Exists
spec.tolerations tolerationSeconds: if tolerationSeconds effect!=NoExecute: {} needs effect: NoExecute: write it, or remove this
spec.tolerations value: if value operator=Exists: {} is not allowed with operator: Exists: remove one
spec.tolerations.effect: one of NoSchedule, PreferNoSchedule, NoExecute
spec.tolerations.key: empty or key
spec.tolerations.operator: one of Exists, Equal, Lt, Gt
spec.volumes.[]: one field except name
spec.volumes.emptyDir.medium: empty or medium
spec.volumes.emptyDir.sizeLimit: amount
spec.volumes.hostPath.path: node path
spec.volumes.hostPath.type: one of DirectoryOrCreate, Directory, FileOrCreate, File, Socket, CharDevice, BlockDevice
spec.volumes.name: label
spec.@ image: if !image: it is missing: write an image
spec.@ restartPolicyRules: if !restartPolicy restartPolicyRules: rules add to a restartPolicy of the container: write one
spec.@ restartPolicyRules: if !restartPolicy restartPolicyRules=[]: rules add to a restartPolicy of the container: write one
spec.@.image: image
spec.@.imagePullPolicy: one of Always, IfNotPresent, Never
spec.@.name: label
spec.@.resizePolicy.resourceName: one of cpu, memory
spec.@.resizePolicy.restartPolicy: one of NotRequired, RestartContainer
spec.@.restartPolicy: one of Always, OnFailure, Never
spec.@.restartPolicyRules.action: one of Restart, RestartAllContainers
spec.@.restartPolicyRules.exitCodes.operator: one of In, NotIn
spec.@.terminationMessagePath: empty or absolute path
spec.@.terminationMessagePolicy: one of File, FallbackToLogsOnError
spec.initContainers lifecycle: if restartPolicy!=Always lifecycle.postStart: init containers have no hooks: remove it
spec.initContainers lifecycle: if restartPolicy!=Always lifecycle.preStop: init containers have no hooks: remove it
spec.initContainers livenessProbe: if restartPolicy!=Always livenessProbe: init containers are not probed: remove it
spec.initContainers readinessProbe: if restartPolicy!=Always readinessProbe: init containers are not probed: remove it
spec.initContainers resizePolicy: if restartPolicy!=Always resizePolicy: init containers are not resized: remove it
spec.initContainers startupProbe: if restartPolicy!=Always startupProbe: init containers are not probed: remove it
spec.@.env valueFrom: if value valueFrom: the value {value} is given as well: keep one
spec.@.env.name: variable
spec.@.env.valueFrom .: if !*: it is empty: write a source such as fieldRef
spec.@.env.valueFrom: one field except name
spec.@.env.valueFrom.fieldRef.fieldPath: field of a pod
spec.@.env.valueFrom.resourceFieldRef.resource: resource field
spec.@.envFrom.prefix: empty or variable
spec.@.ports.containerPort: from 1 to 65535
spec.@.ports.hostIP: empty or ip
spec.@.ports.hostPort: from 0 to 65535
spec.@.ports.name: empty or port name
spec.@.ports.protocol: one of TCP, UDP, SCTP
spec.@.*Probe .: if !exec !grpc !httpGet !tcpSocket: it does nothing: write one of exec, httpGet, tcpSocket and grpc
spec.@.*Probe.exec command: if !command: [] is empty: write a command and its arguments
spec.@.*Probe: one field of exec, grpc, httpGet, tcpSocket
spec.@.*Probe.failureThreshold: at least 0
spec.@.*Probe.grpc.port: from 1 to 65535
spec.@.*Probe.httpGet.httpHeaders.name: header
spec.@.*Probe.httpGet.port: port
spec.@.*Probe.httpGet.scheme: one of HTTP, HTTPS
spec.@.*Probe.initialDelaySeconds: at least 0
spec.@.*Probe.periodSeconds: at least 0
spec.@.*Probe.successThreshold: at least 0
spec.@.*Probe.tcpSocket.port: port
spec.@.*Probe.terminationGracePeriodSeconds: at least 1
spec.@.*Probe.timeoutSeconds: at least 0
spec.@.livenessProbe.successThreshold: 1 in a livenessProbe
spec.@.readinessProbe terminationGracePeriodSeconds: if terminationGracePeriodSeconds: {} has no effect, because this probe stops nothing: remove it
spec.@.startupProbe.successThreshold: 1 in a startupProbe
spec.@.lifecycle.postStart .: if !exec !httpGet !sleep !tcpSocket: it does nothing: write one of exec, httpGet and sleep
spec.@.lifecycle.preStop .: if !exec !httpGet !sleep !tcpSocket: it does nothing: write one of exec, httpGet and sleep
spec.@.lifecycle stopSignal: if stopSignal !spec.os.name: {} needs an operating system: write spec.os.name
spec.@.lifecycle.*.exec command: if !command: [] is empty: write a command and its arguments
spec.@.lifecycle.*: one field of exec, httpGet, sleep, tcpSocket
spec.@.lifecycle.*.httpGet.httpHeaders.name: header
spec.@.lifecycle.*.httpGet.port: port
spec.@.lifecycle.*.httpGet.scheme: one of HTTP, HTTPS
spec.@.lifecycle.*.sleep.seconds: at least 0
spec.@.lifecycle.stopSignal: signal
spec.@.resources.limits: keys resource
spec.@.resources.limits.*: amount
spec.@.resources.requests: keys resource
spec.@.resources.requests.*: amount
spec.@.volumeMounts recursiveReadOnly: if recursiveReadOnly=Enabled|IfPossible readOnly!=true: {} needs readOnly: true: write it
spec.@.volumeMounts recursiveReadOnly: if recursiveReadOnly=Enabled|IfPossible readOnly=true mountPropagation mountPropagation!=None: {} is not allowed with mountPropagation: remove one
spec.@.volumeMounts subPathExpr: if subPath subPathExpr: subPath is given as well: keep one
spec.@.volumeMounts.mountPath: mount path
spec.@.volumeMounts.mountPropagation: one of None, HostToContainer, Bidirectional
spec.@.volumeMounts.recursiveReadOnly: one of Disabled, IfPossible, Enabled
spec.@.volumeMounts.subPath: relative path
spec.@.volumeMounts.subPathExpr: relative path
spec.@.securityContext allowPrivilegeEscalation: if allowPrivilegeEscalation=false privileged=true: false is not allowed with privileged: true: remove one
spec.@.securityContext allowPrivilegeEscalation: if allowPrivilegeEscalation=false capabilities.add.[]=CAP_SYS_ADMIN: false is not allowed with the capability CAP_SYS_ADMIN: remove one
spec.@.securityContext procMount: if procMount=Unmasked spec.hostUsers!=false: "Unmasked" needs a user namespace: write hostUsers: false, or Default
spec.@.securityContext.procMount: one of Default, Unmasked
spec.securityContext.fsGroup: from 0 to 2147483647
spec.securityContext.fsGroupChangePolicy: one of OnRootMismatch, Always
spec.securityContext.seLinuxChangePolicy: one of Recursive, MountOption
spec.securityContext.supplementalGroups.[]: from 0 to 2147483647
spec.securityContext.supplementalGroupsPolicy: one of Merge, Strict
spec.securityContext.sysctls name: if name=net.*|net/* spec.hostNetwork=true: {} is the node's with hostNetwork: remove one
spec.securityContext.sysctls name: if name=kernel.shm*|kernel.msg*|kernel.sem*|fs.mqueue.*|kernel/shm*|kernel/msg* spec.hostIPC=true: {} is the node's with hostIPC: remove one
spec.securityContext.sysctls.name: sysctl
spec~.securityContext.appArmorProfile.type: one of RuntimeDefault, Localhost, Unconfined
spec~.securityContext.runAsGroup: from 0 to 2147483647
spec~.securityContext.runAsUser: from 0 to 2147483647
spec~.securityContext.seccompProfile localhostProfile: if type=Localhost !localhostProfile: it is missing: write the path of the profile
spec~.securityContext.seccompProfile localhostProfile: if type=RuntimeDefault localhostProfile: {} is not allowed with type RuntimeDefault: remove it, or write type: Localhost
spec~.securityContext.seccompProfile localhostProfile: if type=Unconfined localhostProfile: {} is not allowed with type Unconfined: remove it, or write type: Localhost
spec~.securityContext.seccompProfile type: if !type: it is missing: write RuntimeDefault, Localhost or Unconfined
spec~.securityContext.seccompProfile.localhostProfile: relative path
spec~.securityContext.seccompProfile.type: one of RuntimeDefault, Localhost, Unconfined
"#;

/// The paths of fields that must not repeat a value, and the problem of a repeated value. For `WITHIN PATH`, the values
/// at PATH must differ only within each object at WITHIN.
pub(super) const UNIQUE: &str = "\
spec.@.name: another container is named {}: rename one
spec.@ ports.name: another port of the container is named {}: rename one
spec.@ resizePolicy.resourceName: another resize policy is for {}: remove one
spec.@ volumeMounts.mountPath: another volume is mounted at {}: change one
spec.securityContext.sysctls.name: {} is set twice: remove one
spec.volumes.name: another volume is named {}: rename one";
