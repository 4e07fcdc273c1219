//! The health check of gRPC services: `grpc.health.v1.Health/Check`.

use tonic::transport::Endpoint;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::check::{CheckError, USER_AGENT};

/// Asks the server at that address if it serves the service, without TLS.
///
/// # Errors
/// If it does not, or does not answer.
pub(super) async fn check(address: String, service: &str) -> Result<(), CheckError> {
    let failed = CheckError::failed(format!("gRPC call to {address} failed"));
    match ask(&address, service).await.map_err(failed)? {
        serving if serving == ServingStatus::Serving as i32 => Ok(()),
        other => Err(CheckError::NotServing(other)),
    }
}

async fn ask(
    address: &str,
    service: &str,
) -> Result<i32, Box<dyn std::error::Error + Send + Sync>> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?.user_agent(USER_AGENT)?;
    let mut client = HealthClient::new(endpoint.connect().await?);
    let service = service.to_owned();
    let response = client.check(HealthCheckRequest { service }).await?;
    Ok(response.into_inner().status)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tonic::transport::Server;

    use super::*;

    #[tokio::test]
    async fn only_a_serving_service_succeeds() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let incoming = futures::stream::unfold(listener, |listener| async {
            let accepted = listener.accept().await.map(|(stream, _)| stream);
            Some((accepted, listener))
        });
        let (reporter, health) = tonic_health::server::health_reporter();
        for (service, status) in [
            ("good", ServingStatus::Serving),
            ("bad", ServingStatus::NotServing),
        ] {
            reporter.set_service_status(service, status).await;
        }
        let server = Server::builder().add_service(health);
        let server = tokio::spawn(server.serve_with_incoming(incoming));
        let good = check(address.clone(), "good").await;
        assert!(good.is_ok(), "{good:?}");
        let bad = check(address.clone(), "bad").await;
        assert!(matches!(bad, Err(CheckError::NotServing(2))), "{bad:?}");
        server.abort();
        let _ = server.await;
        let gone = check(address, "good").await;
        assert!(matches!(gone, Err(CheckError::Failed { .. })), "{gone:?}");
    }
}
