//! The output of `pleg doctor`: the answer in a sentence, the findings, and the figures behind them.

use std::io;

use anstyle::{AnsiColor, Style};
use itertools::Itertools as _;
use serde_json::json;

use super::*;
use crate::json;
use crate::picture::finding::Layer;
use crate::picture::generator::{Generator, State};
use crate::picture::runtime::{Lists, Pods};
use crate::table::{colour, dim, terminal_width};
use crate::text::{bytes, enclosed, lower, millis, safe, seconds, span, wrapped};

const SLOWEST: usize = 3;
const NAME: usize = 12;
/// No node has this many pods: a higher estimate is not shown.
const MANY: f64 = 100_000.0;

fn verdict(findings: &[Finding]) -> String {
    if let Some(finding) = findings.iter().find(|f| f.code == NOT_EXAMINED) {
        return finding.summary.clone();
    }
    // Leaves out findings about the network, which a PLEG does not need.
    let is_critical = |f: &&Finding| f.severity == Severity::Critical && f.layer != Layer::Network;
    let worst = findings.first().filter(|f| f.severity != Severity::Info);
    match (findings.iter().find(is_critical), worst) {
        (Some(critical), _) => format!("PLEG is unhealthy or pods are stuck: {}", critical.summary),
        (None, Some(worst)) => format!("PLEG is healthy, but: {}", worst.summary),
        (None, None) => "PLEG is healthy; nothing was found that will make it unhealthy".to_owned(),
    }
}

pub(super) fn json(examination: &Examination, findings: &[Finding]) -> io::Result<()> {
    let figure = |(name, text)| json!({ "name": name, "text": text });
    json::print(&json!({
        "verdict": verdict(findings),
        "severity": findings.first().map(|finding| finding.severity),
        "findings": findings,
        "figures": figures(examination).into_iter().map(figure).collect::<Vec<_>>(),
        "examination": examination,
    }))
}

pub(super) fn text(examination: &Examination, findings: &[Finding]) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    let width = terminal_width().clamp(60, 160);
    let bold = style(findings.first().map(|finding| finding.severity)).bold();
    writeln!(out, "{bold}{}{bold:#}", safe(&verdict(findings)))?;
    let mut lines = |begin: &str, indent: usize, text: &str| {
        for (n, line) in wrapped(text, width - indent).iter().enumerate() {
            let begin = if n == 0 { begin } else { "" };
            writeln!(out, "{begin:indent$}{line}")?;
        }
        io::Result::Ok(())
    };
    for finding in findings {
        let style = style(Some(finding.severity));
        let (severity, layer) = (lower(finding.severity), lower(finding.layer));
        let head = format!("{severity} {layer} {}", finding.code);
        let cause = finding.cause.map(|cause| format!(", explained by {cause}"));
        let head = format!("\n{style}{head}{style:#}");
        lines(&head, 0, &cause.unwrap_or_default())?;
        lines("", 4, &finding.summary)?;
        for evidence in &finding.evidence {
            lines("  - ", 4, evidence)?;
        }
        if finding.cause.is_none() {
            lines("  > ", 4, &finding.next)?;
        }
    }
    lines("", 0, "")?;
    let dim = dim();
    for (name, text) in figures(examination) {
        lines(&format!("{dim}{name:<NAME$}{dim:#}"), NAME, &text)?;
    }
    out.flush()
}

fn style(severity: Option<Severity>) -> Style {
    colour(match severity {
        Some(Severity::Critical) => AnsiColor::Red,
        Some(Severity::Warning) => AnsiColor::Yellow,
        Some(Severity::Info) => AnsiColor::Cyan,
        None => AnsiColor::Green,
    })
}

