//! The directories of a pod on the node: its volumes and its logs.
//!
//! All calls block on the file system. A mount may hang: call them from
//! [`spawn_blocking`](tokio::task::spawn_blocking) and with a deadline.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _,
    PermissionsExt as _, chown, symlink,
};
use std::path::{Component, Path, PathBuf};

use pleg::PodUid;

use crate::mounts::{make_tmpfs, unmount_below};
use crate::removal::remove_directory;

const EMPTY_DIRS: &str = "volumes/kubernetes.io~empty-dir";
const FILES: &str = "volumes/kubernetes.io~downward-api";
const SUB_PATHS: &str = "volume-subpaths";

/// A volume of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Volume {
    /// A path of the node.
    HostPath {
        /// The path.
        path: PathBuf,
        /// What must be there, or is created.
        kind: HostPathKind,
    },
    /// A directory that is created with the pod and removed with it.
    EmptyDir {
        /// The size of its file system in memory, in bytes. `None`: it is on the disk.
        memory: Option<u64>,
        /// The group that owns it and what is created in it (`fsGroup`).
        group: Option<u32>,
    },
    /// Files that change together: a container sees all of the old ones, or all of the new ones.
    Files {
        /// The files, by path.
        files: BTreeMap<PathBuf, VolumeFile>,
        /// The group that can read them (`fsGroup`).
        group: Option<u32>,
    },
}

/// A file in a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeFile {
    /// What it contains.
    pub text: String,
    /// Its permissions, such as `0o644`.
    pub mode: u32,
}

/// What a `hostPath` volume asks of its path: the values of its field `type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HostPathKind {
    /// Nothing is checked.
    #[default]
    Any,
    /// A directory, created with mode 0755 if nothing is there.
    DirectoryOrCreate,
    /// A directory.
    Directory,
    /// A file, created empty with mode 0644 if nothing is there.
    FileOrCreate,
    /// A file.
    File,
    /// A unix socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

/// Why a directory of a pod cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VolumeError {
    /// The path of a volume is not what its type says.
    #[error("volume {volume}: hostPath {path:?} is not a {expected}")]
    Kind {
        /// The volume.
        volume: String,
        /// Its path.
        path: PathBuf,
        /// What it should be.
        expected: &'static str,
    },
    /// A uid, or a name of a manifest, cannot be the name of a directory.
    #[error("{0:?} is not a name that a directory can have")]
    Name(String),
    /// A path cannot be read or made.
    #[error("volume {volume}: {path:?}: {source}")]
    Io {
        /// The volume.
        volume: String,
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file system does not respond. What was begun goes on.
    #[error("the file system does not respond: does a mount hang?")]
    Hangs,
    /// Something is mounted below a directory of the pod, so it was not removed. All else was.
    #[error(
        "left, because something is mounted there: {}; unmount it",
        listed(paths)
    )]
    Mounted {
        /// The mount points.
        paths: Vec<PathBuf>,
    },
    /// A directory or file of the pod cannot be read, made or removed.
    #[error("{path:?}: {source}")]
    Directory {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The first paths, and how many there are.
fn listed(paths: &[PathBuf]) -> String {
    const SHOWN: usize = 3;
    let shown = paths.iter().take(SHOWN);
    let shown: Vec<_> = shown.map(|path| path.display().to_string()).collect();
    match paths.len().checked_sub(SHOWN) {
        None | Some(0) => shown.join(", "),
        Some(more) => format!("{} and {more} more", shown.join(", ")),
    }
}

/// The directory of all pods, for example `/var/lib/kubelet/pods`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodDirectories {
    root: PathBuf,
}

impl PodDirectories {
    /// Directories below `root`. It is created with the first pod.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The directory of a pod.
    ///
    /// # Errors
    /// If the uid is not the name of a directory: uids of unknown pods come from the runtime.
    pub fn of(&self, uid: &PodUid) -> Result<PathBuf, VolumeError> {
        Ok(self.root.join(FileName::new(uid.as_str())?))
    }

    /// Makes the volumes of a pod and returns where each is. What exists already is kept; files are replaced if they
    /// have changed.
    ///
    /// # Errors
    /// The first volume that cannot be used.
    pub fn prepare(
        &self,
        uid: &PodUid,
        volumes: &BTreeMap<String, Volume>,
    ) -> Result<BTreeMap<String, PathBuf>, VolumeError> {
        let mut paths = BTreeMap::new();
        for (name, volume) in volumes {
            let (path, made) = match volume {
                Volume::HostPath { path, kind } => {
                    check_host_path(name, path, *kind)?;
                    (path.clone(), Ok(()))
                }
                Volume::EmptyDir { memory, group } => {
                    let path = self.empty_dir(uid, name)?;
                    let made = make_empty_dir(&path, *memory, *group);
                    (path, made)
                }
                Volume::Files { files, group } => {
                    let path = self.files(uid, name)?;
                    let made = write_files(&path, files, *group);
                    (path, made)
                }
            };
            made.map_err(|source| VolumeError::Io {
                volume: name.clone(),
                path: path.clone(),
                source,
            })?;
            paths.insert(name.clone(), path);
        }
        Ok(paths)
    }

