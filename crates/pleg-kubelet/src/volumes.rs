//! The directories of a pod on the node: its volumes (`hostPath`, `emptyDir`, `downwardAPI`), its logs and other files.
//!
//! All functions block on the file system, which may hang. So the performer runs them in a task with a deadline.

use std::fs::{self, FileType};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _,
    PermissionsExt as _, chown, symlink,
};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, EmptyDirVolumeSource, Pod, PodSpec, Volume};
use pleg::PodUid;

use crate::cri_config::NodeConfig;
use crate::downward::{Fields, Files};
use crate::mounts::{make_tmpfs, unmount_below};
use crate::quantity::Amount;
use crate::removal::remove_directory;
use crate::resources::limit;
use crate::spec::{PodName, spec_of};

/// The directory of a pod's `emptyDir` volumes, in the pod's directory.
pub(crate) const EMPTY_DIRS: &str = "volumes/kubernetes.io~empty-dir";
pub(crate) const FILES: &str = "volumes/kubernetes.io~downward-api";
/// The directory of the mount points for volume sub-paths. Each mount point is `<volume>/<container>/<number>`.
pub(crate) const SUB_PATHS: &str = "volume-subpaths";
pub(crate) const ETC_HOSTS: &str = "etc-hosts";

/// The path of a pod's directory or file that cannot be used, and the reason.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct VolumeError(pub(crate) String);

pub(crate) type Result<T = (), E = VolumeError> = std::result::Result<T, E>;

impl VolumeError {
    /// The error of a file operation on the path `path`.
    pub(crate) fn at<E: Into<io::Error>>(path: &Path) -> impl Fn(E) -> Self {
        move |source| Self(format!("{path:?}: {}", source.into()))
    }

    /// The error for mounts in a pod's directory that keep the directory from being removed.
    pub(crate) fn mounted(paths: &[PathBuf]) -> Self {
        let shown = paths.iter().map(|path| path.display().to_string());
        let mut shown = shown.take(3).collect::<Vec<_>>().join(", ");
        if paths.len() > 3 {
            shown.push_str(&format!(" and {} more", paths.len() - 3));
        }
        let text = format!("not removed, because something is mounted there: {shown}; unmount it");
        Self(text)
    }
}

impl NodeConfig {
    /// A path in the directory of a pod, the same as upstream's. Fails if the uid or a name cannot be the name of a
    /// directory: the uids of unknown pods come from the runtime, and could contain `..`.
    pub(crate) fn pod_path(&self, uid: &str, path: &str, names: &[&str]) -> Result<PathBuf> {
        let mut found = self.pods.join(file_name(uid)?);
        found.extend(Path::new(path));
        for name in names {
            found.push(file_name(name)?);
        }
        Ok(found)
    }

    /// The file in which the container `name` with this attempt number leaves its termination message.
    pub(crate) fn termination_log(&self, uid: &str, name: &str, attempt: u32) -> Result<PathBuf> {
        self.pod_path(uid, "containers", &[name, &attempt.to_string()])
    }

    /// Removes the directories and logs of all pods that `of` selects, even if some cannot be removed, and returns the
    /// first error: it names mounts that a container or user made in a volume, or another entry that cannot be removed.
    pub(crate) fn remove_files(&self, of: impl Fn(&PodUid) -> bool) -> Result {
        let is_removed = |uid: &str| of(&PodUid::from(uid));
        let (pods, logs) = (names_in(&self.pods), names_in(&self.logs));
        let mut removed = Ok(());
        for uid in pods.iter().flatten().filter(|uid| is_removed(uid)) {
            let path = self.pods.join(uid);
            unmount_below(&path.join(SUB_PATHS), 3);
            unmount_below(&path.join(EMPTY_DIRS), 1);
            removed = removed.and(remove_directory(&path));
        }
        for name in logs.iter().flatten() {
            if name.splitn(3, '_').nth(2).is_some_and(is_removed) {
                removed = removed.and(remove_directory(&self.logs.join(name)));
            }
        }
        removed.and(pods.and(logs).map(drop))
    }
}

