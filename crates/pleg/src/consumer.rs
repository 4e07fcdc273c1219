//! Consumers that acknowledge terminal records (invariant 9).

use std::collections::BTreeMap;
use std::convert::Infallible;

use pleg_core::{ConsumerId, Id, Reconciler, Text};

use crate::requests::Command;
use crate::sync::{mpsc, oneshot};

/// A consumer for which terminal records are kept until it has acknowledged them. Made by
/// [`Builder::register_consumer`](crate::Builder::register_consumer) or
/// [`Pleg::register_consumer`](crate::Pleg::register_consumer).
///
/// The terminal record of each end that is announced while it is registered is kept until it, and
/// every other consumer that was registered then, has acknowledged the record. Consumers do not
/// extend the bounds: the records of ids that exist, and the last three others per (pod, container
/// name), at most until the pod has been gone for ten minutes.
///
/// Dropping it unregisters the consumer. Records that it did not acknowledge stay within the bounds.
#[derive(Debug)]
pub struct Consumer {
    registered: Registered,
    commands: mpsc::Sender<Command>,
}

/// The consumer's half of its registration. The writer sees when it is dropped.
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

    /// Acknowledges the terminal records of this id up to that
    /// [incarnation](crate::TerminalRecord::incarnation).
    ///
    /// It has no effect if the id has no record, or if it has one of a later incarnation: acknowledge that one
    /// when you have seen it.
    ///
    /// # Cancel safety
    /// Dropping the future may leave the records in place.
    pub async fn acknowledge(&self, id: &Id, incarnation: u32) {
        let acknowledge = Command::Acknowledge {
            consumer: self.registered.id,
            id: id.clone(),
            incarnation,
        };
        // A generator that has shut down keeps no records.
        let _ = self.commands.send(acknowledge).await;
    }
}

/// The registered consumers, for the writer.
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

    /// Brings the reconciler up to date: registers new consumers, and unregisters dropped ones.
    pub(crate) fn update(&mut self, machine: &mut Reconciler) {
        self.registered.retain(|&id, (name, dropped)| {
            let exists = !dropped.is_closed();
            match exists {
                true => machine.register(id, name),
                false => machine.unregister(id),
            }
            exists
        });
    }
}
