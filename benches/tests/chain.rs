//! Tests the whole chain of a small measurement: runtime, subjects, results, page, plots, table of the README.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

fn succeed(command: &mut Command) -> Result<()> {
    ensure!(command.status()?.success(), "{command:?}");
    Ok(())
}

/// Generates page and plots from the results in a directory. Returns the page.
fn page(results: &Path, docs: &Path, readme: &Path) -> Result<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    succeed(
        Command::new("python3")
            .arg(root.join("scripts/benchmarks.py"))
            .arg("--results")
            .arg(results)
            .arg("--docs")
            .arg(docs)
            .arg("--readme")
            .arg(readme),
    )?;
    Ok(std::fs::read_to_string(docs.join("benchmarks.md"))?)
}

const QUESTIONS: [&str; 6] = [
    "## 1. What does an idle node cost?",
    "## 2. How soon does an observer see a death or a start?",
    "## 3. How long does a pod worker wait until it sees its own change?",
    "## 4. What do pods that come and go cost?",
    "## 5. How long do a start and a storm take?",
    "## 6. How much memory does a generator hold?",
];

#[test]
fn smoke_benchmark_has_results_for_every_question() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (results, docs) = (
        directory.path().join("results"),
        directory.path().join("docs"),
    );
    let (file, readme) = (
        results.join("smoke.jsonl"),
        directory.path().join("README.md"),
    );
    std::fs::write(&readme, "<!-- benchmarks -->\n<!-- end -->\n")?;
    let bench = env!("CARGO_BIN_EXE_bench");
    // `bench` runs this program to measure memory.
    let _counting = env!("CARGO_BIN_EXE_bench-counting");
    succeed(Command::new(bench).args(["smoke", "--out"]).arg(&file))?;
    let mut measured = 0;
    for line in std::fs::read_to_string(&file)?.lines() {
        let line: Value = serde_json::from_str(line)?;
        let metric = |name: &str| line["metrics"][name].as_f64();
        measured += u32::from(line["line"] == "sample");
        match line["workload"].as_str() {
            Some("idle") => assert!(metric("cpu") > Some(0.0), "{line}"),
            Some("changes") => {
                assert_eq!(metric("death_count"), Some(29.0), "{line}");
                assert_eq!(metric("start_unseen"), Some(0.0), "{line}");
            }
            Some("own-writes") => {
                assert_eq!(metric("read_count"), Some(8.0), "{line}");
                assert_eq!(metric("wrong_reads"), Some(0.0), "{line}");
            }
            Some("churn") => {
                assert_eq!(metric("wrong_reads"), Some(0.0), "{line}");
                assert!(metric("calls") > Some(0.0), "{line}");
            }
            Some("storm") => {
                assert!(metric("shown") > Some(0.0), "{line}");
                // The ports of upstream make two status calls for each of 40 pods that exit; other subjects make fewer.
                let inspects = line["subject"] == "generic" || line["subject"] == "hint";
                assert_eq!(metric("calls") >= Some(80.0), inspects, "{line}");
            }
            Some("memory") => assert!(metric("held") > Some(0.0), "{line}"),
            _ => assert!(line["mode"].as_str().is_some_and(|m| m.contains("smoke"))),
        }
    }
    assert_eq!(measured, 4 * 3 + 2 * 4);
    let page = page(&results, &docs, &readme)?;
    for question in QUESTIONS {
        let (_, answer) = page.split_once(question).with_context(|| question)?;
        let answer = answer.split("\n## ").next().unwrap_or_default();
        assert!(answer.contains("| pleg |"), "{answer}");
        assert!(answer.contains("]("), "{answer}");
    }
    assert_eq!(
        std::fs::read_dir(docs.join("images/benchmarks"))?.count(),
        6
    );
    assert!(std::fs::read_to_string(&readme)?.contains("| an idle hour"));
    Ok(())
}

/// Fails if somebody edited docs/benchmarks.md by hand, or forgot to generate it.
#[test]
fn committed_benchmark_results_give_the_committed_page() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let directory = tempfile::tempdir()?;
    let readme = directory.path().join("README.md");
    std::fs::copy(root.join("README.md"), &readme)?;
    let page = page(&root.join("benches/results"), directory.path(), &readme)?;
    let committed = std::fs::read_to_string(root.join("docs/benchmarks.md"))?;
    assert_eq!(page, committed, "run `just benchmarks-page`");
    let readmes = [readme, root.join("README.md")].map(std::fs::read_to_string);
    let [Ok(generated), Ok(committed)] = readmes else {
        anyhow::bail!("cannot read the READMEs");
    };
    assert_eq!(generated, committed, "run `just benchmarks-page`");
    Ok(())
}
