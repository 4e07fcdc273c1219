//! Simulates random worlds: replays one seed, runs many seeds, or runs for a given time.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a command; it times itself"
)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use pleg_proof::assertions::Violation;
use pleg_proof::plan::{self, Plan};
use pleg_proof::shrink::shrink;
use pleg_proof::simulation::simulate;
use pleg_proof::soak::{Run, Totals};
use pleg_proof::trace::Trace;

/// Simulates pods, a faulty runtime and the reconciler, and checks the invariants.
#[derive(Debug, Parser)]
#[command(name = "simulate")]
struct Args {
    /// Replay the world of this seed.
    #[arg(conflicts_with_all = ["seeds", "minutes"])]
    seed: Option<u64>,
    /// Print the whole trace of a replay.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Change the configuration of each seed: pods=1,fault-secs=3,without=disconnect,runtime=crio,
    /// kubelet=on, and so on.
    #[arg(long, value_name = "CHANGES", default_value = "")]
    change: String,
    /// Run this many worlds.
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,
    /// Start with this seed.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    from: u64,
    /// Run for this long.
    #[arg(long, value_name = "MINUTES", conflicts_with = "seeds")]
    minutes: Option<f64>,
    /// How many worlds to run in parallel; by default one per core.
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Full nodes only: 110 pods and 10 events a second, for ten minutes each.
    #[arg(long)]
    node: bool,
    /// Continue from the totals in this file, if it exists, and save them there.
    #[arg(long, value_name = "FILE")]
    totals: Option<PathBuf>,
    /// Fail if some fault, transition or recovery never occurred. Implied by 2,000 worlds.
    #[arg(long)]
    all: bool,
    /// Fail with fewer simulated events than this.
    #[arg(long, value_name = "N", default_value_t = 0)]
    at_least: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = match args.seed {
        Some(seed) => replay(&args, seed),
        None => run(&args),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn planner(args: &Args) -> fn(u64) -> Plan {
    if args.node {
        Plan::node
    } else {
        Plan::from_seed
    }
}

/// Replays one world.
fn replay(args: &Args, seed: u64) -> Result<bool, String> {
    let mut plan = planner(args)(seed);
    plan::change(&mut plan, &args.change)?;
    println!("{plan}");
    let trace = if args.trace {
        Trace::recording()
    } else {
        Trace::Off
    };
    match simulate(&plan, trace) {
        Ok(simulated) => {
            print!("{}", simulated.trace.text());
            print!("{}", simulated.coverage);
            println!("every invariant held");
            Ok(true)
        }
        Err(failure) if args.trace => {
            print!("{}", failure.trace.text());
            println!("{}", failure.violation);
            Ok(false)
        }
        Err(failure) => {
            explain(args, &plan, &failure.violation);
            Ok(false)
        }
    }
}

/// Explains a violation: the smallest world with it, and the trace of the pod concerned.
fn explain(args: &Args, plan: &Plan, violation: &Violation) {
    println!("\nVIOLATION {violation}\n  {plan}");
    println!(
        "  invariant {}: {}",
        violation.assertion.invariant, violation.assertion.meaning
    );
    let (small, violation) = shrink(plan, violation, 400);
    let changes = plan::changes(&small, &planner(args)(plan.seed));
    let seed = small.seed;
    println!("smallest world found: {violation}\n  {small}");
    if let Err(failure) = simulate(&small, Trace::recording()) {
        let trace = match failure.violation.pod {
            Some(pod) => failure.trace.about(pod),
            None => failure.trace.text(),
        };
        let lines: Vec<&str> = trace.lines().collect();
        let shown = lines.len().saturating_sub(200);
        if shown > 0 {
            println!("  … {shown} lines before …");
        }
        for line in &lines[shown..] {
            println!("{line}");
        }
        println!("{}", failure.violation);
    }
    let node = if args.node { " --node" } else { "" };
    println!("replay: simulate {seed}{node} --change '{changes}' --trace");
}

/// Runs many worlds.
fn run(args: &Args) -> Result<bool, String> {
    let mut totals = match &args.totals {
        Some(file) if file.exists() => {
            let text = std::fs::read_to_string(file).map_err(|e| format!("{file:?}: {e}"))?;
            Totals::from_text(&text)?
        }
        _ => Totals::default(),
    };
    totals.next = totals.next.max(args.from);
    let end = match (args.seeds, args.minutes) {
        (Some(seeds), _) => totals.next.saturating_add(seeds),
        (None, Some(_)) => u64::MAX,
        (None, None) => totals.next + 100,
    };
    let jobs = args
        .jobs
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get));
    let begun = Instant::now();
    let until = args
        .minutes
        .map(|m| begun + Duration::from_secs_f64(m.max(0.0) * 60.0));
    let keep_running = || until.is_none_or(|until| Instant::now() < until);
    // Validates the changes; that does not depend on the seed.
    plan::change(&mut planner(args)(0), &args.change)?;
    let (planner, changes) = (planner(args), args.change.clone());
    let changed = move |seed| {
        let mut plan = planner(seed);
        let _ = plan::change(&mut plan, &changes);
        plan
    };
    let run = Run::new(changed, totals, end);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs.max(1))
            .map(|_| scope.spawn(|| run.work(keep_running)))
            .collect();
        let mut last_report = Instant::now();
        let mut reported_count = 0;
        while workers.iter().any(|w| !w.is_finished()) {
            std::thread::park_timeout(Duration::from_millis(100));
            if last_report.elapsed() >= Duration::from_secs(60) {
                last_report = Instant::now();
                let (totals, violations) = run.totals();
                for (plan, violation) in violations.iter().skip(reported_count) {
                    println!("seed {}: {violation}", plan.seed);
                }
                reported_count = violations.len();
                let t = &totals.coverage;
                let (minutes, worlds) = (begun.elapsed().as_secs() / 60, t.seeds());
                let (events, count) = (t.events, totals.violations);
                let steps = t.steps;
                println!(
                    "{minutes} min: {worlds} worlds, {events} CRI events, {steps} simulated events, {count} violations"
                );
                save_totals(args, &totals);
            }
        }
    });
    let (totals, violations) = run.totals();
    save_totals(args, &totals);
    print!("{}", totals.coverage);
    print!("{}", totals.summary());
    println!(
        "elapsed          {:.1} s on {jobs} threads",
        begun.elapsed().as_secs_f64()
    );
    for (plan, violation) in &violations {
        println!("seed {}: {violation}", plan.seed);
    }
    if let Some((plan, violation)) = violations.first() {
        explain(args, plan, violation);
    }
    let uncovered = totals.coverage.uncovered();
    let requires_all = args.all || totals.coverage.seeds() >= 2000;
    if !uncovered.is_empty() {
        println!("never occurred: {}", uncovered.join(", "));
    }
    let enough = totals.coverage.steps >= args.at_least;
    if !enough {
        println!(
            "only {} simulated events of {}",
            totals.coverage.steps, args.at_least
        );
    }
    Ok(totals.violations == 0 && enough && (uncovered.is_empty() || !requires_all))
}

fn save_totals(args: &Args, totals: &Totals) {
    if let Some(file) = &args.totals
        && let Err(error) = std::fs::write(file, totals.to_text())
    {
        eprintln!("{}: {error}", file.display());
    }
}
