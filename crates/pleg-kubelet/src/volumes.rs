//! The directories of a pod on the node: its volumes and its logs.
//!
//! All calls block on the file system, and a mount may hang. So the performer calls them in a task with a deadline.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use pleg::PodUid;

use crate::mounts::unmount_below;
use crate::removal::remove_directory;

/// Directories of a pod's volumes, by the kind of volume.
pub(crate) const EMPTY_DIRS: &str = "volumes/kubernetes.io~empty-dir";
pub(crate) const FILES: &str = "volumes/kubernetes.io~downward-api";
/// The directory of the mount points for volume sub-paths. Each mount point is `<volume>/<container>/<number>`.
pub(crate) const SUB_PATHS: &str = "volume-subpaths";
pub(crate) const ETC_HOSTS: &str = "etc-hosts";

/// A directory of a pod cannot be used: its path and the reason.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct VolumeError(pub(crate) String);

pub(crate) type Result<T = (), E = VolumeError> = std::result::Result<T, E>;

impl VolumeError {
    /// The error of a call for that path.
    pub(crate) fn at<E: Into<io::Error>>(path: &Path) -> impl Fn(E) -> Self {
        move |source| Self(format!("{path:?}: {}", source.into()))
    }

    /// The error for mounts below a directory of the pod that were not removed.
    pub(crate) fn mounted(paths: &[PathBuf]) -> Self {
        let shown = paths.iter().map(|path| path.display().to_string());
        let mut shown = shown.take(3).collect::<Vec<_>>().join(", ");
        if paths.len() > 3 {
            shown.push_str(&format!(" and {} more", paths.len() - 3));
        }
        Self(format!(
            "left, because something is mounted there: {shown}; unmount it"
        ))
    }
}

/// The directory of all pods, for example `/var/lib/kubelet/pods`. Below it, every path is upstream's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodDirectories {
    root: PathBuf,
}

impl PodDirectories {
    /// Directories below `root`, which is created with the first pod.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Removes the directory of a pod with its `emptyDir` volumes. A missing directory is no error. Symbolic links are
    /// removed, not followed. Mounts that others made in a volume stay. The error names these mounts, or an entry that
    /// cannot be removed.
    pub(crate) fn remove(&self, uid: &PodUid) -> Result {
        let below = |path| self.below(uid.as_str(), path, &[]);
        unmount_below(&below(SUB_PATHS)?, 3);
        unmount_below(&below(EMPTY_DIRS)?, 1);
        remove_directory(&below("")?)
    }

    pub(crate) fn uids(&self) -> Result<Vec<PodUid>> {
        let names = names_in(&self.root)?;
        Ok(names.iter().map(|name| PodUid::from(&**name)).collect())
    }

    /// A path in the directory of a pod. Fails if the uid or a name cannot be the name of a directory. The check is
    /// needed because uids of unknown pods come from the runtime.
    pub(crate) fn below(&self, uid: &str, path: &str, names: &[&str]) -> Result<PathBuf> {
        let mut found = self.root.join(file_name(uid)?);
        found.extend(Path::new(path));
        for name in names {
            found.push(file_name(name)?);
        }
        Ok(found)
    }

    /// The file in which an attempt of a container leaves its termination message.
    pub(crate) fn termination_log(&self, uid: &str, name: &str, attempt: u32) -> Result<PathBuf> {
        self.below(uid, "containers", &[name, &attempt.to_string()])
    }
}

/// The names in a directory; none if it does not exist. Names that are not UTF-8 are left out.
pub(crate) fn names_in(directory: &Path) -> Result<Vec<String>> {
    let failed = VolumeError::at(directory);
    let entries = match fs::read_dir(directory) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(&failed)?,
    };
    let names = entries.map(|entry| Ok(entry.map_err(&failed)?.file_name().into_string().ok()));
    names.filter_map(Result::transpose).collect()
}

/// Ignores an error of this kind.
pub(crate) fn unless(kind: io::ErrorKind, result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == kind => Ok(()),
        result => result,
    }
}

/// Returns the name if it is the plain name of a file or directory (no `/`, not `..`). Names from manifests and the
/// runtime become part of a path only after this check.
pub(crate) fn file_name(name: &str) -> Result<&str> {
    let mut components = Path::new(name).components();
    match (components.next(), components.next()) {
        // No colon: conmon takes the text before it for the name of a log driver.
        (Some(Component::Normal(only)), None) if only == name && !name.contains(':') => Ok(name),
        _ => Err(VolumeError(format!(
            "{name:?} is not a name that a directory can have"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uid_that_is_no_plain_directory_name_is_refused() {
        let pods = PodDirectories::new("/var/lib/kubelet/pods");
        for uid in ["", ".", "..", "../x", "a/b", "/etc", "a/", "a/.", "a:b"] {
            let path = pods.below(uid, "", &[]);
            assert!(path.is_err(), "{uid:?}: {path:?}");
        }
    }
}
