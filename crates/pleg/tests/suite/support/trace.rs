//! Records spans and log lines of the present thread, so that tests can check them.

use std::sync::{Arc, Mutex};

use tracing::dispatcher::{DefaultGuard, Dispatch};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::NoSubscriber;
use tracing::{Event, Level, Metadata, Subscriber};

/// Records spans as `name pod`, and log lines that name a call as `LEVEL pod call message`.
#[derive(Clone)]
pub(crate) struct Trace {
    most: Level,
    lines: Arc<Mutex<Vec<String>>>,
}

#[derive(Default)]
struct Fields {
    call: String,
    pod: String,
    message: String,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let text = format!("{value:?}");
        match field.name() {
            "call" => self.call = text,
            "pod" => self.pod = text,
            "message" => self.message = text,
            _ => {}
        }
    }
}

impl Trace {
    /// Records spans and lines up to level `most` until the returned guards are dropped.
    ///
    /// The second subscriber records nothing. With only one subscriber, tracing decides once per log statement if it is
    /// enabled: in the first thread that runs it. That may be the thread of another test, which has no subscriber.
    pub(crate) fn start(most: Level) -> (Self, (Dispatch, DefaultGuard)) {
        let lines = Arc::default();
        let trace = Self { most, lines };
        let second = Dispatch::new(NoSubscriber::new());
        let default = tracing::subscriber::set_default(trace.clone());
        (trace, (second, default))
    }

    /// Takes the lines, in alphabetical order.
    pub(crate) fn take(&self) -> Vec<String> {
        let mut lines = std::mem::take(&mut *self.lines.lock().unwrap());
        lines.sort();
        lines
    }

    fn push(&self, line: String) {
        self.lines.lock().unwrap().push(line);
    }
}

impl Subscriber for Trace {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.most
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields::default();
        span.record(&mut fields);
        let line = format!("{} {}", span.metadata().name(), fields.pod);
        self.push(line.trim_end().to_owned());
        Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let Fields { call, pod, message } = fields;
        if !call.is_empty() {
            let level = event.metadata().level();
            self.push(format!("{level} {pod} {call} {message}"));
        }
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
