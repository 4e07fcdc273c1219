//! Upstream's scenarios of the generic PLEG, G1 to G19 (generic_test.go of Kubernetes 1.36.2), on the reconciler in
//! `Polling` mode. If an invariant requires another result, the deviation is described beside the test, and the test
//! asserts our result. The catalogue of failures has G20, G4
//! (TestEventChannelFull) as C3, G10 (TestHealthy) as C11, G13 (TestRelistIPChange) as E3 and G17 as the end of B15.
//!
//! In all of them: upstream's tests use the container id c1 in two pods; here ids are unique on the node, as a
//! runtime's ids are. At each announcement the script checks that the cache shows it already. What the first relist
//! shows is announced as `initial`; upstream does not distinguish it.

mod generic;
mod reinspection;
mod worker_loop;
