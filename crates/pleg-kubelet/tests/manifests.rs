//! Manifests of static pods: what can be run, and what cannot.

#![cfg(feature = "manifests")]
#![allow(clippy::panic, reason = "a test's helpers may panic")]

use std::fs;
use std::path::Path;

use pleg_kubelet::manifest::{Changes, Manifest, Manifests, read_directory};
use pleg_kubelet::spec::ContainerRole;

const WEB: &str = "
apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  initContainers:
  - {name: setup, image: 'shop:1'}
  - {name: proxy, image: 'shop:1', restartPolicy: Always}
  containers:
  - name: app
    image: shop:1
    ports: [{containerPort: 80, hostPort: 8080}]
    resources:
      requests: {cpu: 1, memory: 64Mi}
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, hostPath: {path: /srv}}]
";

fn parse(contents: &str) -> Result<Manifest, String> {
    Manifest::parse(Path::new("web.yaml"), contents, "Node1").map_err(|error| error.to_string())
}

fn good(contents: &str) -> Manifest {
    parse(contents).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn pod_gets_the_name_of_the_node_and_a_uid() {
    let web = good(WEB);
    assert_eq!(web.full_name(), "web-node1_default");
    assert_eq!(web.uid().len(), 32);
    let spec = web.pod.spec.clone().unwrap_or_default();
    assert_eq!(spec.node_name.as_deref(), Some("Node1"));
    let annotations = web.pod.metadata.annotations.clone().unwrap_or_default();
    let annotation = |name: &str| annotations.get(name).cloned();
    assert_eq!(
        annotation("kubernetes.io/config.source").as_deref(),
        Some("file")
    );
    assert_eq!(
        annotation("kubernetes.io/config.hash").as_deref(),
        Some(web.uid())
    );
    let roles: Vec<_> = web.spec.containers.iter().map(|c| c.role).collect();
    assert_eq!(
        roles,
        [
            ContainerRole::Init,
            ContainerRole::Sidecar,
            ContainerRole::Regular
        ]
    );
}

#[test]
fn uid_changes_with_contents_source_and_node_but_not_with_resources() {
    let uid = |contents: &str| good(contents).uid().to_owned();
    let web = uid(WEB);
    assert_eq!(uid(&format!("# a comment\n{WEB}")), web);
    assert_eq!(
        uid(&WEB.replace("64Mi", "128Mi").replace("cpu: 1", "cpu: 500m")),
        web
    );
    assert_ne!(uid(&WEB.replace("shop:1", "shop:2")), web);
    // Another class.
    assert_ne!(
        uid(&WEB.replace("requests: {cpu: 1, memory: 64Mi}", "claims: []")),
        web
    );
    let of = |file: &str, node| {
        let manifest = Manifest::parse(Path::new(file), WEB, node);
        manifest
            .map(|m| m.uid().to_owned())
            .map_err(|e| e.to_string())
    };
    assert_ne!(of("other.yaml", "Node1"), Ok(web.clone()));
    assert_ne!(of("web.yaml", "node2"), Ok(web));
    let given = WEB.replace("name: web", "name: web\n  uid: mine");
    assert_eq!(uid(&given), "mine");
}

#[test]
fn json_is_accepted() {
    let json = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"containers": [{"name": "app", "image": "shop:1"}]}}"#;
    assert_eq!(good(json).full_name(), "web-node1_shop");
}

