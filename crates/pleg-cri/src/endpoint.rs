//! Where a runtime listens: the address as users write it, and the places to look.
//!
//! Touches the file system only in [`find`].

use std::fmt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Bytes that fit into a unix socket's address, without the closing zero.
const LONGEST_PATH: usize = 107;

/// The unix socket of a runtime: `unix:///path`, or `/path` alone, as in crictl.
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

    fn from_str(given: &str) -> Result<Self, EndpointError> {
        let path = match given.split_once("://") {
            _ if given.is_empty() => return Err(EndpointError::Empty),
            Some(("unix", path)) => path,
            Some((scheme, _)) => {
                let (scheme, given) = (scheme.to_owned(), given.to_owned());
                return Err(EndpointError::Scheme { scheme, given });
            }
            None => given.strip_prefix("unix:").unwrap_or(given),
        };
        if !path.starts_with('/') {
            return Err(EndpointError::NotAbsolute {
                given: given.to_owned(),
                path: path.to_owned(),
            });
        }
        if path.len() > LONGEST_PATH || path.contains('\0') {
            return Err(EndpointError::NoSocketPath {
                given: given.to_owned(),
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

/// An address that cannot be a runtime's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// Nothing was written.
    #[error("the runtime endpoint is empty: write unix:///path/to/runtime.sock")]
    Empty,
    /// Runtimes are reached over unix sockets only.
    #[error(
        "cannot reach a runtime by {scheme:?} (given: {given:?}): write unix:///path/to/runtime.sock"
    )]
    Scheme {
        /// The scheme.
        scheme: String,
        /// What was written.
        given: String,
    },
    /// The path has no slash at its head; `unix://run/x.sock` is one slash short.
    #[error("the runtime endpoint {given:?} has no absolute path: write \"unix:///{path}\"")]
    NotAbsolute {
        /// What was written.
        given: String,
        /// What stands where the path should.
        path: String,
    },
    /// No socket can have this path.
    #[error(
        "the runtime endpoint {given:?} cannot be a socket: its path is longer than {LONGEST_PATH} bytes or contains a zero"
    )]
    NoSocketPath {
        /// What was written.
        given: String,
    },
}

/// A socket at which a runtime usually listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WellKnown {
    /// The runtime.
    pub runtime: &'static str,
    /// The path of its socket.
    pub path: &'static str,
}

/// The usual sockets, in the order in which [`find`] tries them.
pub const fn well_known() -> &'static [WellKnown] {
    const fn at(runtime: &'static str, path: &'static str) -> WellKnown {
        WellKnown { runtime, path }
    }
    // /var/run is a link to /run nearly everywhere; where it is not, it is looked at last.
    const PLACES: &[WellKnown] = &[
        at("containerd", "/run/containerd/containerd.sock"),
        at("CRI-O", "/run/crio/crio.sock"),
        at("cri-dockerd", "/run/cri-dockerd.sock"),
        at("containerd", "/var/run/containerd/containerd.sock"),
        at("CRI-O", "/var/run/crio/crio.sock"),
        at("cri-dockerd", "/var/run/cri-dockerd.sock"),
    ];
    PLACES
}

/// The first well-known path at which there is a socket. Whether anybody listens there is not
/// tried.
pub fn find() -> Option<Endpoint> {
    first_socket(well_known().iter().map(|place| Path::new(place.path)))
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
    fn a_path_is_taken_with_and_without_its_scheme() {
        for given in ["unix:///run/x.sock", "unix:/run/x.sock", "/run/x.sock"] {
            let endpoint: Endpoint = given.parse().unwrap();
            assert_eq!(endpoint.path(), Path::new("/run/x.sock"));
            assert_eq!(endpoint.to_string(), "unix:///run/x.sock");
        }
    }

    #[test]
    fn another_scheme_is_named_and_the_right_one_told() {
        for (given, scheme) in [
            ("tcp://127.0.0.1:1", "tcp"),
            ("http://x/y", "http"),
            ("npipe:////./p", "npipe"),
        ] {
            let error = given.parse::<Endpoint>().unwrap_err().to_string();
            assert!(error.contains(&format!("{scheme:?}")), "{error}");
            assert!(error.contains("write unix:///"), "{error}");
        }
    }

    #[test]
    fn what_is_no_absolute_path_is_refused() {
        assert_eq!("".parse::<Endpoint>(), Err(EndpointError::Empty));
        let error = "unix://run/x.sock"
            .parse::<Endpoint>()
            .unwrap_err()
            .to_string();
        assert!(error.ends_with("write \"unix:///run/x.sock\""), "{error}");
        for given in ["x.sock", "localhost:1234", "unix://", "unix:"] {
            assert!(
                matches!(
                    given.parse::<Endpoint>(),
                    Err(EndpointError::NotAbsolute { .. })
                ),
                "{given}"
            );
        }
        for given in [format!("/{}", "x".repeat(107)), "/a\0b".into()] {
            let error = given.parse::<Endpoint>().unwrap_err();
            assert!(
                matches!(error, EndpointError::NoSocketPath { .. }),
                "{error}"
            );
            assert!(!error.to_string().contains('\0'));
        }
    }

    #[test]
    fn only_a_socket_is_found() {
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
