//! The settings of `pleg agent`: flags, then environment variables, then a file.
//!
//! There is one schema, the flags. The file has a key for each flag, with the same name, and the
//! environment a variable: `--relist-period` is `relist-period` and `PLEG_RELIST_PERIOD`.

mod check;
mod file;
mod layers;

pub(crate) use check::{ConfigArgs, run};
pub(crate) use layers::parse;
