//! Directories of manifests: which file gives a pod, and what changes.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use pleg::PodUid;
use static_pods::manifest::{Changes, Manifest, Manifests, ReadManifests, read_directory};

use super::WEB;

/// A directory with two files of one pod: a backup that sorts first, and the newer one.
struct Twice(tempfile::TempDir);

impl Twice {
    const BACKUP: &str = "a-backup.yaml";
    const NEWER: &str = "web.yaml";

    fn new() -> Self {
        let twice = Self(tempfile::tempdir().unwrap_or_else(|error| panic!("{error}")));
        twice.write(Self::BACKUP, &WEB.replace("shop:1", "shop:0"), 1_000);
        twice.write(Self::NEWER, WEB, 2_000);
        twice
    }

    /// Writes a file that was modified so many seconds after 1970.
    fn write(&self, file: &str, contents: &str, seconds: u64) {
        let path = self.0.path().join(file);
        let written = fs::write(&path, contents).and_then(|()| {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            fs::File::options()
                .write(true)
                .open(&path)?
                .set_modified(time)
        });
        written.unwrap_or_else(|error| panic!("{error}"));
    }

    fn read(&self) -> ReadManifests {
        read_directory(self.0.path(), "n1").unwrap_or_else(|error| panic!("{error}"))
    }

    /// The uid of the pod in a file.
    fn uid(&self, file: &str) -> PodUid {
        let mut good = self.read().into_iter().filter_map(Result::ok);
        let manifest = good.find(|manifest| manifest.file.ends_with(file));
        manifest.map_or_else(|| panic!("no {file}"), |manifest| manifest.uid().into())
    }

    /// Updates the manifests. Returns the file that is in force, and the errors.
    fn update(&self, manifests: &mut Manifests) -> (String, Vec<String>) {
        let errors = manifests.update(self.read()).broken;
        let name = |path: &Path| {
            path.file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned()
        };
        let files: Vec<_> = manifests
            .iter()
            .map(|manifest| name(&manifest.file))
            .collect();
        let errors = errors.iter().map(|error| {
            let directory = format!("{}/", self.0.path().display());
            error.to_string().replace(&directory, "")
        });
        (files.join(" "), errors.collect())
    }
}

#[test]
fn after_a_restart_the_newer_file_of_a_pod_wins() {
    let twice = Twice::new();
    let (file, errors) = twice.update(&mut Manifests::default());
    assert_eq!(file, Twice::NEWER);
    assert_eq!(
        errors,
        [
            "a-backup.yaml: metadata.name: web.yaml has a pod of this name, and is used: rename the pod, \
          or remove one of the files"
        ]
    );
    // Of files of one time, the first name wins.
    twice.write(Twice::BACKUP, WEB, 2_000);
    let (file, _) = twice.update(&mut Manifests::default());
    assert_eq!(file, Twice::BACKUP);
}

#[test]
fn known_pod_keeps_its_file_when_another_is_newer() {
    let twice = Twice::new();
    let mut manifests = Manifests::default();
    twice.update(&mut manifests);
    twice.write(Twice::BACKUP, &WEB.replace("shop:1", "shop:0"), 3_000);
    let (file, errors) = twice.update(&mut manifests);
    assert_eq!((&*file, errors.len()), (Twice::NEWER, 1));
    twice.write(Twice::NEWER, &WEB.replace("shop:1", "shop:2"), 2_500);
    assert_eq!(twice.update(&mut manifests).0, Twice::NEWER);
    // When its file is gone, the other one is used.
    fs::remove_file(twice.0.path().join(Twice::NEWER)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        twice.update(&mut manifests),
        (Twice::BACKUP.to_owned(), Vec::new())
    );
}

#[test]
fn after_a_restart_the_running_pod_keeps_its_file() {
    let twice = Twice::new();
    for file in [Twice::BACKUP, Twice::NEWER] {
        let mut manifests = Manifests::default();
        manifests.set_running([twice.uid(file), "other".into()].into());
        let (in_force, errors) = twice.update(&mut manifests);
        assert_eq!((&*in_force, errors.len()), (file, 1));
    }
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

#[test]
fn documents_of_one_file_are_pods_of_their_own() {
    let directory = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let other = WEB
        .replace("name: web", "name: other")
        .replace("hostPort: 8080", "hostPort: 80");
    let mut manifests = Manifests::default();
    let mut update = |documents: &[&str]| {
        let written = fs::write(directory.path().join("all.yaml"), documents.join("---\n"));
        written.unwrap_or_else(|error| panic!("{error}"));
        let read = read_directory(directory.path(), "n1").unwrap_or_else(|error| panic!("{error}"));
        let changes = manifests.update(read);
        let names: Vec<_> = manifests.iter().map(Manifest::full_name).collect();
        (names.join(" "), changes)
    };
    let both = "other-n1_default web-n1_default";
    let (names, changes) = update(&[WEB, &other]);
    assert_eq!((&*names, changes.added.len()), (both, 2));
    // One is edited, and the other one is broken.
    let (edited, broken) = (
        WEB.replace("shop:1", "shop:2"),
        other.replace("shop:1", "''"),
    );
    let (names, changes) = update(&[&edited, &broken]);
    assert_eq!(
        (&*names, changes.changed.len(), changes.removed.len()),
        (both, 1, 0)
    );
    let error = changes.broken[0].to_string();
    assert!(
        error.contains("all.yaml: document 2: spec.containers[0].image: "),
        "{error}"
    );
    let (names, changes) = update(&[&edited]);
    assert_eq!((&*names, changes.removed.len()), ("web-n1_default", 1));
}
