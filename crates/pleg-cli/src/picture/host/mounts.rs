//! Mounts that do not answer.
//!
//! A call that reads a mount of a server that is gone may never return, and its process can then not even be
//! killed. So each mount is asked by a process of its own, which is abandoned if it does not end in time.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use futures::StreamExt as _;
use pleg::runtime::clock::Clock;
use serde::{Deserialize, Serialize};

use super::kinds::{Kind, MOUNT_HANGS, MOUNT_SLOW};
use super::{Calls, HostTarget, command, listed, on_host, shorten};
use crate::picture::finding::Finding;
use crate::proc::Proc;

/// How long a mount may take to answer.
const DEADLINE: Duration = Duration::from_secs(2);
/// An answer that takes longer is slow.
const SLOW: Duration = Duration::from_millis(500);
/// How many mounts are asked at a time.
const PARALLEL: usize = 16;
/// The most mounts that are asked.
const MOST: usize = 256;

/// The mounts that can keep a pod or the runtime waiting.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Mounts {
    /// How many answered or did not.
    pub(crate) asked: usize,
    /// How many were too many to ask.
    pub(crate) skipped: usize,
    /// They did not answer.
    pub(crate) hanging: Vec<Mount>,
    pub(crate) slow: Vec<Mount>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Mount {
    pub(crate) path: String,
    /// The type of its file system.
    pub(crate) fs: String,
    /// The uid of the pod in whose directory it is.
    pub(crate) pod: Option<String>,
    /// How long it took to answer; `None`: longer than the deadline.
    pub(crate) answer_millis: Option<u64>,
}

/// Asks all mounts. The error says what could not be read.
pub(super) async fn collect(target: &HostTarget, clock: Clock) -> (Mounts, Option<String>) {
    let proc = Proc::below(&target.root);
    match proc.mounts() {
        Ok(table) => ask_all(target, clock, relevant(&table)).await,
        Err(error) => (Mounts::default(), Some(format!("mounts: {error}"))),
    }
}

async fn ask_all(target: &HostTarget, clock: Clock, all: Vec<Mount>) -> (Mounts, Option<String>) {
    let skipped = all.len().saturating_sub(MOST);
    let asked = all.into_iter().take(MOST).map(async |mut mount| {
        let answer = ask(target, clock, &mount.path).await;
        mount.answer_millis = answer?.map(|d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX));
        io::Result::Ok(mount)
    });
    let asked: Vec<_> = futures::stream::iter(asked)
        .buffer_unordered(PARALLEL)
        .collect()
        .await;
    let (answers, failed): (Vec<_>, Vec<_>) = asked.into_iter().partition(Result::is_ok);
    let why = failed.into_iter().find_map(Result::err);
    let why = why.map(|error| format!("mounts: cannot start a process that asks: {error}"));
    let mut answers: Vec<Mount> = answers.into_iter().flatten().collect();
    answers.sort();
    let is_slow = |mount: &Mount| {
        mount
            .answer_millis
            .is_some_and(|millis| Duration::from_millis(millis) >= SLOW)
    };
    let mounts = Mounts {
        asked: answers.len(),
        skipped,
        hanging: answers
            .iter()
            .filter(|m| m.answer_millis.is_none())
            .cloned()
            .collect(),
        slow: answers.iter().filter(|m| is_slow(m)).cloned().collect(),
    };
    (mounts, why)
}

/// How long the mount took to answer, if it did in time. An error is an answer, too.
async fn ask(target: &HostTarget, clock: Clock, path: &str) -> io::Result<Option<Duration>> {
    let mut child = command(&target.ask_mount)
        .arg(on_host(&target.root, path))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .current_dir("/")
        .kill_on_drop(false)
        .spawn()?;
    let begin = clock.now();
    match tokio::time::timeout(DEADLINE, child.wait()).await {
        Ok(ended) => {
            ended?;
            Ok(Some(clock.now().since(begin)))
        }
        Err(_) => {
            // It may end or not. tokio reaps it if it does.
            let _ignored = child.start_kill();
            Ok(None)
        }
    }
}

