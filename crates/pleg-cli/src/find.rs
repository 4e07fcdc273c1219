//! Finds the runtime of this node: from the command line, the environment, crictl's configuration, the kubelet's, or
//! the well-known sockets. If one of the first four names a socket, this socket is used even if it does not exist.

use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::{Context as _, anyhow};
use itertools::Itertools as _;
use pleg_cri::{Endpoint, well_known};
use serde::Deserialize;

use crate::text::enclosed;
use crate::{bounded, config, kubelet};

/// The variables of this program and of crictl for the endpoint. An empty value counts as unset.
pub(crate) const ENDPOINT_VARIABLES: [&str; 2] =
    ["PLEG_RUNTIME_ENDPOINT", "CONTAINER_RUNTIME_ENDPOINT"];
const CRICTL: &str = "/etc/crictl.yaml";

/// A runtime, and the flag, variable or file that named it.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
#[display("{endpoint} ({origin}{})", enclosed("; not examined: ", &others.join(", "), ""))]
pub(crate) struct Found {
    pub(crate) endpoint: Endpoint,
    pub(crate) origin: String,
    /// Well-known sockets of other runtimes.
    pub(crate) others: Vec<&'static str>,
}

impl Found {
    /// `root` is `/` except in tests.
    pub(crate) fn new(endpoint: Endpoint, origin: String, root: &Path) -> Self {
        let own = fs::canonicalize(below(root, endpoint.path())).unwrap_or_default();
        let others = sockets(root).into_iter().filter(|(real, _)| *real != own);
        Self {
            endpoint,
            origin,
            others: others.map(|(_, path)| path).collect(),
        }
    }
}

pub(crate) fn from_environment() -> anyhow::Result<Option<Found>> {
    let Some((name, value)) = config::variable(config::ENDPOINT) else {
        return Ok(None);
    };
    let endpoint = value.parse();
    let endpoint = endpoint.with_context(|| format!("invalid value of {name}"))?;
    let origin = format!("set by {name}");
    Ok(Some(Found::new(endpoint, origin, Path::new("/"))))
}

/// The runtime in crictl's configuration, or in the kubelet's configuration, or the first well-known socket.
pub(crate) fn search(root: &Path) -> anyhow::Result<Option<Found>> {
    let advice = "correct it, or set the runtime with -r unix:///path";
    let crictl = crictl_endpoint(&below(root, Path::new(CRICTL)));
    let crictl = crictl.with_context(|| format!("cannot use {CRICTL}; {advice}"))?;
    let kubelet = || {
        let (pid, endpoint) = kubelet::runtime_endpoint(root)?;
        Some((endpoint.parse().ok()?, format!("the kubelet's, pid {pid}")))
    };
    let socket = || Some((sockets(root).first()?.1.parse().ok()?, "found".to_owned()));
    let found = crictl.map(|endpoint| (endpoint, format!("set in {CRICTL}")));
    let found = found.or_else(kubelet).or_else(socket);
    Ok(found.map(|(endpoint, origin)| Found::new(endpoint, origin, root)))
}

/// The error if [`search`] finds nothing.
pub(crate) fn not_found() -> anyhow::Error {
    // Leaves out the paths below /var/run, which is nearly always a link to /run.
    let paths = well_known().iter().map(|known| known.path);
    let paths = Vec::from_iter(paths.filter(|path| !path.starts_with("/var/run/"))).join(", ");
    let [_, variable] = ENDPOINT_VARIABLES;
    anyhow!(
        "no container runtime found; tried {CRICTL}, the kubelet's endpoint, {paths}; set the \
         runtime's socket with -r unix:///path or {variable}, or use --sim for a simulated runtime"
    )
}

fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// The well-known sockets that exist, each with its canonical path and its well-known path. Lists each file only once.
fn sockets(root: &Path) -> Vec<(PathBuf, &'static str)> {
    let sockets = well_known().iter().filter_map(|known| {
        let real = fs::canonicalize(below(root, Path::new(known.path))).ok()?;
        let is_socket = fs::metadata(&real).ok()?.file_type().is_socket();
        is_socket.then_some((real, known.path))
    });
    sockets.unique_by(|(real, _)| real.clone()).collect()
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Crictl {
    runtime_endpoint: Option<String>,
}

fn crictl_endpoint(file: &Path) -> anyhow::Result<Option<Endpoint>> {
    let text = match bounded::read(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let crictl: Option<Crictl> = serde_saphyr::from_str(&text).map_err(|error| {
        // Shows only the first line of the error, because its other lines are an excerpt of the file.
        let error = error.to_string();
        let first = error.lines().next().unwrap_or_default();
        anyhow!("{}", first.trim_start_matches("error: "))
    })?;
    let named = crictl.and_then(|crictl| crictl.runtime_endpoint);
    let named = named.filter(|endpoint| !endpoint.is_empty());
    Ok(named.map(|endpoint| endpoint.parse()).transpose()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::host::tests::fake::FakeHost;
    use std::os::unix::net::UnixListener;

    fn bind(host: &FakeHost, path: &str) -> UnixListener {
        let path = below(host.root(), Path::new(path));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        UnixListener::bind(path).unwrap()
    }

    fn searched(host: &FakeHost) -> String {
        match search(host.root()) {
            Ok(found) => found.map_or_else(|| not_found().to_string(), |found| found.to_string()),
            Err(error) => format!("{error:#}"),
        }
    }

    const SOCKETS: &str = "/run/k3s/containerd/containerd.sock /run/k0s/containerd.sock /run/cri-dockerd.sock \
        /var/snap/microk8s/common/run/containerd.sock /run/containerd/containerd.sock /run/crio/crio.sock";

    #[test]
    fn first_well_known_socket_is_used_and_others_are_named() {
        for path in SOCKETS.split_whitespace() {
            let host = FakeHost::new();
            assert!(searched(&host).contains(path), "tried");
            let _socket = bind(&host, path);
            host.link("var/run", Path::new("../run"));
            assert_eq!(searched(&host), format!("unix://{path} (found)"));
        }
        let host = FakeHost::new();
        let two = ["/run/crio/crio.sock", "/run/containerd/containerd.sock"];
        let _two = two.map(|path| bind(&host, path));
        let first =
            "unix:///run/containerd/containerd.sock (found; not examined: /run/crio/crio.sock)";
        assert_eq!(searched(&host), first);
    }

    #[test]
    fn valid_configuration_of_crictl_precedes_the_kubelet_and_sockets() {
        let host = FakeHost::new();
        let _known = bind(&host, "/run/crio/crio.sock");
        let missing =
            "unix:///run/gone.sock (set in /etc/crictl.yaml; not examined: /run/crio/crio.sock)";
        let known = "unix:///run/crio/crio.sock (found)";
        let error = "cannot use /etc/crictl.yaml; correct it, or set the runtime with -r";
        let not_yaml = format!("{error} unix:///path: line 1 column 19: expected string scalar");
        for (text, found) in [
            ("runtime-endpoint: unix:///run/gone.sock\na: 2", missing),
            ("runtime-endpoint: /run/gone.sock\n", missing),
            ("runtime-endpoint: \"\"\n", known),
            ("# nothing\n", known),
            ("runtime-endpoint: [\n", &not_yaml),
            ("runtime-endpoint: tcp://1.2.3.4:5\n", error),
        ] {
            host.write("etc/crictl.yaml", text);
            let shown = searched(&host);
            assert!(shown.starts_with(found), "{text}: {shown}");
        }
        host.remove("etc");
        host.run(800, "kubelet --container-runtime-endpoint=/run/k.sock");
        let kubelet =
            "unix:///run/k.sock (the kubelet's, pid 800; not examined: /run/crio/crio.sock)";
        assert_eq!(searched(&host), kubelet);
        host.write("etc/crictl.yaml/x", "");
        assert!(searched(&host).starts_with(error), "a directory");
    }
}
