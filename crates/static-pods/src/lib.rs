//! A standalone kubelet for the manifests of a directory: `static_pods`.
//!
//! `static_pods` connects the parts of `pleg-kubelet`, and shows how to use them. [`kubelet`] has the worker of a pod.
//! [`manifest`] reads the directory. [`validation`] has the checks of upstream's API server, because no API server has
//! checked a manifest. [`admission`] decides if the node can run a pod. [`node_status`] makes the node's Ready
//! condition. [`process`] has the log and the signals.

pub mod admission;
pub mod credentials;
mod host_ports;
pub mod kubelet;
pub mod manifest;
pub mod node_status;
pub mod process;
pub mod validation;

/// Compiles the code in the guide, docs/kubelet.md.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/kubelet.md")]
mod guide {}
