//! `pleg doctor`: examines a node for some seconds; reports whether its PLEG is or will be unhealthy, why, what to do.
//!
//! The findings follow from the evidence alone, so a recording gives the same findings anywhere. A recording has, by
//! default, numbers instead of the names of pods, containers and mounts, and no message of the runtime. Command lines,
//! environments, labels and annotations are never collected.

mod report;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use crate::args::{DoctorArgs, Output};
use crate::bounded;
use crate::connect::Target;
use crate::log::notice;
use crate::picture::finding::{self, Finding, Severity};
use crate::picture::host::{self, Host, HostTarget};
use crate::picture::runtime::{self, Evidence, NOT_EXAMINED};

/// The exit code if nothing could be examined.
const FAILED: u8 = 3;
/// The version of the format of recordings. A later `pleg` may add fields and keep this number.
const FORMAT: u32 = 1;
const LARGEST: u64 = 64 << 20;

pub(crate) async fn run(args: DoctorArgs) -> ExitCode {
    ExitCode::from(examine(args).await.unwrap_or_else(|error| {
        crate::log::show_error(&error);
        FAILED
    }))
}

/// Returns an exit code as monitoring plugins do: 0 healthy, 1 warning, 2 critical, 3 if nothing could be examined.
async fn examine(args: DoctorArgs) -> anyhow::Result<u8> {
    let examination = match &args.replay {
        Some(file) => load(file)?,
        None => Box::pin(Examination::of_node(&args)).await?,
    };
    if let Some(file) = &args.record {
        save(&examination, args.names, file)?;
        notice(&format!("recorded in {}", file.display()));
    }
    let findings = examination.findings();
    match args.output {
        Output::Json => report::json(&examination, &findings)?,
        Output::Table => report::text(&examination, &findings)?,
    }
    Ok(match findings.first().map(|finding| finding.severity) {
        _ if findings.iter().any(|finding| finding.code == NOT_EXAMINED) => FAILED,
        None | Some(Severity::Info) => 0,
        Some(Severity::Warning) => 1,
        Some(Severity::Critical) => 2,
    })
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Examination {
    /// The start of the examination: UTC, RFC 3339.
    at: String,
    seconds: f64,
    runtime: Evidence,
    host: Host,
}

impl Examination {
    async fn of_node(args: &DoctorArgs) -> anyhow::Result<Self> {
        let target = Target::choose(&args.connection.runtime)?;
        let clock = target.meter.clock;
        let began = clock.wall();
        let (runtime, duration) = (&target.runtime, args.duration);
        notice(&format!("reading {runtime} for {duration:?}"));
        let mut of_host = HostTarget::new(runtime.socket().filter(|_| !runtime.is_embedded));
        of_host.root.clone_from(&args.root);
        let host = Box::pin(host::collect(&of_host, duration));
        let both = runtime::collect(&target, args.connection.events, duration, host);
        let (runtime, host) = Box::pin(both).await?;
        target.close().await;
        Ok(Self {
            at: crate::json::utc(began).to_string(),
            seconds: duration.as_secs_f64(),
            runtime,
            host,
        })
    }

    fn findings(&self) -> Vec<Finding> {
        let mut findings = runtime::check(&self.runtime);
        findings.extend(host::check(&self.host, self.runtime.calls()));
        finding::arrange(findings)
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Recording {
    format: u32,
    version: String,
    redacted: bool,
    examination: Examination,
}

/// Writes an examination to a file. If the file is new, only its owner can read it.
fn save(examination: &Examination, names: bool, file: &Path) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(&Recording {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        redacted: !names,
        examination: match names {
            true => examination.clone(),
            false => redacted(examination),
        },
    })?;
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    let out = options.open(file);
    let written = out.and_then(|mut out| writeln!(out, "{text}"));
    written.with_context(|| format!("cannot write {}", file.display()))
}

fn load(file: &Path) -> anyhow::Result<Examination> {
    let read = || -> anyhow::Result<Recording> {
        let text = bounded::text(File::open(file)?, LARGEST)?;
        serde_json::from_str(&text).context("it is not a recording of pleg doctor")
    };
    let file = file.display();
    let recording = read().with_context(|| format!("cannot read {file}"))?;
    let (format, version) = (recording.format, recording.version);
    ensure!(
        format == FORMAT,
        "{file} has format {format}, and this version reads {FORMAT}: use pleg {version}"
    );
    Ok(recording.examination)
}

/// A copy of the examination with numbers instead of names, and without messages of the runtime.
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
    let mounts = host.mounts.hanging.iter_mut().chain(&mut host.mounts.slow);
    number("mount", mounts.map(|mount| &mut mount.path));
    examination
}

/// Replaces each name with `what` and a number. Equal names get equal numbers.
fn number<'a>(what: &str, names: impl IntoIterator<Item = &'a mut String>) {
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    for name in names.into_iter().filter(|name| !name.is_empty()) {
        let next = known.len() + 1;
        let number = known.entry(std::mem::take(name)).or_insert(next);
        *name = format!("{what}-{number}");
    }
}
