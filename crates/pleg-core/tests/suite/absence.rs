//! An id is removed from the cache only if it is proven that the runtime no longer has it.

use pleg_core::CallErrorKind::{Failed, NotFound};
use pleg_core::EventType::{Deleted, Started, Stopped};

use crate::node::{exited, running};
use crate::script::{Event, Script};

#[test]
fn id_missing_from_a_complete_relist_is_removed() {
    let mut t = Script::with(&["web"]);
    t.node.remove("web");
    t.relist();
    t.expect(&["Died web", "Removed web"]);
    t.node.remove("s");
    t.relist();
    t.expect(&["Died s", "Removed s"]);
    t.relist();
    t.expect_calls(&["relist", "relist", "relist"]);
    assert!(t.cache.is_empty());
}

#[test]
fn failed_relist_or_pod_list_removes_no_id() {
    let mut t = Script::with(&["web"]);
    t.node.remove("web");
    (t.node.relists_fail, t.node.pod_lists_fail) = (Some(Failed), Some(Failed));
    t.relist();
    t.read();
    t.pass(10_000);
    t.expect_nothing();
    assert_eq!(t.cached("web"), "Running");
    assert!(t.listed[0].is_err());
}

#[test]
fn id_missing_from_pod_list_is_removed_after_not_found() {
    let mut t = Script::with(&["web"]);
    t.node.hide_row("web");
    let worker = t.read();
    assert_eq!(t.answered(worker, "web"), "Running");
    t.node.remove("web");
    let worker = t.read();
    t.expect(&["Died web", "Removed web"]);
    t.expect_calls(&["list p", "status web", "list p", "status web"]);
    assert_eq!(t.answered(worker, "web"), "none");
    t.node.remove("s");
    let request = t.request_read("p");
    t.expect(&["Died s", "Removed s"]);
    assert!(!t.view(request).status.exists());
}

#[test]
fn id_missing_from_pod_list_is_removed_after_deleted_event() {
    let of_sandbox = Event::of(Deleted, exited("s", None));
    for (id, event) in [("web", Event::nil(Deleted, "web")), ("s", of_sandbox)] {
        let mut t = Script::with(&["web"]);
        t.node.remove(id);
        t.send(event);
        t.pass(300);
        t.expect(&[&format!("Died {id}"), &format!("Removed {id}")]);
        t.expect_calls(&["list p"]);
    }
}

/// containerd sends a sandbox's DELETED before it deletes the sandbox from its store, and may be killed in between.
#[test]
fn deleted_event_does_not_remove_an_id_that_reads_show() {
    let mut t = Script::with(&["web"]);
    t.exits("web", 3);
    t.send(Event::nil(Deleted, "web"));
    let worker = t.read();
    t.pass(30_000);
    t.expect(&["Died web 3"]);
    assert_eq!(t.answered(worker, "web"), "Exited 3");
    assert_eq!(t.cached("web"), "Exited 3");
}

#[test]
fn unlisted_id_stays_until_its_failed_status_is_retried() {
    let mut t = Script::with(&["web"]);
    t.node.remove("web");
    t.node.fail_status("web", Failed);
    // The second read requests no status, because the status call is in back-off.
    for _ in 0..2 {
        let worker = t.read();
        assert_eq!(t.answered(worker, "web"), "Running error");
    }
    t.node.heal_status("web");
    t.pass(900);
    assert_eq!(t.cached("web"), "Running error");
    t.pass(200);
    t.expect(&["Died web", "Removed web"]);
}

#[test]
fn stopped_event_of_unlisted_id_does_not_prove_it_exists() {
    let mut t = Script::with(&["web"]);
    t.node.remove("web");
    t.node.fail_status("web", Failed);
    t.read();
    t.forget();
    t.send(Event::of(Stopped, exited("web", 3)));
    assert_eq!(t.cached("web"), "Exited 3 error");
    t.expect_calls(&["list p", "status web", "version"]);
}

#[test]
fn listed_id_gets_status_missing_and_backoff_after_not_found() {
    let mut t = Script::with(&["web"]);
    t.node.set_row(exited("web", None));
    t.node.fail_status("web", NotFound);
    let worker = t.read();
    assert_eq!(t.answered(worker, "web"), "Exited missing");
    t.forget();
    let worker = t.read();
    assert_eq!(t.answered(worker, "web"), "Exited missing");
    t.expect_calls(&["list p"]);
    t.pass(60_000);
    // The status is read again after 2 s, for a late exit reason, and after 1, 2, 4, 8, 16 and 32 s of back-off.
    let retries = t.count("status web");
    assert!((5..=8).contains(&retries), "{retries}");
    t.node.heal_status("web");
    t.node.exit("web", 3);
    t.pass(60_000);
    t.expect(&["Changed web 3"]);
    assert_eq!(t.cached("web"), "Exited 3");
}

/// The container was removed after the list that showed its row, and before its status call.
#[test]
fn id_with_status_missing_is_gone_once_no_longer_listed() {
    for is_relisted in [false, true] {
        let mut t = Script::with(&["web"]);
        t.node.set_row(exited("web", None));
        t.node.fail_status("web", NotFound);
        t.read();
        t.pass(50);
        t.expect(&["Died web"]);
        if is_relisted {
            // A relist that shows the row again does not end the retries of the stale read.
            t.relist();
        }
        t.node.remove("web");
        t.forget();
        t.pass(60);
        t.expect(&["Removed web"]);
        t.expect_calls(&["list p"]);
    }
}

/// containerd omits a container whose load timed out, and lists it again after the next restart of containerd.
#[test]
fn gone_id_that_a_row_shows_is_published_again() {
    let mut t = Script::with(&["web"]);
    t.node.remove("web");
    t.relist();
    t.expect(&["Died web", "Removed web"]);
    t.node.start("web");
    t.relist();
    t.expect(&["Started web"]);
    t.node.exit("web", 3);
    t.read();
    t.expect(&["Died web 3"]);
    t.pass(11_000);
    assert_eq!(t.missed(), (0, 1), "only STOPPED before the first removal");
}

#[test]
fn gone_id_whose_status_is_not_found_stays_gone() {
    let mut t = Script::with(&["web"]);
    t.removes("web");
    t.pass(300);
    t.expect(&["Died web", "Removed web"]);
    t.node.set_row(running("web"));
    let worker = t.read();
    t.relist();
    t.send(Event::of(Started, running("web")));
    t.pass(5_000);
    t.expect_nothing();
    assert_eq!(t.answered(worker, "web"), "none");
    assert_eq!(t.cached("web"), "none");
}
