//! Directories of manifests: which of two files of a pod is used, and which pods are added, changed and removed.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use pleg::PodUid;
use static_pods::manifest::{Changes, Manifest, Manifests, ReadManifests, read_directory};

use super::WEB;

struct Directory(tempfile::TempDir);

impl Directory {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A directory with two files of one pod: a backup, whose name sorts first, and the newer file.
    fn twice() -> Self {
        let twice = Self::new();
        twice.write_at(BACKUP, &WEB.replace("shop:1", "shop:0"), 1_000);
        twice.write_at(NEWER, WEB, 2_000);
        twice
    }

    fn write(&self, file: &str, contents: &str) {
        fs::write(self.0.path().join(file), contents).unwrap();
    }

    /// Writes a file that was modified `seconds` after 1970.
    fn write_at(&self, file: &str, contents: &str, seconds: u64) {
        self.write(file, contents);
        let file = self.0.path().join(file);
        let opened = fs::File::options().write(true).open(file);
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        opened.unwrap().set_modified(time).unwrap();
    }

    fn remove(&self, file: &str) {
        fs::remove_file(self.0.path().join(file)).unwrap();
    }

    fn read(&self) -> ReadManifests {
        read_directory(self.0.path(), "n1", false).unwrap()
    }

    /// Updates the manifests. Returns the names of the files that are used, and the errors.
    fn update(&self, manifests: &mut Manifests) -> (String, Vec<String>) {
        let errors = manifests.update(self.read()).broken;
        let files = manifests.iter().map(|manifest| file_name(&manifest.file));
        let directory = format!("{}/", self.0.path().display());
        let errors = errors.iter().map(ToString::to_string);
        let errors = errors.map(|error| error.replace(&directory, ""));
        (files.collect::<Vec<_>>().join(" "), errors.collect())
    }
}

const BACKUP: &str = "a-backup.yaml";
const NEWER: &str = "web.yaml";

fn file_name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

#[test]
fn used_manifest_stays_until_removed_even_if_another_becomes_newer() {
    let twice = Directory::twice();
    let mut manifests = Manifests::default();
    let (file, errors) = twice.update(&mut manifests);
    assert_eq!(file, NEWER);
    let error = "a-backup.yaml: metadata.name: web.yaml has a pod of this name, and is used: rename \
                 the pod, or remove one of the files";
    assert_eq!(errors, [error]);
    // The other file becomes newer.
    twice.write_at(BACKUP, &WEB.replace("shop:1", "shop:0"), 3_000);
    let (file, errors) = twice.update(&mut manifests);
    assert_eq!((&*file, errors.len()), (NEWER, 1));
    twice.write_at(NEWER, &WEB.replace("shop:1", "shop:2"), 2_500);
    assert_eq!(twice.update(&mut manifests).0, NEWER);
    // When the file that is used is removed, the other file of the pod is used.
    twice.remove(NEWER);
    let (file, errors) = twice.update(&mut manifests);
    assert_eq!((&*file, errors.len()), (BACKUP, 0));
    // If files have the same modification time, a new pod uses the first by name.
    let twice = Directory::twice();
    twice.write_at(BACKUP, WEB, 2_000);
    let (file, _) = twice.update(&mut Manifests::default());
    assert_eq!(file, BACKUP);
}

#[test]
fn restarted_kubelet_uses_the_manifest_of_the_running_pod() {
    let twice = Directory::twice();
    for running in twice.read() {
        let (running, mut manifests) = (running.unwrap(), Manifests::default());
        let uid = PodUid::from(running.uid());
        manifests.set_running([uid, "other".into()].into());
        let (in_force, errors) = twice.update(&mut manifests);
        assert_eq!((in_force, errors.len()), (file_name(&running.file), 1));
    }
}

