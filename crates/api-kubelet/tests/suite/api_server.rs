//! An API server in memory: it stores objects by path, with resource versions, conflicts and watches.
//!
//! It provides what a kubelet needs: every change gets the next resource version; an update with an old one is a
//! conflict; `/status` changes the status alone, and other paths leave the status unchanged; a deleted pod stays until
//! a client deletes it without a grace period.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::{Method, StatusCode, Uri, header::CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use kube::core::Status;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

#[derive(Clone, Debug)]
pub(crate) struct ApiServer {
    store: Arc<watch::Sender<Store>>,
    /// The server's address, such as `http://127.0.0.1:41234`.
    pub(crate) url: String,
}

#[derive(Debug, Default)]
struct Store {
    objects: BTreeMap<Key, Value>,
    /// Every change: the path of its collection, its type and the object afterwards.
    changes: Vec<(String, &'static str, Value)>,
    /// If true, every request is answered with 503.
    down: bool,
    /// The number of updates of pod statuses that the server must still answer with 409.
    conflicts: u32,
}

/// The path of a collection, and the name of an object in it.
type Key = (String, String);
/// The path of a requested collection, and the name of the node if only the pods of one node are requested.
type Requested = (String, Option<String>);

/// The path of an object: `/api/v1/namespaces/NS/pods/NAME/status`.
#[derive(Debug)]
struct ObjectPath {
    collection: String,
    name: Option<String>,
    is_status: bool,
}

impl ObjectPath {
    fn parse(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        // The prefix is "api/v1" or "apis/GROUP/VERSION".
        let prefix = if parts.first() == Some(&"api") { 2 } else { 3 };
        let rest = parts.get(prefix..)?;
        let is_namespaced = matches!(rest, ["namespaces", _, _, ..]);
        let kind = if is_namespaced { 2 } else { 0 };
        Some(Self {
            collection: parts.get(..=prefix + kind)?.join("/"),
            name: rest.get(kind + 1).map(|name| (*name).to_owned()),
            is_status: rest.get(kind + 2) == Some(&"status"),
        })
    }

    fn key(&self, name: &str) -> Key {
        (self.collection.clone(), name.to_owned())
    }
}

type Result<T = Value, E = Box<Status>> = std::result::Result<T, E>;

fn refused(code: u16, reason: &str, message: &str) -> Box<Status> {
    Status::failure(message, reason).with_code(code).boxed()
}

impl Store {
    fn changed(&mut self, path: &ObjectPath, kind: &'static str, mut object: Value) -> Value {
        let version = self.changes.len() + 1;
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        let key = path.key(object["metadata"]["name"].as_str().unwrap_or_default());
        match kind {
            "DELETED" => self.objects.remove(&key),
            _ => self.objects.insert(key, object.clone()),
        };
        let change = (path.collection.clone(), kind, object.clone());
        self.changes.push(change);
        object
    }

    fn create(&mut self, path: &ObjectPath, mut object: Value) -> Result {
        let name = object["metadata"]["name"].as_str();
        let name = name.unwrap_or_default().to_owned();
        if self.objects.contains_key(&path.key(&name)) {
            return Err(refused(409, "AlreadyExists", &name));
        }
        object["metadata"]["uid"] = json!(format!("{name}-{}", self.changes.len()));
        Ok(self.changed(path, "ADDED", object))
    }

    fn existing(&self, path: &ObjectPath) -> Result {
        let key = path.key(path.name.as_deref().unwrap_or_default());
        let not_found = || refused(404, "NotFound", &format!("{path:?}"));
        self.objects.get(&key).cloned().ok_or_else(not_found)
    }

    /// Updates an object, or merges a patch into it.
    fn update(&mut self, path: &ObjectPath, given: &Value, patch: bool) -> Result {
        let mut object = self.existing(path)?;
        if path.is_status && path.collection.ends_with("/pods") && self.conflicts > 0 {
            self.conflicts -= 1;
            return Err(refused(409, "Conflict", "as the test wants"));
        }
        for field in ["resourceVersion", "uid"] {
            let (own, given) = (&object["metadata"][field], &given["metadata"][field]);
            if !given.is_null() && own != given {
                let message = format!("{field} is {own}, not {given}");
                return Err(refused(409, "Conflict", &message));
            }
        }
        let status = object["status"].clone();
        match (path.is_status, patch) {
            (true, false) => object["status"] = given["status"].clone(),
            (true, true) => json_patch::merge(&mut object["status"], &given["status"]),
            (false, false) => object = given.clone(),
            (false, true) => json_patch::merge(&mut object, given),
        }
        if !path.is_status {
            object["status"] = status;
        }
        Ok(self.changed(path, "MODIFIED", object))
    }

