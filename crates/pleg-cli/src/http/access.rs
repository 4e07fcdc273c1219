//! Who may read what the server shows: bearer tokens, and certificates of clients.

use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use ring::digest::{SHA256, digest};
use subtle::{Choice, ConstantTimeEq as _};

use super::*;
use crate::args::AccessArgs;

pub(super) const NO_TOKEN: &str = "no token";
const WRONG_TOKEN: &str = "wrong token";
const CLEAR_TOKEN: &str = "its token is itself a line of the token file, which must have digests (printf %s TOKEN | sha256sum)";

#[derive(Default, derive_more::Constructor)]
pub(crate) struct Access {
    /// SHA-256 of the tokens, in hexadecimal digits. If there is no digest, clients need no token.
    digests: Vec<String>,
    pub(crate) tls: Option<TlsAcceptor>,
    requires_certificate: bool,
}

impl Access {
    /// Reads the token and TLS files. Fails if other hosts can connect to `listen` without a token or a certificate.
    pub(crate) fn load(args: &AccessArgs, listen: &Listen) -> Result<Self> {
        let requires_certificate = args.tls_client_ca.is_some();
        let is_local = match listen {
            Listen::Tcp(address) => address.ip().is_loopback(),
            Listen::Unix(_) => true,
        };
        ensure!(
            is_local || args.token_file.is_some() || requires_certificate,
            "{listen} is not a loopback address, and responses name pods: set --token-file, or \
             --tls-cert, --tls-key and --tls-client-ca"
        );
        let client_ca = args.tls_client_ca.as_deref();
        let tls = match (&args.tls_cert, &args.tls_key) {
            (Some(cert), Some(key)) => Some(tls::acceptor(cert, key, client_ca)?),
            (None, None) if requires_certificate => {
                bail!("--tls-client-ca needs --tls-cert and --tls-key")
            }
            (None, None) => None,
            _ => bail!("TLS needs both --tls-cert and --tls-key"),
        };
        let digests = args.token_file.as_deref().map(read_digests).transpose()?;
        let digests = digests.unwrap_or_default();
        Ok(Self::new(digests, tls, requires_certificate))
    }

    pub(crate) const fn is_restricted(&self) -> bool {
        !self.digests.is_empty() || self.requires_certificate
    }

    /// Checks the token, if one is needed to read pods and metrics. TLS has already checked the client's certificate.
    pub(super) fn check(&self, headers: &HeaderMap) -> Result<(), &'static str> {
        if self.digests.is_empty() {
            return Ok(());
        }
        let given = headers.get(AUTHORIZATION).ok_or(NO_TOKEN)?.as_bytes();
        let (scheme, token) = given.split_at_checked(BEARER.len()).ok_or(NO_TOKEN)?;
        if !scheme.eq_ignore_ascii_case(BEARER) {
            return Err(NO_TOKEN);
        }
        let sum = digest(&SHA256, token);
        let hex: String = sum.as_ref().iter().map(|b| format!("{b:02x}")).collect();
        if self.has(&hex) {
            Ok(())
        } else if self.has(&String::from_utf8_lossy(token).to_ascii_lowercase()) {
            Err(CLEAR_TOKEN)
        } else {
            Err(WRONG_TOKEN)
        }
    }

    /// Compares `given` with the digests, in a time that does not depend on the digests.
    fn has(&self, given: &str) -> bool {
        let digests = self.digests.iter();
        let equals = digests.map(|digest| digest.as_bytes().ct_eq(given.as_bytes()));
        equals.fold(Choice::from(0), |any, one| any | one).into()
    }
}

const BEARER: &[u8] = b"Bearer ";

/// Reads one digest per line. A line may end with a comment. Errors do not quote the file, which may contain secrets.
fn read_digests(file: &Path) -> Result<Vec<String>> {
    let shown = file.display();
    let text = bounded::read(file).with_context(|| format!("cannot read {shown}"))?;
    let mut digests = Vec::new();
    for (n, line) in (1..).zip(text.lines()) {
        let first = line.split_whitespace().next();
        let Some(word) = first.filter(|word| !word.starts_with('#')) else {
            continue;
        };
        ensure!(
            word.len() == 2 * SHA256.output_len() && word.bytes().all(|b| b.is_ascii_hexdigit()),
            "{shown}:{n} is not the SHA-256 of a token in hexadecimal digits; make it with: printf %s TOKEN | sha256sum"
        );
        digests.push(word.to_ascii_lowercase());
    }
    let is_empty = digests.is_empty();
    ensure!(!is_empty, "{shown} contains no digest of a token");
    Ok(digests)
}
