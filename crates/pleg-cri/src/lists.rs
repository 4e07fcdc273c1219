//! The two list operations. They use streaming lists if the runtime supports them, and unary lists otherwise. They pass
//! each row as bytes to [`rows`] or another decoder, and yield to other tasks of the program, such as its health check,
//! after every 1,000 rows.

use std::marker::PhantomData;
use std::sync::atomic::Ordering;

use pleg_runtime::core::CallError;
use pleg_runtime::{Row, Scope};
use prost::bytes::{Buf, Bytes};
use prost::{DecodeError, Message};
use tonic::codec::{Codec, DecodeBuf, Decoder, Streaming};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::metrics::{self, Operation};
use crate::runtime::CriRuntime;
use crate::{convert, rows, v1};

/// Upper limit of rows in a list, far above the number of containers on a node. A stored row takes much more memory
/// than its encoded bytes, so the maximum message size (`CriConfig::message_limit`) does not bound the memory.
const MOST_ROWS: usize = 100_000;

/// The number of rows that a task decodes before it yields to other tasks.
const PART: usize = 1000;

/// Reads one encoded row.
type Read<'a> = &'a mut (dyn FnMut(&[u8]) -> Result<(), DecodeError> + Send);

/// The streaming and the unary request of a list, each with its method and its message.
struct List<'a, Streamed, Unary> {
    operation: Operation,
    /// The uid of the pod that is listed; empty if the whole node is listed.
    uid: &'a str,
    stream: (&'static str, Streamed),
    unary: (&'static str, Unary),
}

impl CriRuntime {
    pub(crate) async fn sandboxes(
        &self,
        scope: &Scope,
        row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> Result<(), CallError> {
        let mut brief = rows::SandboxRow::default();
        let mut read = |encoded: &[u8]| rows::pass_on(&mut brief, encoded, row);
        self.encoded_sandboxes(scope, &mut read).await
    }

    /// Lists sandboxes and passes each of them to `read` as an encoded `PodSandbox`.
    ///
    /// # Errors
    /// If the call or `read` fails, or if there are more than 100,000 rows.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call; `read` may have been called for some of the rows.
    pub async fn encoded_sandboxes(&self, scope: &Scope, read: Read<'_>) -> Result<(), CallError> {
        let filter = convert::sandbox_filter(scope);
        let list = List {
            operation: Operation::LIST_SANDBOXES,
            uid: uid(scope),
            stream: (
                "/runtime.v1.RuntimeService/StreamPodSandboxes",
                v1::StreamPodSandboxesRequest {
                    filter: filter.clone(),
                },
            ),
            unary: (
                "/runtime.v1.RuntimeService/ListPodSandbox",
                v1::ListPodSandboxRequest { filter },
            ),
        };
        self.list(list, read).await
    }

    pub(crate) async fn containers(
        &self,
        scope: &Scope,
        row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> Result<(), CallError> {
        let mut brief = rows::ContainerRow::default();
        let mut read = |encoded: &[u8]| rows::pass_on(&mut brief, encoded, row);
        self.encoded_containers(scope, &mut read).await
    }

    /// Lists containers and passes each of them to `read` as an encoded `Container`.
    ///
    /// # Errors
    /// If the call or `read` fails, or if there are more than 100,000 rows.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call; `read` may have been called for some of the rows.
    pub async fn encoded_containers(&self, scope: &Scope, read: Read<'_>) -> Result<(), CallError> {
        let filter = convert::container_filter(scope);
        let list = List {
            operation: Operation::LIST_CONTAINERS,
            uid: uid(scope),
            stream: (
                "/runtime.v1.RuntimeService/StreamContainers",
                v1::StreamContainersRequest {
                    filter: filter.clone(),
                },
            ),
            unary: (
                "/runtime.v1.RuntimeService/ListContainers",
                v1::ListContainersRequest { filter },
            ),
        };
        self.list(list, read).await
    }

    async fn list<S, U>(&self, list: List<'_, S, U>, read: Read<'_>) -> Result<(), CallError>
    where
        S: Message + Send + Sync + 'static,
        U: Message + Send + Sync + 'static,
    {
        let mut received = Received {
            read,
            rows: 0,
            largest: 0,
        };
        let (stream, unary) = (list.stream, list.unary);
        let received_now = &mut received;
        let calls = async {
            let received = received_now;
            let connection = self.connection.connections.current();
            let is_unary = self.config().unary_lists
                || self.unary_lists_on_connection.load(Ordering::Relaxed) == connection;
            if !is_unary {
                let (path, request) = stream;
                let call = async {
                    let mut client = self.connection.grpc().await?;
                    let path = PathAndQuery::from_static(path);
                    client
                        .server_streaming(Request::new(request), path, Undecoded::default())
                        .await
                };
                if pages(call, received).await? {
                    return Ok(());
                }
                // The runtime has no streaming lists: use unary lists for as long as this connection lasts.
                self.unary_lists_on_connection
                    .store(connection, Ordering::Relaxed);
            }
            let (path, request) = unary;
            let mut client = self.connection.grpc().await?;
            let path = PathAndQuery::from_static(path);
            let response = client.unary(Request::new(request), path, Undecoded::default());
            received.message(response.await?.into_inner()).await
        };
        let deadline = self.config().call_deadline;
        let connection = &self.connection;
        let listed = connection.operation(list.operation, list.uid, deadline, calls);
        let listed = listed.await;
        if listed.is_ok() && list.uid.is_empty() {
            let limit = self.config().message_limit;
            metrics::listed(list.operation, received.largest, limit);
        }
        listed
    }
}

/// The received part of a list.
struct Received<'a> {
    read: Read<'a>,
    rows: usize,
    /// The bytes of the largest message.
    largest: usize,
}

impl Received<'_> {
    /// Reads the rows of a message. Fails if the list has too many rows.
    async fn message(&mut self, message: Bytes) -> Result<(), Status> {
        // The same gRPC status that tonic returns for a message that it cannot decode.
        let malformed = |error: DecodeError| Status::internal(error.to_string());
        self.largest = message.len().max(self.largest);
        for row in rows::encoded(&message) {
            if self.rows == MOST_ROWS {
                let problem = format!("the list has more than {MOST_ROWS} rows");
                return Err(Status::out_of_range(problem));
            }
            self.rows += 1;
            (self.read)(row.map_err(malformed)?).map_err(malformed)?;
            if self.rows.is_multiple_of(PART) {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }
}

fn uid(scope: &Scope) -> &str {
    match scope {
        Scope::Node => "",
        Scope::Pod(uid) => uid.as_str(),
    }
}

/// Passes on the pages of a streaming list as they arrive. Returns `false` if the runtime does not implement the call.
///
/// The runtime returns `Unimplemented` from the call or, if it has sent the response headers already, in place of the
/// first page. After a page, `Unimplemented` is an error like any other.
async fn pages(
    call: impl Future<Output = Result<Response<Streaming<Bytes>>, Status>>,
    received: &mut Received<'_>,
) -> Result<bool, Status> {
    let unimplemented = |status: &Status| status.code() == Code::Unimplemented;
    let mut stream = match call.await {
        Ok(response) => response.into_inner(),
        Err(status) if unimplemented(&status) => return Ok(false),
        Err(status) => return Err(status),
    };
    let mut started = false;
    loop {
        match stream.message().await {
            Ok(Some(next)) => received.message(next).await?,
            Ok(None) => return Ok(true),
            Err(status) if !started && unimplemented(&status) => return Ok(false),
            Err(status) => return Err(status),
        }
        started = true;
    }
}

/// A codec that encodes requests with prost and does not decode responses.
struct Undecoded<T>(PhantomData<fn() -> T>);

impl<T> Default for Undecoded<T> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: Message + Send + Sync + 'static> Codec for Undecoded<T> {
    type Encode = T;
    type Decode = Bytes;
    type Encoder = <ProstCodec<T, ()> as Codec>::Encoder;
    type Decoder = BytesDecoder;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, ()>::default().encoder()
    }

    fn decoder(&mut self) -> BytesDecoder {
        BytesDecoder
    }
}

struct BytesDecoder;

impl Decoder for BytesDecoder {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(message.copy_to_bytes(message.remaining())))
    }
}
