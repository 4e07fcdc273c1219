//! Runtime endpoints: parsing, and the well-known sockets.
//!
//! Only [`find`] accesses the file system.

use std::fmt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The maximum length of a unix socket's path, without the terminating zero.
const MAX_PATH: usize = 107;

/// The unix socket of a runtime. Parsed from `unix:///path` or `/path`, as in crictl.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint(PathBuf);

impl Endpoint {
    /// The path of the socket.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(input: &str) -> Result<Self, EndpointError> {
        let path = match input.split_once("://") {
            _ if input.is_empty() => return Err(EndpointError::Empty),
            Some(("unix", path)) => path,
            Some((scheme, _)) => {
                let (scheme, input) = (scheme.to_owned(), input.to_owned());
                return Err(EndpointError::Scheme { scheme, input });
            }
            None => input.strip_prefix("unix:").unwrap_or(input),
        };
        if !path.starts_with('/') {
            return Err(EndpointError::NotAbsolute {
                input: input.to_owned(),
                path: path.to_owned(),
            });
        }
        if path.len() > MAX_PATH || path.contains('\0') {
            return Err(EndpointError::InvalidPath {
                input: input.to_owned(),
            });
        }
        Ok(Self(path.into()))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unix://{}", self.0.display())
    }
}

/// The reason why a text is not a valid endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The text is empty.
    #[error("the runtime endpoint is empty; use unix:///path/to/runtime.sock")]
    Empty,
    /// The scheme is not `unix`. Only unix sockets are supported.
    #[error(
        "unsupported scheme {scheme:?} in the runtime endpoint {input:?}; use unix:///path/to/runtime.sock"
    )]
    Scheme {
        /// The scheme.
        scheme: String,
        /// The text that was parsed.
        input: String,
    },
    /// The path does not start with a slash. `unix://run/x.sock` lacks the third slash.
    #[error("the runtime endpoint {input:?} has no absolute path; use \"unix:///{path}\"")]
    NotAbsolute {
        /// The text that was parsed.
        input: String,
        /// The part of the text that should be the path.
        path: String,
    },
    /// The path is too long for a socket or contains a zero byte.
    #[error(
        "the runtime endpoint {input:?} cannot be a socket: its path is longer than {MAX_PATH} bytes or contains a zero byte"
    )]
    InvalidPath {
        /// The text that was parsed.
        input: String,
    },
}

/// A socket on which a runtime listens by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WellKnown {
    /// The runtime.
    pub runtime: &'static str,
    /// The path of its socket.
    pub path: &'static str,
}

/// The default sockets of the runtimes, in the order in which [`find`] checks them. The sockets of Kubernetes
/// distributions come first, because a node of a distribution may also run Docker's containerd, which has no pods.
pub const fn well_known() -> &'static [WellKnown] {
    const fn at(runtime: &'static str, path: &'static str) -> WellKnown {
        WellKnown { runtime, path }
    }
    // /var/run is nearly always a link to /run, so it is checked last.
    const SOCKETS: &[WellKnown] = &[
        at("k3s or RKE2", "/run/k3s/containerd/containerd.sock"),
        at("k0s", "/run/k0s/containerd.sock"),
        at("MicroK8s", "/var/snap/microk8s/common/run/containerd.sock"),
        at("containerd", "/run/containerd/containerd.sock"),
        at("CRI-O", "/run/crio/crio.sock"),
        at("cri-dockerd", "/run/cri-dockerd.sock"),
        at("containerd", "/var/run/containerd/containerd.sock"),
        at("CRI-O", "/var/run/crio/crio.sock"),
        at("cri-dockerd", "/var/run/cri-dockerd.sock"),
    ];
    SOCKETS
}

/// The first well-known path that is a socket. Does not check whether a process listens on it.
pub fn find() -> Option<Endpoint> {
    first_socket(well_known().iter().map(|known| Path::new(known.path)))
}

fn first_socket<'a>(mut paths: impl Iterator<Item = &'a Path>) -> Option<Endpoint> {
    let is_socket = |path: &&Path| {
        path.metadata()
            .is_ok_and(|metadata| metadata.file_type().is_socket())
    };
    paths.find(is_socket).map(|path| Endpoint(path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_parsed_with_and_without_scheme() {
        for input in ["unix:///run/x.sock", "unix:/run/x.sock", "/run/x.sock"] {
            let endpoint: Endpoint = input.parse().unwrap();
            assert_eq!(endpoint.path(), Path::new("/run/x.sock"));
            assert_eq!(endpoint.to_string(), "unix:///run/x.sock");
        }
    }

    #[test]
    fn unsupported_scheme_error_names_given_and_supported_scheme() {
        for (input, scheme) in [
            ("tcp://127.0.0.1:1", "tcp"),
            ("http://x/y", "http"),
            ("npipe:////./p", "npipe"),
        ] {
            let error = input.parse::<Endpoint>().unwrap_err().to_string();
            assert!(error.contains(&format!("{scheme:?}")), "{error}");
            assert!(error.contains("use unix:///"), "{error}");
        }
    }

    #[test]
    fn relative_or_invalid_endpoint_path_is_an_error() {
        assert_eq!("".parse::<Endpoint>(), Err(EndpointError::Empty));
        let error = "unix://run/x.sock"
            .parse::<Endpoint>()
            .unwrap_err()
            .to_string();
        assert!(error.ends_with("use \"unix:///run/x.sock\""), "{error}");
        for input in ["x.sock", "localhost:1234", "unix://", "unix:"] {
            assert!(
                matches!(
                    input.parse::<Endpoint>(),
                    Err(EndpointError::NotAbsolute { .. })
                ),
                "{input}"
            );
        }
        for input in [format!("/{}", "x".repeat(107)), "/a\0b".into()] {
            let error = input.parse::<Endpoint>().unwrap_err();
            assert!(
                matches!(error, EndpointError::InvalidPath { .. }),
                "{error}"
            );
            assert!(!error.to_string().contains('\0'));
        }
    }

    #[test]
    fn endpoint_search_skips_paths_that_are_not_sockets() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("file"), "").unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        let tried = [
            path("none"),
            path("file"),
            dir.path().to_owned(),
            path("socket"),
        ];
        let found = first_socket(tried.iter().map(PathBuf::as_path)).unwrap();
        assert_eq!(found.path(), path("socket"));
        assert_eq!(first_socket(tried[..3].iter().map(PathBuf::as_path)), None);
    }
}
