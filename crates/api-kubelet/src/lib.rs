//! A kubelet for the pods that an API server assigns to this node: what remains to be written on top of `pleg-kubelet`.
//!
//! [`node`] registers the node and renews its lease, [`pods`] follows the pods of the node, [`kubelet`] is the worker of a
//! pod, and [`status`] tells the API server how a pod is. docs/kubelet.md says what is missing for production.

pub mod kubelet;
pub mod node;
pub mod pods;
pub mod status;
