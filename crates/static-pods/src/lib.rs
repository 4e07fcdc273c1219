//! A standalone kubelet for the manifests of a directory: `static_pods`.
//!
//! It connects the parts of `pleg-kubelet`, and is an example of how to use them. [`kubelet`] is the worker of a pod,
//! [`manifest`] reads the directory, [`validation`] has the checks of upstream's API server, because no API server has
//! checked a manifest, [`admission`] decides which pods the node can run, and [`node_status`] has its Ready condition.

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
