//! What is recorded of each id and each pod, and the rules by which an observation changes it.

pub(crate) mod announced;
pub(crate) mod awaited;
pub(crate) mod details;
pub(crate) mod effect;
pub(crate) mod evidence;
pub(crate) mod order;
pub(crate) mod pod;
pub(crate) mod record;
pub(crate) mod records;
pub(crate) mod reports;
pub(crate) mod terminal;
pub(crate) mod tombstones;
