//! Generates the page `docs/benchmarks.md` from results files. Its text is in `page.md`.

mod churn;
mod data;
mod format;
mod real;
mod rows;
mod tables;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::results::{Machine, Results};
use data::Data;

const PAGE: &str = include_str!("page.md");
const INSTRUCTIONS: &str = include_str!("../../instructions.toml");

/// Writes the page.
///
/// # Errors
/// If a file cannot be read or written, or there are no results.
pub fn write(files: &[PathBuf], out: &Path) -> Result<()> {
    let files = if files.is_empty() {
        all()?
    } else {
        files.to_vec()
    };
    let (mut data, mut real, mut machines) = (Data::default(), Vec::new(), String::new());
    for (run, file) in files.iter().enumerate() {
        let results = Results::read(file)?;
        data.0.extend(results.samples.into_iter().map(|s| (run, s)));
        real.extend(results.real);
        machines.push_str(&list(file, &results.machines));
    }
    let any = !data.0.is_empty() || !real.is_empty();
    ensure!(any, "there are no results in {files:?}");
    machines.push_str(&load(&data));
    let page = PAGE
        .replace("{tables}", &tables::text(&data))
        .replace("{churn}", &churn::section(&data))
        .replace("{instructions}", INSTRUCTIONS)
        .replace("{real}", &real::section(&real))
        .replace("{machines}", &machines);
    std::fs::write(out, page).with_context(|| format!("cannot write {}", out.display()))
}

/// Lists the machines of a file. A run that continued a file is not listed again.
fn list(file: &Path, machines: &[Machine]) -> String {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let is_same = |a: &Machine, b: &Machine| {
        let date = b.date.clone();
        Machine { date, ..a.clone() } == *b
    };
    let mut out = String::new();
    for machine in machines.chunk_by(is_same).filter_map(|same| same.first()) {
        let versions = machine.versions.iter().map(|(k, v)| format!("{k} {v}"));
        let versions: Vec<String> = versions.collect();
        let Machine {
            cpu,
            cores,
            memory_mib,
            kernel,
            date,
            commit,
            seed,
            ..
        } = machine;
        let _ = writeln!(
            out,
            "* `{name}`: {cpu}, {cores} threads, {memory_mib} MiB, Linux {kernel}; {date}, commit {commit}, seed {seed}, {}.",
            versions.join(", ")
        );
    }
    out
}

fn load(data: &Data) -> String {
    let loads: Vec<f64> = data.0.iter().map(|(_, sample)| sample.load).collect();
    format!(
        "* Load average of the machine before each measurement: {}. \
         The two processes of a measurement are included; much more than 2 means that something else ran.",
        format::loads(&loads)
    )
}

/// Returns the files in benches/results.
fn all() -> Result<Vec<PathBuf>> {
    let directory = Path::new("benches/results");
    let entries = std::fs::read_dir(directory)
        .with_context(|| format!("no results in {}", directory.display()))?;
    let paths = entries
        .map(|e| e.map(|e| e.path()))
        .collect::<Result<Vec<_>, _>>()?;
    let mut files: Vec<PathBuf> = paths
        .into_iter()
        .filter(|p| p.extension().is_some_and(|e| e == "jsonl"))
        .collect();
    files.sort();
    Ok(files)
}
