//! Lives of pods, in the notation of the test.

/// The files of upstream that the rows name.
pub(super) const FILES: &str = "pkg/kubelet/active_deadline.go pkg/kubelet/container/helpers.go \
    pkg/kubelet/images/image_manager.go pkg/kubelet/kubelet_pods.go pkg/kubelet/kubelet.go \
    pkg/kubelet/kuberuntime/convert.go pkg/kubelet/kuberuntime/kuberuntime_container.go \
    pkg/kubelet/kuberuntime/kuberuntime_manager.go pkg/kubelet/kuberuntime/security_context.go \
    pkg/kubelet/lifecycle/predicate.go pkg/kubelet/prober/prober_manager.go pkg/kubelet/status/generate.go \
    pkg/kubelet/sysctl/allowlist.go pkg/apis/core/v1/helper/qos/qos.go";

pub(super) const TABLE: &str = r#"
pod running | |
    phase Running | kubelet_pods.go getPhase
    reason -; message - | kubelet_pods.go generateAPIPodStatus
    qosClass BestEffort | qos.go ComputePodQOS
    startTime *; hostIP 127.0.0.1; hostIPs [{"ip":"127.0.0.1"}] | kubelet_pods.go generateAPIPodStatus
    podIP *; podIPs/0/ip * | kubelet_pods.go convertStatusToAPIStatus
    PodReadyToStartContainers True | generate.go GeneratePodReadyToStartContainersCondition
    Initialized True | generate.go GeneratePodInitializedCondition
    Ready True | generate.go GeneratePodReadyCondition
    ContainersReady True | generate.go GenerateContainersReadyCondition
    PodScheduled True | kubelet_pods.go generateAPIPodStatus
    initContainerStatuses -; ephemeralContainerStatuses -; c.image *; c.imageID * | kubelet_pods.go convertToAPIContainerStatuses
    c.containerID ~containerd:// | kubelet_pods.go convertToAPIContainerStatuses
    c.ready true; c.started true | prober_manager.go UpdatePodStatus
    c.restartCount 0; c.state/running/startedAt *; c.lastState - | kubelet_pods.go convertToAPIContainerStatuses
    c.resources - | kubelet_pods.go convertContainerStatusResources
    c.volumeMounts - | kubelet_pods.go convertToAPIContainerStatuses
    ! delete
pod completes | restartPolicy: Never, | command: [exit, '0', '5']
    phase Succeeded | kubelet_pods.go getPhase
    Initialized True PodCompleted | generate.go GeneratePodInitializedCondition
    Ready False PodCompleted | generate.go GeneratePodReadyConditionForTerminalPhase
    ContainersReady False PodCompleted | generate.go GenerateContainersReadyConditionForTerminalPhase
    c.ready false; c.started false | prober_manager.go UpdatePodStatus
    c.state/running -; c.state/terminated/exitCode 0; c.state/terminated/reason Completed | kubelet_pods.go convertToAPIContainerStatuses
    c.state/terminated/startedAt *; c.state/terminated/finishedAt * | kubelet_pods.go convertToAPIContainerStatuses
    c.state/terminated/containerID ~containerd://; c.restartCount 0 | kubelet_pods.go convertToAPIContainerStatuses
pod fails | restartPolicy: Never, | command: [exit, '3', '5']
    phase Failed | kubelet_pods.go getPhase
    Initialized True | generate.go GeneratePodInitializedCondition
    Ready False PodFailed | generate.go GeneratePodReadyConditionForTerminalPhase
    ContainersReady False PodFailed | generate.go GenerateContainersReadyConditionForTerminalPhase
    c.state/terminated/exitCode 3; c.state/terminated/reason Error | kubelet_pods.go convertToAPIContainerStatuses
pod completes-on-failure | restartPolicy: OnFailure, | command: [exit, '0', '5']
    phase Succeeded | kubelet_pods.go getPhase
    c.restartCount 0 | helpers.go ShouldContainerBeRestarted
