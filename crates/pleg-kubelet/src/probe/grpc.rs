//! The health check of gRPC services: `grpc.health.v1.Health/Check`.

use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Endpoint;
use tonic_prost::ProstCodec;

use super::check::{CheckError, USER_AGENT};

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    pub(super) service: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    pub(super) status: i32,
}

const SERVING: i32 = 1;

/// Asks the server at that address whether it serves the service, without TLS.
///
/// # Errors
/// If it does not, or does not answer.
pub(super) async fn check(address: String, service: &str) -> Result<(), CheckError> {
    let response = ask(&address, service).await;
    let failed = CheckError::failed(format!("gRPC call to {address} failed"));
    let response = response.map_err(failed)?;
    match response.status {
        SERVING => Ok(()),
        other => Err(CheckError::NotServing(other)),
    }
}

async fn ask(
    address: &str,
    service: &str,
) -> Result<HealthCheckResponse, Box<dyn std::error::Error + Send + Sync>> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?.user_agent(USER_AGENT)?;
    let mut client = Grpc::new(endpoint.connect().await?);
    client.ready().await?;
    let request = HealthCheckRequest {
        service: service.to_owned(),
    };
    let path = PathAndQuery::from_static("/grpc.health.v1.Health/Check");
    let codec = ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
    let response = client
        .unary(tonic::Request::new(request), path, codec)
        .await?;
    Ok(response.into_inner())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::task::{Context, Poll};

    use futures::future::{BoxFuture, Ready, ready};
    use tokio::net::TcpListener;
    use tonic::body::Body;
    use tonic::codegen::{Service, http};
    use tonic::server::UnaryService;

    use super::*;

    /// Serves `good`; of other services it says `NOT_SERVING`.
    #[derive(Clone)]
    struct Health;

    impl UnaryService<HealthCheckRequest> for Health {
        type Response = HealthCheckResponse;
        type Future = Ready<Result<tonic::Response<HealthCheckResponse>, tonic::Status>>;

        fn call(&mut self, request: tonic::Request<HealthCheckRequest>) -> Self::Future {
            let is_good = request.into_inner().service == "good";
            let status = if is_good { SERVING } else { 2 };
            ready(Ok(tonic::Response::new(HealthCheckResponse { status })))
        }
    }

    impl Service<http::Request<Body>> for Health {
        type Response = http::Response<Body>;
        type Error = Infallible;
        type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: http::Request<Body>) -> Self::Future {
            assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
            let codec = ProstCodec::<HealthCheckResponse, HealthCheckRequest>::default();
            let mut grpc = tonic::server::Grpc::new(codec);
            Box::pin(async move { Ok(grpc.unary(Self, request).await) })
        }
    }

    #[tokio::test]
    async fn only_a_serving_service_succeeds() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let incoming = futures::stream::unfold(listener, |listener| async {
            let accepted = listener.accept().await.map(|(stream, _)| stream);
            Some((accepted, listener))
        });
        let server = tonic::transport::Server::builder().serve_with_incoming(Health, incoming);
        let server = tokio::spawn(server);
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