/// What the process does that asks one mount. Not every file system asks its server for a `stat`.
pub(crate) fn answers(path: &Path) -> bool {
    let statfs = nix::sys::statfs::statfs(path).is_ok();
    fs::metadata(path).is_ok() && statfs
}

/// The mounts that depend on a server or process, and those of pods that depend on a disk, each path once. The
/// former are first.
fn relevant(table: &str) -> Vec<Mount> {
    let mut seen = BTreeSet::new();
    let mounts = table.lines().filter_map(parse);
    let mounts = mounts.filter(|mount| is_remote(&mount.fs) || is_of_pod(mount));
    let mut mounts: Vec<Mount> = mounts
        .filter(|mount| seen.insert(mount.path.clone()))
        .collect();
    mounts.sort_by_key(|mount| !is_remote(&mount.fs));
    mounts
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

/// Blanks and backslashes are written as three octal digits.
fn unescaped(path: &str) -> String {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, tail @ ..] = rest {
        let digits = tail.get(..3).filter(|_| *first == b'\\');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    std::ffi::OsStr::from_bytes(&bytes)
        .to_string_lossy()
        .into_owned()
}

/// File systems whose data is elsewhere or that a process serves.
fn is_remote(fs: &str) -> bool {
    let (kind, _) = fs.split_once('.').unwrap_or((fs, ""));
    matches!(
        kind,
        "nfs"
            | "nfs4"
            | "cifs"
            | "smb3"
            | "smbfs"
            | "ceph"
            | "glusterfs"
            | "fuse"
            | "fuseblk"
            | "9p"
            | "virtiofs"
            | "lustre"
            | "gpfs"
            | "beegfs"
            | "afs"
            | "ocfs2"
            | "gfs2"
            | "davfs"
            | "orangefs"
    )
}

/// Whether it is in a pod's directory or of a volume plugin, and may wait for a disk.
fn is_of_pod(mount: &Mount) -> bool {
    let in_memory = matches!(
        mount.fs.as_str(),
        "tmpfs" | "ramfs" | "proc" | "sysfs" | "cgroup" | "cgroup2" | "overlay"
    );
    !in_memory && (mount.pod.is_some() || mount.path.contains("/kubelet/plugins/"))
}

/// The pod's uid in a path such as `/var/lib/kubelet/pods/UID/volumes/…`, wherever the kubelet's directory is.
fn pod_in(path: &str) -> Option<String> {
    let (_, rest) = path.split_once("/pods/")?;
    let (uid, below) = rest.split_once('/')?;
    let is_uid =
        (32..=36).contains(&uid.len()) && uid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    (is_uid && below.starts_with("volume")).then(|| uid.to_owned())
}

pub(super) fn check(mounts: &Mounts, calls: &Calls) -> Vec<Finding> {
    let name = |mount: &Mount| {
        let Some(uid) = &mount.pod else {
            return String::new();
        };
        format!(", of pod {}", calls.pods.get(uid).unwrap_or(uid))
    };
    let finding = |kind: &Kind, all: &[Mount], what: &str, next: &str| {
        let first = &all.first()?.path;
        let paths = all
            .iter()
            .map(|mount| format!("{}{}", mount.path, name(mount)));
        let summary = format!("{what}: {}", listed(&paths.collect::<Vec<_>>())?);
        let mut finding = kind.found(summary, format!("{next} {first}`"));
        let evidence = all.iter().map(|mount| {
            let answer = match mount.answer_millis {
                Some(millis) => format!("answered after {millis} ms"),
                None => format!("no answer within {} s", DEADLINE.as_secs()),
            };
            format!("{} ({}){}: {answer}", mount.path, mount.fs, name(mount))
        });
        finding.evidence = evidence.collect();
        shorten(&mut finding.evidence);
        Some(finding)
    };
    let unmount =
        "Restore its server or process; else unmount it and restart the pod: `umount -f -l";
    let ask = "Check its server and the network to it: `time stat -f";
    let hanging = finding(
        &MOUNT_HANGS,
        &mounts.hanging,
        "a mount does not answer",
        unmount,
    );
    let slow = finding(&MOUNT_SLOW, &mounts.slow, "a mount answers slowly", ask);
    hanging.into_iter().chain(slow).collect()
}

#[cfg(test)]
mod tests;
