//! An examination in a file: to ask somebody else, or to look at later.
//!
//! By default names of pods, containers and mounts are replaced by numbers, and what the runtime says in its own
//! words is left out. Command lines, environments, labels and annotations are never collected.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

use super::Examination;

/// The version of the format. A later one may add fields without a new version.
const FORMAT: u32 = 1;
const LARGEST: u64 = 64 << 20;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Recording {
    format: u32,
    /// Of this program.
    version: String,
    redacted: bool,
    examination: Examination,
}

/// Writes an examination to a file that only its owner can read.
pub(super) fn save(examination: &Examination, names: bool, file: &Path) -> anyhow::Result<()> {
    let recording = Recording {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        redacted: !names,
        examination: match names {
            true => examination.clone(),
            false => redacted(examination),
        },
    };
    let text = serde_json::to_string_pretty(&recording)?;
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    let out = options.open(file);
    let written = out.and_then(|mut out| writeln!(out, "{text}"));
    written.with_context(|| format!("cannot write {}", file.display()))
}

pub(super) fn load(file: &Path) -> anyhow::Result<Examination> {
    let read = || -> anyhow::Result<Recording> {
        if fs::metadata(file)?.len() > LARGEST {
            bail!("it is larger than 64 MiB");
        }
        let text = fs::read_to_string(file)?;
        serde_json::from_str(&text).context("it is not a recording of pleg doctor")
    };
    let file = file.display();
    let recording = read().with_context(|| format!("cannot read {file}"))?;
    let (format, version) = (recording.format, recording.version);
    if format != FORMAT {
        bail!("{file} has format {format}, and this version reads {FORMAT}: use pleg {version}");
    }
    Ok(recording.examination)
}

/// The same without names and without the runtime's own words.
fn redacted(examination: &Examination) -> Examination {
    let mut examination = examination.clone();
    let (runtime, host) = (&mut examination.runtime, &mut examination.host);
    let mut containers = Vec::new();
    let mut failures = vec![&mut runtime.conditions.failure];
    for (n, pod) in runtime.pods.pods.iter_mut().enumerate() {
        pod.name = format!("pod-{}", n + 1);
        containers.extend(pod.running.values_mut());
    }
    for odd in &mut runtime.pods.oddities {
        containers.push(&mut odd.container);
    }
    for problem in &mut runtime.statuses.problems {
        containers.push(&mut problem.container);
        failures.push(&mut problem.failure);
    }
    for round in &mut runtime.lists.rounds {
        failures.extend([&mut round.sandboxes.failure, &mut round.containers.failure]);
    }
    for failure in failures.into_iter().flatten() {
        failure.message.clear();
    }
    for condition in &mut runtime.conditions.conditions {
        condition.message.clear();
    }
    for (code, reason) in &mut runtime.stream.degraded {
        reason.sentence.clone_from(code);
    }
    let unusable = runtime.unusable.iter_mut().map(|u| &mut u.why);
    for why in unusable.chain(&mut runtime.stream.why) {
        *why = "left out".to_owned();
    }
    number("container", containers);
    number("mount", host.mount_paths());
    examination
}

/// Replaces names by numbers. Equal names get equal numbers.
fn number<'a>(what: &str, names: impl IntoIterator<Item = &'a mut String>) {
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    for name in names.into_iter().filter(|name| !name.is_empty()) {
        let next = known.len() + 1;
        let number = known.entry(std::mem::take(name)).or_insert(next);
        *name = format!("{what}-{number}");
    }
}
