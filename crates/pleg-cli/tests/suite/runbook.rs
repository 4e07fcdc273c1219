//! `docs/runbook.md` explains every reason.

use pleg::core::{Degraded, NotReady};

#[test]
fn runbook_has_a_section_for_each_reason() {
    let runbook = include_str!("../../../../docs/runbook.md");
    // The findings about the host, the runtime and pods follow.
    let (runbook, _) = runbook.split_once("\n## Host, runtime and pods\n").unwrap();
    let headings = runbook.lines().filter_map(|l| l.strip_prefix("### "));
    let headings: Vec<&str> = headings.collect();
    let codes = [&NotReady::CODES[..], &Degraded::CODES[..]].concat();
    assert_eq!(headings, codes);
}
