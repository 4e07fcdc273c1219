//! One check of a probe or hook: a connection, an HTTP request, a gRPC health check, or a command in the container.

use std::error::Error;
use std::fmt::Display;
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Container, ExecAction, HTTPGetAction, LifecycleHandler, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use pleg::Id;
use pleg::core::{CallError, CallErrorKind};
use pleg_cri::CriClient;
use tokio::net::TcpStream;
use tokio_util::either::Either;
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::Endpoint;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::tls;
use crate::cri_config::{FieldError, absolute};

/// The maximum number of bytes of a response body that are read, as in upstream's kubelet.
const MAX_BODY: usize = 10 << 10;
const USER_AGENT: &str = "kube-probe/1.37";

/// A check of a probe or hook. If it names no host, it uses the pod's address.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Check {
    /// `(port, host)`: opens a connection.
    Tcp(u16, String),
    /// `(port, request)`: sends a GET request. A status from 200 to 399 is a success.
    Http(u16, HTTPGetAction),
    /// `(port, service)`: calls `grpc.health.v1.Health/Check` without TLS. `SERVING` is a success. `""`: whole server.
    Grpc(u16, String),
    /// Runs a command in the container. Exit code 0 is a success.
    Exec(Vec<String>),
    /// Waits (hooks only).
    Sleep(Duration),
}

/// The action of a container's hook. The error names the field that cannot be used, by its path in the hook.
pub(crate) fn hook_of(container: &Container, hook: &LifecycleHandler) -> Result<Check, FieldError> {
    if let Some(sleep) = &hook.sleep {
        let seconds = u64::try_from(sleep.seconds).unwrap_or(0);
        return Ok(Check::Sleep(Duration::from_secs(seconds)));
    }
    let missing = "write one of exec, httpGet and sleep";
    exec_or_http(container, &hook.exec, &hook.http_get, missing)
}

/// The action of a container's probe. The error names the field that cannot be used, by its path in the probe.
pub(crate) fn check_of(container: &Container, probe: &Probe) -> Result<Check, FieldError> {
    if let Some(tcp) = &probe.tcp_socket {
        let port = port_of(container, &tcp.port, "tcpSocket.port")?;
        return Ok(Check::Tcp(port, tcp.host.clone().unwrap_or_default()));
    }
    if let Some(grpc) = &probe.grpc {
        let port = port_of(container, &IntOrString::Int(grpc.port), "grpc.port")?;
        return Ok(Check::Grpc(port, grpc.service.clone().unwrap_or_default()));
    }
    let missing = "it does nothing: write one of exec, tcpSocket, httpGet and grpc";
    exec_or_http(container, &probe.exec, &probe.http_get, missing)
}

fn exec_or_http(
    container: &Container,
    exec: &Option<ExecAction>,
    http: &Option<HTTPGetAction>,
    missing: &str,
) -> Result<Check, FieldError> {
    if let Some(exec) = exec {
        return Ok(Check::Exec(exec.command.clone().unwrap_or_default()));
    }
    let http = http.clone().ok_or(FieldError::new("", missing))?;
    let scheme = http.scheme.as_deref().unwrap_or("HTTP");
    if !["HTTP", "HTTPS"].contains(&scheme) {
        let problem = format!("{scheme} is not provided: use HTTP or HTTPS");
        return Err(FieldError::new("httpGet.scheme", problem));
    }
    let port = port_of(container, &http.port, "httpGet.port")?;
    Ok(Check::Http(port, http))
}

fn port_of(container: &Container, port: &IntOrString, field: &str) -> Result<u16, FieldError> {
    let (number, problem) = match port {
        IntOrString::Int(number) => (*number, "it must be between 1 and 65535".to_owned()),
        IntOrString::String(name) => {
            let mut ports = container.ports.iter().flatten();
            let named = ports.find(|port| port.name.as_ref() == Some(name));
            let number = named.map_or_else(|| name.parse().ok(), |port| Some(port.container_port));
            let problem = format!("the container has no port named {name:?}: add it to ports");
            (number.unwrap_or(0), problem)
        }
    };
    let number = u16::try_from(number).ok().filter(|number| *number != 0);
    number.ok_or_else(|| FieldError::new(field, problem))
}

type Result<T = (), E = CheckError> = std::result::Result<T, E>;

/// The reason why a check failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckError {
    #[error("{0}")]
    Failed(String),
    #[error("HTTP probe failed with statuscode: {0}")]
    Status(u16),
    /// The check could not be made: as in upstream's kubelet, the probe's result then stays unchanged.
    #[error("{0}")]
    NotMade(#[source] Box<dyn Error + Send + Sync>),
}

impl CheckError {
    fn failed<E: Display>(what: String) -> impl FnOnce(E) -> Self {
        move |error| Self::Failed(format!("{what}: {error}"))
    }
}

/// Runs commands in containers.
pub trait Exec: Send + Sync + 'static {
    /// Runs a command and returns its exit code.
    ///
    /// # Errors
    /// If the command could not be run, or took longer than `timeout` (`DeadlineExceeded`).
    fn exec(
        &self,
        container: &Id,
        command: &[String],
        timeout: Duration,
    ) -> impl Future<Output = Result<i32, CallError>> + Send;
}

impl Exec for CriClient {
    async fn exec(&self, id: &Id, command: &[String], timeout: Duration) -> Result<i32, CallError> {
        let response = self.exec_sync(id, command.to_vec(), timeout).await?;
        Ok(response.exit_code)
    }
}

