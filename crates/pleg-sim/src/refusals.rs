//! Requests that CRI-O and its conmon refuse, although containerd accepts them. The rules are those of CRI-O's
//! `runPodSandbox`, `CreateContainer`, `SpecSetLinuxContainerResources` and `setupContainerUser`, and of
//! conmon's `ctr_logging.c`.

use std::path::{Path, PathBuf};

use pleg_cri::v1;
use tonic::Status;

use crate::error::missing;

/// The lowest memory limit that runc accepts for a container.
const MIN_MEMORY: i64 = 12 << 20;

/// Checks the configuration of a sandbox.
pub(crate) fn check_sandbox(config: &v1::PodSandboxConfig) -> Result<(), Status> {
    let logs = &config.log_directory;
    if !logs.is_empty() && Path::new(logs).is_relative() {
        return refused(format!("requested logDir is a relative path: {logs}"));
    }
    let parent = config.linux.as_ref().map(|l| l.cgroup_parent.as_str());
    match parent.unwrap_or_default() {
        "" => Ok(()),
        slice if slice.ends_with(".slice") => Ok(()),
        other => refused(format!(
            "cri-o configured with systemd cgroup manager, but did not receive slice as parent: {other}"
        )),
    }
}

/// Checks a `CreateContainer` request: the container's configuration, and the copy of the sandbox's configuration.
pub(crate) fn check_container(
    sandbox: Option<&v1::PodSandboxConfig>,
    config: &v1::ContainerConfig,
) -> Result<(), Status> {
    let Some(sandbox) = sandbox else {
        return Err(missing("sandbox config"));
    };
    let linux = config.linux.as_ref();
    let resources = linux.and_then(|linux| linux.resources.as_ref());
    let memory = resources.map_or(0, |resources| resources.memory_limit_in_bytes);
    if (1..MIN_MEMORY).contains(&memory) {
        return refused(format!(
            "set memory limit {memory} too low; should be at least {MIN_MEMORY} bytes"
        ));
    }
    let security = linux.and_then(|linux| linux.security_context.as_ref());
    if let Some(security) = security
        && security.run_as_group.is_some()
        && security.run_as_user.is_none()
        && security.run_as_username.is_empty()
    {
        return refused("user group is specified without user or username".to_owned());
    }
    check_log(&sandbox.log_directory, &config.log_path)
}

/// conmon opens the log when the container is created, so the directory must exist. CRI-O itself makes only the
/// directory of the pod's logs.
fn check_log(of_pod: &str, path: &str) -> Result<(), Status> {
    if of_pod.is_empty() || path.is_empty() {
        return Ok(());
    }
    let file: PathBuf = Path::new(of_pod).join(path);
    let shown = file.display().to_string();
    if let Some((driver, _)) = shown.split_once(':') {
        return refused(format!(
            "container create failed: conmon: No such log driver {driver}"
        ));
    }
    let directory = file.parent();
    match directory == Some(Path::new(of_pod)) || directory.is_some_and(Path::is_dir) {
        true => Ok(()),
        false => refused(format!(
            "container create failed: conmon: Failed to open log file {shown}: No such file or directory"
        )),
    }
}

fn refused(why: String) -> Result<(), Status> {
    Err(Status::unknown(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crio_refuses_relative_log_directory_and_non_slice_cgroup_parent() {
        for (logs, parent, is_refused) in [
            ("/var/log/pods/p", "", false),
            ("/var/log/pods/p", "kubepods.slice", false),
            ("logs/p", "", true),
            ("/var/log/pods/p", "/kubepods", true),
        ] {
            let mut sandbox = v1::PodSandboxConfig {
                log_directory: logs.to_owned(),
                ..Default::default()
            };
            sandbox.linux.get_or_insert_default().cgroup_parent = parent.to_owned();
            let checked = check_sandbox(&sandbox);
            assert_eq!(checked.is_err(), is_refused, "{logs} {parent}");
        }
    }

    /// CRI-O refuses log paths that conmon cannot open, a memory limit that is too low, and a group without a user.
    #[test]
    fn crio_refuses_container_with_invalid_log_path_memory_or_group() {
        let sandbox = v1::PodSandboxConfig {
            log_directory: "/no/such/directory".to_owned(),
            ..Default::default()
        };
        let id = |value: i64| v1::Int64Value { value };
        for (log, memory, group, user, is_refused) in [
            ("web_0.log", 0, None, None, false),
            ("web/0.log", 0, None, None, true),
            ("a:b.log", 0, None, None, true),
            ("", MIN_MEMORY, Some(5), Some(5), false),
            ("", MIN_MEMORY - 1, None, None, true),
            ("", 0, Some(5), None, true),
        ] {
            let mut config = v1::ContainerConfig {
                log_path: log.to_owned(),
                ..Default::default()
            };
            let linux = config.linux.get_or_insert_default();
            let security = linux.security_context.get_or_insert_default();
            (security.run_as_group, security.run_as_user) = (group.map(id), user.map(id));
            let resources = linux.resources.get_or_insert_default();
            resources.memory_limit_in_bytes = memory;
            let checked = check_container(Some(&sandbox), &config);
            assert_eq!(checked.is_err(), is_refused, "{config:?}");
            assert!(check_container(None, &config).is_err());
        }
    }
}
