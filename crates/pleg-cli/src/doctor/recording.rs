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
use crate::picture::runtime::Failure;

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
        let examination = match with_names {
            true => examination.clone(),
            false => redacted(examination),
        };
        Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            redacted: !with_names,
            examination,
        }
    }

    /// Writes it to a file that only its owner can read.
    pub(super) fn save(&self, file: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        let written = options.open(file).and_then(|mut out| {
            out.write_all(text.as_bytes())
                .and_then(|()| out.write_all(b"\n"))
        });
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
    let runtime = &mut examination.runtime;
    let mut containers = Numbers::new("container");
    for (n, pod) in runtime.pods.pods.iter_mut().enumerate() {
        pod.name = format!("pod-{}", n + 1);
        for name in pod.running.values_mut() {
            *name = containers.of(name);
        }
    }
    let odd = runtime.pods.oddities.iter_mut();
    for odd in odd.filter(|odd| !odd.container.is_empty()) {
        odd.container = containers.of(&odd.container);
    }
    for problem in &mut runtime.statuses.problems {
        problem.container = match problem.container.as_str() {
            "" => String::new(),
            name => containers.of(name),
        };
        problem.failure.iter_mut().for_each(silence);
    }
    for round in &mut runtime.lists.rounds {
        let failures = round.sandboxes.failure.iter_mut();
        failures
            .chain(&mut round.containers.failure)
            .for_each(silence);
    }
    runtime.conditions.failure.iter_mut().for_each(silence);
    for condition in &mut runtime.conditions.conditions {
        condition.message.clear();
    }
    for (code, reason) in &mut runtime.stream.degraded {
        reason.sentence.clone_from(code);
    }
    if let Some(unusable) = &mut runtime.unusable {
        unusable.why = "left out".to_owned();
    }
    runtime.stream.why = runtime.stream.why.as_ref().map(|_| "left out".to_owned());
    let mut mounts = Numbers::new("mount");
    examination
        .host
        .for_each_mount(|path| *path = mounts.of(path));
    examination
}

fn silence(failure: &mut Failure) {
    failure.message.clear();
}

/// Numbers instead of names. Equal names have equal numbers.
struct Numbers {
    what: &'static str,
    known: BTreeMap<String, usize>,
}

impl Numbers {
    const fn new(what: &'static str) -> Self {
        Self {
            what,
            known: BTreeMap::new(),
        }
    }

    fn of(&mut self, name: &str) -> String {
        let next = self.known.len() + 1;
        let number = self.known.entry(name.to_owned()).or_insert(next);
        format!("{}-{number}", self.what)
    }
}
