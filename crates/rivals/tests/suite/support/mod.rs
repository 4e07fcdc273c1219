//! A runtime made by hand, the kubelet's side as far as the failures need it, and how each subject
//! is started. Time is paused: it passes when everybody waits, and everybody's wall clock with it.

mod kubelet;
mod node;

use std::time::Duration;

use pleg::Pleg;
use pleg_core::{ContainerDetails, Details, Identity, Kind, Report, Shown, WallTime};
use pleg_runtime::clock::{Clock, wall};
use rivals::{
    Evented, EventedSettings, Fifo, Generic, GenericSettings, Hint, HintSettings, Ours, Stamps,
    Subject,
};

pub(crate) use kubelet::{Deed, PodWorker, SyncLoop};
pub(crate) use node::{Node, Op, pod};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// A sandbox of the pod with the id `UID-NAME`.
pub(crate) fn sandbox(uid: &str, name: &str, shown: Shown) -> Report {
    report(Kind::Sandbox, uid, name, shown)
}

/// A container of the pod with the id `UID-NAME`, in the sandbox `UID-s`.
pub(crate) fn container(uid: &str, name: &str, shown: Shown) -> Report {
    report(Kind::Container, uid, name, shown)
}

/// The same, ended.
pub(crate) fn exited(uid: &str, name: &str, code: i32) -> Report {
    let details = ContainerDetails {
        exit_code: Some(code),
        reason: if code == 0 { "Completed" } else { "Error" }.into(),
        ..ContainerDetails::default()
    };
    Report {
        details: Details::from(details),
        ..container(uid, name, Shown::Exited)
    }
}

/// As the nth one of its name.
pub(crate) fn attempt(mut report: Report, nth: u32) -> Report {
    report.identity.attempt = nth;
    let created = 1_700_000_000_000_000_000 + i64::from(nth) * 1_000_000_000;
    report.identity.created_at = WallTime::claimed(created);
    report
}

fn report(kind: Kind, uid: &str, name: &str, shown: Shown) -> Report {
    let of_container = kind == Kind::Container;
    let identity = Identity {
        pod: Some(uid.into()),
        namespace: Some("ns".into()),
        pod_name: Some(uid.into()),
        sandbox: of_container.then(|| format!("{uid}-s").into()),
        name: of_container.then(|| name.into()),
        created_at: WallTime::claimed(1_700_000_000_000_000_000),
        ..Identity::unknown(kind)
    };
    Report {
        id: format!("{uid}-{name}").into(),
        shown,
        identity,
        details: Details::none(kind),
    }
}

impl Node {
    /// A pod with a ready sandbox and nothing in it.
    pub(crate) fn run_sandbox(&self, uid: &str) {
        self.put(sandbox(uid, "s", Shown::Running));
    }

    /// A pod with a sandbox `UID-s` and one container `UID-c`, both running.
    pub(crate) fn run_pod(&self, uid: &str) {
        self.run_sandbox(uid);
        self.put(container(uid, "c", Shown::Running));
    }
}

/// Our own.
pub(crate) fn ours(node: &Node) -> (Ours, Fifo) {
    let clock = Clock::start_at(wall());
    Ours::start(Pleg::builder(node.clone()).clock(clock)).unwrap()
}

/// Upstream's classic design with containerd, as of 1.26 to 1.28.
pub(crate) fn evented_1_28(node: &Node) -> (Evented<Node>, Fifo) {
    let settings = EventedSettings {
        barrier: false,
        on_demand: false,
        ..EventedSettings::default()
    };
    Evented::start(node.clone(), &settings)
}

/// As of 1.29 to 1.35.
pub(crate) fn evented_1_35(node: &Node) -> (Evented<Node>, Fifo) {
    let settings = EventedSettings {
        on_demand: false,
        ..EventedSettings::default()
    };
    Evented::start(node.clone(), &settings)
}

/// As of 1.36.
pub(crate) fn evented_1_36(node: &Node) -> (Evented<Node>, Fifo) {
    Evented::start(node.clone(), &EventedSettings::default())
}

/// As of 1.36, with CRI-O, which stamps its statuses.
pub(crate) fn evented_on_crio(node: &Node) -> (Evented<Node>, Fifo) {
    let settings = EventedSettings {
        stamps: Stamps::AtRead,
        ..EventedSettings::default()
    };
    Evented::start(node.clone(), &settings)
}

/// Upstream's generic design as of 1.36.
pub(crate) fn generic(node: &Node) -> (Generic<Node>, Fifo) {
    Generic::start(node.clone(), GenericSettings::default())
}

/// Upstream's hint design as of 1.37.
pub(crate) fn hint(node: &Node) -> (Hint<Node>, Fifo) {
    Hint::start(node.clone(), &HintSettings::default())
}

/// Lets so much time pass.
pub(crate) async fn pass<S: Subject>(subject: &S, time: Duration) {
    let clock = subject.clock();
    clock.sleep_until(clock.now().after(time)).await;
}

/// Lets time pass until that is so, at most 20 minutes; how long it took, to the millisecond
/// within the first ten seconds, then to the tenth of a second.
pub(crate) async fn until<S: Subject>(
    subject: &S,
    mut so: impl FnMut() -> bool,
) -> Option<Duration> {
    let clock = subject.clock();
    let began = clock.now();
    while !so() {
        if clock.now().since(began) > 20 * MINUTE {
            return None;
        }
        let early = clock.now().since(began) < 10 * SECOND;
        let step = if early { MS } else { 100 * MS };
        clock.sleep_until(clock.now().after(step)).await;
    }
    Some(clock.now().since(began))
}

/// Fails the test rather than hang.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(20 * MINUTE, what)
        .await
        .expect("in time")
}

/// Until the stream is drained and what there is is cached.
pub(crate) async fn settled<S: Subject>(subject: &S, node: &Node, uid: &str) {
    let cached = || !subject.get(&uid.into()).status.is_nothing();
    let took = until(subject, || node.streams() == 1 && cached()).await;
    assert!(took.is_some(), "it never settled");
    pass(subject, 10 * MS).await;
}

/// `p Died p-c`, `p PodSync`, as far as they are there.
pub(crate) fn drain(fifo: &mut Fifo) -> Vec<String> {
    let all = std::iter::from_fn(|| fifo.try_next());
    all.map(|e| {
        let what = e.event.as_str().trim_start_matches("Container");
        match e.data {
            Some(id) => format!("{} {what} {id}", e.uid),
            None => format!("{} {what}", e.uid),
        }
    })
    .collect()
}

/// Forgets what was announced so far.
pub(crate) fn forget(fifo: &mut Fifo) {
    while fifo.try_next().is_some() {}
}

/// The state in which the cache shows a container by that name.
pub(crate) fn cached<S: Subject>(subject: &S, uid: &str, name: &str) -> Option<Shown> {
    let answer = subject.get(&uid.into());
    answer.status.container(name).map(|r| r.shown)
}
