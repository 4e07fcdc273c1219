//! The file systems on which the runtime keeps its data and its state.

use nix::errno::Errno;
use nix::sys::statvfs::{FsFlags, statvfs};
use toml::de::DeTable;

use super::*;

/// A disk is short of space if its free space is less than this, and also less than the share [`SHORT`] of its size.
const LITTLE: u64 = 5 << 30;
/// With less free space than this, no file of the runtime can be written.
const NOTHING: u64 = 1 << 20;
/// A free share of space or inodes below `SHORT` is a warning, and below `FULL` it is critical.
const SHORT: f64 = 0.05;
const FULL: f64 = 0.005;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Disk {
    pub(crate) path: String,
    pub(crate) bytes: u64,
    /// The free space, including the space that is reserved for root.
    pub(crate) free_bytes: u64,
    /// The number of inodes; 0 if the file system does not count inodes.
    pub(crate) inodes: u64,
    pub(crate) free_inodes: u64,
    pub(crate) read_only: bool,
    /// The mount point, if it is read-only.
    pub(crate) mount: Option<String>,
}

const CONTAINERD: [&str; 2] = ["/var/lib/containerd", "/run/containerd"];
const CRIO: [&str; 2] = ["/var/lib/containers/storage", "/run/containers/storage"];

/// The runtime's directories for data and state, configured or default; and errors of unreadable configuration files.
pub(super) fn directories(proc: &Proc, daemon: &Process) -> Vec<Result<String, String>> {
    let arguments = proc.arguments(daemon.pid).unwrap_or_default();
    let config = value(&arguments, &["--config", "-c"]);
    let (flags, defaults, files) = match daemon.name.as_str() {
        "containerd" => {
            let file = config.unwrap_or("/etc/containerd/config.toml");
            (["--root", "--state"], CONTAINERD, vec![file.to_owned()])
        }
        "crio" => {
            let file = config.unwrap_or("/etc/crio/crio.conf").to_owned();
            let dir = value(&arguments, &["--config-dir", "-d"]).unwrap_or("/etc/crio/crio.conf.d");
            let entries = fs::read_dir(proc.inside(daemon.pid, dir));
            let path = |file: fs::DirEntry| format!("{dir}/{}", file.file_name().to_string_lossy());
            let later = entries.into_iter().flatten().flatten().map(path);
            let files = [file].into_iter().chain(later.sorted());
            (["--root", "--runroot"], CRIO, files.collect())
        }
        _ => return Vec::new(),
    };
    let read = |file: String| match bounded::read(&proc.inside(daemon.pid, &file)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(format!("{file}: {error}")),
        read => Ok(read.unwrap_or_default()),
    };
    let (texts, unread): (Vec<_>, Vec<_>) = files.into_iter().map(read).partition_result();
    let paths = flags.into_iter().zip(defaults).map(|(flag, default)| {
        let set_in = |text: &String| configured(text, &flag[2..]);
        let set = value(&arguments, &[flag]).map(str::to_owned);
        let set = set.or_else(|| texts.iter().rev().find_map(set_in));
        Ok(set.unwrap_or_else(|| default.to_owned()))
    });
    paths.chain(unread.into_iter().map(Err)).collect()
}

/// The value of a key in a configuration file of containerd, or of CRI-O (there, in the table `crio`).
fn configured(text: &str, key: &str) -> Option<String> {
    let config = DeTable::parse(text).ok()?;
    let of_crio = config.get_ref().get("crio");
    let of_crio = of_crio.and_then(|crio| crio.get_ref().as_table());
    let table = of_crio.unwrap_or(config.get_ref());
    Some(table.get(key)?.get_ref().as_str()?.to_owned())
}

