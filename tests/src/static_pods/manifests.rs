//! Manifests of pods.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use crate::kubelet::Life;

use super::process::NODE;

/// The container that runs until it is stopped.
pub const APP: &str = "app";
/// The container that exits repeatedly.
pub const JOB: &str = "job";

/// The exit code of [`APP`] when it is killed.
const APP_CODE: i32 = 23;

/// Pods of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// [`APP`] and a [`JOB`] that exits by itself.
    Crashing,
    /// [`APP`] and a [`JOB`] that runs as well.
    Calm,
}

impl Kind {
    fn containers(self, pod: u32) -> Vec<(&'static str, Life)> {
        let app = (APP, Life::UntilTerminated { code: APP_CODE });
        match self {
            Self::Crashing => vec![app, (JOB, job(pod))],
            Self::Calm => vec![app, (JOB, Life::UntilStopped)],
        }
    }
}

/// The job of that pod. Its exit code names the pod.
fn job(pod: u32) -> Life {
    Life::Exit {
        code: i32::try_from(1 + pod % 125).unwrap_or(1),
        after_ms: 200 + u64::from(pod) * 7919 % 1000,
    }
}

/// The name of a pod in the runtime.
pub fn pod_name(pod: u32) -> String {
    format!("pod-{pod}-{NODE}")
}

/// The exit codes of containers that are not stopped, by pod and container name.
pub fn exit_codes(kind: Kind, pods: u32) -> BTreeMap<(String, String), i32> {
    let all = (0..pods).flat_map(|pod| {
        let containers = kind.containers(pod).into_iter();
        containers.map(move |(name, life)| ((pod_name(pod), name.to_owned()), life.exit_code()))
    });
    all.collect()
}

/// Writes the manifests of that many pods of one kind, which run that image. Pods of the same numbers are
/// replaced.
///
/// # Errors
/// If they cannot be written.
pub fn write(dir: &Path, kind: Kind, pods: u32, image: &str) -> anyhow::Result<()> {
    for pod in 0..pods {
        let mut manifest = format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: pod-{pod}\n  namespace: test\nspec:\n  \
             hostNetwork: true\n  restartPolicy: Always\n  terminationGracePeriodSeconds: 2\n  \
             containers:\n"
        );
        for (name, life) in kind.containers(pod) {
            let command = serde_json::to_string(&life.command())?;
            writeln!(
                manifest,
                "  - name: {name}\n    image: {image}\n    imagePullPolicy: Never\n    command: \
                 {command}"
            )?;
        }
        // A manifest is never seen half written.
        let part = dir.join(format!(".pod-{pod}.part"));
        std::fs::write(&part, manifest)?;
        std::fs::rename(part, dir.join(format!("pod-{pod}.yaml")))?;
    }
    Ok(())
}