/// The names of the entries in a directory, which may not exist. Names that are not UTF-8 are left out.
pub(crate) fn names_in(directory: &Path) -> Result<Vec<String>> {
    let names = fs::read_dir(directory).and_then(|entries| {
        let names = entries.map(|entry| entry.map(|entry| entry.file_name().into_string().ok()));
        names.filter_map(io::Result::transpose).collect()
    });
    unless(ErrorKind::NotFound, names).map_err(VolumeError::at(directory))
}

/// Ignores an error of the kind `kind`.
pub(crate) fn unless<T: Default>(kind: ErrorKind, result: io::Result<T>) -> io::Result<T> {
    match result {
        Err(error) if error.kind() == kind => Ok(T::default()),
        result => result,
    }
}

/// Returns the name if it is the plain name of a file or directory (no `/`, not `..`). Names from manifests and the
/// runtime become part of a path only after this check.
pub(crate) fn file_name(name: &str) -> Result<&str> {
    match Path::new(name).file_name() {
        // A colon is refused, because conmon takes the text before a colon for the name of a log driver.
        Some(only) if only == name && !name.contains(':') => Ok(name),
        _ => Err(VolumeError(format!(
            "{name:?} is not a name that a directory can have"
        ))),
    }
}

/// The path of a volume on the node. `None`: an unsupported kind. A volume without a source is an `emptyDir`.
pub(crate) fn path_of(volume: &Volume, pod: &Pod, node: &NodeConfig) -> Result<Option<PathBuf>> {
    let mut bare = Volume::default();
    bare.name.clone_from(&volume.name);
    let kind = match (&volume.host_path, &volume.empty_dir, &volume.downward_api) {
        (Some(source), ..) => return Ok(Some(PathBuf::from(&source.path))),
        (None, None, Some(_)) => FILES,
        (None, None, None) if *volume != bare => return Ok(None),
        _ => EMPTY_DIRS,
    };
    let uid = PodName::of(pod).uid;
    Ok(Some(node.pod_path(uid, kind, &[&volume.name])?))
}

/// Makes the directory of a pod and its volumes. Existing volumes stay; changed `downwardAPI` files are replaced.
/// `files_only`: the pod is already running, so only these files are renewed. The error names the first bad volume.
pub(crate) fn make_volumes(pod: &Pod, node: &NodeConfig, files_only: bool) -> Result {
    let path = node.pod_path(PodName::of(pod).uid, "", &[])?;
    let mut builder = fs::DirBuilder::new();
    // As upstream, only root and its group can enter this directory: otherwise any user could write to an `emptyDir`.
    let made = builder.recursive(true).mode(0o750).create(&path);
    made.map_err(VolumeError::at(&path))?;
    let spec = spec_of(pod);
    let group = spec.security_context.as_ref().and_then(|c| c.fs_group);
    let group = group.and_then(|group| u32::try_from(group).ok());
    for volume in spec.volumes.iter().flatten() {
        let Some(path) = path_of(volume, pod, node)? else {
            continue;
        };
        let made = match (&volume.host_path, &volume.downward_api) {
            (None, Some(source)) => {
                let pod_ips = &[];
                let files = Fields { pod, node, pod_ips }.files(source);
                let files = files.map_err(io::Error::other);
                files.and_then(|files| write_files(&path, &files, group))
            }
            _ if files_only => Ok(()),
            (Some(source), _) => check_host_path(&path, source.type_.as_deref()),
            (None, None) => {
                let memory = memory_size(spec, volume.empty_dir.as_ref(), node.memory);
                make_empty_dir(&path, memory, group)
            }
        };
        made.map_err(|e| VolumeError(format!("volume {}: {path:?}: {e}", volume.name)))?;
    }
    Ok(())
}

/// The size of an `emptyDir` in memory: the least of its limit, the sum of container limits, and the node's memory.
fn memory_size(spec: &PodSpec, source: Option<&EmptyDirVolumeSource>, node: u64) -> Option<u64> {
    let source = source.filter(|source| source.medium.as_deref() == Some("Memory"))?;
    let bytes = |amount: Amount| u64::try_from(amount.value()).ok();
    let limit = |c: &Container| limit(c.resources.as_ref(), "memory");
    let of_pod: Option<u64> = spec.containers.iter().map(|c| bytes(limit(c)?)).sum();
    let own = || bytes(Amount::try_from(source.size_limit.as_ref()?).ok()?);
    let sizes = [own(), of_pod, Some(node)].into_iter().flatten();
    // The kernel treats zero as no limit.
    sizes.filter(|size| *size > 0).min().or(Some(0))
}

