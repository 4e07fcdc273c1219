//! Fast paths change no result, so no test of results shows whether they are taken. These do: without
//! them an idle node costs several times as much.

use std::time::Duration;

use super::events::Context;
use super::*;
use crate::types::ids::Kind;
use crate::types::reads::{List, Rows};
use crate::types::report::{Details, Identity, Report, ReportedState};
use crate::types::time::WallTime;

const RUNNING: ReportedState = ReportedState::Running;

/// A row of pod `p` with a complete identity. Sandboxes have the id `s`.
fn row(kind: Kind, id: &str, shown: ReportedState) -> Report {
    let mut identity = Identity::new(kind);
    identity.pod = Some("p".into());
    identity.namespace = Some("ns".into());
    identity.pod_name = Some("p".into());
    identity.created_at = Some(WallTime::from_nanos(1));
    if kind == Kind::Container {
        identity.name = Some(id.into());
        identity.sandbox = Some("s".into());
    }
    Report::new(id, shown, identity, Details::none(kind))
}

/// A sandbox and three containers, of which the second has that state.
fn rows(second: ReportedState) -> Vec<Report> {
    let container = |id, shown| row(Kind::Container, id, shown);
    vec![
        row(Kind::Sandbox, "s", RUNNING),
        container("a", RUNNING),
        container("b", second),
        container("c", RUNNING),
    ]
}

/// Answers the list that is due at that second.
fn list(machine: &mut Reconciler, second: u64, rows: Vec<Report>) -> Rows {
    let now = at(second);
    machine.handle_timeout(now);
    let requested = std::iter::from_fn(|| machine.poll_output()).find_map(|output| match output {
        Output::List { ticket, known, .. } => Some((ticket, known)),
        _ => None,
    });
    let (ticket, known) = requested.expect("a list is due");
    let rows = Rows::of(known, rows);
    let list = List {
        ticket,
        began: now,
        ended: now,
        rows: Ok(rows.clone()),
    };
    machine.handle_list(now, list);
    rows
}

fn at(second: u64) -> Instant {
    Instant::from_origin(Duration::from_secs(second))
}

/// A reconciler that polls and has seen these rows twice, and the rows of the second list.
fn listed(shown: Vec<Report>) -> (Reconciler, Rows) {
    let settings = Settings {
        mode: Mode::Polling,
        ..Settings::default()
    };
    let mut machine = Reconciler::new(settings, at(0)).unwrap();
    list(&mut machine, 1, shown.clone());
    let rows = list(&mut machine, 3, shown);
    (machine, rows)
}

#[test]
fn list_equal_to_the_last_one_is_not_applied() {
    let (mut machine, mut rows) = listed(rows(RUNNING));
    assert!(machine.records.are_unchanged_by(&rows));
    for second in [5, 7] {
        rows = list(&mut machine, second, self::rows(RUNNING));
        assert!(machine.records.are_unchanged_by(&rows), "{second}");
    }
    assert!(rows.new_rows().is_empty());
}

#[test]
fn only_rows_of_another_state_are_applied() {
    let (mut machine, same) = listed(rows(RUNNING));
    assert_eq!(machine.confirm_rows(&same, at(4)), []);
    let changed = Rows::of(same.known_ids(), rows(ReportedState::Exited));
    let applied = machine.confirm_rows(&changed, at(4));
    assert_eq!(applied, [(&"b".into(), ReportedState::Exited)]);
}

#[test]
fn status_that_repeats_the_record_is_not_applied() {
    let (mut machine, _) = listed(rows(RUNNING));
    let context = Context {
        now: at(4),
        arrived: at(4),
        plausible: true,
        pod: None,
    };
    for (shown, repeats) in [(RUNNING, true), (ReportedState::Exited, false)] {
        let status = row(Kind::Container, "b", shown);
        assert_eq!(machine.is_repetition(&context, &status), repeats);
    }
}
