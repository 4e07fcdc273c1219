//! Classifies the end of a stream by how far the stream came: no connection, call refused, call open, event delivered.
//!
//! Status codes are not reliable: tonic returns `Unknown` for a lost connection, containerd 1.7
//! returns `Unknown` for "not initialized yet", and CRI-O ends a disabled stream with OK. The
//! reader relies on three outcomes only: OK, `Unimplemented`, and a message over the size limit.

use pleg_runtime::core::{CallError, CallErrorKind, StreamEnd};

/// Classifies a failed dial: no subscribe call was issued.
pub(crate) fn of_dial(error: CallError) -> StreamEnd {
    match error.kind {
        CallErrorKind::Unimplemented => StreamEnd::Declined(error),
        _ => StreamEnd::Refused(error),
    }
}

/// Classifies the end of a subscribe call. `delivered`: an event arrived on it. `at_once`: it ended right after it was
/// issued. `error`: `None` if it ended with OK.
pub(crate) fn of_call(delivered: bool, at_once: bool, error: Option<CallError>) -> StreamEnd {
    match error {
        error if delivered => StreamEnd::Ended(error),
        None if at_once => StreamEnd::Disabled,
        None => StreamEnd::Ended(None),
        Some(error) if error.kind == CallErrorKind::Unimplemented => StreamEnd::NeverOffered,
        // An event arrived, but exceeded our size limit.
        Some(error) if error.kind == CallErrorKind::TooLarge => StreamEnd::Ended(Some(error)),
        Some(error) if at_once => StreamEnd::Refused(error),
        Some(error) => StreamEnd::Cut(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(kind: CallErrorKind) -> CallError {
        CallError::new("GetContainerEvents", kind, "server is not initialized yet")
    }

    #[test]
    fn stream_end_kind_depends_on_error_timing_and_delivery() {
        use CallErrorKind::{Failed, TooLarge, Unavailable, Unimplemented};
        let (never, disabled) = (StreamEnd::NeverOffered, StreamEnd::Disabled);
        let ended = |kind: Option<_>| StreamEnd::Ended(kind.map(error));
        for (delivered, at_once, kind, end) in [
            (false, true, None, disabled),
            (false, false, None, ended(None)),
            (true, true, None, ended(None)),
            (false, true, Some(Unimplemented), never.clone()),
            (false, false, Some(Unimplemented), never),
            (true, false, Some(Unimplemented), ended(Some(Unimplemented))),
            (
                false,
                true,
                Some(Unavailable),
                StreamEnd::Refused(error(Unavailable)),
            ),
            (false, true, Some(Failed), StreamEnd::Refused(error(Failed))),
            (
                false,
                false,
                Some(Unavailable),
                StreamEnd::Cut(error(Unavailable)),
            ),
            (false, false, Some(Failed), StreamEnd::Cut(error(Failed))),
            (true, true, Some(Unavailable), ended(Some(Unavailable))),
            (false, true, Some(TooLarge), ended(Some(TooLarge))),
            (false, false, Some(TooLarge), ended(Some(TooLarge))),
        ] {
            assert_eq!(of_call(delivered, at_once, kind.map(error)), end);
        }
        assert_eq!(of_dial(error(Failed)), StreamEnd::Refused(error(Failed)));
        let declined = StreamEnd::Declined(error(Unimplemented));
        assert_eq!(of_dial(error(Unimplemented)), declined);
    }
}
