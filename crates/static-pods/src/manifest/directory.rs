//! The manifests in a directory, and their changes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::io;
use std::path::Path;

use pleg::PodUid;

use super::{Manifest, ManifestError};

/// The largest file that is read, in bytes.
const LARGEST: u64 = 10 << 20;

/// The result of reading a directory: the manifests and the errors of all its files.
pub type ReadManifests = Vec<Result<Manifest, ManifestError>>;

/// Reads all files of a directory whose names do not begin with a dot, the most recently modified first. Files with the
/// same modification time are ordered by name. [`Manifest::parse_all`] gets `node` and `strict`.
///
/// # Errors
/// If the directory cannot be read, or does not exist. An empty directory is no error. (Upstream removes all static
/// pods if the directory is gone.)
pub fn read_directory(directory: &Path, node: &str, strict: bool) -> Result<ReadManifests, String> {
    let error = |why: io::Error| {
        format!(
            "the manifest directory {} cannot be read ({why}): all static pods stay as they are; create it, or make it \
             readable",
            directory.display()
        )
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(error)? {
        let entry = entry.map_err(error)?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            let file = entry.path();
            let metadata = fs::metadata(&file);
            // Modification times are from the wall clock, but they only order the files: no timer depends on them.
            let modified = metadata.as_ref().ok().and_then(|m| m.modified().ok());
            files.push((Reverse(modified), file, metadata));
        }
    }
    files.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
    let parse = |file: &Path, text: &str| Manifest::parse_all(file, text, node, strict);
    let files = files.into_iter();
    let read = files.flat_map(|(_, file, metadata)| read_file(&file, metadata, parse));
    Ok(read.collect())
}

/// Reads a file. Returns nothing if the file is gone or not a regular file.
fn read_file(
    file: &Path,
    metadata: io::Result<Metadata>,
    parse: impl Fn(&Path, &str) -> ReadManifests,
) -> ReadManifests {
    let failed = |problem: String| vec![Err(ManifestError::new(file, String::new(), problem))];
    let size = match metadata {
        Ok(metadata) if metadata.is_file() => metadata.len(),
        Ok(_) => return Vec::new(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => return failed(format!("it cannot be read: {error}")),
    };
    if size > LARGEST {
        return failed("it is larger than 10 MiB: split it".to_owned());
    }
    match fs::read_to_string(file) {
        Ok(contents) => parse(file, &contents),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => failed(format!("it cannot be read: {error}")),
    }
}

/// The manifests in force: the one manifest that is used for each pod, by the full name of the pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Manifests {
    pods: BTreeMap<String, Manifest>,
    /// The pods that were running before the first call of `update`.
    running: BTreeSet<PodUid>,
}

/// The changes that one call of [`Manifests::update`] makes.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Changes {
    /// Pods to start.
    pub added: Vec<Manifest>,
    /// Pods whose manifest changed: the old and the new manifest. If their uids differ, the pod is replaced; otherwise
    /// the pod's worker gets the new manifest, for example with other CPU limits.
    pub changed: Vec<(Manifest, Manifest)>,
    /// Pods to remove.
    pub removed: Vec<Manifest>,
    /// Errors of files that cannot be used. A pod from an earlier version of such a file keeps running unchanged.
    /// (Upstream removes the pod.)
    pub broken: Vec<ManifestError>,
}

impl Manifests {
    /// All manifests in force, in the order of the full names of their pods.
    pub fn iter(&self) -> impl Iterator<Item = &Manifest> {
        self.pods.values()
    }

    /// Sets the pods that were running when the kubelet restarted. Call it before the first update. If several
    /// manifests have the same pod name, the manifest whose pod was running is preferred.
    pub fn set_running(&mut self, uids: BTreeSet<PodUid>) {
        self.running = uids;
    }

    /// Replaces the manifests by `found`.
    ///
    /// If several manifests have the same pod name or uid, the manifest in force stays in force. If none of them is in
    /// force, the manifest whose pod is [running](Self::set_running) is used. If none is running, the first one in the
    /// result of [`read_directory`] is used: the most recently modified. The others are reported as broken.
    pub fn update(&mut self, found: ReadManifests) -> Changes {
        let mut changes = Changes::default();
        let mut next: BTreeMap<String, Manifest> = BTreeMap::new();
        let (mut good, mut files) = (Vec::new(), BTreeSet::new());
        for result in found {
            match result {
                Ok(manifest) => good.push(manifest),
                Err(error) => {
                    files.insert(error.file.clone());
                    changes.broken.push(error);
                }
            }
        }
        let given = good.iter().map(|m| (m.file.clone(), m.full_name()));
        let given: BTreeSet<_> = given.collect();
        let is_given = |m: &Manifest| given.contains(&(m.file.clone(), m.full_name()));
        for (name, manifest) in &self.pods {
            if files.contains(&manifest.file) && !is_given(manifest) {
                next.insert(name.clone(), manifest.clone());
            }
        }
        let running = std::mem::take(&mut self.running);
        // Precedence in conflicts: unchanged manifests, changed ones of the same file, manifests of running pods.
        good.sort_by_key(|manifest| match self.pods.get(&manifest.full_name()) {
            Some(before) if before == manifest => 0,
            Some(before) if before.file == manifest.file => 1,
            _ if running.contains(&PodUid::from(manifest.uid())) => 2,
            _ => 3,
        });
        for manifest in good {
            let Some(error) = conflict(&manifest, &next) else {
                next.insert(manifest.full_name(), manifest);
                continue;
            };
            changes.broken.push(error);
            let name = manifest.full_name();
            let is_before =
                |p: &&Manifest| p.file == manifest.file && (p.full_name() == name || !is_given(p));
            let before = self.pods.values().find(is_before);
            if let Some(before) = before.filter(|before| conflict(before, &next).is_none()) {
                next.insert(before.full_name(), before.clone());
            }
        }
        for (name, manifest) in &next {
            match self.pods.remove(name) {
                None => changes.added.push(manifest.clone()),
                Some(before) if before != *manifest => {
                    changes.changed.push((before, manifest.clone()));
                }
                Some(_) => {}
            }
        }
        changes.removed = std::mem::take(&mut self.pods).into_values().collect();
        self.pods = next;
        changes
    }
}

/// The error if a manifest in `others` has the same pod name or uid as `manifest`.
fn conflict(manifest: &Manifest, others: &BTreeMap<String, Manifest>) -> Option<ManifestError> {
    let error = |field: &str, problem| {
        let error = ManifestError::new(&manifest.file, field.to_owned(), problem);
        Some(error)
    };
    if let Some(other) = others.get(&manifest.full_name()) {
        let other = other.file.display();
        let problem = format!(
            "{other} has a pod of this name, and is used: rename the pod, or remove one of the files"
        );
        return error("metadata.name", problem);
    }
    let mut others = others.values();
    let other = others.find(|other| other.uid() == manifest.uid())?;
    let other = other.file.display();
    let problem = format!("{other} has a pod of this uid: change one, or remove it");
    error("metadata.uid", problem)
}
