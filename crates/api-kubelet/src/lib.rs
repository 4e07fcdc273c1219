//! A kubelet for the pods that an API server assigns to this node: its watch, statuses, node object and lease, on top
//! of `pleg-kubelet`. [`run`] puts these parts together. docs/kubelet.md lists what is missing for production.

mod kubelet;
mod node;
mod pods;
pub mod run;
mod status;
