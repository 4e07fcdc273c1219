//! Who may read what the server shows: a bearer token, and certificates of clients.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderValue};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use super::Listen;
use crate::args::AccessArgs;
use crate::bounded;

/// Who may read what the server shows.
#[derive(Default)]
pub(crate) struct Access {
    token: Option<Vec<u8>>,
    tls: Option<Arc<ServerConfig>>,
    requires_certificate: bool,
}

impl Access {
    /// Reads the files. An address that other hosts can connect to needs a token or certificates of
    /// clients.
    pub(crate) fn load(args: &AccessArgs, listen: &Listen) -> anyhow::Result<Self> {
        if !listen.is_local() && args.token_file.is_none() && args.tls_client_ca.is_none() {
            bail!(
                "{listen} is not a loopback address, and responses name pods: set --token-file, or \
                 --tls-cert, --tls-key and --tls-client-ca"
            );
        }
        if args.tls_cert.is_some() != args.tls_key.is_some() {
            bail!("TLS needs both --tls-cert and --tls-key");
        }
        if args.tls_client_ca.is_some() && args.tls_cert.is_none() {
            bail!("--tls-client-ca needs --tls-cert and --tls-key");
        }
        let token = args.token_file.as_deref().map(read_token).transpose()?;
        let tls = match (&args.tls_cert, &args.tls_key) {
            (Some(cert), Some(key)) => Some(Arc::new(tls_config(
                cert,
                key,
                args.tls_client_ca.as_deref(),
            )?)),
            _ => None,
        };
        Ok(Self {
            token,
            tls,
            requires_certificate: args.tls_client_ca.is_some(),
        })
    }

    pub(super) fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.tls.clone()
    }

    /// Whether a client must prove who it is.
    pub(crate) const fn is_restricted(&self) -> bool {
        self.token.is_some() || self.requires_certificate
    }

    /// `http` or `https`.
    pub(crate) const fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Whether a request with these headers may read everything. The certificate of the client was
    /// checked before.
    pub(super) fn allows(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else {
            return true;
        };
        let given = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
        given
            .and_then(|given| given.split_at_checked(BEARER.len()))
            .is_some_and(|(scheme, given)| {
                scheme.eq_ignore_ascii_case(BEARER) && equal(given, token)
            })
    }
}

const BEARER: &[u8] = b"Bearer ";

/// Compares in a time that does not depend on where the first difference is.
fn equal(a: &[u8], b: &[u8]) -> bool {
    let different = a.iter().zip(b).fold(0, |bits, (a, b)| bits | (a ^ b));
    a.len() == b.len() && different == 0
}

fn read_token(file: &Path) -> anyhow::Result<Vec<u8>> {
    let read = bounded::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let token = read.trim_ascii().as_bytes();
    if token.is_empty() {
        bail!("{} contains no token", file.display());
    }
    Ok(token.to_vec())
}

fn tls_config(cert: &Path, key: &Path, client_ca: Option<&Path>) -> anyhow::Result<ServerConfig> {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for authority in read_certificates(file)? {
                roots.add(authority).with_context(|| invalid(file))?;
            }
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let chain = read_certificates(cert)?;
    let private = PrivateKeyDer::from_pem_file(key).with_context(|| invalid(key))?;
    let mut config = builder
        .with_single_cert(chain, private)
        .with_context(|| format!("{} does not match {}", key.display(), cert.display()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn read_certificates(file: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(file).with_context(|| invalid(file))?;
    let certificates: Vec<_> = read
        .collect::<Result<_, _>>()
        .with_context(|| invalid(file))?;
    if certificates.is_empty() {
        bail!("{} contains no certificate", file.display());
    }
    Ok(certificates)
}

fn invalid(file: &Path) -> String {
    format!("cannot use {}", file.display())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn args() -> AccessArgs {
        AccessArgs {
            token_file: None,
            tls_cert: None,
            tls_key: None,
            tls_client_ca: None,
        }
    }

    #[test]
    fn address_that_is_not_local_needs_token() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        let token = AccessArgs {
            token_file: Some(file.clone()),
            ..args()
        };
        let [open, loopback] = ["0.0.0.0:9394", "127.0.0.1:9394"].map(|a| a.parse().unwrap());
        assert!(Access::load(&args(), &loopback).is_ok());
        assert!(Access::load(&args(), &open).is_err());
        assert!(Access::load(&token, &open).is_err(), "no file");
        fs::write(&file, " \n").unwrap();
        assert!(Access::load(&token, &open).is_err(), "an empty file");
        fs::write(&file, "secret\n").unwrap();
        let access = Access::load(&token, &open).unwrap();
        let allows = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, value.parse().unwrap());
            access.allows(&headers)
        };
        assert!(allows("Bearer secret") && allows("bearer secret"));
        for value in [
            "Bearer secre",
            "Bearer secrets",
            "Basic secret",
            "secret",
            "",
        ] {
            assert!(!allows(value), "{value}");
        }
        assert!(!access.allows(&HeaderMap::new()));
    }
}