/// The file systems of `directories` (without a daemon: of the default directories), and errors if they cannot be read.
pub(super) fn read(
    root: &Path,
    daemon: Option<u32>,
    directories: &[Result<String, String>],
) -> (Vec<Disk>, Vec<String>) {
    let proc = Proc::below(root);
    let known = [CONTAINERD, CRIO].concat().into_iter();
    let directories = match daemon {
        Some(_) => directories.to_vec(),
        None => known.map(|path| Ok(path.to_owned())).collect(),
    };
    let daemon = daemon.unwrap_or(1);
    let disk = |path: String| {
        let found = match statvfs(&proc.inside(daemon, &path)) {
            Ok(found) => found,
            Err(Errno::ENOENT) => return Ok(None),
            Err(error) => return Err(format!("{path}: {error}")),
        };
        let read_only = found.flags().contains(FsFlags::ST_RDONLY);
        #[allow(clippy::useless_conversion, reason = "some platforms count in 32 bits")]
        Ok(Some(Disk {
            bytes: u64::from(found.blocks()).saturating_mul(found.fragment_size()),
            free_bytes: u64::from(found.blocks_free()).saturating_mul(found.fragment_size()),
            inodes: found.files().into(),
            free_inodes: found.files_free().into(),
            read_only,
            mount: read_only.then(|| mount_of(&proc, daemon, &path)).flatten(),
            path,
        }))
    };
    let disks = directories.into_iter().map(|path| disk(path?));
    let disks = disks.filter_map(Result::transpose);
    disks.partition_result()
}

fn mount_of(proc: &Proc, daemon: u32, path: &str) -> Option<String> {
    let table = proc.mounts(daemon).ok()?;
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    let above = points.filter(|point| Path::new(path).starts_with(point));
    above.max_by_key(|point| point.len()).map(str::to_owned)
}

pub(super) fn check(disks: &[Disk]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    let found = disks.iter().flat_map(|disk| match disk.read_only {
        true => [Some(read_only(disk)), None],
        false => [space(disk), inodes(disk)],
    });
    for finding in found.flatten() {
        // The data and the state of the runtime are often on the same file system: make only one finding then.
        match findings.iter_mut().find(|other| other.code == finding.code) {
            Some(other) => other.evidence.extend(finding.evidence),
            None => findings.push(finding),
        }
    }
    findings
}

fn read_only(disk: &Disk) -> Finding {
    let (path, mount) = (&disk.path, disk.mount.as_ref().unwrap_or(&disk.path));
    let summary = format!("the runtime cannot write to {path}: its file system is read-only");
    let next = format!(
        "If the disk is sound (no errors in dmesg): `mount -o remount,rw {}`",
        quoted(mount)
    );
    Finding::new("disk_readonly", summary, next).because(format!("{mount} is mounted read-only"))
}

fn space(disk: &Disk) -> Option<Finding> {
    let left = share(disk.free_bytes, disk.bytes);
    let little = disk.free_bytes < LITTLE && left < SHORT;
    let full = disk.free_bytes < NOTHING || little && left < FULL;
    (disk.bytes > 0 && (full || little)).then(|| {
        let figures = format!("{} of {}", bytes(disk.free_bytes), bytes(disk.bytes));
        let next = "Find what uses the space: `du -xh --max-depth=2 {} | sort -h | tail`";
        lacks("disk_full", disk, full, ["space", &figures, next])
    })
}

fn inodes(disk: &Disk) -> Option<Finding> {
    let left = share(disk.free_inodes, disk.inodes);
    (disk.inodes > 0 && left < SHORT).then(|| {
        let figures = format!("{} of {} inodes", disk.free_inodes, disk.inodes);
        let next = "Find the directory with the most files: `du -x --inodes --max-depth=2 {} | sort -n | tail`";
        lacks("disk_inodes", disk, left < FULL, ["inodes", &figures, next])
    })
}

fn lacks(code: &'static str, disk: &Disk, all: bool, [what, figures, next]: [&str; 3]) -> Finding {
    let (path, how) = (&disk.path, if all { "out of" } else { "short of" });
    let summary = format!("the runtime is {how} {what} on the file system of {path}");
    let mut finding = Finding::new(code, summary, next.replace("{}", &quoted(path)));
    if !all {
        finding.severity = Severity::Warning;
        finding.explains = "";
    }
    finding.because(format!("{path}: {figures} are free"))
}