impl Check {
    /// Performs the check. `address` is the pod's address, which a check that names no host uses.
    pub(crate) async fn perform<E: Exec>(
        &self,
        exec: &E,
        container: &Id,
        address: &str,
        timeout: Duration,
    ) -> Result {
        let or_pod = |host: &str| if host.is_empty() { address } else { host }.to_owned();
        match self {
            Self::Tcp(port, host) => {
                let connected = within(timeout, connect(&or_pod(host), *port)).await;
                connected.map(drop)
            }
            Self::Http(port, http) => {
                let host = or_pod(http.host.as_deref().unwrap_or_default());
                within(timeout, get(&host, *port, http)).await
            }
            Self::Grpc(port, service) => {
                within(timeout, grpc(host_and_port(address, *port), service)).await
            }
            Self::Exec(command) => match exec.exec(container, command, timeout).await {
                Ok(0) => Ok(()),
                Ok(code) => Err(CheckError::Failed(format!("its exit code is {code}"))),
                Err(error) if error.kind == CallErrorKind::DeadlineExceeded => {
                    Err(CheckError::Failed(error.to_string()))
                }
                Err(error) => Err(CheckError::NotMade(error.into())),
            },
            Self::Sleep(time) => within(*time, std::future::pending()).await.or(Ok(())),
        }
    }
}

/// A GET request with the probe's headers and upstream's default headers. Fails if the path or a header is invalid.
fn request(address: &str, http: &HTTPGetAction) -> Result<Request<Empty<Bytes>>> {
    let given = || http.http_headers.iter().flatten();
    let is_given = |name: &str| given().any(|header| header.name.eq_ignore_ascii_case(name));
    let defaults = [
        ("user-agent", USER_AGENT),
        ("accept", "*/*"),
        ("host", address),
    ];
    let missing = defaults.into_iter().filter(|(name, _)| !is_given(name));
    let given = given().map(|header| (&*header.name, &*header.value));
    let path = absolute(http.path.as_deref().unwrap_or_default());
    let mut request = Request::get(path).header(header::CONNECTION, "close");
    for (name, value) in missing.chain(given) {
        request = request.header(name, value);
    }
    let request = request.body(Empty::<Bytes>::new());
    request.map_err(|e| CheckError::NotMade(format!("the HTTP probe is not valid: {e}").into()))
}

async fn get(host: &str, port: u16, http: &HTTPGetAction) -> Result {
    let address = host_and_port(host, port);
    let request = request(&address, http)?;
    let stream = connect(host, port).await?;
    let stream = match http.scheme.as_deref() {
        Some("HTTPS") => {
            let failed = CheckError::failed(format!("cannot connect to {address}"));
            Either::Right(tls::begin(stream, host).await.map_err(failed)?)
        }
        _ => Either::Left(stream),
    };
    let status = async {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // Nobody awaits this task, which drives the connection: its error is also the error of `send_request`.
        let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
        let (head, body) = sender.send_request(request).await?.into_parts();
        // The HTTP status decides about success, even if the body exceeds the limit or its transfer fails.
        let _ = Limited::new(body, MAX_BODY).collect().await;
        Ok::<_, hyper::Error>(head.status.as_u16())
    };
    let failed = CheckError::failed(format!("request to {address} failed"));
    match status.await.map_err(failed)? {
        200..400 => Ok(()),
        status => Err(CheckError::Status(status)),
    }
}

async fn grpc(address: String, service: &str) -> Result {
    let answer = async {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))?;
        let channel = endpoint.user_agent(USER_AGENT)?.connect().await?;
        let (mut client, service) = (HealthClient::new(channel), service.to_owned());
        let response = client.check(HealthCheckRequest { service }).await?;
        Ok::<_, Box<dyn Error + Send + Sync>>(response.into_inner().status)
    };
    let failed = CheckError::failed(format!("gRPC call to {address} failed"));
    match answer.await.map_err(failed)? {
        serving if serving == ServingStatus::Serving as i32 => Ok(()),
        other => Err(CheckError::Failed(format!(
            "gRPC service has health status {other} (2 is NOT_SERVING)"
        ))),
    }
}

pub(crate) async fn within<T>(time: Duration, check: impl Future<Output = Result<T>>) -> Result<T> {
    let late = |_| CheckError::Failed(format!("no response within {time:?}"));
    let checked = tokio::time::timeout(time, check).await;
    checked.map_err(late).flatten()
}

async fn connect(host: &str, port: u16) -> Result<TcpStream> {
    let what = format!("cannot connect to {}", host_and_port(host, port));
    let connected = TcpStream::connect((host, port)).await;
    connected.map_err(CheckError::failed(what))
}

fn host_and_port(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tonic::transport::Server;

    use super::*;

    #[tokio::test]
    async fn grpc_check_succeeds_only_if_the_service_is_serving() {
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
        let good = grpc(address.clone(), "good").await;
        assert!(good.is_ok(), "{good:?}");
        let bad = grpc(address.clone(), "bad").await;
        let text = "gRPC service has health status 2 (2 is NOT_SERVING)";
        assert_eq!(bad.unwrap_err().to_string(), text);
        server.abort();
        let _ = server.await;
        let gone = grpc(address, "good").await;
        assert!(matches!(gone, Err(CheckError::Failed(_))), "{gone:?}");
    }
}