    /// Removes the directory of a pod with its `emptyDir` volumes. Nothing to remove is no error.
    /// Symbolic links are removed, not followed. What others have mounted in a volume stays as it is.
    ///
    /// # Errors
    /// [`VolumeError::Mounted`] names what is mounted; another error, what cannot be removed.
    pub fn remove(&self, uid: &PodUid) -> Result<(), VolumeError> {
        let directory = self.of(uid)?;
        unmount_below(&directory.join(SUB_PATHS), 3);
        unmount_below(&directory.join(EMPTY_DIRS), 1);
        remove_directory(&directory)
    }

    /// The pods that have a directory.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn uids(&self) -> Result<Vec<PodUid>, VolumeError> {
        let names = names_in(&self.root)?;
        Ok(names.iter().map(|name| PodUid::from(&**name)).collect())
    }

    /// The path of an `emptyDir` volume of a pod, which is upstream's.
    ///
    /// # Errors
    /// If the uid or the name of the volume is not the name of a directory.
    pub fn empty_dir(&self, uid: &PodUid, volume: &str) -> Result<PathBuf, VolumeError> {
        Ok(self.of(uid)?.join(EMPTY_DIRS).join(FileName::new(volume)?))
    }

    /// The path of a volume of files, which is upstream's of a `downwardAPI` volume.
    ///
    /// # Errors
    /// If the uid or the name of the volume is not the name of a directory.
    pub fn files(&self, uid: &PodUid, volume: &str) -> Result<PathBuf, VolumeError> {
        Ok(self.of(uid)?.join(FILES).join(FileName::new(volume)?))
    }

    /// Where a path in a volume is mounted for a container's mount number `at`. It is upstream's path.
    #[cfg(feature = "k8s-openapi")]
    pub(crate) fn sub_path(
        &self,
        uid: &PodUid,
        volume: &str,
        container: &str,
        at: usize,
    ) -> Result<PathBuf, VolumeError> {
        let volume = self.of(uid)?.join(SUB_PATHS).join(FileName::new(volume)?);
        Ok(volume.join(FileName::new(container)?).join(at.to_string()))
    }

    /// The hosts file of a pod.
    #[cfg(feature = "k8s-openapi")]
    pub(crate) fn hosts(&self, uid: &PodUid) -> Result<PathBuf, VolumeError> {
        Ok(self.of(uid)?.join("etc-hosts"))
    }

    /// The file in which an attempt of a container leaves its termination message.
    #[cfg(feature = "k8s-openapi")]
    pub(crate) fn termination_log(
        &self,
        uid: &PodUid,
        container: &str,
        attempt: u32,
    ) -> Result<PathBuf, VolumeError> {
        let container = FileName::new(container)?;
        let directory = self.of(uid)?.join("containers").join(container);
        Ok(directory.join(attempt.to_string()))
    }
}

