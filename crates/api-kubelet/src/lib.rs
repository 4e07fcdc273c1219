//! A kubelet for the pods that an API server assigns to this node: what remains to be written on top of `pleg-kubelet`.
//! [`run`] puts the parts together. docs/kubelet.md lists what is missing for production.

mod kubelet;
mod node;
mod pods;
pub mod run;
mod status;