fn figures(examination: &Examination) -> Vec<(&'static str, String)> {
    let Examination { runtime, host, .. } = examination;
    let (time, at) = (seconds(examination.seconds), &examination.at);
    let unreadable = host.unreadable.join("; ");
    let codes = "each is a section of docs/runbook.md".to_owned();
    let all = [
        ("runtime", Some(endpoint(runtime))),
        ("read", Some(format!("for {time}, from {at}"))),
        ("pods", Some(pods(&runtime.pods))),
        ("relist", relist(runtime)),
        ("lists", lists(&runtime.lists)),
        ("statuses", statuses(runtime)),
        ("events", Some(events(&runtime.stream))),
        ("conditions", conditions(runtime)),
        ("not read", Some(unreadable).filter(|why| !why.is_empty())),
        ("codes", Some(codes)),
    ];
    let all = all.into_iter();
    all.filter_map(|(name, text)| Some((name, text?))).collect()
}

fn endpoint(runtime: &Evidence) -> String {
    let (version, endpoint) = (&runtime.version, &runtime.endpoint);
    let simulated = if runtime.simulated { ", SIMULATED" } else { "" };
    let named = enclosed("", &runtime.name, &format!(" {version} at "));
    format!("{named}{endpoint}{simulated}")
}

fn pods(pods: &Pods) -> String {
    let (all, running, created) = (pods.pods.len(), pods.running, pods.created);
    let containers = format!("{running} running, {created} created, {} dead", pods.dead);
    let sandboxes = pods.dead_sandboxes;
    format!("{all} pods; containers: {containers}; {sandboxes} dead sandboxes")
}

/// The duration of a generic PLEG's relist, and estimates: with how many pods a relist would take 1, 10 and 180 s.
fn relist(runtime: &Evidence) -> Option<String> {
    let now = span(runtime.lists.relist()?);
    let marks = runtime.lists.marks(runtime.pods.pods.len()).into_iter();
    let marks = marks.take_while(|(_, pods)| *pods < MANY);
    let shown = |(mark, pods)| format!("{} at about {pods:.0} pods", span(millis(mark)));
    let estimate = enclosed("; it would take ", &marks.map(shown).join(", "), "");
    Some(format!("{now} for a generic PLEG{estimate}"))
}

fn lists(lists: &Lists) -> Option<String> {
    let sizes = [lists.sandbox_bytes, lists.container_bytes];
    let calls = lists.rounds.last()?.calls().zip(sizes);
    let mut shown = calls.map(|((name, call), size)| match size {
        0 => call.shown(name),
        size => format!("{} ({})", call.shown(name), bytes(size)),
    });
    Some(shown.join(", "))
}

fn statuses(runtime: &Evidence) -> Option<String> {
    let statuses = &runtime.statuses;
    let (median, p99) = statuses.median_millis.zip(statuses.p99_millis)?;
    let slowest = statuses.slowest_pods.iter().take(SLOWEST);
    let mut slowest = slowest.filter(|slow| !slow.pod.is_empty()).map(|slow| {
        let name = runtime.pods.name(&slow.pod);
        format!("{name} {}", span(slow.millis))
    });
    let (ids, median, p99) = (statuses.ids, span(median), span(p99));
    let all = format!("{ids} ids: median {median}, 99 % within {p99}");
    let pods = enclosed("; slowest pods: ", &slowest.join(", "), "");
    Some(format!("{all}{pods}"))
}

fn events(stream: &Generator) -> String {
    let state = match stream.state {
        State::Off => "not subscribed".to_owned(),
        State::Open => "subscribed, no event arrived".to_owned(),
        State::Proven => format!("{} arrived, {} missing", stream.events, stream.missed),
        State::NotOffered => "not offered".to_owned(),
        State::Down => "no stream".to_owned(),
    };
    match stream.changes {
        0 => format!("{state}; no pod changed"),
        changes => format!("{state}; {changes} changes of pods"),
    }
}

fn conditions(runtime: &Evidence) -> Option<String> {
    let all = runtime.conditions.conditions.iter();
    let shown = all.map(|c| format!("{} {}", c.name, c.status)).join(", ");
    Some(shown).filter(|shown| !shown.is_empty())
}
