//! A standalone kubelet for the manifests of a directory: `static_pods`.
//!
//! It is wiring of the parts of `pleg-kubelet` and an example of how to use them. [`kubelet`] is the worker of a pod,
//! [`manifest`] reads the directory, [`validation`] is what upstream's API server checks, because no API server has
//! checked a manifest, [`admission`] decides which pods the node can run, and [`node_status`] is what the node reports
//! about itself.

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
