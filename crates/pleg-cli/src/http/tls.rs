//! TLS 1.3 for the agent and for the commands that connect to it. Certificates and keys are PEM files.

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::TlsConnector;

use super::*;

/// The server's side, with its certificate and key. With `client_ca`, accepts only clients whose certificate it signed.
pub(super) fn acceptor(cert: &Path, key: &Path, client_ca: Option<&Path>) -> Result<TlsAcceptor> {
    let builder = ServerConfig::builder_with_protocol_versions(&[&TLS13]);
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let verifier = WebPkiClientVerifier::builder(authorities(file)?.into());
            builder.with_client_cert_verifier(verifier.build()?)
        }
    };
    let (chain, private) = (certificates(cert)?, private_key(key)?);
    let config = builder.with_single_cert(chain, private);
    let mut config = config.with_context(|| mismatch(cert, key))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config).into())
}

/// The client's side, with `own` certificate and key. An authority in `ca` must have signed the server's certificate.
pub(crate) fn connector(ca: &Path, own: Option<(&Path, &Path)>) -> Result<TlsConnector> {
    let builder = ClientConfig::builder_with_protocol_versions(&[&TLS13]);
    let builder = builder.with_root_certificates(authorities(ca)?);
    let config = match own {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => builder
            .with_client_auth_cert(certificates(cert)?, private_key(key)?)
            .with_context(|| mismatch(cert, key))?,
    };
    Ok(Arc::new(config).into())
}

fn authorities(file: &Path) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(file)? {
        roots.add(authority).with_context(|| invalid(file))?;
    }
    Ok(roots)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let text = bounded::read(file).with_context(|| invalid(file))?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let certificates = read.with_context(|| invalid(file))?;
    let (shown, is_empty) = (file.display(), certificates.is_empty());
    ensure!(!is_empty, "{shown} contains no certificate");
    Ok(certificates)
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>> {
    let text = bounded::read(file).with_context(|| invalid(file))?;
    PrivateKeyDer::from_pem_slice(text.as_bytes()).with_context(|| invalid(file))
}

fn invalid(file: &Path) -> String {
    format!("cannot use {}", file.display())
}

fn mismatch(cert: &Path, key: &Path) -> String {
    format!("{} does not match {}", key.display(), cert.display())
}
