//! End-to-end tests of a small measurement: runtime, subjects, results, page.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use pleg_benches::results::Results;
use pleg_benches::subject::Kind;

fn bench(args: &[&str]) -> Result<()> {
    let status = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(args)
        .status()?;
    ensure!(status.success(), "bench {args:?}");
    Ok(())
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("the path is not UTF-8")
}

fn measure(only: &str, out: &Path) -> Result<Results> {
    bench(&["smoke", "--only", only, "--out", text(out)?])?;
    Results::read(out)
}

#[test]
fn hung_pod_delays_serial_inspections() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let results = measure("HungPod", &directory.path().join("results.jsonl"))?;
    let of = |subject| {
        let found = results.samples.iter().find(|s| s.point.subject == subject);
        found.with_context(|| format!("no sample of {subject:?}: {results:?}"))
    };
    let (generic, ours) = (of(Kind::Generic)?, of(Kind::Ours)?);
    assert!(generic.get("unseen") > Some(0.0), "{generic:?}");
    assert_eq!(ours.get("unseen"), Some(0.0), "{ours:?}");
    assert_eq!(ours.get("unready"), Some(0.0), "{ours:?}");
    assert!(
        ours.get("stale_per_minute") < generic.get("stale_per_minute"),
        "{ours:?} {generic:?}"
    );
    Ok(())
}

#[test]
fn pod_workers_read_their_own_changes() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let out = directory.path().join("results.jsonl");
    let mut results = measure("OwnWrites", &out)?;
    assert_eq!(results.samples.len(), 2);
    results.samples.extend(measure("Churn", &out)?.samples);
    for sample in &results.samples {
        assert_eq!(sample.get("own_wrong_reads"), Some(0.0), "{sample:?}");
        assert!(sample.get("read_count") > Some(0.0), "{sample:?}");
        assert!(sample.get("calls_unary") > Some(0.0), "{sample:?}");
    }
    Ok(())
}

#[test]
fn storm_is_measured_once_and_reported() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let out = directory.path().join("results.jsonl");
    let results = measure("Storm", &out)?;
    assert_eq!(results.samples.len(), 6, "three subjects, two repetitions");
    for sample in &results.samples {
        let get = |name: &str| {
            sample
                .get(name)
                .unwrap_or_else(|| panic!("{name}: {sample:?}"))
        };
        assert_eq!(get("events"), 80.0);
        assert!(get("consistent") > 0.0);
        // The generic PLEG inspects each pod with two calls.
        if sample.point.subject == Kind::Generic {
            assert!(get("calls_unary") >= 80.0, "{sample:?}");
        }
        if sample.point.subject != Kind::Drain {
            assert_eq!((get("lost"), get("ghosts")), (0.0, 0.0), "{sample:?}");
        }
    }
    // Points that the file contains are not measured again.
    let again = measure("Storm", &out)?;
    assert_eq!(again.samples, results.samples);
    assert_eq!(again.machines.len(), 2);

    let page = directory.path().join("page.md");
    bench(&["report", text(&out)?, "--out", text(&page)?])?;
    let page = std::fs::read_to_string(page)?;
    assert!(page.contains("`results.jsonl`"), "{page}");
    Ok(())
}

#[test]
fn committed_results_give_tables() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let out = directory.path().join("page.md");
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
    let files = std::fs::read_dir(results)?.map(|file| Ok(file?.path()));
    let files: Vec<_> = files.collect::<Result<_>>()?;
    pleg_benches::report::write(&files, &out)?;
    let page = std::fs::read_to_string(&out)?;
    let placeholder = page.lines().find(|line| line.starts_with('{'));
    assert_eq!(placeholder, None);
    for title in [
        "### An idle hour",
        "### 1,000 pods die at once",
        "## On real containerd",
    ] {
        assert!(page.contains(title), "{title}");
    }
    Ok(())
}
