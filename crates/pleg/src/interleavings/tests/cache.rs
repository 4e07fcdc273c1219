//! Tests what readers of the cache see.

use std::sync::Arc;

use pleg_core::{Confirmed, PodStatus, PodUid, PodView};

use crate::cache::Published;
use crate::interleavings::explore;
use crate::interleavings::samples::{at, something, something_like};

/// A reader of the cache never sees the `as_of` of a pod go back: neither when the last id of the pod is gone, nor when
/// a list removes the pod's entry from the cache.
#[test]
fn no_reader_sees_a_pods_as_of_go_back() {
    let first = something("p", 5);
    explore(move || {
        let published = Arc::new(Published::default());
        published.sweep(at(3), &[]);
        published.put("p".into(), first.clone());
        let writer = shuttle::thread::spawn({
            let (published, second) = (published.clone(), something_like(&first, 12));
            move || {
                let p = PodUid::from("p");
                published.confirm(at(7), &Confirmed::These(vec![p.clone()]));
                let nothing = Arc::new(PodStatus::nothing(p.clone()));
                published.put(p.clone(), PodView::new(nothing, Some(at(8)), None));
                published.sweep(at(10), &[p.clone()]);
                published.put("q".into(), second);
                published.sweep(at(12), &[]);
            }
        });
        let readers = [(); 2].map(|()| {
            let published = published.clone();
            shuttle::thread::spawn(move || {
                let mut before = None;
                for _ in 0..3 {
                    let view = published.get(&"p".into());
                    assert!(view.as_of >= before, "{:?} after {before:?}", view.as_of);
                    assert!(view.as_of.is_some());
                    before = view.as_of;
                }
                let other = published.get(&"q".into());
                let absent = !other.status.exists() && other.as_of >= Some(at(12));
                assert!(!absent, "swept as of 12, and q was listed then");
            })
        });
        writer.join().expect("the cache's writer");
        for reader in readers {
            reader.join().expect("a reader");
        }
    });
}

/// A list that shows every pod unchanged confirms them all: it raises their `as_of`, except that of a pod published
/// after the list. No reader sees an `as_of` go back.
#[test]
fn list_does_not_confirm_a_pod_published_after_the_list() {
    let (first, listed) = (something("p", 5), something("q", 14));
    explore(move || {
        let published = Arc::new(Published::default());
        published.put("p".into(), first.clone());
        let writer = shuttle::thread::spawn({
            let (published, listed) = (published.clone(), listed.clone());
            let announced = PodView::new(listed.status.clone(), None, None);
            let ended = PodView::new(Arc::new(PodStatus::nothing("p".into())), Some(at(9)), None);
            move || {
                published.confirm(at(9), &Confirmed::All);
                published.put("q".into(), announced);
                published.put("p".into(), ended);
                published.confirm(at(14), &Confirmed::All);
                published.put("q".into(), listed);
            }
        });
        let readers = [(); 2].map(|()| {
            let published = published.clone();
            shuttle::thread::spawn(move || {
                let mut before = (None, None);
                for _ in 0..3 {
                    let p = published.get(&"p".into());
                    assert!(!p.status.exists() || p.as_of <= Some(at(9)), "{p:?}");
                    let p = p.as_of;
                    let q = published.get(&"q".into()).as_of;
                    assert!([None, Some(at(14))].contains(&q), "{q:?} was never proved");
                    assert!(p >= before.0 && q >= before.1, "after {before:?}");
                    before = (p, q);
                    let snapshot = published.snapshot();
                    let q = snapshot.iter().find(|v| v.status.uid.as_str() == "q");
                    assert!(q.is_none_or(|q| q.as_of != Some(at(9))), "{snapshot:?}");
                }
            })
        });
        writer.join().expect("the cache's writer");
        for reader in readers {
            reader.join().expect("a reader");
        }
        // A relist does not change the `as_of` of a pod that has no sandbox and no container.
        assert_eq!(published.get(&"p".into()).as_of, Some(at(9)));
    });
}