/// World-writable like upstream's, because the containers' users differ. A new directory has mode 0 until it is ready;
/// later, the mode and the group are the containers' affair.
fn make_empty_dir(path: &Path, memory: Option<u64>, group: Option<u32>) -> io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    match fs::DirBuilder::new().mode(0o000).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if let Some(size) = memory {
        make_tmpfs(path, size)?;
    }
    if fs::symlink_metadata(path)?.mode() & 0o7777 == 0 {
        chown(path, None, group)?;
        let mode = if group.is_some() { 0o2777 } else { 0o777 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Writes files as upstream does: into a new directory, to which the link `..data` is then changed. Containers find
/// the files by links through `..data`. They cannot write to the volume.
fn write_files(
    volume: &Path,
    files: &BTreeMap<PathBuf, VolumeFile>,
    group: Option<u32>,
) -> io::Result<()> {
    fs::create_dir_all(volume)?;
    let (data, next) = (volume.join("..data"), volume.join("..data_tmp"));
    let current = fs::read_link(&data).unwrap_or_default();
    let is_same = |(path, file): (&PathBuf, &VolumeFile)| {
        fs::read_to_string(data.join(path)).is_ok_and(|text| text == file.text)
    };
    if data.exists() && files.iter().all(is_same) {
        return Ok(());
    }
    let name = if current == Path::new("..a") {
        "..b"
    } else {
        "..a"
    };
    let directory = volume.join(name);
    for leftover in [fs::remove_dir_all(&directory), fs::remove_file(&next)] {
        match leftover {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    fs::create_dir_all(&directory)?;
    for directory in [volume, &directory] {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755))?;
    }
    for (path, file) in files {
        let path = directory.join(path);
        fs::create_dir_all(path.parent().unwrap_or(&directory))?;
        fs::write(&path, &file.text)?;
        chown(&path, None, group)?;
        let for_group = if group.is_some() { 0o440 } else { 0 };
        fs::set_permissions(&path, fs::Permissions::from_mode(file.mode | for_group))?;
    }
    symlink(name, &next)?;
    fs::rename(&next, &data)?;
    for top in files.keys().filter_map(|path| path.iter().next()) {
        let link = volume.join(top);
        if fs::symlink_metadata(&link).is_err() {
            symlink(Path::new("..data").join(top), link)?;
        }
    }
    if current.as_os_str().is_empty() {
        Ok(())
    } else {
        fs::remove_dir_all(volume.join(current))
    }
}

/// Makes a file that is mounted into containers, with this mode whatever the umask is: the containers' users differ.
#[cfg(feature = "k8s-openapi")]
pub(crate) fn make_file(path: &Path, text: &str, mode: u32) -> Result<(), VolumeError> {
    let directory = path.parent().unwrap_or(path);
    fs::create_dir_all(directory)
        .and_then(|()| fs::write(path, text))
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(mode)))
        .map_err(|source| VolumeError::Directory {
            path: path.to_owned(),
            source,
        })
}

/// What is in a directory; nothing if it does not exist. Names that are no text are left out.
pub(crate) fn names_in(directory: &Path) -> Result<Vec<String>, VolumeError> {
    let failed = |source| VolumeError::Directory {
        path: directory.to_owned(),
        source,
    };
    let entries = match fs::read_dir(directory) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let names = entries.map(|entry| Ok(entry.map_err(failed)?.file_name().into_string().ok()));
    names.filter_map(Result::transpose).collect()
}

/// The name of one file or directory, which leads nowhere else. What manifests and the runtime name becomes part of a
/// path only as this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileName(String);

impl FileName {
    pub(crate) fn new(name: impl Into<String>) -> Result<Self, VolumeError> {
        let name = name.into();
        let mut components = Path::new(&name).components();
        match (components.next(), components.next()) {
            // conmon takes what stands before a colon for the name of a log driver.
            _ if name.contains(':') => Err(VolumeError::Name(name)),
            (Some(Component::Normal(only)), None) if *only == *name => Ok(Self(name)),
            _ => Err(VolumeError::Name(name)),
        }
    }
}

impl AsRef<Path> for FileName {
    fn as_ref(&self) -> &Path {
        self.0.as_ref()
    }
}

