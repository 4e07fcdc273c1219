//! The faults that can happen in a world, and the chance of each.

use crate::choose::Dice;

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident: $worlds:literal $most:literal,)*) => {
        /// Something unusual in a world: a failed call, a lost event, an action of a third party, a slow worker, ...
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Fault {
            $($(#[$doc])* $name,)*
        }

        impl Fault {
            /// All faults. The first number says in how many of a thousand worlds the fault can happen. The second is
            /// the highest chance of the fault in such a world, per mille.
            pub const ALL: &[(Self, u32, u32)] = &[$((Self::$name, $worlds, $most),)*];
        }
    };
}

faults! {
    // Faults of reads.
    /// Lists and statuses still show the earlier state for a while after an exit or a removal.
    Lag: 200 300,
    /// The runtime takes up to 700 ms, not up to 6 ms, to read rows or a status for a call, or to answer the call.
    Slow: 300 200,
    /// A call hangs until its deadline.
    Hang: 150 30,
    /// A list of the node fails.
    ListFails: 150 400,
    /// A list of a pod fails.
    PodListFails: 150 200,
    /// A status call fails.
    StatusFails: 200 200,
    /// A status call answers NotFound although the id exists.
    StatusDenied: 150 100,
    /// The status calls about one id hang or fail for seconds.
    SickId: 100 60,
    /// All calls about one pod hang or fail for seconds.
    SickPod: 100 40,
    /// Lists of the node hang or fail for seconds, while lists of pods work.
    SickLists: 100 60,
    /// All status calls hang or fail for seconds.
    SickStatuses: 80 40,
    /// Lists of the node exceed the limit of gRPC messages and so fail, until the faults of the world end.
    TooLarge: 40 60,
    // Faults of the runtime's process.
    /// The runtime is frozen for seconds: it answers no call and sends no event, and then catches up at once.
    Freeze: 80 40,
    /// The runtime restarts. If a container exits meanwhile, the runtime sends no event.
    Outage: 100 100,
    /// A restart loses some objects.
    RestartLoses: 300 300,
    /// During a restart, all running containers and sandboxes stop without events, as when the machine reboots.
    Reboot: 60 100,
    /// After a restart, lists and statuses omit an existing id for seconds, or until the next restart.
    RestartHides: 100 200,
    /// The runtime is killed in the middle of the removal of a sandbox.
    RemovalCut: 150 150,
    // Events.
    /// An event is lost.
    EventLost: 250 300,
    /// An event arrives twice.
    EventTwice: 250 300,
    /// An event arrives late. If the runtime is CRI-O, it may also read the event's statuses late.
    EventLate: 400 300,
    /// An event has no container statuses.
    EventNil: 300 400,
    /// The statuses of an event are older than its time stamp.
    EventOld: 300 300,
    /// An event has a wrong type.
    EventWrongType: 60 100,
    /// The event stream ends, and the driver subscribes again.
    Cut: 200 150,
    /// A new stream begins with events that the runtime has sent earlier.
    Replay: 200 1000,
    /// The runtime registers a new subscriber up to 300 ms after `GetContainerEvents`. Earlier events are lost.
    LateSubscriber: 200 500,
    /// Another subscriber takes half of the events, for up to 10 s.
    SecondSubscriber: 80 60,
    /// The event stream stays open but delivers nothing more, until it ends.
    Mute: 60 30,
    // Faults of objects.
    /// Lists, statuses and events show the state UNKNOWN for one id, for up to 5 s.
    Unknown: 100 30,
    /// The list row and the status of an id contradict each other for good.
    Skew: 60 100,
    /// The list row and the status of an id contradict each other for seconds.
    SkewAWhile: 80 60,
    /// The runtime shows an exit first without the exit code.
    LateCode: 150 300,
    /// The runtime shows a wrong exit code at first.
    CorrectedCode: 80 200,
    /// The kernel kills a container because it uses too much memory.
    OomKill: 150 200,
    /// A container fails to start.
    FailedStart: 150 200,
    /// A third party runs a container for milliseconds.
    ShortLife: 300 300,
    /// A third party's container that runs for milliseconds has a wrong pod-uid label, or none.
    Unlabelled: 150 300,
    /// The pause process of a sandbox is killed.
    SandboxKilled: 200 60,
    /// A third party stops a container.
    ThirdStop: 150 60,
    /// A third party removes an exited container.
    ThirdRemoval: 200 60,
    /// A third party removes a container, even if it is running.
    ThirdForce: 100 40,
    /// A third party runs a second sandbox of a pod.
    SecondSandbox: 80 30,
    /// The second sandbox that a third party runs has a wrong pod-uid label, or none.
    WrongLabel: 500 400,
    /// The runtime sends no events for a new container or sandbox.
    SilentBirth: 80 100,
    /// Somebody sets the wall clock of the node.
    WallStep: 100 50,
    // Workers.
    /// A worker is cancelled and restarted.
    WorkerRestart: 200 60,
    /// A pod is deleted, or a deleted pod is created again with the same uid.
    PodDeleted: 300 15,
    /// A worker takes up to two seconds until it acts on a view.
    SlowWorker: 200 200,
    /// A call of a worker times out and takes effect later.
    LateWrite: 120 100,
    /// A worker waits until the core has read all statuses of the pod, not only its rows, after the worker's last call.
    DetailsRead: 1000 30,
    /// A worker waits for a view that the core reads later than an instant up to 50 ms in the future.
    FutureWait: 1000 50,
}

/// The faults of one world: the chance of each fault, and the longest delays of reads and events.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Faults {
    chances: Vec<u32>,
    /// The longest time, in milliseconds, for which reads show an earlier state.
    pub lag_ms: u64,
    /// The longest delay of an event, in milliseconds.
    pub late_ms: u64,
    /// The number of faults that may still happen.
    pub left: u32,
}

