//! Spans: each read runs in one, at debug level.

use std::sync::{Arc, Mutex};

use pleg::core::Settings;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::support::{FakeRuntime, SECOND, soon, synced, trace_to};

/// Keeps the names of all spans, with the pod if they name one.
#[derive(Clone, Default)]
struct Names {
    debug: bool,
    opened: Arc<Mutex<Vec<String>>>,
}

struct Pod<'a>(&'a mut String);

impl Visit for Pod<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "pod" {
            self.0.push_str(&format!(" {value:?}"));
        }
    }
}

impl Subscriber for Names {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let level = if self.debug {
            Level::DEBUG
        } else {
            Level::INFO
        };
        metadata.is_span() && *metadata.level() <= level
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut name = span.metadata().name().to_owned();
        span.record(&mut Pod(&mut name));
        let mut opened = self.opened.lock().unwrap();
        opened.push(name);
        Id::from_u64(opened.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

async fn spans(debug: bool) -> Vec<String> {
    let names = Names {
        debug,
        ..Names::default()
    };
    let _guard = trace_to(names.clone());
    let node = FakeRuntime::new();
    node.run_pod("p");
    let pleg = synced(&node, Settings::default()).await;
    let uid = "p".into();
    soon(pleg.details_newer_than(&uid, pleg.now(), SECOND))
        .await
        .unwrap();
    let opened = names.opened.lock().unwrap();
    opened.clone()
}

#[tokio::test(start_paused = true)]
async fn reads_run_in_spans_that_name_the_pod() {
    let spans = spans(true).await;
    for span in ["pleg", "event_stream", "list", "list_pod p", "statuses"] {
        assert!(spans.iter().any(|s| s == span), "{span} in {spans:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_span_is_opened_above_debug_level() {
    assert_eq!(spans(false).await, Vec::<String>::new());
}
