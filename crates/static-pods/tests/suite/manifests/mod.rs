//! Manifests that are accepted or refused, with their errors.

mod directory;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use pleg::runtime::clock::Clock;
use serde_json::Value;
use static_pods::manifest::{Manifest, ManifestSource};

use crate::Log;

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
    crate::parse("web.yaml", contents, "Node1").map_err(|error| error.to_string())
}

fn good(contents: &str) -> Manifest {
    parse(contents).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn pod_name_ends_with_node_name_and_uid_is_set() {
    let web = good(WEB);
    assert_eq!(web.full_name(), "web-node1_default");
    assert_eq!(web.uid().len(), 32);
    let spec = web.pod.spec.clone().unwrap_or_default();
    assert_eq!(spec.node_name.as_deref(), Some("Node1"));
    let annotations = web.pod.metadata.annotations.clone().unwrap_or_default();
    let annotation = |name: &str| annotations.get(&format!("kubernetes.io/config.{name}"));
    assert_eq!(annotation("source").map(String::as_str), Some("file"));
    assert_eq!(annotation("hash").map(String::as_str), Some(web.uid()));
    for (namespace, expected) in [("''", "default"), ("shop", "shop")] {
        let namespace = format!("metadata:\n  namespace: {namespace}");
        let web = good(&WEB.replace("metadata:", &namespace));
        assert_eq!(web.full_name(), format!("web-node1_{expected}"));
    }
}

#[test]
fn uid_changes_with_image_node_or_file_not_cpu_amount() {
    let uid = |contents: &str| good(contents).uid().to_owned();
    let web = uid(WEB);
    let of = |file, node| crate::parse(file, WEB, node).unwrap().uid().to_owned();
    for same in [
        uid(&format!("# a comment\n{WEB}")),
        uid(&WEB.replace("64Mi", "128Mi").replace("cpu: 1", "cpu: 500m")),
    ] {
        assert_eq!(same, web);
    }
    for other in [
        uid(&WEB.replace("shop:1", "shop:2")),
        uid(&WEB.replace("64Mi}", "64Mi}\n      limits: {cpu: 2}")),
        // Without requests, the pod's quality-of-service class is BestEffort instead of Burstable.
        uid(&WEB.replace("requests: {cpu: 1, memory: 64Mi}", "claims: []")),
        of("other.yaml", "Node1"),
        of("web.yaml", "node2"),
    ] {
        assert_ne!(other, web);
    }
    let given = WEB.replace("name: web", "name: web\n  uid: mine");
    assert_eq!(uid(&given), "mine");
}

/// A row: a text of the manifest; its replacement, or after `+` a line to add below it; the whole error message.
#[test]
fn error_of_each_wrong_manifest_names_field_and_problem() {
    let table = r#"
    v1 | v2 | apiVersion: "v2" is not v1: only a v1 Pod can be run
    kind: Pod | kind: Job | kind: "Job" is not Pod: only a v1 Pod can be run
    name: web | name: Web | metadata.name: "Web" is not a name: use at most 253 lower-case letters, digits, - and ., with a letter or digit at both ends
    volumes: [ | volumes: [{name: a}, {name: c, configMap: {name: c}}, | spec.volumes[1].configMap: only hostPath, emptyDir and downwardAPI are provided: use one of them
    hostPath: {path: /srv} | downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.name}}, {path: b, fieldRef: {fieldPath: status.podIP}}]} | spec.volumes[0].downwardAPI.items[1]: "status.podIP" is not a field that a file can have: use metadata.name, metadata.namespace, metadata.uid, metadata.labels or metadata.annotations
    hostPath: {path: /srv} | downwardAPI: {items: [{path: a}]} | spec.volumes[0].downwardAPI.items[0]: write one of fieldRef and resourceFieldRef
    hostPath: {path: /srv} | downwardAPI: {items: [{path: ../a, fieldRef: {fieldPath: metadata.name}}]} | spec.volumes[0].downwardAPI.items[0]: "../a" is empty, absolute or has ..: change it
    hostPath: {path: /srv} | downwardAPI: {items: [{path: /a, fieldRef: {fieldPath: metadata.name}}]} | spec.volumes[0].downwardAPI.items[0]: "/a" is empty, absolute or has ..: change it
    {name: setup, | {name: setup, restartPolicy: Never, restartPolicyRules: [{action: Restart}, {action: RestartAllContainers}], | spec.initContainers[0].restartPolicyRules[1].action: only the container is restarted: write Restart
    spec: | +hostUsers: false | spec.hostUsers: user namespaces are not made: remove it
    spec: | +serviceAccountName: a | spec.serviceAccountName: static pods have no service account: remove it
    - name: app | +images: a | spec.containers[0].images: there is no such field: check its name and its indentation
    - name: app | +securityContext: {seccompProfile: {type: Localhost, localhostProfile: a}} | spec.containers[0].securityContext.seccompProfile.localhostProfile: profiles of the node are not looked up: write type RuntimeDefault
    - name: app | +securityContext: {runAsNonRoot: true} | spec.containers[0].securityContext.runAsNonRoot: the user of the image is not looked up: write runAsUser as well
    - name: app | +livenessProbe: {tcpSocket: {port: web}} | spec.containers[0].livenessProbe.tcpSocket.port: the container has no port named "web": add it to ports
    - name: app | +livenessProbe: {tcpSocket: {port: 80}, terminationGracePeriodSeconds: 1} | spec.containers[0].livenessProbe.terminationGracePeriodSeconds: containers are stopped with the grace period of the pod: remove it
    - name: app | +lifecycle: {preStop: {tcpSocket: {port: 1}}} | spec.containers[0].lifecycle.preStop: write one of exec, httpGet and sleep
    - name: app | +securityContext: {runAsGroup: 7} | spec.containers[0].securityContext.runAsGroup: the user of the image is not looked up: write runAsUser as well
    - name: app | +env: [{name: A, value: '1'}, {name: B, valueFrom: {secretKeyRef: {key: k, name: s}}}] | spec.containers[0].env[1].valueFrom.secretKeyRef: secrets are not read: write the value
    containerPort: 80 | containerPort: http | spec.containers[0].ports[0].containerPort: the text "http" is not a whole number
    - name: app | +env: [{name: A, value: 1}] | spec.containers[0].env[0].value: integer 1 is not a text: write it in quotes
    - name: app | +tty: 'yes' | spec.containers[0].tty: the text "yes" is not true or false
    - name: app | +args: a | spec.containers[0].args: the text "a" is not a list: begin each element with -
    - name: app | +livenessProbe: a | spec.containers[0].livenessProbe: the text "a" is not a mapping of fields to values
    - name: app | +command: [{}] | spec.containers[0].command[0]: a mapping is not a text: write it in quotes
    "#;
    for row in table.lines().map(str::trim).filter(|row| !row.is_empty()) {
        let cells: Vec<_> = row.split(" | ").collect();
        let indent = if cells[0] == "spec:" { 2 } else { 4 };
        let by = match cells[1].strip_prefix('+') {
            Some(added) => format!("{}\n{:indent$}{added}", cells[0], ""),
            None => cells[1].to_owned(),
        };
        let error = parse(&WEB.replacen(cells[0], &by, 1)).err();
        assert_eq!(error, Some(format!("web.yaml: {}", cells[2])), "{row}");
    }
}

#[test]
fn invalid_yaml_is_an_error_with_its_position() {
    let message = |contents: &str| parse(contents).err().unwrap_or_default();
    for (contents, expected) in [
        (" \n", "it is empty: write the manifest of a pod"),
        ("- a", "it is not a mapping: write the manifest of a pod"),
        ("kind: Pod", "apiVersion: it is missing: write v1"),
    ] {
        assert_eq!(message(contents), format!("web.yaml: {expected}"));
    }
    let invalid = "web.yaml: it is not valid YAML: ";
    for contents in ["a: [", "a: b: c", "a: 'x", "a: 1\na: 2", "{'kind': 'Pod'"] {
        let message = message(contents);
        let is_invalid = message.starts_with(invalid) && message.contains("line");
        assert!(is_invalid && !message.contains('\n'), "{message}");
    }
    // The aliases of this file would expand to gigabytes.
    let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for n in 1..12 {
        let before = vec![format!("*a{}", n - 1); 10].join(",");
        bomb.push_str(&format!("a{n}: &a{n} [{before}]\n"));
    }
    assert!(message(&bomb).starts_with(invalid));
}

#[test]
fn document_markers_empty_values_and_implemented_fields_are_accepted() {
    for (text, by) in [
        ("apiVersion: v1", "---\n# a comment\napiVersion: v1"),
        ("path: /srv}}]\n", "path: /srv}}]\n---\n"),
        ("spec:", "spec:\n  hostAliases: []\n  hostUsers: null"),
        ("spec:", "spec:\n  imagePullSecrets: []\n  hostUsers: true"),
        ("spec:", "spec:\n  hostnameOverride: ''"),
        ("mountPath: /data", "mountPath: /data, subPath: a"),
        ("containerPort: 80", "containerPort: 80, protocol: ''"),
        // An octal defaultMode (a decimal 777 exceeds the API's limit), then quantities that are numbers.
        ("hostPath: {path: /srv}", "downwardAPI: {defaultMode: 0777}"),
        ("hostPath: {path: /srv}", "emptyDir: {sizeLimit: 1000}"),
        ("hostPath: {path: /srv}", "emptyDir: {medium: Memory}"),
        (
            "image: shop:1",
            "image: shop:1\n    startupProbe: {grpc: {port: 1}}\n    env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1}}}]",
        ),
    ] {
        let contents = WEB.replacen(text, by, 1);
        assert_ne!(contents, WEB);
        good(&contents);
    }
}

#[test]
fn pod_name_with_node_name_must_not_be_too_long() {
    let label = "a".repeat(62);
    let name = format!("name: {label}.{label}.{label}.{}", "a".repeat(58));
    let fits = WEB.replacen("name: web", &name, 1);
    assert_eq!(good(&fits).full_name().len(), 253 + "_default".len());
    let error = parse(&fits.replacen("name: a", "name: aa", 1)).unwrap_err();
    assert!(error.contains("has 254 characters: shorten it"), "{error}");
}

#[test]
fn unknown_fields_are_ignored_unless_the_caller_is_strict() {
    let contents = WEB
        .replacen("metadata:", "metadata:\n  colour: red", 1)
        .replacen("containerPort: 80", "containerPort: 80, hostport: 80", 1)
        .replacen("path: /srv", "path: /srv, future: {a: [1]}", 1);
    let mut read = Manifest::parse_all(Path::new("web.yaml"), &contents, "Node1", false);
    let manifest = read.remove(0).unwrap_or_else(|error| panic!("{error}"));
    let ignored = [
        "metadata.colour",
        "spec.containers[0].ports[0].hostport",
        "spec.volumes[0].hostPath.future",
    ];
    assert_eq!(manifest.ignored, ignored);
    assert_eq!(manifest.pod, good(WEB).pod);
}

#[tokio::test]
async fn ignored_fields_are_logged_once_and_when_they_change() {
    let (mut log, _guards) = Log::start();
    let directory = tempfile::tempdir().unwrap();
    let write = |field: &str| {
        let contents = WEB.replacen("spec:", &format!("spec:\n  {field}: 1"), 1);
        fs::write(directory.path().join("web.yaml"), contents).unwrap();
    };
    let clock = Clock::start();
    let mut source = ManifestSource::new(directory.path(), "n1", Duration::from_secs(1), clock);
    // Each `wait` reads the directory once.
    write("hostname2");
    source.strict_fields = true;
    assert_eq!(source.wait().await.len(), 0);
    assert!(log.take().contains("ERROR"));
    source.strict_fields = false;
    assert_eq!(source.wait().await.len(), 1);
    let logged = log.take();
    let is_warning = logged.contains("WARN") && logged.contains("web.yaml: spec.hostname2: ");
    assert!(is_warning, "{logged}");
    source.wait().await;
    assert_eq!(log.take(), "");
    write("hostname3");
    source.wait().await;
    assert!(log.take().contains("spec.hostname3: "));
}

/// The paths of all fields that have a value and no fields of their own. Elements of a list have the list's path.
fn fields_of(value: &Value, path: &str) -> Vec<String> {
    let fields = value.as_object().into_iter().flatten();
    let fields = fields.map(|(name, value)| (format!("{path}.{name}"), value));
    let elements = value.as_array().into_iter().flatten();
    let elements = elements.map(|value| (path.to_owned(), value));
    let below = fields.chain(elements);
    let below: Vec<_> = below
        .flat_map(|(path, value)| fields_of(value, &path))
        .collect();
    match below.is_empty() {
        true => vec![path.to_owned()],
        false => below,
    }
}

/// The files are modelled on manifests of the projects in their names. The kubelet runs all files but one. The table
/// `fields.tsv` has the fields, and the files that use each field.
#[test]
fn real_manifests_run_or_the_error_names_the_refused_field() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/manifests/real");
    let (mut run, mut refused, mut uses) = (0, Vec::new(), BTreeSet::new());
    for file in fs::read_dir(directory).unwrap() {
        let file = file.unwrap().path();
        let text = fs::read_to_string(&file).unwrap();
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        let pod: Value = serde_saphyr::from_str(&text).unwrap();
        let fields = fields_of(&pod["spec"], "spec").into_iter();
        uses.extend(fields.map(|field| (field, name.clone())));
        match Manifest::parse_all(&file, &text, "node", false).remove(0) {
            Ok(_) => run += 1,
            Err(error) => refused.push((name, error.field.unwrap_or(error.problem))),
        }
    }
    let field = "spec.volumes[4].image".to_owned();
    assert_eq!(refused, [("kops-etcd-manager-main".to_owned(), field)]);
    assert_eq!(run, 20);
    let listed = include_str!("fields.tsv").lines().flat_map(|row| {
        let (field, files) = row.split_once('\t').unwrap();
        let files = files.split(' ').map(str::to_owned);
        files.map(move |file| (field.to_owned(), file))
    });
    assert_eq!(uses, listed.collect());
}
