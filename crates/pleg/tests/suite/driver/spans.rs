//! Each read runs in a tracing span at debug level.

use pleg::core::Settings;
use tracing::Level;

use crate::support::{FakeRuntime, SECOND, Trace, soon, synced};

async fn spans(most: Level) -> Vec<String> {
    let (trace, _guard) = Trace::start(most);
    let node = FakeRuntime::new();
    node.run_pod("p");
    let pleg = synced(&node, Settings::default()).await;
    let uid = "p".into();
    let read = pleg.details_newer_than(&uid, pleg.now(), SECOND);
    soon(read).await.unwrap();
    trace.take()
}

#[tokio::test(start_paused = true)]
async fn reads_run_in_spans_that_name_the_pod() {
    let spans = spans(Level::DEBUG).await;
    for span in ["pleg", "event_stream", "list", "list_pod p", "statuses"] {
        assert!(spans.iter().any(|s| s == span), "{span} in {spans:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_span_is_opened_if_debug_level_is_disabled() {
    assert_eq!(spans(Level::INFO).await, Vec::<String>::new());
}