fn shown(changes: &Changes) -> [String; 4] {
    let names =
        |manifests: &[Manifest]| -> Vec<_> { manifests.iter().map(Manifest::full_name).collect() };
    let changed = changes.changed.iter().map(|(_, now)| now.full_name());
    let broken = changes.broken.iter().map(|error| {
        let field = error.field.as_deref().unwrap_or("-");
        format!("{}: {field}", file_name(&error.file))
    });
    let (added, removed) = (names(&changes.added), names(&changes.removed));
    [added, changed.collect(), removed, broken.collect()].map(|names| names.join(" "))
}

#[test]
fn added_changed_and_removed_manifests_are_found() {
    let directory = Directory::new();
    let write = |file, contents: &str| directory.write(file, contents);
    let mut manifests = Manifests::default();
    let mut read = || shown(&manifests.update(directory.read()));
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
    // A pod whose file became broken stays unchanged, and the other pods are not affected.
    write("b.yaml", "nonsense");
    write("c.yaml", &pod("c", 3));
    assert_eq!(read(), ["", "c-n1_default", "", "b.yaml: -"]);
    write("b.yaml", &pod("b", 1));
    assert_eq!(read(), ["", "", "", ""]);
    // A new file whose pod has the name of pod b is an error, and pod b stays.
    write("a.yaml", &pod("b", 9));
    assert_eq!(read(), ["", "", "", "a.yaml: metadata.name"]);
    // A new pod with the host port of pod c is no error: admission rejects the pod.
    write("a.yaml", &pod("a", 3));
    assert_eq!(read(), ["a-n1_default", "", "", ""]);
    // An edit that gives pod b the name of pod c leaves both pods unchanged.
    write("b.yaml", &pod("c", 1));
    assert_eq!(read()[..3], ["", "", ""]);
    write("b.yaml", &pod("b", 1));
    // An edit that gives pod a the uid of pod c is an error, and both pods stay.
    let uid = |name, port| pod(name, port).replace("metadata:", "metadata:\n  uid: u");
    write("c.yaml", &uid("c", 3));
    assert_eq!(read(), ["", "c-n1_default", "", ""]);
    write("a.yaml", &uid("a", 4));
    assert_eq!(read(), ["", "", "", "a.yaml: metadata.uid"]);
    write("a.yaml", &pod("a", 4));
    directory.remove("b.yaml");
    assert_eq!(read(), ["", "a-n1_default", "b-n1_default", ""]);
    // If the directory becomes empty, all pods are removed.
    directory.remove("a.yaml");
    directory.remove("c.yaml");
    assert_eq!(read(), ["", "", "a-n1_default c-n1_default", ""]);
}

#[test]
fn missing_manifest_directory_is_an_error() {
    let error = read_directory(Path::new("/nowhere/manifests"), "n1", false).err();
    let expected = "the manifest directory /nowhere/manifests cannot be read (No such file or \
                    directory (os error 2)): all static pods stay as they are; create it, or make \
                    it readable";
    assert_eq!(error.as_deref(), Some(expected));
}

#[test]
fn each_document_of_a_file_is_a_pod() {
    let directory = Directory::new();
    let other = WEB.replace("name: web", "name: other");
    let mut manifests = Manifests::default();
    let mut update = |documents: &[&str]| {
        directory.write("all.yaml", &documents.join("---\n"));
        manifests.update(directory.read())
    };
    let (web_name, other_name) = ("web-n1_default", "other-n1_default");
    let added = format!("{other_name} {web_name}");
    assert_eq!(shown(&update(&[WEB, &other])), [&*added, "", "", ""]);
    // One document of the file is edited, and the other one becomes broken.
    let edited = WEB.replace("shop:1", "shop:2");
    let changes = update(&[&edited, &other.replace("shop:1", "''")]);
    let broken = "all.yaml: document 2: spec.containers[0].image";
    assert_eq!(shown(&changes), ["", web_name, "", broken]);
    assert_eq!(shown(&update(&[&edited])), ["", "", other_name, ""]);
}
