//! The small worlds.

use pleg_node_model::{Id, Profile};

use crate::faults::{Fault, Faults};
use crate::world::{Act, MS, World};

/// A name, and how the world begins.
#[derive(Clone, Copy, Debug)]
pub struct SmallWorld {
    /// Its name.
    pub name: &'static str,
    /// Builds it.
    pub build: fn() -> World,
}

/// All of them.
pub const WORLDS: &[SmallWorld] = &[
    SmallWorld {
        name: "exit with a faulty event",
        build: exit_with_faulty_event,
    },
    SmallWorld {
        name: "removal during a read",
        build: removal_during_a_read,
    },
    SmallWorld {
        name: "relist during a pod read",
        build: relist_during_a_pod_read,
    },
    SmallWorld {
        name: "second STOPPED",
        build: second_stopped,
    },
    SmallWorld {
        name: "NotFound between row and status",
        build: not_found_after_row,
    },
    SmallWorld {
        name: "stream cut at an exit",
        build: stream_cut_at_an_exit,
    },
    SmallWorld {
        name: "short life",
        build: short_life,
    },
    SmallWorld {
        name: "short life on CRI-O",
        build: short_life_on_crio,
    },
    SmallWorld {
        name: "hung status",
        build: hung_status,
    },
];

/// Shorter than every pause of the core: its reads begin after all events.
const BRIEF: u64 = 20 * MS;

fn containerd() -> Profile {
    Profile::containerd("2.1.0")
}

fn sandbox() -> Id {
    "s1".into()
}

fn container() -> Id {
    "k2".into()
}

/// The container that [`Act::Birth`] makes.
fn second() -> Id {
    "k3".into()
}

/// These faults happen or not, and at most `most` of them.
fn faults(these: &[Fault], most: u32) -> Faults {
    let mut faults = Faults::none();
    for &fault in these {
        faults.set(fault, 500);
    }
    faults.left = most;
    faults
}

fn small(profile: Profile, faults: Faults, acts: &[Act]) -> World {
    World::small(profile, faults, acts.to_vec())
}

/// A container exits; its event is lost, doubled, late or without statuses.
fn exit_with_faulty_event() -> World {
    let faults = faults(&[Fault::EventLost, Fault::EventTwice, Fault::EventNil], 1);
    let acts = [Act::Exit(container(), 3), Act::Wake(0)];
    small(containerd(), faults, &acts)
}

/// A third party removes an exited container while its pod and the node are read.
fn removal_during_a_read() -> World {
    let acts = [
        Act::Exit(container(), 3),
        Act::ThirdRemoval(container()),
        Act::Wake(0),
    ];
    small(containerd(), Faults::none(), &acts)
}

/// A container starts while its pod and the node are read, and one of the reads fails.
fn relist_during_a_pod_read() -> World {
    let faults = faults(&[Fault::PodListFails], 1);
    let acts = [Act::Birth(sandbox()), Act::Wake(0), Act::Relist];
    small(Profile::crio_disabled("1.36.3"), faults, &acts)
}

/// A container exits, and its STOPPED arrives twice, around the reads.
fn second_stopped() -> World {
    let faults = faults(&[Fault::EventTwice, Fault::EventOld], 2);
    let acts = [Act::Exit(container(), 3), Act::Wake(0)];
    small(containerd(), faults, &acts)
}

/// A new container is listed, and its status is NotFound.
fn not_found_after_row() -> World {
    let faults = faults(&[Fault::StatusDenied], 1);
    let acts = [Act::Birth(sandbox()), Act::Wake(0)];
    small(containerd(), faults, &acts)
}

/// The stream ends around an exit.
fn stream_cut_at_an_exit() -> World {
    let acts = [Act::Cut, Act::Exit(container(), 3)];
    small(containerd(), Faults::none(), &acts)
}

/// A container that nobody has read starts, exits and is removed.
fn short_life() -> World {
    let acts = [
        Act::Birth(sandbox()),
        Act::Exit(second(), 3),
        Act::ThirdRemoval(second()),
    ];
    small(containerd(), Faults::none(), &acts).with_patience(BRIEF)
}

/// The same where a removal suppresses STOPPED.
fn short_life_on_crio() -> World {
    let acts = [
        Act::Birth(sandbox()),
        Act::Exit(second(), 3),
        Act::ThirdRemoval(second()),
    ];
    small(Profile::crio("1.36.3"), Faults::none(), &acts).with_patience(BRIEF)
}

/// The status of a new container hangs while the node is read.
fn hung_status() -> World {
    let faults = faults(&[Fault::Hang], 1);
    let acts = [Act::Birth(sandbox()), Act::Relist];
    small(containerd(), faults, &acts)
}