pod crashes-on-failure | restartPolicy: OnFailure, | command: [exit, '4', '5']
    phase Running | kubelet_pods.go getPhase
    Ready False ContainersNotReady containers with unready status: [c] | generate.go GeneratePodReadyCondition
    c.restartCount 1 | kubelet_pods.go convertToAPIContainerStatuses
    c.state/waiting/reason CrashLoopBackOff | kuberuntime_manager.go doBackOff
    c.state/waiting/message ~back-off 10s restarting failed container=c pod=web-n_default( | kuberuntime_manager.go doBackOff
    c.containerID *; c.lastState/terminated/containerID *; c.lastState/terminated/exitCode 4 | kubelet_pods.go convertToAPIContainerStatuses
pod completes-always | | command: [exit, '0', '5']
    phase Running | kubelet_pods.go getPhase
    c.state/waiting/reason CrashLoopBackOff | kuberuntime_manager.go doBackOff
    c.lastState/terminated/reason Completed; c.restartCount 1 | kubelet_pods.go convertToAPIContainerStatuses
pod out-of-memory | restartPolicy: Never, | command: [oom, '5']
    phase Failed | kubelet_pods.go getPhase
    c.state/terminated/reason OOMKilled; c.state/terminated/exitCode 137 | kuberuntime_container.go toKubeContainerStatus
pod start-fails | restartPolicy: Never, | command: [fail-start]
    phase Failed | kubelet_pods.go getPhase
    c.state/terminated/exitCode 128; c.state/terminated/reason StartError | kuberuntime_container.go toKubeContainerStatus
    c.state/terminated/startedAt 1970-01-01T00:00:00Z | kuberuntime_container.go toKubeContainerStatus
pod killed-and-restarted | |
    c.state/running/startedAt * | kubelet_pods.go convertToAPIContainerStatuses
    ! kill c 5
    phase Running | kubelet_pods.go getPhase
    Ready True | generate.go GeneratePodReadyCondition
    c.state/running/startedAt *; c.restartCount 1; c.lastState/terminated/exitCode 5 | kubelet_pods.go convertToAPIContainerStatuses
    c.lastState/terminated/reason Error | kubelet_pods.go convertToAPIContainerStatuses
    ! kill c 6
    c.restartCount 1 | kubelet_pods.go convertToAPIContainerStatuses
    c.state/waiting/reason CrashLoopBackOff | kuberuntime_manager.go doBackOff
    c.lastState/terminated/exitCode 6 | kubelet_pods.go convertToAPIContainerStatuses
pod killed-with-message | restartPolicy: Never, |
    c.state/running/startedAt * | kubelet_pods.go convertToAPIContainerStatuses
    ! message unlucky
    ! kill c 9
    phase Failed | kubelet_pods.go getPhase
    c.state/terminated/message unlucky | kuberuntime_container.go getTerminationMessage
pod killed-with-message-and-restarted | |
    c.state/running/startedAt * | kubelet_pods.go convertToAPIContainerStatuses
    ! message unlucky
    ! kill c 3
    c.state/running/startedAt *; c.lastState/terminated/exitCode 3 | kubelet_pods.go convertToAPIContainerStatuses
    c.lastState/terminated/message unlucky | kuberuntime_container.go getTerminationMessage
pod init-runs | initContainers: [{name: i, image: 'app:1'}], |
    phase Pending | kubelet_pods.go getPhase
    Initialized False ContainersNotInitialized containers with incomplete status: [i] | generate.go GeneratePodInitializedCondition
    Ready False ContainersNotReady containers with unready status: [c] | generate.go GeneratePodReadyCondition
    i.state/running/startedAt * | kubelet_pods.go convertToAPIContainerStatuses
    i.started true; i.ready false | prober_manager.go UpdatePodStatus
    c.state/waiting/reason PodInitializing; c.state/waiting/message -; c.image app:1 | kubelet_pods.go convertToAPIContainerStatuses
    c.imageID -; c.containerID - | kubelet_pods.go convertToAPIContainerStatuses
    c.started false | prober_manager.go UpdatePodStatus
    ! kill i 0
    phase Running | kubelet_pods.go getPhase
    Initialized True | generate.go GeneratePodInitializedCondition
    i.state/terminated/reason Completed | kubelet_pods.go convertToAPIContainerStatuses
    i.ready true; i.started false | prober_manager.go UpdatePodStatus
pod init-fails-never | restartPolicy: Never, initContainers: [{name: i, image: 'app:1', command: [exit, '2', '5']}, {name: b, image: 'app:1'}], |
    phase Failed | kubelet_pods.go getPhase
    Initialized False ContainersNotInitialized containers with incomplete status: [i b] | generate.go GeneratePodInitializedCondition
    initContainerStatuses/0/name i; initContainerStatuses/1/name b | kubelet_pods.go convertToAPIContainerStatuses
    b.state/waiting/reason PodInitializing; i.state/terminated/exitCode 2 | kubelet_pods.go convertToAPIContainerStatuses
    i.ready false | prober_manager.go UpdatePodStatus
    c.state/waiting/reason PodInitializing | kubelet_pods.go convertToAPIContainerStatuses
pod init-fails-always | initContainers: [{name: i, image: 'app:1', command: [exit, '2', '5']}], |
    phase Pending | kubelet_pods.go getPhase
    i.state/waiting/reason CrashLoopBackOff | kuberuntime_manager.go doBackOff
    i.lastState/terminated/exitCode 2; i.restartCount 1 | kubelet_pods.go convertToAPIContainerStatuses
    c.state/waiting/reason PodInitializing | kubelet_pods.go convertToAPIContainerStatuses
pod sidecar-runs | initContainers: [{name: s, image: 'app:1', restartPolicy: Always}], |
    phase Running | kubelet_pods.go getPhase
    s.state/running/startedAt * | kubelet_pods.go convertToAPIContainerStatuses
    s.started true; s.ready true | prober_manager.go UpdatePodStatus
    Initialized True | generate.go GeneratePodInitializedCondition
    ! kill s 7
    s.restartCount 1; s.lastState/terminated/exitCode 7 | kubelet_pods.go convertToAPIContainerStatuses
    phase Running | kubelet_pods.go getPhase
pod sidecar-of-a-job | restartPolicy: Never, initContainers: [{name: s, image: 'app:1', restartPolicy: Always}], | command: [exit, '0', '50']
    phase Succeeded | kubelet_pods.go getPhase
    s.state/terminated/exitCode 0; c.state/terminated/exitCode 0 | kubelet_pods.go convertToAPIContainerStatuses
pod sidecar-startup-fails | initContainers: [{name: s, image: 'app:1', restartPolicy: Always, startupProbe: {exec: {command: [exit, '1', '0']}, failureThreshold: 99}}], |
    phase Pending | kubelet_pods.go getPhase
    s.started false | prober_manager.go UpdatePodStatus
    Initialized False ContainersNotInitialized containers with incomplete status: [s] | generate.go GeneratePodInitializedCondition
    c.state/waiting/reason PodInitializing | kubelet_pods.go convertToAPIContainerStatuses
pod one-of-two-ends | restartPolicy: Never, | command: [exit, '3', '5']}, {name: a, image: 'app:2'
    phase Running | kubelet_pods.go getPhase
    Ready False ContainersNotReady containers with unready status: [c] | generate.go GeneratePodReadyCondition
    containerStatuses/0/name a; containerStatuses/1/name c; a.image * | kubelet_pods.go convertToAPIContainerStatuses
    a.ready true; c.ready false | prober_manager.go UpdatePodStatus
    ! kill a 0
    phase Failed | kubelet_pods.go getPhase
pod both-complete | restartPolicy: Never, | command: [exit, '0', '5']}, {name: a, image: 'app:1', command: [exit, '0', '9']
    phase Succeeded | kubelet_pods.go getPhase
pod restart-rule | restartPolicy: Never, | restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]
    c.state/running/startedAt * | kubelet_pods.go convertToAPIContainerStatuses
    ! kill c 42
    phase Running | kubelet_pods.go getPhase
    c.restartCount 1 | helpers.go ShouldContainerBeRestarted
    c.state/running/startedAt * | kubelet_pods.go convertToAPIContainerStatuses
    ! kill c 1
    phase Failed | kubelet_pods.go getPhase
    c.restartCount 1 | helpers.go ShouldContainerBeRestarted