/// Checks that the path of a `hostPath` volume has the volume's `type`. Creates a missing path if the type allows that.
fn check_host_path(path: &Path, kind: Option<&str>) -> io::Result<()> {
    let (mut directory, mut file) = (fs::DirBuilder::new(), fs::File::options());
    let is_missing = fs::metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound);
    let created = match kind.filter(|_| is_missing) {
        Some("DirectoryOrCreate") => directory.recursive(true).mode(0o755).create(path),
        Some("FileOrCreate") => {
            let file = file.write(true).create_new(true).mode(0o644);
            file.open(path).map(drop)
        }
        _ => Ok(()),
    };
    unless(ErrorKind::AlreadyExists, created)?;
    let (is_so, expected): (fn(&FileType) -> bool, _) = match kind {
        Some("Directory" | "DirectoryOrCreate") => (FileType::is_dir, "directory"),
        Some("File" | "FileOrCreate") => (FileType::is_file, "file"),
        Some("Socket") => (FileType::is_socket, "socket"),
        Some("CharDevice") => (FileType::is_char_device, "character device"),
        Some("BlockDevice") => (FileType::is_block_device, "block device"),
        _ => return Ok(()),
    };
    let wrong = || format!("it is not a {expected}, which its hostPath type requires");
    match is_so(&fs::metadata(path)?.file_type()) {
        true => Ok(()),
        false => Err(io::Error::other(wrong())),
    }
}

/// Makes an `emptyDir`. It is world-writable like upstream's, because the containers may run as different users. A new
/// directory has mode 0 until it is ready; later, containers may change its mode and group.
pub(crate) fn make_empty_dir(path: &Path, size: Option<u64>, group: Option<u32>) -> io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    let made = fs::DirBuilder::new().mode(0o000).create(path);
    unless(ErrorKind::AlreadyExists, made)?;
    if let Some(size) = size {
        make_tmpfs(path, size)?;
    }
    if fs::symlink_metadata(path)?.mode() & 0o7777 == 0 {
        chown(path, None, group)?;
        let mode = if group.is_some() { 0o2777 } else { 0o777 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Writes the files of a `downwardAPI` volume as upstream does: into a new directory, to which the symbolic link
/// `..data` is then switched. Containers find the files by links through `..data`. They cannot write to the volume.
fn write_files(volume: &Path, files: &Files, group: Option<u32>) -> io::Result<()> {
    let (data, next) = (volume.join("..data"), volume.join("..data_tmp"));
    let current = fs::read_link(&data).unwrap_or_default();
    let is_same = |(path, (text, _)): (&PathBuf, &(String, u32))| {
        fs::read_to_string(data.join(path)).is_ok_and(|found| found == *text)
    };
    if data.exists() && files.iter().all(is_same) {
        return Ok(());
    }
    let is_first = current != Path::new("..a");
    let name = if is_first { "..a" } else { "..b" };
    let directory = volume.join(name);
    unless(ErrorKind::NotFound, fs::remove_dir_all(&directory))?;
    unless(ErrorKind::NotFound, fs::remove_file(&next))?;
    fs::create_dir_all(&directory)?;
    for directory in [volume, &directory] {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755))?;
    }
    for (path, (text, mode)) in files {
        let for_group = if group.is_some() { 0o440 } else { 0 };
        make_file(&directory.join(path), text, mode | for_group, group)?;
    }
    // Make the links before the switch of `..data`: after it, a retry finds the files unchanged and returns early.
    for top in files.keys().filter_map(|path| path.iter().next()) {
        let link = volume.join(top);
        if fs::symlink_metadata(&link).is_err() {
            symlink(Path::new("..data").join(top), link)?;
        }
    }
    symlink(name, &next)?;
    fs::rename(&next, &data)?;
    match current.as_os_str().is_empty() {
        true => Ok(()),
        false => fs::remove_dir_all(volume.join(current)),
    }
}