/// Each case: what is replaced in the manifest, by what, and the whole message.
#[test]
fn each_wrong_manifest_has_a_clear_message() {
    let cases = [
        ("v1", "v2", "apiVersion: it must be v1"),
        ("kind: Pod", "kind: Job", "kind: it must be Pod"),
        (
            "name: web",
            "name: Web",
            "metadata.name: \"Web\" is not a name: use lower-case letters, digits and -, with a \
             letter or digit at both ends",
        ),
        (
            "    image: shop:1",
            "    images: shop:1",
            "spec.containers[0].images: there is no such field: check its name and its indentation",
        ),
        (
            "    image: shop:1",
            "    image: ''",
            "spec.containers[0].image: it is missing: write an image",
        ),
        (
            "containerPort: 80",
            "containerPort: http",
            "spec.containers[0].ports[0].containerPort: invalid type: string \"http\", expected i32",
        ),
        (
            "name: setup",
            "name: app",
            "spec.containers[0].name: another container is named \"app\": rename one",
        ),
        (
            "hostPath: {path: /srv}",
            "configMap: {name: c}",
            "spec.volumes[0]: this kubelet provides hostPath and emptyDir only: use one of them",
        ),
        (
            "hostPath: {path: /srv}",
            "hostPath: {path: srv}",
            "spec.volumes[0].hostPath.path: it must be an absolute path",
        ),
        (
            "name: data, mountPath",
            "name: date, mountPath",
            "spec.containers[0].volumeMounts[0].name: there is no volume \"date\": add it to \
             spec.volumes",
        ),
        (
            "memory: 64Mi",
            "memory: 64MB",
            "spec.containers[0].resources.requests.memory: \"64MB\" is not a quantity: write a number \
             such as 2, 0.5, 500m, 128Mi or 1e3",
        ),
        (
            "memory: 64Mi}",
            "memory: 64Mi}\n      limits: {memory: 32Mi}",
            "spec.containers[0].resources.requests.memory: it is greater than the limit: lower it, or \
             raise the limit",
        ),
        (
            "    image: shop:1",
            "    image: shop:1\n    lifecycle: {preStop: {exec: {command: [a]}}}",
            "spec.containers[0].lifecycle: hooks are not run: remove them",
        ),
        (
            "mountPath: /data",
            "mountPath: /data, subPath: a",
            "spec.containers[0].volumeMounts[0].subPath: a container could replace it by a symbolic link \
             to a file of the node: mount the volume, or a hostPath of that path",
        ),
        (
            "    image: shop:1",
            "    image: shop:1\n    securityContext: {seccompProfile: {type: Localhost, localhostProfile: a}}",
            "spec.containers[0].securityContext.seccompProfile.localhostProfile: profiles of the node are \
             not looked up: write type RuntimeDefault",
        ),
        (
            "  containers:",
            "  hostUsers: false\n  containers:",
            "spec.hostUsers: user namespaces are not made: remove it",
        ),
        (
            "    image: shop:1",
            "    image: shop:1\n    livenessProbe: {grpc: {port: 1}}",
            "spec.containers[0].livenessProbe.grpc: use an exec, tcpSocket or httpGet probe",
        ),
        (
            "    image: shop:1",
            "    image: shop:1\n    readinessProbe: {httpGet: {port: 80, scheme: HTTPS}}",
            "spec.containers[0].readinessProbe.httpGet.scheme: HTTPS is not provided: use HTTP, or an \
             exec or tcpSocket probe",
        ),
        (
            "    image: shop:1",
            "    image: shop:1\n    livenessProbe: {tcpSocket: {port: web}}",
            "spec.containers[0].livenessProbe.tcpSocket.port: the container has no port named \"web\": \
             add it to ports",
        ),
        (
            "    image: shop:1",
            "    image: shop:1\n    startupProbe: {periodSeconds: 1}",
            "spec.containers[0].startupProbe: it does nothing: write one of exec, tcpSocket and httpGet",
        ),
        (
            "    image: shop:1",
            "    image: shop:1\n    livenessProbe: {tcpSocket: {port: 80}, terminationGracePeriodSeconds: 1}",
            "spec.containers[0].livenessProbe.terminationGracePeriodSeconds: containers are stopped with \
             the grace period of the pod: remove it",
        ),
        (
            "spec:",
            "spec:\n  serviceAccountName: a",
            "spec.serviceAccountName: static pods have no service account: remove it",
        ),
        (
            "hostPort: 8080}",
            "hostPort: 8080}, {containerPort: 81, hostPort: 8080}",
            "spec.containers[0].ports[1].hostPort: port 8080/TCP is used twice: change one",
        ),
        (
            "spec:",
            "spec:\n  restartPolicy: Sometimes",
            "spec.restartPolicy: \"Sometimes\" is none of Always, OnFailure, Never",
        ),
    ];
    for (text, by, message) in cases {
        let contents = WEB.replacen(text, by, 1);
        assert_ne!(contents, WEB);
        assert_eq!(parse(&contents), Err(format!("web.yaml: {message}")));
    }
}

#[test]
fn what_is_not_yaml_is_an_error_with_its_place() {
    let message = |contents: &str| parse(contents).err().unwrap_or_default();
    assert_eq!(
        message(" \n"),
        "web.yaml: it is empty: write the manifest of a pod"
    );
    assert_eq!(
        message("- a"),
        "web.yaml: it is not a mapping: write the manifest of a pod"
    );
    for contents in [
        "a: [",
        "a: b: c",
        "a: 'x",
        "a: 1\na: 2",
        "{\"kind\": \"Pod\"",
    ] {
        let message = message(contents);
        assert!(
            message.starts_with("web.yaml: it is not valid YAML: "),
            "{message}"
        );
        assert!(message.contains("line"), "{message}");
        assert!(!message.contains('\n'), "{message}");
    }
    // Aliases that would expand to gigabytes.
    let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for n in 1..12 {
        let before = vec![format!("*a{}", n - 1); 10].join(",");
        bomb.push_str(&format!("a{n}: &a{n} [{before}]\n"));
    }
    assert!(message(&bomb).starts_with("web.yaml: it is not valid YAML: "));
}

