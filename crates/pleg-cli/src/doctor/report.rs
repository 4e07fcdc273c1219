//! What `pleg doctor` prints: the answer in a sentence, the findings, and the figures behind them.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use super::Examination;
use super::NOT_EXAMINED;
use crate::figures::{bytes, millis, span};
use crate::json;
use crate::picture::finding::{Finding, Layer, Severity};
use crate::picture::generator::State;
use crate::table::{colour, dim, terminal_width};
use crate::text::{duration, safe, wrapped};

/// How many of the slowest pods are shown.
const SLOWEST: usize = 3;
/// The width of the names of figures.
const NAME: usize = 12;
/// More pods than any node has.
const MANY: f64 = 100_000.0;

/// The answer in a sentence.
fn verdict(findings: &[Finding]) -> String {
    if let Some(finding) = findings.iter().find(|f| f.code == NOT_EXAMINED) {
        return finding.summary.clone();
    }
    // The network is not the PLEG's.
    let is_critical = |f: &&Finding| f.severity == Severity::Critical && f.layer != Layer::Network;
    let worst = findings.first().filter(|f| f.severity != Severity::Info);
    match (findings.iter().find(is_critical), worst) {
        (Some(critical), _) => format!("PLEG is unhealthy or pods are stuck: {}", critical.summary),
        (None, Some(worst)) => format!("PLEG is healthy, but: {}", worst.summary),
        (None, None) => "PLEG is healthy; nothing was found that will make it unhealthy".to_owned(),
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Object<'a> {
    verdict: String,
    severity: Option<Severity>,
    findings: &'a [Finding],
    figures: Vec<Figure>,
    examination: &'a Examination,
}

/// A line of figures.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Figure {
    name: &'static str,
    text: String,
}

/// As one JSON object.
pub(super) fn json(examination: &Examination, findings: &[Finding]) -> io::Result<()> {
    let object = Object {
        verdict: verdict(findings),
        severity: findings.first().map(|finding| finding.severity),
        findings,
        figures: figures(examination),
        examination,
    };
    json::line(&mut io::stdout(), &object)
}

/// For people.
pub(super) fn text(examination: &Examination, findings: &[Finding]) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    let width = terminal_width().clamp(60, 160);
    let worst = findings.first().map(|finding| finding.severity);
    let bold = style(worst).bold();
    writeln!(out, "{bold}{}{bold:#}", safe(&verdict(findings)))?;
    for finding in findings {
        write_finding(&mut out, finding, width)?;
    }
    writeln!(out)?;
    for Figure { name, text } in figures(examination) {
        let dim = dim();
        for (n, line) in wrapped(&text, width - NAME).iter().enumerate() {
            let name = if n == 0 { name } else { "" };
            writeln!(out, "{dim}{name:<NAME$}{dim:#}{line}")?;
        }
    }
    out.flush()
}

fn write_finding(out: &mut impl Write, finding: &Finding, width: usize) -> io::Result<()> {
    let style = style(Some(finding.severity));
    let head = format!(
        "{:<8} {:<7} {}",
        finding.severity, finding.layer, finding.code
    );
    let cause = finding.cause.map(|cause| format!(", explained by {cause}"));
    let cause = cause.unwrap_or_default();
    writeln!(out, "\n{style}{head}{style:#}{cause}")?;
    let mut lines = |text: &str, begin: &str| {
        for (n, line) in wrapped(text, width - 4).iter().enumerate() {
            let begin = if n == 0 { begin } else { "    " };
            writeln!(out, "{begin}{line}")?;
        }
        io::Result::Ok(())
    };
    lines(&finding.summary, "    ")?;
    for evidence in &finding.evidence {
        lines(evidence, "  - ")?;
    }
    lines(&finding.next, "  > ")
}

fn style(severity: Option<Severity>) -> Style {
    match severity {
        Some(Severity::Critical) => colour(AnsiColor::Red),
        Some(Severity::Warning) => colour(AnsiColor::Yellow),
        Some(Severity::Info) => colour(AnsiColor::Cyan),
        None => colour(AnsiColor::Green),
    }
}

