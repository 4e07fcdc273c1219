//! Kinds of faults, named so that they can be counted and disabled.

macro_rules! named {
    ($(#[$outer:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl $name {
            /// All variants, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];
            /// The number of variants.
            pub const COUNT: usize = Self::ALL.len();

            /// The short name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }

            /// The variant with that name.
            pub fn named(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.name() == name)
            }
        }
    };
}

pub(crate) use named;

named! {
    /// A kind of fault. Its probability is given in percent of its opportunities.
    Fault {
        // --- per event ---
        /// Seconds late.
        Late = "late",
        /// Delivered after the next event.
        Reordered = "reordered",
        /// Never delivered.
        Dropped = "dropped",
        /// Delivered twice.
        Duplicated = "duplicated",
        /// The statuses were read long before the event was stamped.
        Stale = "stale",
        /// No sandbox status.
        NilSandbox = "nil-sandbox",
        /// No container statuses.
        NilStatuses = "nil-statuses",
        /// One element of the statuses is empty (CRI-O 1.31 to 1.34).
        EmptyElement = "empty-element",
        /// An invalid timestamp.
        InvalidTimestamp = "invalid-timestamp",
        /// A status without metadata or labels.
        MissingMetadata = "missing-metadata",
        /// A status that says UNKNOWN.
        UnknownInEvent = "unknown-in-event",
        /// An unknown event type.
        UnknownEventType = "unknown-event-type",
        // --- per read ---
        /// A list fails at once.
        ListFails = "list-fails",
        /// The answer of a list is lost before it reaches the writer.
        ListLost = "list-lost",
        /// A list does not answer before its deadline.
        ListHangs = "list-hangs",
        /// An inspection fails at once.
        InspectionFails = "inspection-fails",
        /// Some status calls of an inspection fail.
        InspectionPartial = "inspection-partial",
        /// An inspection does not answer before its deadline.
        InspectionHangs = "inspection-hangs",
        /// The read of a single status fails.
        StatusReadFails = "status-read-fails",
        /// A read takes seconds.
        SlowRead = "slow-read",
        /// A row or status of a read says UNKNOWN.
        UnknownInRead = "unknown-in-read",
        /// A list still shows a sandbox after its DELETED (containerd 2).
        ListedAfterRemoval = "listed-after-removal",
        /// A status call says NotFound for an id that the list of the same read shows.
        StatusNotFound = "status-not-found",
        /// The status call of one id of an inspection fails, or is not answered in time.
        StatusFails = "status-fails",
        // --- per sandbox or container ---
        /// Its pod-uid label is missing, or names another pod.
        WrongLabel = "wrong-label",
        // --- per operation of the node ---
        /// An event about something that did not happen.
        FalseEvent = "false-event",
        /// The wall clock steps.
        ClockStep = "clock-step",
        /// The stream breaks; the runtime notices when it sends next.
        Disconnect = "disconnect",
        // --- per event at the reader ---
        /// The writer is busy for a while.
        BusyWriter = "busy-writer",
        // --- per second ---
        /// The runtime restarts; exits during the restart cause no events.
        Restart = "restart",
        /// The stream stays open and delivers nothing.
        SilentStream = "silent-stream",
        /// Another subscriber takes a share of the events (containerd 1.7).
        SecondSubscriber = "second-subscriber",
        /// One pod's calls hang for a while.
        HungPod = "hung-pod",
        /// All pods' calls hang for a while.
        AllPodsHung = "all-pods-hung",
        /// All lists hang or fail for a while.
        ListOutage = "list-outage",
        /// Many operations happen at once.
        Burst = "burst",
        /// The runtime is down for up to a minute.
        Outage = "outage",
        /// The task that reads the stream panics; it subscribes again.
        ReaderPanics = "reader-panics",
        /// The memory limit of a container changes. No event reports it.
        Resize = "resize",
        /// The status calls of an id say NotFound for a while, though lists show it.
        StatusHidden = "status-hidden",
        // --- per request ---
        /// A waiter is cancelled.
        WaiterCancels = "waiter-cancels",
        // --- per operation of a worker ---
        /// An operation fails at once without effect.
        OperationFails = "operation-fails",
        /// An operation takes effect and its reply is lost.
        ReplyLost = "reply-lost",
        /// An operation takes effect after the worker has given up.
        EffectLate = "effect-late",
        // --- consequences of the above ---
        /// A dead subscriber took the event.
        TakenByDeadSubscriber = "taken-by-dead-subscriber",
        /// A second subscriber took the event.
        TakenBySecondSubscriber = "taken-by-second-subscriber",
        /// There is no subscriber and this runtime holds no events.
        SentWithoutSubscriber = "sent-without-subscriber",
        /// The runtime's own queue is full and drops the newest event.
        QueueFull = "queue-full",
        /// A held event expires after 5 minutes.
        BufferedTooLong = "buffered-too-long",
        /// A held event is delivered to a new subscriber.
        Replayed = "replayed",
        /// It happened while the runtime was down.
        WhileRuntimeDown = "while-runtime-down",
        /// The runtime cannot restore a sandbox and sends no event.
        SandboxLost = "sandbox-lost",
        /// The runtime restarted before an operation took effect.
        OperationAborted = "operation-aborted",
        /// The runtime restarted after an operation took effect and before it returned.
        ReplyAborted = "reply-aborted",
        /// The runtime could not start the container.
        StartError = "start-error",
        /// The reason of an exit changed after its event.
        LateOom = "late-oom",
        /// The runtime refuses calls while it starts.
        NotInitialized = "not-initialized",
        /// The runtime accepts connections and does not answer while it starts.
        SilentSocket = "silent-socket",
        /// The runtime does not implement the call.
        Unimplemented = "unimplemented",
        /// The runtime ends the stream at once without an error.
        Disabled = "disabled",
    }
}
