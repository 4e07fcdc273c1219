//! The mini-kubelet `static_pods`, an example of `pleg-kubelet`, as a process on a private daemon.
//!
//! [`process`] runs it, [`manifests`] are its pods, and [`poller`] observes the runtime without it. The
//! checks: [`crashes`] while the test kills daemon and kubelet, and the [`growth`] of the process over hours.

pub mod crashes;
pub mod growth;
pub mod manifests;
pub mod poller;
pub mod process;
