//! How to talk to a runtime: validated settings.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::endpoint::Endpoint;

/// How to talk to a runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CriConfig {
    /// Where it listens.
    pub endpoint: Endpoint,
    /// How long any unary call or list may take. Callers have shorter deadlines of their own,
    /// which they shorten and lengthen by what they measure; this one only sees to it that every
    /// call ends. Default: 2 min, as upstream.
    pub call_deadline: Duration,
    /// The largest message that is accepted, in bytes. Default: 16 MiB, as upstream and as
    /// containerd sends at most; CRI-O sends up to 80 MiB.
    pub message_limit: usize,
}

impl CriConfig {
    const CALL_DEADLINE: RangeInclusive<Duration> =
        Duration::from_millis(10)..=Duration::from_secs(3600);
    const MESSAGE_LIMIT: RangeInclusive<usize> = 1 << 20..=80 << 20;

    /// The defaults, for that endpoint.
    pub const fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            call_deadline: Duration::from_secs(120),
            message_limit: 16 << 20,
        }
    }

    /// Another deadline of a call.
    #[must_use]
    pub const fn with_call_deadline(mut self, deadline: Duration) -> Self {
        self.call_deadline = deadline;
        self
    }

    /// Another message limit.
    #[must_use]
    pub const fn with_message_limit(mut self, bytes: usize) -> Self {
        self.message_limit = bytes;
        self
    }

    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        if !Self::CALL_DEADLINE.contains(&self.call_deadline) {
            return Err(ConfigError::CallDeadline(self.call_deadline));
        }
        if !Self::MESSAGE_LIMIT.contains(&self.message_limit) {
            return Err(ConfigError::MessageLimit(self.message_limit));
        }
        Ok(())
    }
}

/// A setting that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The deadline of a call.
    #[error("the deadline of a call is {0:?}: it must be within 10 ms and 1 h")]
    CallDeadline(Duration),
    /// The message limit.
    #[error("the message limit is {0} bytes: it must be within 1 MiB and 80 MiB")]
    MessageLimit(usize),
    /// A connection lives in tasks of a tokio runtime, and there is none around.
    #[error("a CRI client can only be made inside a tokio runtime")]
    NoRuntime,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sane_settings_are_taken() {
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
        for deadline in [Duration::ZERO, Duration::from_secs(3601), Duration::MAX] {
            let config = config.clone().with_call_deadline(deadline);
            assert_eq!(config.validate(), Err(ConfigError::CallDeadline(deadline)));
        }
    }
}
