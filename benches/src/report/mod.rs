//! The page `docs/benchmarks.md` and its pictures, from files of results. Nothing on it is written
//! by hand but what explains it.

mod format;
mod gate;
mod hourly;
mod limits;
mod page;
mod picture;
mod pictures;
mod query;
mod real;
mod side;
mod targets;
mod troubles;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::results::Results;
use query::{Data, Measured};

/// Writes the page, and its pictures into the directory of its name beside it.
///
/// # Errors
/// If a file cannot be read or written, or there are no results.
pub fn write(files: &[PathBuf], out: &Path) -> Result<()> {
    let files = if files.is_empty() {
        all()?
    } else {
        files.to_vec()
    };
    let (mut data, mut real, mut machines) = (Data::default(), Vec::new(), Vec::new());
    for (run, file) in files.iter().enumerate() {
        let results = Results::read(file)?;
        data.0.extend(
            results
                .samples
                .into_iter()
                .map(|sample| Measured { run, sample }),
        );
        real.extend(results.real);
        machines.extend(
            results
                .machines
                .into_iter()
                .map(|machine| (file.clone(), machine)),
        );
    }
    let any = !data.0.is_empty() || !real.is_empty();
    ensure!(any, "there are no results in {files:?}");
    let beside = out.with_extension("");
    std::fs::create_dir_all(&beside)?;
    let mut shown = Vec::new();
    for (name, about, picture) in pictures::all(&data) {
        let path = beside.join(format!("{name}.svg"));
        std::fs::write(&path, picture)?;
        let directory = beside
            .file_name()
            .map(|n| n.to_string_lossy())
            .unwrap_or_default();
        shown.push((about, format!("{directory}/{name}.svg")));
    }
    let text = page::text(&data, &machines, &shown, &real::section(&real));
    std::fs::write(out, text).with_context(|| format!("cannot write {}", out.display()))
}

/// The files in benches/results.
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
