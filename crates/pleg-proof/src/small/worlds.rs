//! The small worlds.

use pleg_node_model::{Id, Profile};

use crate::faults::{Fault, Faults};
use crate::worker::Policy;
use crate::world::{Act, MS, World};

/// The name of a small world, and a function that makes it. It begins with a ready sandbox and a running container.
pub type SmallWorld = (&'static str, fn() -> World);

/// Small worlds whose exploration takes seconds. The name lists the actions, which happen in any order.
pub const WORLDS: &[SmallWorld] = &[
    // Events.
    (
        "exit, its event is lost, doubled or without statuses",
        || {
            let faults = [Fault::EventLost, Fault::EventTwice, Fault::EventNil];
            containerd(&faults, 1, &[exit(), Act::Wake(0)])
        },
    ),
    ("exit, STOPPED comes twice or with old statuses", || {
        let faults = [Fault::EventTwice, Fault::EventOld];
        containerd(&faults, 2, &[exit(), Act::Wake(0)])
    }),
    ("exit and birth, one event has another type", || {
        containerd(&[Fault::EventWrongType], 1, &[exit(), birth()])
    }),
    ("exit, the stream is cut", || {
        containerd(&[], 0, &[Act::Cut, exit()])
    }),
    ("birth, the stream is cut", || {
        containerd(&[], 0, &[birth(), Act::Cut, Act::Wake(0)])
    }),
    // Reads.
    ("exit and removal during reads", || {
        containerd(&[], 0, &[exit(), removal(), Act::Wake(0)])
    }),
    ("exit and removal between the two lists of a relist", || {
        containerd(&[], 0, &[exit(), removal(), Act::Relist]).with_spans()
    }),
    ("birth between the two lists of a pod read", || {
        crio(&[birth(), Act::Wake(0)]).with_spans()
    }),
    ("birth during a relist and a pod read that fails", || {
        let (profile, acts) = (
            Profile::crio_disabled("1.36.3"),
            [birth(), Act::Wake(0), Act::Relist],
        );
        small(profile, &[Fault::PodListFails], 1, &acts)
    }),
    ("birth, the status is NotFound", || {
        containerd(&[Fault::StatusDenied], 1, &[birth(), Act::Wake(0)])
    }),
    ("birth, the status hangs", || {
        containerd(&[Fault::Hang], 1, &[birth(), Act::Relist])
    }),
    // Containers start and exit between reads: the world delays actions by up to 20 ms, the core most reads by 250 ms.
    ("life between two reads", || {
        let acts = [birth(), Act::Exit(second(), 3), Act::ThirdRemoval(second())];
        containerd(&[], 0, &acts).with_patience(20 * MS)
    }),
    ("life between two reads on CRI-O", || {
        let acts = [birth(), Act::Exit(second(), 3), Act::ThirdRemoval(second())];
        crio(&acts).with_patience(20 * MS)
    }),
    // Replacements.
    ("container is replaced on CRI-O, somebody waits", || {
        crio(&[exit(), birth(), Act::Wake(0)])
    }),
    // Restarts of the runtime.
    ("exit, the runtime restarts", || {
        containerd(&[], 0, &[exit(), Act::Kill])
    }),
    // A worker acts.
    ("worker restarts what exits, with little patience", || {
        let world = containerd(&[], 0, &[exit()]).with_patience(20 * MS);
        world.with_worker(Policy::Always)
    }),
];

/// Small worlds whose exploration takes minutes.
pub const LARGE_WORLDS: &[SmallWorld] = &[
    ("container is replaced", || {
        containerd(&[], 0, &[exit(), birth(), removal()])
    }),
    ("pod is removed and runs again", || {
        containerd(&[], 0, &[Act::ThirdRemovePod(sandbox()), Act::ThirdRunPod])
    }),
    (
        "pod is removed and runs again on CRI-O, somebody waits",
        || {
            crio(&[
                Act::ThirdRemovePod(sandbox()),
                Act::ThirdRunPod,
                Act::Wake(0),
            ])
        },
    ),
    (
        "exit, the runtime restarts and may lose it, somebody waits",
        || {
            containerd(
                &[Fault::RestartLoses],
                1,
                &[exit(), Act::Kill, Act::Wake(0)],
            )
        },
    ),
    ("worker restarts what exits", || {
        containerd(&[Fault::EventLost], 1, &[exit()]).with_worker(Policy::Always)
    }),
    ("worker replaces a sandbox that was killed", || {
        let killed = Act::KillSandbox(sandbox());
        containerd(&[], 0, &[killed]).with_worker(Policy::Always)
    }),
    ("worker restarts what exits, a status is NotFound", || {
        containerd(&[Fault::StatusDenied], 1, &[exit()]).with_worker(Policy::OnFailure)
    }),
    ("worker removes its pod while a container exits", || {
        containerd(&[], 0, &[exit()])
            .with_worker(Policy::Never)
            .with_deletion()
    }),
];

fn sandbox() -> Id {
    "s1".into()
}

/// The id of the container that [`birth`] creates.
fn second() -> Id {
    "k3".into()
}

fn exit() -> Act {
    Act::Exit("k2".into(), 3)
}

fn removal() -> Act {
    Act::ThirdRemoval("k2".into())
}

fn birth() -> Act {
    Act::Birth(sandbox())
}

fn containerd(faults: &[Fault], most: u32, acts: &[Act]) -> World {
    small(Profile::containerd("2.1.0"), faults, most, acts)
}

fn crio(acts: &[Act]) -> World {
    small(Profile::crio("1.36.3"), &[], 0, acts)
}

/// A small world in which at most `most` faults happen, all of the kinds `these`.
fn small(profile: Profile, these: &[Fault], most: u32, acts: &[Act]) -> World {
    let mut faults = Faults::none();
    for &fault in these {
        faults.set(fault, 500);
    }
    faults.left = most;
    World::small(profile, faults, acts.to_vec())
}
