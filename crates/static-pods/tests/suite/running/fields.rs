//! Lifecycle hooks that a pod's worker calls, and a field that makes the worker refuse the pod.

use pleg_cri::v1::{ContainerState, ListContainersRequest};
use pleg_sim::Mode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::node::{Node, ONE, manifest, one};

/// A server, and the `httpGet` of a hook that sends requests for a path to it.
async fn server() -> (TcpListener, impl Fn(&str) -> String) {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = server.local_addr().unwrap().port();
    let hook =
        move |path: &str| format!("{{httpGet: {{host: 127.0.0.1, port: {port}, path: {path}}}}}");
    (server, hook)
}

/// The next request to `server`, and the connection on which its response is sent.
async fn request(server: &TcpListener) -> (String, TcpStream) {
    let (mut stream, _) = server.accept().await.unwrap();
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        read.push(stream.read_u8().await.unwrap());
    }
    let text = String::from_utf8(read).unwrap();
    (text.lines().next().unwrap_or_default().to_owned(), stream)
}

async fn respond(mut stream: TcpStream, status: &str) {
    let response = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    stream.write_all(response.as_bytes()).await.unwrap();
}

#[tokio::test]
async fn hooks_run_after_container_start_and_before_container_stop() {
    let node = Node::up(Mode::Containerd2).await;
    let (server, hook) = server().await;
    let (start, stop) = (hook("/start"), hook("/stop"));
    let hooks = format!("lifecycle: {{postStart: {start}, preStop: {stop}}}");
    let uid = node.set("p", &one(&hooks));
    // The first postStart hook gets no response, so the container is stopped and another one is started.
    for path in ["/start", "/stop"] {
        assert_eq!(request(&server).await.0, format!("GET {path} HTTP/1.1"));
    }
    let (line, stream) = request(&server).await;
    assert_eq!(line, "GET /start HTTP/1.1");
    respond(stream, "200 OK").await;
    node.until_running(&uid).await;
    node.workers.delete(&uid);
    let (line, stream) = request(&server).await;
    assert_eq!(line, "GET /stop HTTP/1.1");
    let mut client = node.runtime().runtime_client();
    let listed = client.list_containers(ListContainersRequest::default());
    let containers = listed.await.unwrap().into_inner().containers;
    assert_eq!(containers[0].state(), ContainerState::ContainerRunning);
    // Any response will do.
    respond(stream, "500 Error").await;
    node.until_gone(&uid).await;
}

#[tokio::test]
async fn hung_post_start_hook_does_not_delay_a_deletion() {
    let node = Node::up(Mode::Containerd2).await;
    let (server, hook) = server().await;
    let next = "}, {name: next, image: 'app:1'";
    let hooks = format!("lifecycle: {{postStart: {}}}{next}", hook("/"));
    let uid = node.set("p", &one(&hooks));
    let _unanswered = request(&server).await;
    node.workers.delete(&uid);
    let gone = |node: &Node| {
        let seen = node.seen(&uid);
        assert!(seen.container("next").is_none(), "next is not started");
        !seen.exists()
    };
    node.until(&uid, "gone", gone).await;
}

/// The unsupported field is set after parsing, because the parser would refuse it.
#[tokio::test]
async fn pod_with_an_unsupported_field_does_not_start() {
    let node = Node::up(Mode::Containerd2).await;
    let mut manifest = manifest("p", "{}", ONE);
    manifest.pod.spec.as_mut().unwrap().host_users = Some(false);
    let uid = node.set_manifest(manifest);
    node.until_waiting(&uid, "ContainerCreating").await;
    let names_field = |node: &Node| {
        let message = node.container(&uid)["state"]["waiting"]["message"].to_string();
        message.contains("spec.hostUsers: ")
    };
    node.until(&uid, "refused", names_field).await;
    assert!(!node.seen(&uid).exists());
}
