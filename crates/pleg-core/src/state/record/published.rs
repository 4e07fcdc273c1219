//! The published form of a record: its status in the cache, and the texts of announcements.

use super::Record;
use crate::state::order::Position;
use crate::types::ids::Id;
use crate::types::lifecycle::LifecycleType;
use crate::types::report::Details;
use crate::types::status::{
    ContainerState, ContainerStatus, KnownState, SandboxState, SandboxStatus, Text,
};
use crate::types::time::WallTime;

impl Record {
    /// When this happened according to the runtime.
    pub(crate) fn happened_at(&self, event: LifecycleType) -> Option<WallTime> {
        match (event, &self.details) {
            (LifecycleType::ContainerStarted, Details::Container(c)) => c.started_at,
            (LifecycleType::ContainerStarted, Details::Sandbox(_)) => self.identity.created_at,
            (LifecycleType::ContainerDied, Details::Container(c)) => c.finished_at,
            (LifecycleType::ContainerChanged, _) if self.position == Some(Position::Created) => {
                self.identity.created_at
            }
            (LifecycleType::ContainerRemoved, _) => self.removal().removed_at,
            _ => None,
        }
    }

    pub(crate) fn exit_code(&self) -> Option<i32> {
        match &self.details {
            Details::Container(c) => c.exit_code,
            Details::Sandbox(_) => None,
        }
    }

    pub(crate) fn finished_at(&self) -> Option<WallTime> {
        match &self.details {
            Details::Container(c) => c.finished_at,
            Details::Sandbox(_) => None,
        }
    }

    pub(crate) fn reason(&self) -> Text {
        match &self.details {
            Details::Container(c) => c.reason.clone(),
            Details::Sandbox(_) => Text::default(),
        }
    }

    /// Whether it is a container that failed to start, for which no event is sent, or one that was
    /// removed before its status could be read.
    pub(crate) fn may_never_have_run(&self) -> bool {
        let Details::Container(c) = &self.details else {
            return false;
        };
        let failed_to_start = c.exit_code == Some(128) && &*c.reason == "StartError";
        let unread = self.is_removed() && c.exit_code.is_none() && c.started_at.is_none();
        failed_to_start || unread && self.source(Position::Running).is_none()
    }

    /// Its status, if it is a sandbox.
    pub(crate) fn sandbox_status(&self, id: &Id) -> Option<SandboxStatus> {
        let Details::Sandbox(details) = &self.details else {
            return None;
        };
        let ready = self.position.map(|p| p == Position::Running);
        let state = match ready {
            _ if self.is_unknown() || ready.is_none() => {
                SandboxState::Unknown { last_ready: ready }
            }
            Some(true) => SandboxState::Ready,
            _ => SandboxState::NotReady,
        };
        Some(SandboxStatus {
            id: id.clone(),
            state,
            unsettled: self.unsettled,
            error: self.error.clone(),
            attempt: self.identity.attempt,
            created_at: self.identity.created_at,
            details: details.clone(),
        })
    }

    /// Its status, if it is a container. `active`: whether it belongs to the active sandbox.
    pub(crate) fn container_status(&self, id: &Id, active: bool) -> Option<ContainerStatus> {
        let Details::Container(details) = &self.details else {
            return None;
        };
        let known = self.position.map(|p| match p {
            Position::Created => KnownState::Created,
            Position::Running => KnownState::Running,
            Position::Exited | Position::Removed => KnownState::Exited,
        });
        let state = match known {
            Some(KnownState::Created) if !self.is_unknown() => ContainerState::Created,
            Some(KnownState::Running) if !self.is_unknown() => ContainerState::Running,
            Some(KnownState::Exited) if !self.is_unknown() => ContainerState::Exited,
            last => ContainerState::Unknown { last },
        };
        Some(ContainerStatus {
            id: id.clone(),
            name: self.identity.name.clone().unwrap_or_default(),
            state,
            unsettled: self.unsettled,
            error: self.error.clone(),
            active,
            sandbox: self.identity.sandbox.clone(),
            attempt: self.identity.attempt,
            created_at: self.identity.created_at,
            details: details.clone(),
        })
    }
}
