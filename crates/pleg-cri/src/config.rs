//! The settings of the client and their validation.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::endpoint::Endpoint;

/// The settings of a [`CriRuntime`](crate::CriRuntime) and a [`CriClient`](crate::CriClient).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CriConfig {
    /// The socket of the runtime.
    pub endpoint: Endpoint,
    /// The deadline of every unary call and list. Callers may set shorter deadlines; this one makes every call end.
    /// [`CriClient`](crate::CriClient) derives the longer deadlines of some calls from it. Default: 2 min, as in the
    /// kubelet (`runtimeRequestTimeout`).
    pub call_deadline: Duration,
    /// The deadline of a pull. Default: 30 min; the kubelet has none.
    pub pull_deadline: Duration,
    /// The maximum size of a received message, in bytes. Default: 16 MiB, as in the kubelet. containerd sends at most
    /// 16 MiB, CRI-O up to 80 MiB.
    pub message_limit: usize,
    /// The maximum number of response bytes buffered over all calls. One response at a time may exceed this number.
    /// Further responses wait until others are complete. Event streams do not count. Default: 32 MiB.
    pub receive_budget: usize,
    /// If true, the client uses only unary lists, as a kubelet without the feature `CRIListStreaming`. Default: false.
    pub unary_lists: bool,
    /// If true, every status in an event is decoded in full. If false, the client decodes only the pod's identity and
    /// the status that the event is about (without annotations); lists and status calls show all else. Default: false.
    pub whole_events: bool,
}

impl CriConfig {
    const CALL_DEADLINE: RangeInclusive<Duration> =
        Duration::from_millis(10)..=Duration::from_secs(3600);
    const PULL_DEADLINE: RangeInclusive<Duration> =
        Duration::from_millis(10)..=Duration::from_secs(24 * 3600);
    const RECEIVE_BUDGET: RangeInclusive<usize> = 1 << 20..=1 << 30;
    const MESSAGE_LIMIT: RangeInclusive<usize> = 1 << 20..=80 << 20;

    /// The default settings for an endpoint.
    pub const fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            call_deadline: Duration::from_secs(120),
            pull_deadline: Duration::from_secs(30 * 60),
            message_limit: 16 << 20,
            receive_budget: 32 << 20,
            unary_lists: false,
            whole_events: false,
        }
    }

    /// Sets the deadline of calls.
    #[must_use]
    pub const fn with_call_deadline(mut self, deadline: Duration) -> Self {
        self.call_deadline = deadline;
        self
    }

    /// Sets the deadline of a pull.
    #[must_use]
    pub const fn with_pull_deadline(mut self, deadline: Duration) -> Self {
        self.pull_deadline = deadline;
        self
    }

    /// Sets the message limit.
    #[must_use]
    pub const fn with_message_limit(mut self, bytes: usize) -> Self {
        self.message_limit = bytes;
        self
    }

    /// Sets the budget for the bytes of responses.
    #[must_use]
    pub const fn with_receive_budget(mut self, bytes: usize) -> Self {
        self.receive_budget = bytes;
        self
    }

    /// Never uses streaming lists.
    #[must_use]
    pub const fn with_unary_lists(mut self) -> Self {
        self.unary_lists = true;
        self
    }

    /// Decodes every status in an event, with labels and annotations.
    #[must_use]
    pub const fn with_whole_events(mut self) -> Self {
        self.whole_events = true;
        self
    }

    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        if !Self::CALL_DEADLINE.contains(&self.call_deadline) {
            return Err(ConfigError::CallDeadline(self.call_deadline));
        }
        if !Self::PULL_DEADLINE.contains(&self.pull_deadline) {
            return Err(ConfigError::PullDeadline(self.pull_deadline));
        }
        if !Self::MESSAGE_LIMIT.contains(&self.message_limit) {
            return Err(ConfigError::MessageLimit(self.message_limit));
        }
        if !Self::RECEIVE_BUDGET.contains(&self.receive_budget) {
            return Err(ConfigError::ReceiveBudget(self.receive_budget));
        }
        Ok(())
    }
}

/// The reason why a client cannot be created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The call deadline is out of range.
    #[error("the call deadline is {0:?}; it must be between 10 ms and 1 h")]
    CallDeadline(Duration),
    /// The deadline of a pull is out of range.
    #[error("the deadline of a pull is {0:?}; it must be between 10 ms and 24 h")]
    PullDeadline(Duration),
    /// The message limit is out of range.
    #[error("the message limit is {0} bytes; it must be between 1 MiB and 80 MiB")]
    MessageLimit(usize),
    /// The receive budget is out of range.
    #[error("the receive budget is {0} bytes; it must be between 1 MiB and 1 GiB")]
    ReceiveBudget(usize),
    /// There is no tokio runtime. Connections run as tokio tasks.
    #[error("there is no tokio runtime: create the CRI client inside of one")]
    NoRuntime,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_settings_out_of_range_are_an_error() {
        let config = CriConfig::new("/run/x.sock".parse().unwrap());
        assert_eq!(config.validate(), Ok(()));
        assert_eq!(
            config.clone().with_message_limit(80 << 20).validate(),
            Ok(())
        );
        for limit in [0, (1 << 20) - 1, (80 << 20) + 1, usize::MAX] {
            let config = config.clone().with_message_limit(limit);
            assert_eq!(config.validate(), Err(ConfigError::MessageLimit(limit)));
        }
        for budget in [0, (1 << 20) - 1, (1 << 30) + 1] {
            let config = config.clone().with_receive_budget(budget);
            assert_eq!(config.validate(), Err(ConfigError::ReceiveBudget(budget)));
        }
        for deadline in [Duration::ZERO, Duration::from_secs(3601), Duration::MAX] {
            let config = config.clone().with_call_deadline(deadline);
            assert_eq!(config.validate(), Err(ConfigError::CallDeadline(deadline)));
        }
        for deadline in [Duration::ZERO, Duration::from_secs(24 * 3600 + 1)] {
            let config = config.clone().with_pull_deadline(deadline);
            assert_eq!(config.validate(), Err(ConfigError::PullDeadline(deadline)));
        }
    }
}
