//! Consumers that acknowledge exit records.

use std::collections::BTreeMap;
use std::convert::Infallible;

use pleg_core::Text;

use crate::exit_records::{ConsumerId, Exit, ExitRecords};
use crate::requests::Command;
use crate::sync::{mpsc, oneshot};

/// A consumer that acknowledges exit records; the generator stores each record until the consumer has acknowledged it.
/// Made by [`Builder::register_consumer`](crate::Builder::register_consumer) or
/// [`Pleg::register_consumer`](crate::Pleg::register_consumer).
///
/// The generator stores the exit record of each end until every consumer that was registered at the announcement has
/// acknowledged it, within these bounds: a pod has at most 1,000 records; of its removed containers with the same name,
/// only the last three have records; and it has no records once it has been gone for ten minutes.
///
/// Dropping a `Consumer` unregisters it. Records that it did not acknowledge stay, within the bounds above.
#[derive(Debug)]
#[must_use = "dropping it unregisters the consumer"]
pub struct Consumer {
    registered: Registered,
    commands: mpsc::Sender<Command>,
}

/// A consumer's number, and its end of a channel: the driver unregisters the consumer after this end was dropped.
#[derive(Debug)]
pub(crate) struct Registered {
    id: ConsumerId,
    _exists: oneshot::Receiver<Infallible>,
}

impl Consumer {
    pub(crate) const fn new(registered: Registered, commands: mpsc::Sender<Command>) -> Self {
        Self {
            registered,
            commands,
        }
    }

    /// Acknowledges an exit record.
    ///
    /// Has no effect if the container has exited again since this exit: acknowledge the record of the new exit instead.
    ///
    /// # Cancel safety
    /// Dropping the future may leave the record unacknowledged.
    pub async fn acknowledge(&self, record: &Exit) {
        let acknowledge = Command::Acknowledge {
            consumer: self.registered.id,
            id: record.id.clone(),
            detected: record.detected,
        };
        // The send fails only if the generator has shut down: then no record awaits an acknowledgement.
        let _ = self.commands.send(acknowledge).await;
    }
}

/// The registered consumers, owned by the driver.
#[derive(Debug, Default)]
pub(crate) struct Consumers {
    registered: BTreeMap<ConsumerId, (Text, oneshot::Sender<Infallible>)>,
    last: u64,
}

impl Consumers {
    pub(crate) fn add(&mut self, name: Text) -> Registered {
        self.last += 1;
        let id = ConsumerId::new(self.last);
        let (dropped, exists) = oneshot::channel();
        self.registered.insert(id, (name, dropped));
        Registered {
            id,
            _exists: exists,
        }
    }

    /// Registers new consumers with the exit records. Unregisters dropped consumers if `is_idle` returns true because
    /// no request waits: a request may be a dropped consumer's last acknowledgement.
    pub(crate) fn update(&mut self, records: &mut ExitRecords, is_idle: impl Fn() -> bool) {
        self.registered.retain(|&id, (name, dropped)| {
            let exists = !dropped.is_closed() || !is_idle();
            match exists {
                true => records.register(id, name),
                false => records.unregister(id),
            }
            exists
        });
    }
}
