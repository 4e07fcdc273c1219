//! The reconciler without tasks, clock or runtime: observations go in, outputs come out.
//!
//! ```console
//! $ cargo run -p pleg-core --example reconciler
//! ```

#![allow(clippy::print_stdout, reason = "an example")]

use std::time::Duration;

use pleg_core::{
    Details, Identity, Instant, Kind, List, Output, Reconciler, Report, ReportedState, Rows,
    Settings,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let now = Instant::from_nanos(1);
    let mut reconciler = Reconciler::new(Settings::default(), now)?;

    // First it asks for a list of the node. It performs nothing itself.
    let (ticket, known) = loop {
        match reconciler.poll_output() {
            Some(Output::List { ticket, known, .. }) => break (ticket, known),
            Some(other) => println!("{other:?}"),
            None => return Err("no list was requested".into()),
        }
    };

    // The answer shows one sandbox. Time is an argument.
    let mut identity = Identity::new(Kind::Sandbox);
    identity.pod = Some("pod-1".into());
    identity.pod_name = Some("web".into());
    let details = Details::none(Kind::Sandbox);
    let sandbox = Report::new("s1", ReportedState::Running, identity, details);
    let ended = now.after(Duration::from_millis(5));
    let list = List {
        ticket,
        began: now,
        ended,
        rows: Ok(Rows::of(known, [sandbox])),
    };
    reconciler.handle_list(ended, list);

    // It publishes what the list showed, and asks for the statuses before it announces that.
    while let Some(output) = reconciler.poll_output() {
        println!("{output:?}");
    }
    println!("next work is due at {:?}", reconciler.poll_timeout());
    Ok(())
}
