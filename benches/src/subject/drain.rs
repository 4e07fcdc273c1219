//! The subject `runtime-alone`, which has no PLEG: the client receives and decodes events, and drops them.

use anyhow::{Context as _, Result, bail};
use pleg_cri::CriRuntime;
use pleg_cri::v1::{self, ContainerEventType as EventType};
use pleg_runtime::clock::wall;

use super::Orders;
use crate::LiveBytes;
use crate::protocol::{Answer, ContainerChange, Order};

/// Runs until the harness closes stdin.
pub(super) async fn drain(
    runtime: &CriRuntime,
    mut orders: Orders,
    live_bytes: LiveBytes,
) -> Result<()> {
    let mut client = runtime.runtime_client();
    let events = client.get_container_events(v1::GetEventsRequest {}).await?;
    let mut events = events.into_inner();
    let (mut count, mut seen) = (0, Vec::new());
    // The number of events to wait for.
    let mut awaited = None;
    loop {
        let order = tokio::select! {
            event = events.message() => {
                count += 1;
                seen.extend(change(&event?.context("the event stream ended")?));
                if awaited.is_some_and(|awaited| count >= awaited) {
                    awaited = None;
                    let at = Some(wall().as_nanos());
                    Orders::answer(&Answer { at, ..Answer::now(live_bytes) })?;
                }
                continue;
            }
            order = orders.next() => order?,
        };
        let mut answer = Answer::now(live_bytes);
        match order {
            None => return Ok(()),
            Some(Order::Use) => {}
            Some(Order::Record) => seen.clear(),
            Some(Order::Seen) => answer.seen = std::mem::take(&mut seen),
            Some(Order::Await { events, .. }) => {
                count = 0;
                Orders::answer(&answer)?;
                if events > 0 {
                    awaited = Some(events);
                    continue;
                }
                answer.at = Some(wall().as_nanos());
            }
            Some(other) => bail!("this subject does not support {other:?}"),
        }
        Orders::answer(&answer)?;
    }
}

/// The death or start of a container that the event reports.
fn change(event: &v1::ContainerEventResponse) -> Option<ContainerChange> {
    let died = match event.container_event_type() {
        EventType::ContainerStoppedEvent => true,
        EventType::ContainerStartedEvent => false,
        _ => return None,
    };
    let mut containers = event.containers_statuses.iter();
    let container = containers.find(|c| c.id == event.container_id)?;
    Some(ContainerChange {
        id: container.id.clone(),
        died,
        at: wall().as_nanos(),
    })
}