/// The figures behind the findings.
fn figures(examination: &Examination) -> Vec<Figure> {
    let all: [(&'static str, Option<String>); 9] = [
        ("runtime", Some(runtime(examination))),
        ("read", Some(read(examination))),
        ("pods", Some(pods(examination))),
        ("relist", relist(examination)),
        ("lists", lists(examination)),
        ("statuses", statuses(examination)),
        ("events", Some(events(examination))),
        ("conditions", conditions(examination)),
        ("not read", not_read(examination)),
    ];
    let known = all.into_iter();
    known
        .filter_map(|(name, text)| Some(Figure { name, text: text? }))
        .collect()
}

fn runtime(examination: &Examination) -> String {
    let runtime = &examination.runtime;
    let simulated = if runtime.simulated { ", SIMULATED" } else { "" };
    match &*runtime.name {
        "" => format!("{}{simulated}", runtime.endpoint),
        name => format!(
            "{name} {} at {}{simulated}",
            runtime.version, runtime.endpoint
        ),
    }
}

fn read(examination: &Examination) -> String {
    format!(
        "for {}, from {}",
        duration(examination.duration()),
        examination.at
    )
}

fn pods(examination: &Examination) -> String {
    let pods = &examination.runtime.pods;
    format!(
        "{} pods; containers: {} running, {} created, {} dead; {} dead sandboxes",
        pods.total(),
        pods.running,
        pods.created,
        pods.dead,
        pods.dead_sandboxes
    )
}

/// What a generic PLEG does every second, and up to which number of pods it can.
fn relist(examination: &Examination) -> Option<String> {
    let (lists, pods) = (&examination.runtime.lists, examination.runtime.pods.total());
    let now = span(lists.relist()?);
    let mut shown = Vec::new();
    for (mark, pods) in lists.marks(pods) {
        let mark = span(millis(mark));
        if pods >= MANY {
            shown.push(format!("{mark} at more than 100,000 pods"));
            break;
        }
        shown.push(format!("{mark} at about {pods:.0} pods"));
    }
    Some(match shown.as_slice() {
        [] => format!("{now} for a generic PLEG; too few pods to estimate more"),
        marks => format!(
            "{now} for a generic PLEG; it would take {}",
            marks.join(", ")
        ),
    })
}

fn lists(examination: &Examination) -> Option<String> {
    let lists = &examination.runtime.lists;
    let last = lists.rounds.last()?;
    let sizes = [lists.sandbox_bytes, lists.container_bytes];
    let calls = last.calls().into_iter().zip(sizes);
    let shown = calls.map(|((name, call), size)| match size {
        0 => call.shown(name),
        size => format!("{} ({})", call.shown(name), bytes(size)),
    });
    Some(shown.collect::<Vec<_>>().join(", "))
}

fn statuses(examination: &Examination) -> Option<String> {
    let runtime = &examination.runtime;
    let statuses = &runtime.statuses;
    let (median, p99) = statuses.median_millis.zip(statuses.p99_millis)?;
    let slowest = statuses.slowest_pods.iter().take(SLOWEST);
    let slowest = slowest.filter(|slow| !slow.pod.is_empty()).map(|slow| {
        let name = runtime.pods.name(&slow.pod);
        format!("{name} {}", span(slow.millis))
    });
    let slowest: Vec<String> = slowest.collect();
    let slowest = match slowest.as_slice() {
        [] => String::new(),
        pods => format!("; slowest pods: {}", pods.join(", ")),
    };
    Some(format!(
        "{} ids: median {}, 99 % within {}{slowest}",
        statuses.ids,
        span(median),
        span(p99)
    ))
}

fn events(examination: &Examination) -> String {
    let stream = &examination.runtime.stream;
    let state = match stream.state {
        State::Off => "not subscribed".to_owned(),
        State::Open => "subscribed, no event arrived".to_owned(),
        State::Proven => format!("{} arrived, {} missing", stream.events, stream.missed),
        State::NotOffered => "not offered".to_owned(),
        State::Down => "no stream".to_owned(),
    };
    format!("{state}; {} changes in all", stream.changes)
}

fn conditions(examination: &Examination) -> Option<String> {
    let conditions = &examination.runtime.conditions;
    if let Some(failure) = &conditions.failure {
        return Some(format!("Status failed: {failure}"));
    }
    let all = conditions.conditions.iter();
    let shown: Vec<String> = all.map(|c| format!("{} {}", c.name, c.status)).collect();
    (!shown.is_empty()).then(|| shown.join(", "))
}

fn not_read(examination: &Examination) -> Option<String> {
    let unreadable = &examination.host.unreadable;
    (!unreadable.is_empty()).then(|| unreadable.join("; "))
}
