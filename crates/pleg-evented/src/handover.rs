//! The bounded channel from the reader to the writer.

use std::sync::Arc;

use pleg_runtime::core::{StreamObservation, StreamQueue};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::ReaderGauges;

/// A channel in which `capacity` observations may wait for the writer before the reader joins
/// them.
///
/// # Panics
/// If `capacity` is zero.
pub fn handover(capacity: usize) -> (ObservationSender, Observations) {
    let (sender, receiver) = mpsc::channel(capacity);
    let gauges = Arc::new(ReaderGauges::new(capacity));
    let sender = ObservationSender {
        sender,
        gauges: gauges.clone(),
    };
    let observations = Observations {
        receiver,
        gauges,
        taken: 0,
    };
    (sender, observations)
}

/// The reader's end.
#[derive(Debug)]
pub struct ObservationSender {
    sender: mpsc::Sender<StreamObservation>,
    pub(crate) gauges: Arc<ReaderGauges>,
}

/// The writer is gone.
pub(crate) struct Closed;

impl ObservationSender {
    /// Hands over as many observations as the channel has room for.
    pub(crate) fn hand_over(&self, queue: &mut StreamQueue) {
        while !queue.is_empty() {
            match self.sender.try_reserve() {
                Ok(room) => self.send(room, queue),
                Err(TrySendError::Full(()) | TrySendError::Closed(())) => break,
            }
        }
        self.gauges.show(queue);
    }

    /// Waits until the channel has room for one observation, and hands it over. Cancel safe.
    pub(crate) async fn hand_over_one(&self, queue: &mut StreamQueue) -> Result<(), Closed> {
        let room = self.sender.reserve().await.map_err(|_| Closed)?;
        self.send(room, queue);
        Ok(())
    }

    fn send(&self, room: mpsc::Permit<'_, StreamObservation>, queue: &mut StreamQueue) {
        if let Some(observation) = queue.pop() {
            // Before the observation is sent, so that its receiver knows whether more is queued. If
            // more is queued, another observation will be sent.
            self.gauges.handed(observation.at(), queue.len());
            room.send(observation);
        }
    }

    pub(crate) async fn closed(&self) {
        self.sender.closed().await;
    }
}

/// The writer's end.
///
/// An observation counts as handled as soon as the next one is requested.
#[derive(Debug)]
pub struct Observations {
    receiver: mpsc::Receiver<StreamObservation>,
    gauges: Arc<ReaderGauges>,
    taken: u64,
}

impl Observations {
    /// The next observation; `None` once the reader has ended. Cancel safe.
    pub async fn recv(&mut self) -> Option<StreamObservation> {
        self.gauges.handled(self.taken);
        let observation = self.receiver.recv().await?;
        self.taken += 1;
        Some(observation)
    }

    /// The next observation, if one waits.
    pub fn try_recv(&mut self) -> Option<StreamObservation> {
        self.gauges.handled(self.taken);
        let observation = self.receiver.try_recv().ok()?;
        self.taken += 1;
        Some(observation)
    }

    /// Whether more observations wait, in the channel or at the reader.
    pub fn more_wait(&self) -> bool {
        self.gauges.queued() > 0 || !self.receiver.is_empty()
    }

    /// The gauges of the reader.
    pub fn gauges(&self) -> Arc<ReaderGauges> {
        self.gauges.clone()
    }
}
