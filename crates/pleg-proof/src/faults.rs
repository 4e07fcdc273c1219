//! What can go wrong, each kind with a name, so that it can be counted and left out.

macro_rules! named {
    ($(#[$outer:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl $name {
            /// All of them, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// A short name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }

            /// The one of that name.
            pub fn named(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.name() == name)
            }
        }
    };
}

pub(crate) use named;

named! {
    /// A kind of fault. How often it comes is said in percent of its occasions.
    Fault {
        // --- per event ---
        /// Seconds late.
        Late = "late",
        /// Overtaken by what happened right after it.
        Reordered = "swapped",
        /// Never delivered.
        Dropped = "dropped",
        /// Delivered twice.
        Duplicated = "doubled",
        /// The statuses were read long before the event was stamped.
        Stale = "stale",
        /// No sandbox status.
        NilSandbox = "nil-sandbox",
        /// No container statuses.
        NilStatuses = "nil-statuses",
        /// One element of the statuses is empty (CRI-O 1.31 to 1.34).
        EmptyElement = "empty-element",
        /// A stamp that is none.
        InvalidTimestamp = "absurd-stamp",
        /// A status without metadata or labels.
        MissingMetadata = "nameless",
        /// A status that says UNKNOWN.
        UnknownInEvent = "unknown-in-event",
        /// An event type that this contract does not know.
        UnknownEventType = "strange-type",
        // --- per read ---
        /// A list fails at once.
        ListFails = "list-fails",
        /// A list was read, and its answer is lost on its way to the writer.
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
        StatusReadFails = "reading-fails",
        /// A read takes seconds.
        SlowRead = "slow-read",
        /// A row or status of a read says UNKNOWN.
        UnknownInRead = "unknown-in-read",
        /// A list still shows a sandbox after its DELETED (containerd 2).
        ListedAfterRemoval = "lingers",
        /// A status call says NotFound for an id that the list of the same read shows.
        StatusNotFound = "status-not-found",
        /// The status call of one id of an inspection fails, or is not answered in time.
        StatusFails = "status-fails",
        // --- per operation of the node ---
        /// An event of something that did not happen.
        FalseEvent = "lie",
        /// The wall clock steps.
        ClockStep = "clock-step",
        /// The stream breaks; the runtime does not notice before it sends.
        Disconnect = "disconnected",
        // --- per event at the reader ---
        /// The writer has something else to do for a while.
        BusyWriter = "busy-writer",
        // --- per second ---
        /// The runtime goes away and comes back; what ended meanwhile is told by nobody.
        Restart = "restart",
        /// The call stands and nothing ever comes.
        SilentStream = "silent-stream",
        /// Another subscriber takes its share (containerd 1.7).
        SecondSubscriber = "rival",
        /// One pod's calls hang for a while.
        HungPod = "hung-pod",
        /// All pods' calls hang for a while.
        AllPodsHung = "hung-pods",
        /// All lists hang or fail for a while.
        ListOutage = "list-outage",
        /// A great deal happens at once.
        Burst = "storm",
        /// The runtime goes away for up to a minute.
        Outage = "outage",
        /// The status calls of an id say NotFound for a while, though lists show it.
        StatusHidden = "status-hidden",
        // --- per question ---
        /// The waiter gives up.
        WaiterCancels = "gives-up",
        // --- per operation of a worker ---
        /// An operation fails at once, and nothing is done.
        OperationFails = "operation-fails",
        /// An operation takes effect, and its reply is lost.
        ReplyLost = "reply-lost",
        /// An operation takes effect after the worker has given it up.
        EffectLate = "effect-late",
        // --- what follows from the above ---
        /// A dead subscriber took the event.
        TakenByDeadSubscriber = "eaten-by-the-dead",
        /// A second subscriber took the event.
        TakenBySecondSubscriber = "stolen",
        /// Nobody listened, and this runtime holds nothing.
        SentWithoutSubscriber = "told-to-nobody",
        /// The runtime's own queue was full: the newest is dropped.
        QueueFull = "queue-full",
        /// What was held for more than 5 minutes is discarded.
        BufferedTooLong = "held-too-long",
        /// What was told while nobody listened comes now.
        Replayed = "replayed",
        /// It happened while the runtime was down.
        WhileRuntimeDown = "untold",
        /// The runtime cannot restore it, and it is gone without a word.
        SandboxLost = "vanished",
        /// The runtime restarted before an operation took effect.
        OperationAborted = "operation-disconnected",
        /// The runtime restarted after an operation took effect and before it returned.
        ReplyAborted = "reply-disconnected",
        /// The runtime could not start the container.
        StartError = "start-error",
        /// The reason of an exit changed after its event.
        LateOom = "late-oom",
        /// The runtime refuses while it starts.
        NotInitialized = "not-initialized",
        /// A connection that is accepted and silent, while the runtime starts.
        SilentSocket = "silent-socket",
        /// The runtime does not know the call.
        Unimplemented = "unimplemented",
        /// The runtime ends the stream at once, in good order.
        Disabled = "disabled",
    }
}
