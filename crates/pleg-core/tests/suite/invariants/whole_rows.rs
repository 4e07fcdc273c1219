//! Lists with only the state of known ids, compared with the same lists fully decoded: two
//! reconcilers with otherwise equal inputs record, announce and count the same.

use std::collections::BTreeMap;

use pleg_core::{
    CallErrorKind, EventType, LifecycleType, PodStatus, Report, ReportedState, StreamEnd,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::script::{Script, container, sandbox};

/// What may exist: the two sandboxes of one pod, and containers of the first.
const IDS: [&str; 4] = ["s", "s2", "c", "d"];

#[derive(Clone, Debug)]
enum Step {
    /// The node changes.
    Is(Index, Option<ReportedState>),
    /// An event, true or not.
    Told(Index, EventType, bool),
    Listed,
    ListFails,
    /// The requested inspection is answered, or fails.
    Inspected(bool),
    Cut,
    Passed(u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let id = any::<Index>;
    let shown = select(vec![
        None,
        Some(ReportedState::Created),
        Some(ReportedState::Running),
        Some(ReportedState::Exited),
        Some(ReportedState::Unknown),
    ]);
    let event = select(vec![
        EventType::Created,
        EventType::Started,
        EventType::Stopped,
        EventType::Deleted,
    ]);
    let step = prop_oneof![
        6 => (id(), shown).prop_map(|(id, shown)| Step::Is(id, shown)),
        4 => (id(), event, any::<bool>()).prop_map(|(id, what, bare)| Step::Told(id, what, bare)),
        6 => Just(Step::Listed),
        1 => Just(Step::ListFails),
        5 => prop::bool::weighted(0.8).prop_map(Step::Inspected),
        1 => Just(Step::Cut),
        4 => select(vec![10, 300, 1_100, 6_000, 13_000]).prop_map(Step::Passed),
    ];
    vec(step, 1..60)
}

/// What exists, and its state.
type Node = BTreeMap<&'static str, ReportedState>;

fn report(id: &str, shown: ReportedState) -> Report {
    match id.starts_with('s') {
        true => sandbox(id, "p", shown),
        false => container(id, "p", shown),
    }
}

fn reports(node: &Node) -> Vec<Report> {
    node.iter().map(|(id, state)| report(id, *state)).collect()
}

/// Type, incarnation and exit code.
type Announced = (LifecycleType, u32, Option<i32>);

/// One reconciler. Its lists contain only the state of known ids, or everything.
struct Side {
    t: Script,
}

impl Side {
    fn new(decodes_all_rows: bool) -> Self {
        let mut t = Script::confirmed();
        t.decodes_all_rows = decodes_all_rows;
        Self { t }
    }

    fn list(&mut self, node: &Node) {
        while self.t.lists_wanted() > 0 {
            self.t.list(&reports(node));
        }
    }

    fn step(&mut self, node: &Node, step: &Step) {
        let t = &mut self.t;
        match step {
            Step::Is(..) => {}
            Step::Told(at, what, bare) => {
                let id = *at.get(&IDS);
                let all = if *bare { Vec::new() } else { reports(node) };
                let (sandboxes, containers): (Vec<_>, Vec<_>) = all
                    .into_iter()
                    .partition(|r| r.id.as_str().starts_with('s'));
                let sandbox = sandboxes.into_iter().next();
                t.event(*what, id, sandbox, &containers);
            }
            Step::Listed => {
                t.relist();
                self.list(node);
            }
            Step::ListFails => {
                t.relist();
                if t.lists_wanted() > 0 {
                    t.list_fails(CallErrorKind::Failed);
                }
            }
            Step::Inspected(works) => {
                if t.inspection_wanted().is_some() {
                    let found = reports(node);
                    let gone: Vec<_> = IDS
                        .into_iter()
                        .filter(|id| !node.contains_key(id))
                        .collect();
                    match works {
                        true => t.inspect(&found, &gone),
                        false => t.inspection_fails(&[]),
                    }
                }
            }
            Step::Cut => {
                t.stream_ends(StreamEnd::Ended(None));
                t.subscribe();
            }
            Step::Passed(ms) => t.pass((*ms).into()),
        }
    }

    /// The records, without the instants at which they were proven.
    fn believed(&self) -> (PodStatus, bool) {
        let view = self.t.get("p");
        ((*view.status).clone(), view.as_of.is_some())
    }

    /// The announcements, by id.
    fn announced(&self) -> BTreeMap<&str, Vec<Announced>> {
        let mut by_id: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (what, id, incarnation, code) in &self.t.announced {
            let of_id = by_id.entry(id.as_str()).or_default();
            of_id.push((*what, *incarnation, *code));
        }
        by_id
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn states_of_known_ids_equal_rows_decoded_in_full(steps in steps()) {
        let (mut states, mut rows) = (Side::new(false), Side::new(true));
        let mut node = Node::new();
        for step in &steps {
            match step {
                Step::Is(at, Some(shown)) => {
                    node.insert(*at.get(&IDS), *shown);
                }
                Step::Is(at, None) => {
                    node.remove(at.get(&IDS));
                }
                _ => {}
            }
            states.step(&node, step);
            rows.step(&node, step);
            prop_assert_eq!(states.believed(), rows.believed(), "after {:?}", step);
            prop_assert_eq!(states.t.get("p").as_of, rows.t.get("p").as_of);
            prop_assert_eq!(states.announced(), rows.announced());
            prop_assert_eq!(states.t.missed(), rows.t.missed());
            prop_assert_eq!(states.t.inspections_wanted(), rows.t.inspections_wanted());
        }
    }
}
