//! Changes of the resources of running containers.

use pleg::ContainerStatus;
use pleg::core::Resources;

use super::{Decision, ResizeContainer};
use crate::spec::ContainerSpec;

impl Decision<'_> {
    /// Changes the resources of a running container if the runtime reports others than its specification's.
    pub(super) fn resize(&mut self, container: &ContainerSpec, status: &ContainerStatus) {
        let (Some(wanted), Some(actual)) = (&container.resources, &status.details.resources) else {
            return;
        };
        if has(actual, wanted) {
            return;
        }
        if let Some((at, repeat_at)) = self.history.resized(&status.id, wanted) {
            if self.view.details_as_of <= Some(at) && !self.history.is_given_up(at) {
                // The status is from before the change.
                return self.inspect(Some(at));
            }
            // The call failed, or the runtime rounded the values.
            if repeat_at > self.now {
                return self.actions.due_by(repeat_at);
            }
        }
        self.actions.resize.push(ResizeContainer {
            id: status.id.clone(),
            name: status.name.to_string(),
            to: wanted.clone(),
        });
    }
}

/// Returns true if all resources that are set in `wanted` are in effect.
fn has(actual: &Resources, wanted: &Resources) -> bool {
    let same = |wanted: i64, actual: i64| wanted <= 0 || wanted == actual;
    same(wanted.cpu_shares, actual.cpu_shares)
        && same(wanted.cpu_quota, actual.cpu_quota)
        && same(wanted.memory_limit, actual.memory_limit)
}
