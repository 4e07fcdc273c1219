//! A standalone kubelet for the manifests of a directory: `static_pods`.
//!
//! It connects the parts of `pleg-kubelet`, and is an example of how to use them. [`kubelet`] is the worker of a pod,
//! [`manifest`] reads the directory, [`validation`] has the checks of upstream's API server, which no manifest has
//! passed, [`admission`] decides which pods the node can run, and [`node_status`] has the Ready condition of the node.

pub mod admission;
pub mod credentials;
mod host_ports;
pub mod kubelet;
pub mod manifest;
pub mod node_status;
pub mod validation;

/// The code of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/kubelet.md")]
mod guide {}
