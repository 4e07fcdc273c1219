//! A kubelet for the pods that an API server assigns to this node. It watches these pods, reports their statuses, and
//! maintains the node's object and lease. [`run`] starts all parts. docs/kubelet.md lists what production still needs.

mod kubelet;
mod node;
mod pods;
pub mod run;
mod status;