fn shown(changes: &Changes) -> [Vec<String>; 4] {
    let names = |manifests: &[Manifest]| manifests.iter().map(Manifest::full_name).collect();
    let changed = changes
        .changed
        .iter()
        .map(|(_, now)| now.full_name())
        .collect();
    let broken = changes.broken.iter().map(|error| {
        let name = error.file.file_name().unwrap_or_default().to_string_lossy();
        format!("{name}: {}", error.field.as_deref().unwrap_or("-"))
    });
    [
        names(&changes.added),
        changed,
        names(&changes.removed),
        broken.collect(),
    ]
}

#[test]
fn changes_of_a_directory_are_found() {
    let directory = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let write = |file: &str, contents: &str| {
        fs::write(directory.path().join(file), contents).unwrap_or_else(|error| panic!("{error}"));
    };
    let mut manifests = Manifests::default();
    let mut read = || {
        let found =
            read_directory(directory.path(), "n1").unwrap_or_else(|error| panic!("{error}"));
        let changes = manifests.update(found);
        shown(&changes).map(|names| names.join(" "))
    };
    let pod = |name: &str, port: u16| {
        let port = format!("hostPort: {port}");
        WEB.replace("name: web", &format!("name: {name}"))
            .replace("hostPort: 8080", &port)
    };
    assert_eq!(read(), ["", "", "", ""]);
    write("b.yaml", &pod("b", 1));
    write("c.yaml", &pod("c", 2));
    write(".hidden", "nonsense");
    assert_eq!(read(), ["b-n1_default c-n1_default", "", "", ""]);
    assert_eq!(read(), ["", "", "", ""]);
    // One that is broken stays as it was, and the others are unharmed.
    write("b.yaml", "nonsense");
    write("c.yaml", &pod("c", 3));
    assert_eq!(read(), ["", "c-n1_default", "", "b.yaml: -"]);
    write("b.yaml", &pod("b", 1));
    assert_eq!(read(), ["", "", "", ""]);
    // Two of one name: that which is in force stays.
    write("a.yaml", &pod("b", 9));
    assert_eq!(read(), ["", "", "", "a.yaml: metadata.name"]);
    // Two with one port of the node.
    write("a.yaml", &pod("a", 3));
    assert_eq!(read(), ["", "", "", "a.yaml: spec.containers"]);
    // One that is changed so that it conflicts stays as it was, and so does the other.
    write("b.yaml", &pod("b", 3));
    assert_eq!(read()[..3], ["", "", ""]);
    write("b.yaml", &pod("c", 1));
    assert_eq!(read()[..3], ["", "", ""]);
    write("b.yaml", &pod("b", 1));
    // Two of one uid.
    let uid = |name, port| pod(name, port).replace("metadata:", "metadata:\n  uid: u");
    write("c.yaml", &uid("c", 3));
    write("a.yaml", &uid("a", 4));
    assert_eq!(read(), ["", "c-n1_default", "", "a.yaml: metadata.uid"]);
    write("a.yaml", &pod("a", 4));
    fs::remove_file(directory.path().join("b.yaml")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(read(), ["a-n1_default", "", "b-n1_default", ""]);
    // Emptied: all are removed.
    for file in ["a.yaml", "c.yaml"] {
        fs::remove_file(directory.path().join(file)).unwrap_or_else(|error| panic!("{error}"));
    }
    assert_eq!(read(), ["", "", "a-n1_default c-n1_default", ""]);
}

#[test]
fn vanished_directory_is_an_error() {
    let error = read_directory(Path::new("/nowhere/manifests"), "n1").err();
    assert_eq!(
        error.map(|error| error.to_string()).unwrap_or_default(),
        "the manifest directory /nowhere/manifests cannot be read (No such file or directory (os \
         error 2)): all static pods stay as they are; create it, or make it readable"
    );
}

#[test]
fn host_ports_of_different_addresses_do_not_conflict() {
    let directory = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    for (addresses, good) in [
        (["10.0.0.1", "10.0.0.2"], 2),
        (["10.0.0.1", "10.0.0.1"], 1),
        (["10.0.0.1", "0.0.0.0"], 1),
    ] {
        for (name, address) in ["a", "b"].into_iter().zip(addresses) {
            let port = format!("hostPort: 8080, hostIP: {address}");
            let pod = WEB.replace("name: web", &format!("name: {name}"));
            let file = directory.path().join(format!("{name}.yaml"));
            fs::write(file, pod.replace("hostPort: 8080", &port))
                .unwrap_or_else(|error| panic!("{error}"));
        }
        let found =
            read_directory(directory.path(), "n1").unwrap_or_else(|error| panic!("{error}"));
        let changes = Manifests::default().update(found);
        assert_eq!(changes.added.len(), good, "{addresses:?}");
    }
}
