//! What is shown of an id: its status in the cache, and the words of what is announced.

use std::sync::Arc;

use super::Record;
use crate::ids::Id;
use crate::lifecycle::LifecycleType;
use crate::observed::Details;
use crate::order::Position;
use crate::status::{
    ContainerState, ContainerStatus, KnownState, SandboxState, SandboxStatus, Text,
};
use crate::time::WallTime;

impl Record {
    /// When the runtime says that this happened.
    pub(crate) fn happened_at(&self, event: LifecycleType) -> Option<WallTime> {
        match (event, &self.details) {
            (LifecycleType::ContainerStarted, Details::Container(c)) => c.started_at,
            (LifecycleType::ContainerStarted, Details::Sandbox(_)) => self.identity.created_at,
            (LifecycleType::ContainerDied, Details::Container(c)) => c.finished_at,
            (LifecycleType::ContainerChanged, _) if self.position == Some(Position::Created) => {
                self.identity.created_at
            }
            (LifecycleType::ContainerRemoved, _) => self.grave().removed_at,
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

    /// A container that the runtime could not start: it never ran and no event is sent for it.
    pub(crate) fn failed_to_start(&self) -> bool {
        matches!(&self.details, Details::Container(c)
            if c.exit_code == Some(128) && &*c.reason == "StartError")
    }

    /// Its status; the one that was published before, if that says the same.
    pub(crate) fn sandbox_status(
        &self,
        id: &Id,
        before: Option<&Arc<SandboxStatus>>,
    ) -> Option<Arc<SandboxStatus>> {
        let Details::Sandbox(details) = &self.details else {
            return None;
        };
        let ready = self.position.map(|p| p == Position::Running);
        let state = match ready {
            _ if self.unknown.published || ready.is_none() => {
                SandboxState::Unknown { last_ready: ready }
            }
            Some(true) => SandboxState::Ready,
            _ => SandboxState::NotReady,
        };
        let (attempt, created_at) = (self.identity.attempt, self.identity.created_at);
        let same = |s: &&Arc<SandboxStatus>| {
            (s.state, s.attempt, s.created_at) == (state, attempt, created_at)
                && s.details == *details
        };
        if let Some(before) = before.filter(same) {
            return Some(before.clone());
        }
        Some(Arc::new(SandboxStatus {
            id: id.clone(),
            state,
            attempt,
            created_at,
            details: details.clone(),
        }))
    }

    /// Its status; the one that was published before, if that says the same.
    pub(crate) fn container_status(
        &self,
        id: &Id,
        active: bool,
        before: Option<&Arc<ContainerStatus>>,
    ) -> Option<Arc<ContainerStatus>> {
        let Details::Container(details) = &self.details else {
            return None;
        };
        let known = self.position.map(|p| match p {
            Position::Created => KnownState::Created,
            Position::Running => KnownState::Running,
            Position::Exited | Position::Removed => KnownState::Exited,
        });
        let state = match known {
            Some(KnownState::Created) if !self.unknown.published => ContainerState::Created,
            Some(KnownState::Running) if !self.unknown.published => ContainerState::Running,
            Some(KnownState::Exited) if !self.unknown.published => ContainerState::Exited,
            last => ContainerState::Unknown { last },
        };
        let (attempt, created_at) = (self.identity.attempt, self.identity.created_at);
        let (name, sandbox) = (&self.identity.name, &self.identity.sandbox);
        let same = |c: &&Arc<ContainerStatus>| {
            (c.state, c.active, c.attempt, c.created_at) == (state, active, attempt, created_at)
                && *c.name == *name.as_deref().unwrap_or_default()
                && c.sandbox == *sandbox
                && c.details == *details
        };
        if let Some(before) = before.filter(same) {
            return Some(before.clone());
        }
        Some(Arc::new(ContainerStatus {
            id: id.clone(),
            name: name.clone().unwrap_or_default(),
            state,
            active,
            sandbox: sandbox.clone(),
            attempt,
            created_at,
            details: details.clone(),
        }))
    }
}