impl Faults {
    /// A world in which nothing goes wrong.
    pub fn none() -> Self {
        Self {
            chances: vec![0; Fault::ALL.len()],
            lag_ms: 0,
            late_ms: 0,
            left: u32::MAX,
        }
    }

    /// Chooses the faults of a random world. One world in ten has none.
    pub(crate) fn random(dice: &mut Dice<'_>) -> Self {
        let mut faults = Self::none();
        faults.lag_ms = dice.pick(&[5, 50, 500, 3_000]);
        faults.late_ms = dice.pick(&[20, 200, 2_000, 4_000]);
        if !dice.chance(900) {
            return faults;
        }
        for &(fault, worlds, most) in Fault::ALL {
            if dice.chance(worlds) {
                faults.set(
                    fault,
                    1 + u32::try_from(dice.below(most as usize)).unwrap_or(0),
                );
            }
        }
        faults
    }

    /// Sets the chance of a fault, per mille.
    pub fn set(&mut self, fault: Fault, per_mille: u32) {
        self.chances[fault as usize] = per_mille;
    }

    /// The chance of a fault, per mille.
    pub fn chance(&self, fault: Fault) -> u32 {
        match self.left {
            0 => 0,
            _ => self.chances[fault as usize],
        }
    }

    /// Ends all faults.
    pub fn calm(&mut self) {
        self.chances.fill(0);
    }

    /// The longest time, in nanoseconds, for which reads may show an earlier state.
    pub fn longest_lag(&self) -> u64 {
        match self.chances[Fault::Lag as usize] {
            0 => 0,
            _ => self.lag_ms * 1_000_000,
        }
    }

    /// The faults that can happen and their chances, as text for messages.
    pub fn text(&self) -> String {
        let all = Fault::ALL.iter().map(|(fault, ..)| fault);
        let set = all.zip(&self.chances).filter(|(_, chance)| **chance > 0);
        let set: Vec<_> = set
            .map(|(fault, chance)| format!("{fault:?} {chance}"))
            .collect();
        set.join(", ")
    }
}
