//! Simulated worlds, from a seed: one is replayed, many are run, or as many as there is time for.

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
use pleg_proof::history::History;
use pleg_proof::laws::Broken;
use pleg_proof::plan::{self, Plan};
use pleg_proof::shrink::shrink;
use pleg_proof::soak::{Run, Totals};
use pleg_proof::story::live;

/// Simulated worlds of pods, a runtime that tells of them badly, and the machine between: no law
/// may break.
#[derive(Debug, Parser)]
#[command(name = "simulate")]
struct Args {
    /// Replay the world of this seed.
    #[arg(conflicts_with_all = ["seeds", "minutes"])]
    seed: Option<u64>,
    /// Print the whole history of a replay.
    #[arg(long, requires = "seed")]
    history: bool,
    /// Change what each seed decides: pods=1,trouble=3,without=cut,runtime=crio,kubelet=on,
    /// and so on.
    #[arg(long, value_name = "CHANGES", default_value = "")]
    change: String,
    /// Run this many worlds.
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,
    /// Begin with this seed.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    from: u64,
    /// Run for this long.
    #[arg(long, value_name = "MINUTES", conflicts_with = "seeds")]
    minutes: Option<f64>,
    /// How many worlds at a time; by default one per core.
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Whole nodes only: 110 pods and 10 events a second, for ten minutes each.
    #[arg(long)]
    node: bool,
    /// Go on from the totals in this file, if there are any, and keep them there.
    #[arg(long, value_name = "FILE")]
    totals: Option<PathBuf>,
    /// Fail if some fault, transition or recovery never came. Implied by 2,000 worlds.
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
    if args.node { Plan::node } else { Plan::of }
}

/// One world once more.
fn replay(args: &Args, seed: u64) -> Result<bool, String> {
    let mut plan = planner(args)(seed);
    plan::change(&mut plan, &args.change)?;
    println!("{plan}");
    let history = if args.history {
        History::kept()
    } else {
        History::Off
    };
    match live(&plan, history) {
        Ok(lived) => {
            print!("{}", lived.history.text());
            print!("{}", lived.tally);
            println!("every law held");
            Ok(true)
        }
        Err(failure) if args.history => {
            print!("{}", failure.history.text());
            println!("{}", failure.broken);
            Ok(false)
        }
        Err(failure) => {
            explain(args, &plan, &failure.broken);
            Ok(false)
        }
    }
}

/// A broken law: in the smallest world that breaks it, what happened to the pod concerned.
fn explain(args: &Args, plan: &Plan, broken: &Broken) {
    println!("\nBROKEN {broken}\n  {plan}");
    println!(
        "  law {}: {}",
        broken.assertion.law, broken.assertion.meaning
    );
    let (small, broken) = shrink(plan, broken, 400);
    let changes = plan::changes(&small, &planner(args)(plan.seed));
    let seed = small.seed;
    println!("smallest world found: {broken}\n  {small}");
    if let Err(failure) = live(&small, History::kept()) {
        let history = match failure.broken.pod {
            Some(pod) => failure.history.about(pod),
            None => failure.history.text(),
        };
        let lines: Vec<&str> = history.lines().collect();
        let shown = lines.len().saturating_sub(200);
        if shown > 0 {
            println!("  … {shown} lines before …");
        }
        for line in &lines[shown..] {
            println!("{line}");
        }
        println!("{}", failure.broken);
    }
    let node = if args.node { " --node" } else { "" };
    println!("replay: simulate {seed}{node} --change '{changes}' --history");
}

/// Many worlds.
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
    let goes_on = || until.is_none_or(|until| Instant::now() < until);
    // Whether the changes are understood does not depend on the seed.
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
            .map(|_| scope.spawn(|| run.work(goes_on)))
            .collect();
        let mut told = Instant::now();
        let mut said = 0;
        while workers.iter().any(|w| !w.is_finished()) {
            std::thread::park_timeout(Duration::from_millis(100));
            if told.elapsed() >= Duration::from_secs(60) {
                told = Instant::now();
                let (totals, of_now) = run.totals();
                for (plan, broken) in of_now.iter().skip(said) {
                    println!("seed {}: {broken}", plan.seed);
                }
                said = of_now.len();
                let t = &totals.tally;
                let (minutes, worlds) = (begun.elapsed().as_secs() / 60, t.seeds());
                let (events, broken) = (t.events, totals.broken);
                let steps = t.steps;
                println!(
                    "{minutes} min: {worlds} worlds, {events} CRI events, {steps} simulated events, {broken} broken"
                );
                keep(args, &totals);
            }
        }
    });
    let (totals, broken) = run.totals();
    keep(args, &totals);
    print!("{}", totals.tally);
    print!("{}", totals.summary());
    println!(
        "elapsed          {:.1} s on {jobs} threads",
        begun.elapsed().as_secs_f64()
    );
    for (plan, broken) in &broken {
        println!("seed {}: {broken}", plan.seed);
    }
    if let Some((plan, broken)) = broken.first() {
        explain(args, plan, broken);
    }
    let never = totals.tally.never();
    let must_come = args.all || totals.tally.seeds() >= 2000;
    if !never.is_empty() {
        println!("never came: {}", never.join(", "));
    }
    let enough = totals.tally.steps >= args.at_least;
    if !enough {
        println!(
            "only {} simulated events of {}",
            totals.tally.steps, args.at_least
        );
    }
    Ok(totals.broken == 0 && enough && (never.is_empty() || !must_come))
}

fn keep(args: &Args, totals: &Totals) {
    if let Some(file) = &args.totals
        && let Err(error) = std::fs::write(file, totals.to_text())
    {
        eprintln!("{}: {error}", file.display());
    }
}
