//! Mounts that do not answer.
//!
//! A call that reads a mount whose server is gone may never return, and then the calling process cannot be killed. So
//! each mount is read in a process of its own, which is abandoned if it does not end in time.

use futures::StreamExt as _;

use super::*;

const DEADLINE: Duration = Duration::from_secs(2);
const SLOW_MILLIS: u64 = 500;
const PARALLEL: usize = 16;
const MOST: usize = 256;

/// File systems that a remote server or a local process serves.
const REMOTE: &str = "nfs nfs4 cifs smb3 smbfs ceph glusterfs fuse fuseblk 9p virtiofs lustre gpfs beegfs afs ocfs2 gfs2 davfs \
                      orangefs";
const IN_MEMORY: &str = "tmpfs ramfs proc sysfs cgroup cgroup2 overlay";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Mounts {
    #[serde(rename = "asked")]
    pub(crate) examined: usize,
    pub(crate) skipped: usize,
    pub(crate) hanging: Vec<Mount>,
    pub(crate) slow: Vec<Mount>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Mount {
    pub(crate) path: String,
    pub(crate) fs: String,
    /// The uid of the pod in whose directory the mount is.
    pub(crate) pod: Option<String>,
    /// The time until the mount answered. `None` if that was longer than the deadline.
    pub(crate) answer_millis: Option<u64>,
}

/// Reads all mounts. Also returns the first error, or how many mounts were not read.
pub(super) async fn collect(target: &HostTarget, clock: Clock) -> (Mounts, Option<String>) {
    let (proc, mut mounts) = (Proc::below(&target.root), Mounts::default());
    // The mounts of the host, or those that are visible from here.
    let table = move || proc.mounts(1).or_else(|_| proc.mounts("self"));
    let table = alone(&Arc::new(Semaphore::new(1)), DEADLINE, table).await;
    let all = match table.and_then(|table| table.map_err(|error| error.to_string())) {
        Ok(table) => relevant(&table),
        Err(why) => return (mounts, Some(format!("mounts: {why}"))),
    };
    mounts.skipped = all.len().saturating_sub(MOST);
    let answers = all.into_iter().take(MOST).map(async |mut mount| {
        let answer = ask(target, clock, &mount.path).await;
        mount.answer_millis = answer?.map(|d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX));
        io::Result::Ok(mount)
    });
    let answers = futures::stream::iter(answers).buffer_unordered(PARALLEL);
    let answers: Vec<io::Result<Mount>> = answers.collect().await;
    let failed = answers.iter().find_map(|answer| answer.as_ref().err());
    let failed = failed.map(|error| format!("mounts: cannot start a process to read one: {error}"));
    for mount in answers.into_iter().flatten() {
        mounts.examined += 1;
        match mount.answer_millis {
            None => mounts.hanging.push(mount),
            Some(SLOW_MILLIS..) => mounts.slow.push(mount),
            Some(_) => {}
        }
    }
    mounts.hanging.sort();
    mounts.slow.sort();
    let skipped = format!("mounts: {} beyond the first {MOST}", mounts.skipped);
    let skipped = (mounts.skipped > 0).then_some(skipped);
    (mounts, failed.or(skipped))
}

/// The time until the mount answered, or `None` after a timeout. An error is also an answer.
async fn ask(target: &HostTarget, clock: Clock, path: &str) -> io::Result<Option<Duration>> {
    let mut child = command(&target.ask_mount)
        .arg(on_host(&target.root, path))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .current_dir("/")
        .kill_on_drop(false)
        .spawn()?;
    let begin = clock.now();
    let Ok(ended) = tokio::time::timeout(DEADLINE, child.wait()).await else {
        // The killed child may end later or never. If it ends, tokio reaps it.
        let _ignored = child.start_kill();
        return Ok(None);
    };
    ended?;
    Ok(Some(clock.now().since(begin)))
}

/// The work of the process that reads one mount. Calls `statfs`: some file systems answer `stat` without their server.
pub(crate) fn ask_mount(path: &Path) {
    // An error is also an answer.
    let _answers = (fs::metadata(path), nix::sys::statfs::statfs(path));
}

/// The mounts that can hang, each path once: first those that need a server or a process, then those of pods.
fn relevant(table: &str) -> Vec<Mount> {
    let mounts = table.lines().filter_map(parse);
    let mounts = mounts.filter(|mount| is_remote(&mount.fs) || is_of_pod(mount));
    let mounts = mounts.unique_by(|mount| mount.path.clone());
    let mounts = mounts.sorted_by_key(|mount| !is_remote(&mount.fs));
    mounts.collect()
}

/// Parses a line of mountinfo. The type of the file system follows a dash, which optional fields precede.
fn parse(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let path = unescaped(left.split(' ').nth(4)?);
    Some(Mount {
        pod: pod_in(&path),
        path,
        fs: right.split(' ').next()?.to_owned(),
        answer_millis: None,
    })
}

/// Decodes a path from mountinfo: the kernel writes these four characters as octal numbers. Decodes the backslash last.
fn unescaped(path: &str) -> String {
    let escapes = [
        ["\\011", "\t"],
        ["\\012", "\n"],
        ["\\040", " "],
        ["\\134", "\\"],
    ];
    let decode = |path: String, [escape, c]: [&str; 2]| path.replace(escape, c);
    escapes.into_iter().fold(path.to_owned(), decode)
}

fn is_remote(fs: &str) -> bool {
    contains(REMOTE, fs.split('.').next().unwrap_or(fs))
}

/// Returns true if the mount is in the directory of a pod or of a volume plugin, and may wait for a disk.
fn is_of_pod(mount: &Mount) -> bool {
    !contains(IN_MEMORY, &mount.fs)
        && (mount.pod.is_some() || mount.path.contains("/kubelet/plugins/"))
}

/// The pod's uid in a path such as `/var/lib/kubelet/pods/UID/volumes/…`, wherever the kubelet's directory is.
fn pod_in(path: &str) -> Option<String> {
    let (_, rest) = path.split_once("/pods/")?;
    let (uid, below) = rest.split_once('/')?;
    let is_uid =
        (32..=36).contains(&uid.len()) && uid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    (is_uid && below.starts_with("volume")).then(|| uid.to_owned())
}

pub(super) fn check(mounts: &Mounts, calls: Calls<'_>) -> Vec<Finding> {
    let hangs = "Restore its server or process; else unmount it and restart the pod: `umount -f -l";
    let slow = "Check its server and the network to it: `time stat -f";
    let all = [
        ("mount_hangs", &mounts.hanging, "does not answer", hangs),
        ("mount_slow", &mounts.slow, "answers slowly", slow),
    ];
    let found = all.into_iter().filter_map(|(code, mounts, how, next)| {
        let next = format!("{next} {}`", quoted(&mounts.first()?.path));
        let named = mounts.iter().map(|mount| {
            let of_pod = |uid| format!(", of pod {}", calls.pods.name(uid));
            let pod = mount.pod.as_deref().map_or_else(String::new, of_pod);
            let answer = match mount.answer_millis {
                Some(millis) => format!("answered after {millis} ms"),
                None => format!("no answer within {} s", DEADLINE.as_secs()),
            };
            let Mount { path, fs, .. } = mount;
            (format!("{path}{pod}"), format!("{answer} ({fs})"))
        });
        Finding::about(code, named, &format!("a mount {how}: {{}}"), next)
    });
    found.collect()
}

#[cfg(test)]
mod tests;