/// Makes a file for containers, which have many users: the umask must not restrict its mode.
pub(crate) fn make_file(path: &Path, text: &str, mode: u32, group: Option<u32>) -> io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    fs::write(path, text)?;
    chown(path, None, group)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    #[test]
    fn downward_api_files_change_atomically() -> Result<(), Box<dyn std::error::Error>> {
        let root = tempfile::tempdir()?;
        let path = root.path().join("v");
        let write = |text: &str| {
            let file = |mode| (text.to_owned(), mode);
            let files = BTreeMap::from([("a".into(), file(0o400)), ("d/b".into(), file(0o644))]);
            write_files(&path, &files, Some(7))
        };
        // A directory `..data` makes the first write fail at its last step, the rename to `..data`.
        fs::create_dir_all(path.join("..data/d"))?;
        write("old").unwrap_err();
        fs::symlink_metadata(path.join("a"))?;
        fs::remove_dir_all(path.join("..data"))?;
        write("old")?;
        let directory = fs::canonicalize(path.join("d"))?;
        write("old")?;
        let unchanged = fs::canonicalize(path.join("d"))?;
        assert_eq!(unchanged, directory);
        for text in ["new", "newer"] {
            write(text)?;
            assert_eq!(fs::read_to_string(path.join("a"))?, text);
            assert_eq!(fs::read_to_string(path.join("d/b"))?, text);
        }
        let file = fs::metadata(path.join("a"))?;
        assert_eq!((file.mode() & 0o777, file.gid()), (0o440, 7));
        let left = names_in(&path)?.len();
        assert_eq!(left, 4, "a, d, ..data and its target");
        Ok(())
    }

    #[test]
    fn file_for_containers_has_its_mode_despite_the_umask() -> io::Result<()> {
        let root = tempfile::tempdir()?;
        let path = root.path().join("new/file");
        make_file(&path, "text", 0o666, None)?;
        let mode = fs::metadata(&path).map(|file| file.permissions().mode() & 0o777);
        assert_eq!(mode.ok(), Some(0o666));
        assert_eq!(fs::read_to_string(&path).ok().as_deref(), Some("text"));
        Ok(())
    }

    #[test]
    fn host_path_of_wrong_type_is_an_error() -> Result<(), Box<dyn std::error::Error>> {
        let root = tempfile::tempdir()?;
        let file = root.path().join("file");
        fs::write(&file, "x")?;
        let missing = root.path().join("missing");
        assert!(check_host_path(&file, Some("File")).is_ok());
        assert!(check_host_path(&missing, Some("")).is_ok());
        let error = check_host_path(&file, Some("Directory")).err();
        let expected = Some("it is not a directory, which its hostPath type requires".to_owned());
        assert_eq!(error.map(|e| e.to_string()), expected);
        assert!(check_host_path(&missing, Some("Socket")).is_err());
        assert!(check_host_path(&missing, Some("DirectoryOrCreate")).is_ok());
        assert!(missing.is_dir());
        let made = root.path().join("made");
        assert!(check_host_path(&made, Some("FileOrCreate")).is_ok());
        assert!(made.is_file());
        Ok(())
    }

    #[test]
    fn memory_volume_size_is_limited_by_volume_containers_and_node() {
        for (size_limit, memory_limits, expected) in [
            (json!(null), [json!(null), json!(null)], 1000),
            (json!("300"), [json!("100"), json!(null)], 300),
            (json!("300"), [json!("100"), json!("50")], 150),
            (json!("3Gi"), [json!("1Gi"), json!("1Gi")], 1000),
        ] {
            let containers = memory_limits.map(|limit| {
                let limits = limit.as_str().map(|limit| json!({"memory": limit}));
                json!({"name": "c", "resources": {"limits": limits}})
            });
            let volume =
                json!({"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": size_limit}});
            let spec = json!({"containers": containers, "volumes": [volume]});
            let spec: PodSpec = serde_json::from_value(spec).unwrap();
            let mut volumes = spec.volumes.iter().flatten();
            let source = volumes.find_map(|volume| volume.empty_dir.as_ref());
            assert_eq!(memory_size(&spec, source, 1000), Some(expected));
        }
    }

    #[test]
    fn uid_other_than_a_plain_directory_name_is_an_error() {
        let node = NodeConfig::of_host(Path::new("/var/lib/kubelet"), Vec::new());
        for uid in ["", ".", "..", "../x", "a/b", "/etc", "a/", "a/.", "a:b"] {
            let path = node.pod_path(uid, "", &[]);
            assert!(path.is_err(), "{uid:?}: {path:?}");
        }
    }
}
