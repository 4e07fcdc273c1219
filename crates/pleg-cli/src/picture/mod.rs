//! The one picture of a node: [`host`] and [`runtime`] collect evidence, plain data that can be recorded, and
//! [`finding`] judges it. Every command and page shows these findings; none has words of its own.

pub(crate) mod finding;
pub(crate) mod host;
pub(crate) mod runtime;