    fn delete(&mut self, path: &ObjectPath, options: &Value) -> Result {
        let mut object = self.existing(path)?;
        let expected = &options["preconditions"]["uid"];
        if !expected.is_null() && *expected != object["metadata"]["uid"] {
            return Err(refused(409, "Conflict", "uid"));
        }
        let given = options["gracePeriodSeconds"].as_i64();
        let own = object["spec"]["terminationGracePeriodSeconds"].as_i64();
        let grace = given.or(own).unwrap_or(30);
        if grace == 0 || !path.collection.ends_with("/pods") {
            return Ok(self.changed(path, "DELETED", object));
        }
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        object["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        Ok(self.changed(path, "MODIFIED", object))
    }
}

/// Returns true if `requested` includes an object of the collection `of`: `requested` is that path, or that kind in
/// all namespaces, and the object is on the requested node.
fn selected((requested, node): &Requested, of: &str, object: &Value) -> bool {
    let kind = |path: &str| path.rsplit('/').next().map(str::to_owned);
    let is_in_all = !requested.contains("/namespaces/") && kind(requested) == kind(of);
    let is_there = |node: &String| object["spec"]["nodeName"] == node.as_str();
    (requested == of || is_in_all) && node.as_ref().is_none_or(is_there)
}

impl ApiServer {
    /// Serves the API on a free port until the tokio runtime ends.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            store: Arc::default(),
            url: format!("http://{}", listener.local_addr().unwrap()),
        };
        let router = Router::new().fallback(answer).with_state(server.clone());
        drop(tokio::spawn(async { axum::serve(listener, router).await }));
        server
    }

    /// Applies a request to the stored object at `path`. Calls by the test work even while the server is down.
    pub(crate) fn request(&self, method: &Method, path: &str, body: &Value) -> Result {
        let path = ObjectPath::parse(path).ok_or_else(|| refused(404, "NotFound", "path"))?;
        let mut done = Err(refused(405, "MethodNotAllowed", ""));
        self.store.send_modify(|store| {
            done = match *method {
                Method::GET => store.existing(&path),
                Method::POST => store.create(&path, body.clone()),
                Method::PUT => store.update(&path, body, false),
                Method::PATCH => store.update(&path, body, true),
                _ => store.delete(&path, body),
            }
        });
        done
    }

    /// Every version of every object of a collection, in the order of the changes.
    pub(crate) fn history(&self, collection: &str) -> Vec<Value> {
        let store = self.store.borrow();
        let of = store.changes.iter().filter(|change| change.0 == collection);
        of.map(|change| change.2.clone()).collect()
    }

    /// From now on, the server answers every HTTP request with 503 if `down` is true, and serves it otherwise.
    pub(crate) fn set_down(&self, down: bool) {
        self.store.send_modify(|store| store.down = down);
    }

    /// Makes the server answer the next `conflicts` updates of pod statuses with a conflict.
    pub(crate) fn answer_conflicts(&self, conflicts: u32) {
        self.store.send_modify(|store| store.conflicts = conflicts);
    }

    fn list(&self, requested: &Requested) -> Value {
        let store = self.store.borrow();
        let objects = store.objects.iter();
        let items = objects.filter(|(of, object)| selected(requested, &of.0, object));
        let items: Vec<&Value> = items.map(|(_, object)| object).collect();
        let metadata = json!({"resourceVersion": store.changes.len().to_string()});
        json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items})
    }

    /// The lines of a watch: every change after the resource version `after`.
    fn watch(self, requested: Requested, after: usize) -> Body {
        let start = (self.store.subscribe(), after);
        let lines = futures::stream::unfold(start, move |(mut stored, seen)| {
            let requested = requested.clone();
            async move {
                let has_more = |store: &Store| store.changes.len() > seen;
                let store = stored.wait_for(has_more).await.ok()?;
                let changes = store.changes.iter().skip(seen);
                let changes = changes.filter(|(of, _, object)| selected(&requested, of, object));
                let lines =
                    changes.map(|(_, kind, object)| json!({"type": kind, "object": object}));
                let lines: String = lines.map(|line| format!("{line}\n")).collect();
                let seen = store.changes.len();
                drop(store);
                Some((Ok::<_, Infallible>(Bytes::from(lines)), (stored, seen)))
            }
        });
        Body::from_stream(lines)
    }
}

async fn answer(
    State(server): State<ApiServer>,
    method: Method,
    uri: Uri,
    Query(query): Query<HashMap<String, String>>,
    body: Bytes,
) -> Response {
    let answered = move || {
        if server.store.borrow().down {
            return Err(refused(503, "ServiceUnavailable", "down"));
        }
        let path = ObjectPath::parse(uri.path()).ok_or_else(|| refused(404, "NotFound", "path"))?;
        if method == Method::GET && path.name.is_none() {
            let after = query.get("resourceVersion").and_then(|v| v.parse().ok());
            let selector = query.get("fieldSelector");
            let node = selector.and_then(|by| by.strip_prefix("spec.nodeName="));
            let requested = (path.collection, node.map(str::to_owned));
            return Ok(match query.get("watch").is_some_and(|w| w != "false") {
                true => server.watch(requested, after.unwrap_or(0)),
                false => server.list(&requested).to_string().into(),
            });
        }
        let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let object = server.request(&method, uri.path(), &body)?;
        Ok(object.to_string().into())
    };
    let (code, body) = match answered() {
        Ok(body) => (200, body),
        Err(status) => (status.code, json!(status).to_string().into()),
    };
    let code = StatusCode::from_u16(code).unwrap();
    (code, [(CONTENT_TYPE, "application/json")], body).into_response()
}
