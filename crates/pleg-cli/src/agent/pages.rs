//! The agent's responses, by path.

use std::net::IpAddr;

use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Incoming;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST, WWW_AUTHENTICATE};
use hyper::http::uri::Authority;
use hyper::{Method, Request, StatusCode};
use serde::{Deserialize, Serialize};

use super::*;
use crate::{json, page};

/// For this long, the same rendered response is sent to all clients, so that frequent requests cost little.
const RENDERED_FOR: Duration = Duration::from_millis(250);
const MOST_PODS: usize = 500;
const TEXT: &str = "text/plain; charset=utf-8";
const MISDIRECTED: &str = "the header Host must have an IP address or localhost: a page of another site must not \
     read from this one\n";

pub(super) struct Pages {
    pub(super) metrics: Metrics,
    pub(super) rendered: Rendered,
    pub(super) observer: Arc<Observer>,
    pub(super) live_clients: Arc<Semaphore>,
    /// The agent listens on loopback and checks no tokens or certificates: any process of this host may read all.
    pub(super) is_open_to_host: bool,
}

impl Pages {
    /// A client without a token gets only the status of `/healthz` and `/readyz`, and the page at `/`, without data.
    pub(super) fn reply(&self, request: &Request<Incoming>, allowed: bool) -> Reply {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let headers = [(CONTENT_TYPE, TEXT), (ALLOW, "GET, HEAD")];
            return http::reply(StatusCode::METHOD_NOT_ALLOWED, &headers, "only GET\n");
        }
        // `/metrics` names no pods, so it ignores the `Host` header, in which a proxy may pass on its own name.
        let is_foreign = self.is_open_to_host && !names_this_host(request);
        let query = request.uri().query().unwrap_or_default();
        match (request.uri().path(), allowed && !is_foreign) {
            ("/", _) => page::reply(),
            ("/healthz", _) => self.alive(),
            ("/readyz", true) => self.ready(query.split('&').any(|p| p.starts_with("verbose"))),
            ("/readyz", false) => match self.health().ready() {
                // A bare "ok" would mean that the node has no findings; this response leaves findings out.
                Ok(()) => found(TEXT, "ok (brief)\n"),
                Err(_) => unavailable("not ready\n"),
            },
            ("/metrics", _) if allowed => self.metrics(),
            (_, false) if allowed => text(StatusCode::MISDIRECTED_REQUEST, MISDIRECTED),
            (_, false) => {
                let headers = [(CONTENT_TYPE, TEXT), (WWW_AUTHENTICATE, "Bearer")];
                http::reply(StatusCode::UNAUTHORIZED, &headers, "unauthorized\n")
            }
            ("/debug/pods", true) => self.pods(),
            ("/debug/events", true) => self.events(query),
            (path @ ("/debug/view" | "/debug/live"), true) => match Query::from_parameters(query) {
                Err(why) => text(StatusCode::BAD_REQUEST, format!("{why}\n")),
                Ok(query) if path == "/debug/live" => self.live(request, query),
                Ok(query) => json_reply(&self.observer.view(&query)),
            },
            _ => text(StatusCode::NOT_FOUND, "not found\n"),
        }
    }

    /// The response on `--health-listen`, for the kubelet's probes: liveness and readiness, without the names of pods.
    pub(super) fn probe(&self, request: &Request<Incoming>) -> Reply {
        match request.uri().path() {
            "/healthz" | "/readyz" => self.reply(request, false),
            _ => text(StatusCode::NOT_FOUND, "only /healthz and /readyz\n"),
        }
    }

    fn health(&self) -> HealthWatch {
        self.observer.pleg.health()
    }

    fn metrics(&self) -> Reply {
        let metrics = self.rendered.get(self.observer.pleg.now(), || {
            self.health().show_metrics();
            self.metrics.render()
        });
        found("text/plain; version=0.0.4; charset=utf-8", metrics)
    }

    fn alive(&self) -> Reply {
        match alive(&self.health().ready()) {
            Ok(()) => found(TEXT, "ok\n"),
            Err(reason) => unavailable(format!("not alive: {reason}\n")),
        }
    }

    /// Readiness: the agent is ready if it knows the node's pods. Findings about other things change only the text.
    fn ready(&self, verbose: bool) -> Reply {
        let (view, picture) = self.observer.view_and_picture(&Query::default());
        let pods = &picture.problems;
        match (verbose, picture.ready.is_ok()) {
            (true, true) => found(TEXT, checks::verbose(&view, pods)),
            (true, false) => unavailable(checks::verbose(&view, pods)),
            (false, true) => found(TEXT, checks::brief(&view, pods)),
            (false, false) => unavailable(checks::brief(&view, pods)),
        }
    }

    fn pods(&self) -> Reply {
        let (all, clock) = (self.health().pod_problems(), self.observer.pleg.clock());
        let shown = all.iter().take(MOST_PODS);
        let problems: Vec<Value> = shown.map(|p| problem(p, clock)).collect();
        let time = json::utc(clock.wall()).to_string();
        json_reply(&json!({ "time": time, "total": all.len(), "problems": problems }))
    }

    /// The view as server-sent events, and the records after the one that the header `Last-Event-ID` names.
    fn live(&self, request: &Request<Incoming>, query: Query) -> Reply {
        let Ok(permit) = self.live_clients.clone().try_acquire_owned() else {
            return unavailable("too many clients of /debug/live; close another page\n");
        };
        let last = request.headers().get("last-event-id");
        let last = last.and_then(|id| id.to_str().ok());
        let stream = live::stream(permit, self.observer.clone(), query, last);
        let headers = [
            (CONTENT_TYPE, "text/event-stream"),
            (CACHE_CONTROL, "no-store"),
        ];
        http::reply(StatusCode::OK, &headers, "").map(|_| StreamBody::new(stream).boxed_unsync())
    }

    fn events(&self, query: &str) -> Reply {
        let Ok(Wanted { after, since }) = serde_html_form::from_str(query) else {
            let body = "after and since must be whole numbers\n";
            return text(StatusCode::BAD_REQUEST, body);
        };
        let wall = self.observer.pleg.clock().wall();
        let since = since.map(|seconds| wall.before(Duration::from_secs(seconds)));
        let page = self.observer.lines(since, after.unwrap_or(0));
        found("application/x-ndjson", page.into_bytes())
    }
}

