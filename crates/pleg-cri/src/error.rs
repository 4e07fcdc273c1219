//! Converts the gRPC status of a failed call to a [`CallError`] that names the operation.
//!
//! A status that the client's transport generated has an error source; a status that the runtime sent has none. The
//! source is more reliable than the status code: a broken connection is reported as `Unknown`, `Cancelled` or
//! `Internal`, depending on when it breaks (quirk `codes of a lost connection`).

use std::error::Error;
use std::io;
use std::time::Duration;

use pleg_runtime::core::{CallError, CallErrorKind};
use tonic::{Code, Status};

use crate::metrics::Operation;

/// The maximum length of an error message, in characters.
const MAX_MESSAGE: usize = 1000;

pub(crate) fn call_error(operation: Operation, status: &Status) -> CallError {
    CallError::new(operation.name, kind(status), message(status))
}

pub(crate) fn timed_out(operation: Operation, deadline: Duration) -> CallError {
    let message = format!("no response within {deadline:?}");
    CallError::new(operation.name, CallErrorKind::DeadlineExceeded, message)
}

/// The error for a response that is not valid.
pub(crate) fn malformed(operation: Operation, message: &str) -> CallError {
    CallError::new(operation.name, CallErrorKind::Malformed, clean(message))
}

pub(crate) fn no_connection(operation: Operation, error: &io::Error) -> CallError {
    CallError::new(
        operation.name,
        io_kind(error),
        with_cause(&error.to_string(), error),
    )
}

/// Returns true if the transport, not the runtime, generated this status.
pub(crate) fn is_from_transport(status: &Status) -> bool {
    status.source().is_some()
}

fn kind(status: &Status) -> CallErrorKind {
    if let Some(source) = status.source() {
        // A tower layer returned this error.
        if let Some(error) = chain(source).find_map(|error| error.downcast_ref::<CallError>()) {
            return error.kind;
        }
        let io = chain(source).find_map(|error| error.downcast_ref::<io::Error>());
        return io.map_or(CallErrorKind::Unavailable, io_kind);
    }
    let contains = |text: &str| status.message().contains(text);
    match status.code() {
        Code::NotFound => CallErrorKind::NotFound,
        Code::DeadlineExceeded => CallErrorKind::DeadlineExceeded,
        // Quirk `starting`. An `Unavailable` with any other message becomes `Failed`: it may concern only one pod.
        Code::Unknown | Code::Unavailable if contains("server is not initialized yet") => {
            CallErrorKind::Unavailable
        }
        Code::Unimplemented => CallErrorKind::Unimplemented,
        // The messages of tonic's decoder, of `lists.rs` and of grpc-go for a response that is too large.
        Code::OutOfRange if contains("message length too large") => CallErrorKind::TooLarge,
        Code::OutOfRange if contains("the list has more than") => CallErrorKind::TooLarge,
        Code::ResourceExhausted if contains("larger than max") => CallErrorKind::TooLarge,
        Code::PermissionDenied | Code::Unauthenticated => CallErrorKind::PermissionDenied,
        // tonic's messages for a response that cannot be decoded.
        Code::Internal
            if contains("failed to decode Protobuf message")
                || contains("protocol error")
                || contains("Missing response message") =>
        {
            CallErrorKind::Malformed
        }
        _ => CallErrorKind::Failed,
    }
}

fn io_kind(error: &io::Error) -> CallErrorKind {
    match error.kind() {
        io::ErrorKind::PermissionDenied => CallErrorKind::PermissionDenied,
        _ => CallErrorKind::Unavailable,
    }
}

/// The message of a gRPC status, followed by the root cause if the transport generated the status.
fn message(status: &Status) -> String {
    let message = match status.message() {
        "" => status.code().description(),
        message => message,
    };
    with_cause(message, status)
}

/// Appends the root cause of an error to its message.
pub(crate) fn with_cause(message: &str, error: &(dyn Error + 'static)) -> String {
    let cause = error.source().and_then(|source| chain(source).last());
    match cause.map(ToString::to_string) {
        Some(cause) if cause != message => clean(&format!("{message}: {cause}")),
        _ => clean(message),
    }
}

fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| {
        (*error).source()
    })
}

/// Reduces a text to a single line of bounded length, because texts of a runtime may be logged or printed on
/// a terminal.
pub(crate) fn clean(text: &str) -> String {
    let text = text.trim();
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    let first = text.chars().take(MAX_MESSAGE);
    let mut clean: String = first.map(printable).collect();
    if clean.len() < text.len() {
        clean.push('…');
    }
    clean
}

#[cfg(test)]
mod tests {
    use CallErrorKind::{
        DeadlineExceeded, Failed, Malformed, NotFound, PermissionDenied, TooLarge, Unavailable,
        Unimplemented,
    };

    use super::*;

    fn kind_of(code: Code, message: &str) -> CallErrorKind {
        call_error(Operation::VERSION, &Status::new(code, message)).kind
    }

    #[test]
    fn grpc_status_from_runtime_is_converted_to_its_error_kind() {
        for (code, message, kind) in [
            (Code::NotFound, "no such container", NotFound),
            (
                Code::DeadlineExceeded,
                "context deadline exceeded",
                DeadlineExceeded,
            ),
            (
                Code::Unavailable,
                "server is not initialized yet",
                Unavailable,
            ),
            (Code::Unknown, "server is not initialized yet", Unavailable),
            (Code::Unknown, "shim gone", Failed),
            (Code::Unavailable, "sandboxer down", Failed),
            (Code::Cancelled, "context canceled", Failed),
            (Code::Unimplemented, "unknown service", Unimplemented),
            (
                Code::ResourceExhausted,
                "grpc: trying to send message larger than max (17 vs. 16)",
                TooLarge,
            ),
            (Code::ResourceExhausted, "no space left on device", Failed),
            (
                Code::OutOfRange,
                "Error, decoded message length too large: found 9 bytes, the limit is: 8 bytes",
                TooLarge,
            ),
            (Code::OutOfRange, "exit code", Failed),
            (Code::PermissionDenied, "", PermissionDenied),
            (
                Code::Internal,
                "failed to decode Protobuf message: x",
                Malformed,
            ),
            (Code::Internal, "panic", Failed),
        ] {
            assert_eq!(kind_of(code, message), kind, "{code:?} {message}");
        }
    }

    #[test]
    fn lost_connection_becomes_unavailable_with_any_grpc_code() {
        for code in [Code::Unknown, Code::Cancelled, Code::Internal] {
            let mut status = Status::new(code, "error reading a body from connection");
            status.set_source(std::sync::Arc::new(io::Error::from(
                io::ErrorKind::BrokenPipe,
            )));
            let error = call_error(Operation::LIST_CONTAINERS, &status);
            assert_eq!(error.kind, Unavailable, "{code:?}");
            assert_eq!(error.operation, "ListContainers");
        }
    }

    #[test]
    fn permission_denied_on_connect_has_its_own_error_kind() {
        let mut status = Status::unavailable("transport error");
        status.set_source(std::sync::Arc::new(io::Error::from_raw_os_error(13)));
        let error = call_error(Operation::VERSION, &status);
        assert_eq!(error.kind, PermissionDenied);
        assert_eq!(
            &*error.message,
            "transport error: Permission denied (os error 13)"
        );
    }

    #[test]
    fn error_message_is_one_line_of_bounded_length() {
        assert_eq!(clean("a\n\x1b[31mb"), "a  [31mb");
        let long = clean(&"é".repeat(5000));
        assert_eq!(long.chars().count(), MAX_MESSAGE + 1);
    }
}
