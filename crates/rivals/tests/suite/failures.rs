//! Entries of the failure catalogue on upstream's designs and on ours: one scenario each, run on
//! both. That the port fails as upstream did is the evidence that the scenario can fail.

mod further;
mod read;
mod reported;
