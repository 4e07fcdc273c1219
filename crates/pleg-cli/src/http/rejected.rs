//! Log lines about rejected clients: for each reason, the first client at once, and later clients in one line a minute.

use rustls::Error;

use super::*;

const PERIOD: Duration = Duration::from_secs(60);

/// Clients that were rejected and are not logged yet: for each reason, their number and the last client.
#[derive(Default)]
pub(super) struct Rejected(Mutex<BTreeMap<&'static str, (u64, String)>>);

impl Rejected {
    /// Logs a rejected client, or only counts it if another client with the same reason was logged a short time ago.
    pub(super) fn note(&self, reason: &'static str, client: &str) {
        let mut reasons = self.0.lock();
        match reasons.get_mut(reason) {
            Some((count, last)) => (*count, *last) = (*count + 1, client.to_owned()),
            None => {
                tracing::warn!("rejected a client, {reason}: {client}");
                reasons.insert(reason, Default::default());
            }
        }
    }

    /// Logs or counts a client whose TLS handshake failed, unless it only closed the connection, as a TCP probe does.
    pub(super) fn handshake(&self, error: &io::Error, client: &str) {
        let error = error.get_ref().and_then(|error| error.downcast_ref());
        let Some(error) = error else { return };
        let reason = match error {
            Error::NoCertificatesPresented => "no certificate",
            Error::InvalidCertificate(_) => "invalid certificate",
            _ => "no TLS handshake",
        };
        self.note(reason, &format!("{client} ({error})"));
    }

    pub(super) async fn report(&self) -> Infallible {
        let mut minutes = tokio::time::interval(PERIOD);
        // The first tick completes at once.
        minutes.tick().await;
        loop {
            minutes.tick().await;
            for line in self.counts() {
                tracing::warn!("{line}");
            }
        }
    }

    fn counts(&self) -> Vec<String> {
        let mut reasons = self.0.lock();
        reasons.retain(|_, (count, _)| *count > 0);
        let noted = reasons.iter_mut().map(|(reason, noted)| {
            let (count, last) = std::mem::take(noted);
            format!("rejected {count} more within a minute, {reason}: the last one {last}")
        });
        noted.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejected_clients_are_counted_per_reason_and_minute() {
        let rejected = Rejected::default();
        for client in ["10.0.0.1", "10.0.0.2", "10.0.0.3"] {
            rejected.note("no token", client);
        }
        rejected.note("wrong token", "10.0.0.1");
        let line = "rejected 2 more within a minute, no token: the last one 10.0.0.3";
        assert_eq!(rejected.counts(), [line]);
        // In the minute after this summary line, even the first client with this reason is only counted.
        rejected.note("no token", "10.0.0.4");
        assert_eq!(rejected.counts().len(), 1);
        assert!(rejected.counts().is_empty() && rejected.0.lock().is_empty());
    }
}
