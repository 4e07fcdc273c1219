//! Manifests of static pods: what can be run, and what cannot.

mod directory;
mod real;
mod source;

use std::path::Path;

use pleg_kubelet::spec::ContainerRole;
use static_pods::manifest::{Manifest, ParseOptions, UnknownFields};

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
        (
            "v1",
            "v2",
            "apiVersion: \"v2\" is not v1: only a v1 Pod can be run",
        ),
        (
            "kind: Pod",
            "kind: Job",
            "kind: \"Job\" is not Pod: only a v1 Pod can be run",
        ),
        (
            "name: web",
            "name: Web",
            "metadata.name: \"Web\" is not a name: use at most 253 lower-case letters, digits, - and ., \
             with a letter or digit at both ends",
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
            "spec.containers[0].ports[0].containerPort: the text \"http\" is not a whole number",
        ),
        (
            "name: setup",
            "name: app",
            "spec.containers[0].name: another container is named \"app\": rename one",
        ),
        (
            "hostPath: {path: /srv}",
            "configMap: {name: c}",
            "spec.volumes[0].configMap: only hostPath, emptyDir and downwardAPI are provided: use one of them",
        ),
        (
            "hostPath: {path: /srv}",
            "hostPath: {path: srv}",
            "spec.volumes[0].hostPath.path: \"srv\" is not an absolute path without ..: begin it with /, and \
             leave out ..",
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
            "spec.containers[0].resources.requests.memory: 64Mi is greater than the limit 32Mi: lower it, or \
             raise the limit",
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
            "    image: shop:1\n    livenessProbe: {tcpSocket: {port: web}}",
            "spec.containers[0].livenessProbe.tcpSocket.port: the container has no port named \"web\": \
             add it to ports",
        ),
        (
            "    image: shop:1",
            "    image: shop:1\n    startupProbe: {periodSeconds: 1}",
            "spec.containers[0].startupProbe: it does nothing: write one of exec, httpGet, tcpSocket and \
             grpc",
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
    assert_eq!(
        message("a: 1\n---\nb: 1\n--- {c: 1}\n"),
        "web.yaml: it has 3 documents: write one"
    );
    assert_eq!(
        message("kind: Pod"),
        "web.yaml: apiVersion: it is missing: write v1"
    );
    // Aliases that would expand to gigabytes.
    let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for n in 1..12 {
        let before = vec![format!("*a{}", n - 1); 10].join(",");
        bomb.push_str(&format!("a{n}: &a{n} [{before}]\n"));
    }
    assert!(message(&bomb).starts_with("web.yaml: it is not valid YAML: "));
}

#[test]
fn document_markers_and_empty_values_are_accepted() {
    for (text, by) in [
        ("apiVersion: v1", "---\n# a comment\napiVersion: v1"),
        ("path: /srv}}]\n", "path: /srv}}]\n---\n"),
        ("spec:", "spec:\n  serviceAccountName: ''"),
        ("mountPath: /data", "mountPath: /data, subPath: ''"),
        ("spec:", "spec:\n  hostAliases: []\n  hostUsers: null"),
        ("containerPort: 80", "containerPort: 80, protocol: ''"),
    ] {
        let contents = WEB.replacen(text, by, 1);
        assert_ne!(contents, WEB);
        good(&contents);
    }
}

#[test]
fn wrong_types_are_explained_to_authors() {
    let cases = [
        (
            "env: [{name: A, value: 1}]",
            "env[0].value: integer 1 is not a text: write it in quotes",
        ),
        ("tty: 'yes'", "tty: the text \"yes\" is not true or false"),
        (
            "args: a",
            "args: the text \"a\" is not a list: begin each element with -",
        ),
        (
            "livenessProbe: a",
            "livenessProbe: the text \"a\" is not a mapping of fields to values",
        ),
        (
            "command: [{}]",
            "command[0]: a mapping is not a text: write it in quotes",
        ),
    ];
    for (field, message) in cases {
        let contents = WEB.replacen("  - name: app", &format!("  - name: app\n    {field}"), 1);
        let expected = format!("web.yaml: spec.containers[0].{message}");
        assert_eq!(parse(&contents), Err(expected));
    }
}

#[test]
fn pod_name_with_the_node_must_fit() {
    let label = "a".repeat(62);
    let name = format!("name: {label}.{label}.{label}.{}", "a".repeat(58));
    let fits = WEB.replacen("name: web", &name, 1);
    assert_eq!(good(&fits).full_name().len(), 253 + "_default".len());
    let error = parse(&fits.replacen("name: a", "name: aa", 1))
        .err()
        .unwrap_or_default();
    assert!(error.contains("has 254 characters: shorten it"), "{error}");
}

#[test]
fn unknown_fields_are_ignored_on_request() {
    let contents = WEB
        .replacen("metadata:", "metadata:\n  colour: red", 1)
        .replacen("containerPort: 80", "containerPort: 80, hostport: 80", 1)
        .replacen("path: /srv", "path: /srv, future: {a: [1]}", 1);
    let ignoring = ParseOptions {
        node: "Node1".to_owned(),
        unknown_fields: UnknownFields::Ignore,
    };
    let read = |contents: &str| Manifest::parse(Path::new("web.yaml"), contents, ignoring.clone());
    let manifest = read(&contents).unwrap_or_else(|error| panic!("{error}"));
    let ignored = [
        "metadata.colour",
        "spec.containers[0].ports[0].hostport",
        "spec.volumes[0].hostPath.future",
    ];
    assert_eq!(manifest.ignored, ignored);
    assert_eq!(manifest.pod, good(WEB).pod);
    assert_eq!(
        parse(&contents),
        Err(
            "web.yaml: metadata.colour: there is no such field: check its name and its indentation"
                .to_owned()
        )
    );
}
