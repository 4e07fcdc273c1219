//! Finds the runtime of this node: from the command line, the environment, crictl's configuration, or
//! the well-known sockets.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use anyhow::Context as _;
use pleg_cri::{Endpoint, well_known};
use serde::Deserialize;

use crate::bounded;

/// crictl's variable. An empty value counts as unset.
pub(crate) const ENDPOINT_VARIABLE: &str = "CONTAINER_RUNTIME_ENDPOINT";
/// crictl's configuration file, below the root.
const CRICTL: &str = "etc/crictl.yaml";

/// The endpoint that the environment sets.
pub(crate) fn from_environment() -> anyhow::Result<Option<Endpoint>> {
    let Some(value) = env::var_os(ENDPOINT_VARIABLE).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let invalid = || format!("invalid value of {ENDPOINT_VARIABLE}");
    let value = value.to_str().context("not UTF-8").with_context(invalid)?;
    Ok(Some(value.parse().with_context(invalid)?))
}

/// Where no runtime was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no container runtime found; tried {tried}")]
pub(crate) struct NotFound {
    tried: String,
}

/// The endpoint in crictl's configuration, or the first well-known path, that is a socket. Does not
/// check whether a process listens on it. `root` is `/` except in tests.
pub(crate) fn search(root: &Path) -> Result<Endpoint, NotFound> {
    let is_socket = |path: &Path| {
        let path = root.join(path.strip_prefix("/").unwrap_or(path));
        fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
    };
    let mut tried = match crictl_endpoint(&root.join(CRICTL)) {
        Ok(Some(endpoint)) if is_socket(endpoint.path()) => return Ok(endpoint),
        Ok(Some(endpoint)) => format!("{} (from /{CRICTL})", endpoint.path().display()),
        Ok(None) => format!("/{CRICTL}"),
        Err(why) => format!("/{CRICTL} ({why})"),
    };
    for known in well_known() {
        match known.path.parse() {
            Ok(endpoint) if is_socket(Path::new(known.path)) => return Ok(endpoint),
            // /var/run is nearly always a link to /run: not worth a mention.
            _ if known.path.starts_with("/var/run/") => {}
            // Writing to a string does not fail.
            _ => drop(write!(tried, ", {}", known.path)),
        }
    }
    Err(NotFound { tried })
}

/// The part of crictl's configuration that is read.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Crictl {
    runtime_endpoint: Option<String>,
}

fn crictl_endpoint(file: &Path) -> Result<Option<Endpoint>, String> {
    let text = match bounded::read(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let crictl: Crictl = serde_saphyr::from_str(&text).map_err(|_| "not valid".to_owned())?;
    match crictl.runtime_endpoint.as_deref() {
        None | Some("") => Ok(None),
        Some(endpoint) => endpoint
            .parse()
            .map(Some)
            .map_err(|_| "not valid".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn bind(root: &Path, path: &str) -> UnixListener {
        let path = root.join(path.strip_prefix('/').unwrap());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        UnixListener::bind(path).unwrap()
    }

    #[test]
    fn sockets_of_distributions_are_found() {
        for path in [
            "/run/k3s/containerd/containerd.sock",
            "/run/k0s/containerd.sock",
            "/var/snap/microk8s/common/run/containerd.sock",
            "/run/cri-dockerd.sock",
            "/run/containerd/containerd.sock",
            "/run/crio/crio.sock",
        ] {
            let root = tempfile::tempdir().unwrap();
            let _socket = bind(root.path(), path);
            assert_eq!(search(root.path()), Ok(path.parse().unwrap()), "{path}");
        }
    }

    #[test]
    fn configuration_of_crictl_precedes_known_sockets() {
        let root = tempfile::tempdir().unwrap();
        let _known = bind(root.path(), "/run/crio/crio.sock");
        let _configured = bind(root.path(), "/run/own.sock");
        fs::create_dir(root.path().join("etc")).unwrap();
        let known = Ok("/run/crio/crio.sock".parse().unwrap());
        for (text, found) in [
            (
                "runtime-endpoint: \"unix:///run/own.sock\"\ntimeout: 2\n",
                Ok("/run/own.sock".parse().unwrap()),
            ),
            ("runtime-endpoint: \"\"\n", known.clone()),
            ("runtime-endpoint: unix:///run/gone.sock\n", known.clone()),
            ("runtime-endpoint: [\n", known),
        ] {
            fs::write(root.path().join(CRICTL), text).unwrap();
            assert_eq!(search(root.path()), found, "{text}");
        }
    }

    #[test]
    fn error_names_what_was_tried() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("etc")).unwrap();
        fs::write(root.path().join(CRICTL), "runtime-endpoint: /run/gone.sock").unwrap();
        let error = search(root.path()).unwrap_err().to_string();
        for path in [
            "/run/gone.sock (from /etc/crictl.yaml)",
            "/run/k3s/containerd/containerd.sock",
            "/run/crio/crio.sock",
        ] {
            assert!(error.contains(path), "{error}");
        }
    }
}