#[derive(Deserialize)]
struct Wanted {
    after: Option<u64>,
    /// Selects only records from the last `since` seconds before the request.
    since: Option<u64>,
}

/// Liveness: `Ok` if the generator has not ended and its reconciler's work is not overdue, even if the runtime hangs.
pub(super) const fn alive(ready: &Result<(), NotReady>) -> Result<(), &NotReady> {
    match ready {
        Err(reason @ (NotReady::Stalled { .. } | NotReady::Closed)) => Err(reason),
        _ => Ok(()),
    }
}

/// The JSON of `/debug/pods` for a pod whose calls hang or fail. Leaves out fields that do not apply.
fn problem(problem: &PodProblem, clock: Clock) -> Value {
    json::applicable(json!({
        "pod": Pod::from(&problem.pod),
        "problem": problem.kind.as_str(),
        "call": problem.operation,
        "id": problem.id.as_ref().map(ToString::to_string),
        "container": Some(&*problem.container).filter(|name| !name.is_empty()),
        "since": json::utc(clock.wall_at(problem.since)).to_string(),
        "seconds": clock.now().since(problem.since).as_secs_f64(),
        "error": problem.error.as_ref().map(ToString::to_string),
    }))
}

/// A response that is rendered at most once per [`RENDERED_FOR`].
#[derive(Default)]
pub(super) struct Rendered(Mutex<Option<(Instant, Bytes)>>);

impl Rendered {
    fn get(&self, now: Instant, render: impl FnOnce() -> String) -> Bytes {
        let mut last = self.0.lock();
        let recent = last.take().filter(|(at, _)| now.since(*at) < RENDERED_FOR);
        let (_, body) = last.insert(recent.unwrap_or_else(|| (now, render().into())));
        body.clone()
    }
}

/// Returns true if the request names an IP address or localhost. A name that another site has pointed to this host (DNS
/// rebinding) must not give that site's pages access. Browsers always send a `Host` header.
fn names_this_host(request: &Request<Incoming>) -> bool {
    let Some(host) = request.headers().get(HOST) else {
        return true;
    };
    Authority::try_from(host.as_bytes()).is_ok_and(|authority| {
        let host = authority.host();
        let ip = host.trim_start_matches('[').trim_end_matches(']');
        ip.parse::<IpAddr>().is_ok() || host.eq_ignore_ascii_case("localhost")
    })
}

fn text(code: StatusCode, body: impl Into<Bytes>) -> Reply {
    http::reply(code, &[(CONTENT_TYPE, TEXT)], body)
}

fn unavailable(body: impl Into<Bytes>) -> Reply {
    text(StatusCode::SERVICE_UNAVAILABLE, body)
}

fn found(format: &'static str, body: impl Into<Bytes>) -> Reply {
    http::reply(StatusCode::OK, &[(CONTENT_TYPE, format)], body)
}

fn json_reply(object: &impl Serialize) -> Reply {
    found("application/json", json::line(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_is_rendered_at_most_once_per_250_ms() {
        let rendered = Rendered::default();
        let mut count = 0;
        let at = |ms| Instant::ORIGIN.after(Duration::from_millis(ms));
        for ms in 1_000..1_500 {
            let body = rendered.get(at(ms), || {
                count += 1;
                ms.to_string()
            });
            assert_eq!(&*body, if ms < 1_250 { b"1000" } else { b"1250" });
        }
        assert_eq!(count, 2);
    }

    #[test]
    fn only_a_stalled_or_ended_generator_is_not_alive() {
        let [elapsed, threshold, overdue] = [Duration::from_secs(1); 3];
        use NotReady::{Closed, NeverListed, Stale, Stalled};
        for ready in [Ok(()), Err(NeverListed), Err(Stale { elapsed, threshold })] {
            assert!(alive(&ready).is_ok(), "{ready:?}");
        }
        for ready in [Stalled { overdue }, Closed].map(Err) {
            assert!(alive(&ready).is_err(), "{ready:?}");
        }
    }
}
