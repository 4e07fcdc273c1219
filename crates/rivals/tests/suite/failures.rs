//! Entries of the failure catalogue. Each scenario runs on upstream's design and on this project's
//! generator. The port fails as upstream does, which proves that the scenario can fail.

mod further;
mod read;
mod reported;