pod readiness-fails | | readinessProbe: {exec: {command: [exit, '1', '0']}}}, {name: a, image: 'app:1', readinessProbe: {exec: {command: [exit, '1', '0']}}
    phase Running | kubelet_pods.go getPhase
    PodReadyToStartContainers True | generate.go GeneratePodReadyToStartContainersCondition
    Initialized True | generate.go GeneratePodInitializedCondition
    Ready False ContainersNotReady containers with unready status: [c a] | generate.go GeneratePodReadyCondition
    ContainersReady False ContainersNotReady containers with unready status: [c a] | generate.go GenerateContainersReadyCondition
    PodScheduled True | kubelet_pods.go generateAPIPodStatus
    c.started true; c.ready false | prober_manager.go UpdatePodStatus
pod readiness-succeeds | | readinessProbe: {exec: {command: [exit, '0', '0']}}
    Ready True | generate.go GeneratePodReadyCondition
    c.ready true | prober_manager.go UpdatePodStatus
pod startup-fails | | startupProbe: {exec: {command: [exit, '1', '0']}, failureThreshold: 99}
    phase Running | kubelet_pods.go getPhase
    c.state/running/startedAt * | kubelet_pods.go convertToAPIContainerStatuses
    c.started false; c.ready false | prober_manager.go UpdatePodStatus
pod startup-succeeds | | startupProbe: {exec: {command: [exit, '0', '0']}}
    c.started true; c.ready true | prober_manager.go UpdatePodStatus
pod liveness-fails | | livenessProbe: {exec: {command: [exit, '1', '0']}, failureThreshold: 1}
    c.restartCount 1; c.lastState/terminated/exitCode 0 | kubelet_pods.go convertToAPIContainerStatuses
pod guaranteed | | resources: {limits: {cpu: '0.1', memory: 536870912}}
    qosClass Guaranteed | qos.go ComputePodQOS
    c.resources/limits {"cpu":"100m","memory":"512Mi"} | kubelet_pods.go convertContainerStatusResources
    c.resources/requests {"cpu":"100m","memory":"536870912"} | kubelet_pods.go convertContainerStatusResources
    c.allocatedResources {"cpu":"100m","memory":"536870912"} | kubelet_pods.go convertContainerStatusResources
pod burstable | | resources: {requests: {cpu: 1}}
    qosClass Burstable | qos.go ComputePodQOS
    c.resources/limits -; c.allocatedResources {"cpu":"1"} | kubelet_pods.go convertContainerStatusResources
pod mounts | volumes: [{name: v, emptyDir: {}}], | volumeMounts: [{name: v, mountPath: /v}, {name: v, mountPath: /r, readOnly: true}]
    c.volumeMounts/0 {"mountPath":"/v","name":"v"} | kubelet_pods.go convertToAPIContainerStatuses
    c.volumeMounts/1 {"mountPath":"/r","name":"v","readOnly":true,"recursiveReadOnly":"Disabled"} | kubelet_pods.go convertToAPIContainerStatuses
pod host-network | hostNetwork: true, |
    podIP 127.0.0.1; podIPs [{"ip":"127.0.0.1"}] | kubelet_pods.go generateAPIPodStatus
    PodReadyToStartContainers True | generate.go GeneratePodReadyToStartContainersCondition
pod pull-fails | |
    ! knob pull_image.fail=unavailable
    phase Pending | kubelet_pods.go getPhase
    c.state/waiting/reason ImagePullBackOff | image_manager.go EnsureImageExists
    c.state/waiting/message ~Back-off pulling image "app:1": ErrImagePull: | image_manager.go EnsureImageExists
    c.imageID - | kubelet_pods.go convertToAPIContainerStatuses
    PodReadyToStartContainers True | generate.go GeneratePodReadyToStartContainersCondition
    ! knob pull_image.fail=off
    c.state/running/startedAt *; c.restartCount 0 | kubelet_pods.go convertToAPIContainerStatuses
pod pull-fails-first | |
    ! knob pull_image.fail=unavailable
    c.state/waiting/reason ErrImagePull; c.state/waiting/message * | image_manager.go EnsureImageExists
pod never-pulled | | imagePullPolicy: Never
    phase Pending | kubelet_pods.go getPhase
    c.state/waiting/reason ErrImageNeverPull | image_manager.go EnsureImageExists
    c.state/waiting/message Container image "app:1" is not present with pull policy of Never | image_manager.go EnsureImageExists
pod image-name | | imagePullPolicy: Always}, {name: a, image: 'Bad'
    a.state/waiting/reason InvalidImageName | image_manager.go EnsureImageExists
    a.image Bad; c.state/running/startedAt * | kubelet_pods.go convertToAPIContainerStatuses
pod image-inspection-fails | |
    ! knob image_status.fail=unavailable
    c.state/waiting/reason ImageInspectError | image_manager.go EnsureImageExists
pod create-fails | |
    ! knob create_container.fail=unavailable
    phase Pending | kubelet_pods.go getPhase
    c.state/waiting/reason CreateContainerError | kuberuntime_container.go startContainer
    c.restartCount 0 | kubelet_pods.go convertToAPIContainerStatuses
    ! knob create_container.fail=off
    c.state/running/startedAt *; c.restartCount 0 | kubelet_pods.go convertToAPIContainerStatuses
pod config-fails | | securityContext: {runAsNonRoot: true, runAsUser: 0}}, {name: g, image: 'app:1', securityContext: {runAsGroup: 7}
    phase Pending | kubelet_pods.go getPhase
    c.state/waiting/reason CreateContainerConfigError | security_context.go verifyRunAsNonRoot
    g.state/waiting/message ~securityContext.runAsGroup: the user of the image is not looked up | security_context.go determineEffectiveSecurityContext
pod sandbox-fails | |
    ! knob run_pod_sandbox.fail=unavailable
    phase Pending | kubelet_pods.go getPhase
    PodReadyToStartContainers False | generate.go GeneratePodReadyToStartContainersCondition
    c.state {"waiting":{"reason":"ContainerCreating"}}; c.imageID - | kubelet_pods.go convertToAPIContainerStatuses
    c.ready false | prober_manager.go UpdatePodStatus
    podIP - | kubelet_pods.go convertStatusToAPIStatus
    ! knob run_pod_sandbox.fail=off
    c.state/running/startedAt *; c.restartCount 0 | kubelet_pods.go convertToAPIContainerStatuses
pod hook-fails | | lifecycle: {postStart: {exec: {command: [exit, '1', '0']}}}
    phase Running | kubelet_pods.go getPhase
    c.lastState/terminated/exitCode 0; c.restartCount 1 | kubelet_pods.go convertToAPIContainerStatuses
pod deadline | activeDeadlineSeconds: 4, |
    phase Failed; reason DeadlineExceeded | active_deadline.go ShouldEvict
    message Pod was active on the node longer than the specified deadline | active_deadline.go ShouldEvict
    c.state/terminated/exitCode 0 | kubelet_pods.go convertToAPIContainerStatuses
    Ready False PodFailed | generate.go GeneratePodReadyConditionForTerminalPhase
    PodReadyToStartContainers False | generate.go GeneratePodReadyToStartContainersCondition
pod node-selector | nodeSelector: {disk: ssd}, |
    phase Failed | kubelet.go rejectPod
    reason NodeAffinity | predicate.go Admit
    message Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector | predicate.go Admit
    containerStatuses -; conditions -; startTime -; qosClass BestEffort | kubelet.go rejectPod
pod too-large | | resources: {requests: {cpu: 1Gi}}
    phase Failed | kubelet.go rejectPod
    reason OutOfcpu | predicate.go Admit
    message ~Pod was rejected: Node didn't have enough resource: cpu, requested: 1073741824000, used: 0, capacity: | predicate.go Admit
    qosClass Burstable | kubelet.go rejectPod
pod windows | os: {name: windows}, |
    reason PodOSNotSupported; message Pod was rejected: Failed to admit pod as the OS field doesn't match node OS | predicate.go Admit
pod unsafe-sysctl | securityContext: {sysctls: [{name: kernel.msgmax, value: '1'}]}, |
    reason SysctlForbidden; message Pod was rejected: forbidden sysctl: "kernel.msgmax" not allowlisted | allowlist.go Admit
pod extended-resource | | resources: {limits: {example.com/fpga: 1}}
    reason OutOfexample.com/fpga | predicate.go Admit
"#;
