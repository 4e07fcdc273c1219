//! Tests that the log and `pod_problems` name every pod for which calls to the runtime hang or fail, with the call.

use pleg::core::CallErrorKind;
use pleg::{Pleg, PodProblemKind};
use tracing::Level;

use crate::support::{
    FakeRuntime, MINUTE, MS, Op, SECOND, Trace, is_soon_after, pass, polling, synced, until,
};

fn named(pleg: &Pleg) -> Vec<(String, PodProblemKind, &'static str)> {
    let problems = pleg.health().pod_problems();
    let problems = problems.iter();
    problems
        .map(|p| (p.pod.uid.to_string(), p.kind, p.operation))
        .collect()
}

/// Requests the details of a pod, so that the generator reads it.
fn inspect(pleg: &Pleg, uid: &str) {
    let (pleg, uid) = (pleg.clone(), uid.into());
    tokio::spawn(async move { pleg.details_newer_than(&uid, pleg.now(), MINUTE).await });
}

/// Seven pods hang: health names only five of them, but the list of problems must name all seven.
#[tokio::test(start_paused = true)]
async fn hung_pod_is_reported_when_the_hang_begins_and_ends() {
    let (log, _guard) = Trace::start(Level::INFO);
    let node = FakeRuntime::new();
    (0..9).for_each(|n| node.run_pod(&format!("p{n}")));
    let pleg = synced(&node, polling()).await;
    pass(&pleg, SECOND).await;
    let began = pleg.now();
    for n in 0..7 {
        node.hang(Op::status(&format!("p{n}-c")));
        inspect(&pleg, &format!("p{n}"));
    }
    until(&pleg, || named(&pleg).len() == 7).await;
    let took = pleg.now().since(began);
    assert!(took <= 2 * SECOND + 110 * MS, "{took:?}");
    let hung = |n| (format!("p{n}"), PodProblemKind::Hung, "ContainerStatus");
    assert_eq!(named(&pleg), (0..7).map(hung).collect::<Vec<_>>());
    let problem = pleg.health().pod_problems()[0].clone();
    assert_eq!(&*problem.container, "c");
    assert!(is_soon_after(problem.since, began));
    let text = "ContainerStatus does not answer (container c p0-c)";
    assert_eq!(problem.to_string(), text);
    let line = |n| {
        let text = format!("ContainerStatus does not answer (container c p{n}-c)");
        format!("WARN p{n} ContainerStatus calls about a pod do not succeed: {text}")
    };
    assert_eq!(log.take(), (0..7).map(line).collect::<Vec<_>>());

    // The calls time out and are retried, but the problem of each pod stays the same.
    pass(&pleg, 20 * SECOND).await;
    assert_eq!(log.take(), <[&str; 0]>::default());
    let problems = pleg.health().pod_problems();
    assert!(problems.iter().all(|p| is_soon_after(p.since, began)));
    (0..7).for_each(|n| node.release(&Op::status(&format!("p{n}-c"))));
    until(&pleg, || named(&pleg).is_empty()).await;
    let ends = log.take();
    assert_eq!(ends.len(), 7, "{ends:#?}");
    for (n, line) in ends.iter().enumerate() {
        let begin = format!("INFO p{n} ContainerStatus calls about a pod succeed again after ");
        assert!(line.starts_with(&begin), "{line}");
    }
    pleg.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn failing_pods_are_named_with_the_call_that_fails() {
    let node = FakeRuntime::new();
    ["p", "q", "r"].iter().for_each(|uid| node.run_pod(uid));
    let pleg = synced(&node, polling()).await;
    node.fail(Op::status("p-s"), CallErrorKind::Failed);
    node.fail(Op::status("q-c"), CallErrorKind::NotFound);
    for uid in ["p", "q", "r"] {
        inspect(&pleg, uid);
    }
    until(&pleg, || named(&pleg).len() == 2).await;
    let problems = pleg.health().pod_problems();
    let texts: Vec<_> = problems
        .iter()
        .map(|p| format!("{}: {} {p}", p.pod.uid, p.kind.as_str()))
        .collect();
    let expected = [
        "p: failing PodSandboxStatus: test error (sandbox p-s)",
        "q: status_missing listed, but ContainerStatus returns NotFound (container c q-c)",
    ];
    assert_eq!(texts, expected);
    pleg.shutdown().await;
}

/// A failure of the whole runtime is not a problem of each pod, and no pod recovers while the runtime fails.
#[tokio::test(start_paused = true)]
async fn pod_does_not_recover_while_the_whole_runtime_fails() {
    let node = FakeRuntime::new();
    ["p", "q"].iter().for_each(|uid| node.run_pod(uid));
    let pleg = synced(&node, polling()).await;
    node.fail(Op::status("p-c"), CallErrorKind::Failed);
    inspect(&pleg, "p");
    until(&pleg, || named(&pleg).len() == 1).await;
    let (log, _guard) = Trace::start(Level::INFO);
    let all = [Op::List, Op::pod("p"), Op::pod("q"), Op::Version];
    for op in &all {
        node.fail(op.clone(), CallErrorKind::Unavailable);
    }
    node.succeed(&Op::status("p-c"));
    pass(&pleg, 30 * SECOND).await;
    assert_eq!(named(&pleg).len(), 1, "{:?}", named(&pleg));
    assert_eq!(log.take(), <[&str; 0]>::default());
    all.iter().for_each(|op| node.succeed(op));
    until(&pleg, || named(&pleg).is_empty()).await;
    assert_eq!(log.take().len(), 1);
    pleg.shutdown().await;
}
