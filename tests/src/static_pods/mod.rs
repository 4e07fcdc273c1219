//! Tests of the mini-kubelet `static_pods`, an example of `pleg-kubelet`. It runs as a process on a private containerd.
//!
//! [`process`] runs the mini-kubelet, [`manifests`] writes its manifests, and [`poller`] observes the runtime. The test
//! [`crashes`] kills the daemon and the mini-kubelet; [`growth`] measures the mini-kubelet's memory over hours.

pub mod crashes;
pub mod growth;
pub mod manifests;
pub mod poller;
pub mod process;
