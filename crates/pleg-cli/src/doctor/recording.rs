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
/// The largest file that is read.
const LARGEST: u64 = 64 << 20;

/// A recorded examination.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Recording {
    format: u32,
    /// Of this program.
    version: String,
    redacted: bool,
    examination: Examination,
}

impl Recording {
    pub(super) fn new(examination: &Examination, with_names: bool) -> Self {
        Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            redacted: !with_names,
            examination: match with_names {
                true => examination.clone(),
                false => redacted(examination),
            },
        }
    }

    /// Writes it to a file that only its owner can read.
    pub(super) fn save(&self, file: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        let written = options
            .open(file)
            .and_then(|mut out| writeln!(out, "{text}"));
        written.with_context(|| format!("cannot write {}", file.display()))
    }

    pub(super) fn load(file: &Path) -> anyhow::Result<Examination> {
        let read = || -> anyhow::Result<Self> {
            if fs::metadata(file)?.len() > LARGEST {
                bail!("it is larger than 64 MiB");
            }
            let text = fs::read_to_string(file)?;
            serde_json::from_str(&text).context("it is not a recording of pleg doctor")
        };
        let recording = read().with_context(|| format!("cannot read {}", file.display()))?;
        if recording.format != FORMAT {
            bail!(
                "{} has format {}, and this version reads {FORMAT}: use pleg {}",
                file.display(),
                recording.format,
                recording.version
            );
        }
        Ok(recording.examination)
    }
}

/// The same without names and without the runtime's own words.
fn redacted(examination: &Examination) -> Examination {
    let mut examination = examination.clone();
    let (runtime, host) = (&mut examination.runtime, &mut examination.host);
    let pods = runtime.pods.pods.iter_mut();
    pods.enumerate()
        .for_each(|(n, pod)| pod.name = format!("pod-{}", n + 1));
    let running = runtime
        .pods
        .pods
        .iter_mut()
        .flat_map(|pod| pod.running.values_mut());
    let odd = runtime
        .pods
        .oddities
        .iter_mut()
        .map(|odd| &mut odd.container);
    let problems = runtime.statuses.problems.iter_mut();
    let problems = problems.map(|problem| &mut problem.container);
    number("container", running.chain(odd).chain(problems));

    let of_problems = runtime
        .statuses
        .problems
        .iter_mut()
        .map(|problem| &mut problem.failure);
    let of_lists = runtime.lists.rounds.iter_mut();
    let of_lists = of_lists.flat_map(|r| [&mut r.sandboxes.failure, &mut r.containers.failure]);
    let failures = of_problems
        .chain(of_lists)
        .chain([&mut runtime.conditions.failure]);
    failures
        .flatten()
        .for_each(|failure| failure.message.clear());
    let conditions = runtime.conditions.conditions.iter_mut();
    conditions.for_each(|condition| condition.message.clear());
    for (code, reason) in &mut runtime.stream.degraded {
        reason.sentence.clone_from(code);
    }
    let unusable = runtime
        .unusable
        .iter_mut()
        .map(|unusable| &mut unusable.why);
    let reasons = unusable.chain(&mut runtime.stream.why);
    reasons.for_each(|why| *why = "left out".to_owned());
    number("mount", host.mount_paths());
    examination
}

/// Replaces names by numbers. Equal names get equal numbers.
fn number<'a>(what: &str, names: impl Iterator<Item = &'a mut String>) {
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    for name in names.filter(|name| !name.is_empty()) {
        let next = known.len() + 1;
        let number = known.entry(std::mem::take(name)).or_insert(next);
        *name = format!("{what}-{number}");
    }
}