fn check_host_path(volume: &str, path: &Path, kind: HostPathKind) -> Result<(), VolumeError> {
    let failed = |source| VolumeError::Io {
        volume: volume.to_owned(),
        path: path.to_owned(),
        source,
    };
    if kind == HostPathKind::Any {
        return Ok(());
    }
    let found = match fs::metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => match kind {
            HostPathKind::DirectoryOrCreate => {
                let mut builder = fs::DirBuilder::new();
                let builder = builder.recursive(true).mode(0o755);
                return builder.create(path).map_err(failed);
            }
            HostPathKind::FileOrCreate => {
                let mut options = fs::OpenOptions::new();
                let options = options.write(true).create_new(true).mode(0o644);
                return options.open(path).map(drop).map_err(failed);
            }
            _ => return Err(failed(e)),
        },
        Err(e) => return Err(failed(e)),
    };
    let (is_so, expected) = match kind {
        HostPathKind::Any => (true, "path"),
        HostPathKind::Directory | HostPathKind::DirectoryOrCreate => (found.is_dir(), "directory"),
        HostPathKind::File | HostPathKind::FileOrCreate => (found.is_file(), "file"),
        HostPathKind::Socket => (found.is_socket(), "socket"),
        HostPathKind::CharDevice => (found.is_char_device(), "character device"),
        HostPathKind::BlockDevice => (found.is_block_device(), "block device"),
    };
    if is_so {
        return Ok(());
    }
    Err(VolumeError::Kind {
        volume: volume.to_owned(),
        path: path.to_owned(),
        expected,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(volume: Volume) -> BTreeMap<String, Volume> {
        BTreeMap::from([("v".to_owned(), volume)])
    }

    /// The directories of pods, and the uid of one.
    fn pods(root: &tempfile::TempDir) -> (PodDirectories, PodUid) {
        let pods = PodDirectories::new(root.path().join("pods"));
        (pods, PodUid::from("u1"))
    }

    type Outcome = Result<(), Box<dyn std::error::Error>>;

    #[test]
    fn empty_dir_lives_as_long_as_its_pod() -> Outcome {
        let root = tempfile::tempdir()?;
        let (pods, uid) = pods(&root);
        let (memory, group) = (None, None);
        let volumes = volume(Volume::EmptyDir { memory, group });
        let path = pods.prepare(&uid, &volumes)?["v"].clone();
        fs::write(path.join("kept"), "x")?;
        assert_eq!(pods.prepare(&uid, &volumes)?["v"], path);
        assert!(path.join("kept").exists());
        pods.remove(&uid)?;
        assert!(!pods.of(&uid)?.exists());
        pods.remove(&uid)?;
        Ok(())
    }

    #[test]
    fn files_change_together_and_keep_their_names() -> Outcome {
        let root = tempfile::tempdir()?;
        let (pods, uid) = pods(&root);
        let write = |text: &str| {
            let file = |mode| {
                let text = text.to_owned();
                VolumeFile { text, mode }
            };
            let files = BTreeMap::from([("a".into(), file(0o400)), ("d/b".into(), file(0o644))]);
            let group = Some(7);
            pods.prepare(&uid, &volume(Volume::Files { files, group }))
        };
        let path = write("old")?["v"].clone();
        let directory = fs::canonicalize(path.join("d"))?;
        write("old")?;
        let same = fs::canonicalize(path.join("d"))?;
        assert_eq!(same, directory, "it did not change");
        for text in ["new", "newer"] {
            write(text)?;
            assert_eq!(fs::read_to_string(path.join("a"))?, text);
            assert_eq!(fs::read_to_string(path.join("d/b"))?, text);
        }
        let file = fs::metadata(path.join("a"))?;
        assert_eq!((file.mode() & 0o777, file.gid()), (0o440, 7));
        let left = names_in(&path)?.len();
        assert_eq!(left, 4, "a, d, ..data and its directory");
        Ok(())
    }

    #[test]
    fn mode_of_a_used_empty_dir_is_the_containers_affair() -> Outcome {
        let root = tempfile::tempdir()?;
        let path = root.path().join("v");
        make_empty_dir(&path, None, Some(7))?;
        let made = fs::metadata(&path)?;
        assert_eq!((made.mode() & 0o7777, made.gid()), (0o2777, 7));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
        make_empty_dir(&path, None, Some(7))?;
        assert_eq!(fs::metadata(&path)?.mode() & 0o7777, 0o700);
        Ok(())
    }

    #[test]
    fn uid_that_leads_elsewhere_is_refused() {
        let pods = PodDirectories::new("/var/lib/kubelet/pods");
        for uid in ["", ".", "..", "../x", "a/b", "/etc", "a/", "a/.", "a:b"] {
            let of = pods.of(&PodUid::from(uid));
            assert!(matches!(of, Err(VolumeError::Name(_))), "{uid:?}: {of:?}");
        }
    }

    #[cfg(feature = "k8s-openapi")]
    #[test]
    fn file_for_containers_has_its_mode_whatever_the_umask() -> Result<(), VolumeError> {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("new/file");
        make_file(&path, "text", 0o666)?;
        let mode = fs::metadata(&path).map(|file| file.permissions().mode() & 0o777);
        assert_eq!(mode.ok(), Some(0o666));
        assert_eq!(fs::read_to_string(&path).ok().as_deref(), Some("text"));
        Ok(())
    }

    #[test]
    fn host_path_is_checked_by_its_type() -> Outcome {
        let root = tempfile::tempdir()?;
        let (pods, uid) = pods(&root);
        let file = root.path().join("file");
        fs::write(&file, "x")?;
        let missing = root.path().join("missing");
        let prepare = |path: &Path, kind| {
            let path = path.to_owned();
            pods.prepare(&uid, &volume(Volume::HostPath { path, kind }))
        };
        assert!(prepare(&file, HostPathKind::File).is_ok());
        assert!(prepare(&missing, HostPathKind::Any).is_ok());
        let error = prepare(&file, HostPathKind::Directory).err();
        let expected = format!("volume v: hostPath {file:?} is not a directory");
        assert_eq!(error.map(|e| e.to_string()), Some(expected));
        let error = prepare(&missing, HostPathKind::Socket).err();
        assert!(matches!(error, Some(VolumeError::Io { .. })), "{error:?}");
        assert!(prepare(&missing, HostPathKind::DirectoryOrCreate).is_ok());
        assert!(missing.is_dir());
        let made = root.path().join("made");
        assert!(prepare(&made, HostPathKind::FileOrCreate).is_ok());
        assert!(made.is_file());
        Ok(())
    }
}
