//! Lists whose unchanged rows are only said to be unchanged, against the same lists in full: two
//! machines that are told the same otherwise believe, announce and count the same.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use pleg_core::{
    CallErrorKind, Details, EventType, Fingerprint, FullRow, Id, LifecycleType, PodStatus, Report,
    Rows, Shown, StreamEnd, Unchanged,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::script::{Script, container, sandbox};

/// What may be there: the two sandboxes of one pod, and containers of the first.
const IDS: [&str; 4] = ["s", "s2", "c", "d"];

#[derive(Clone, Debug)]
enum Step {
    /// The node changes.
    Is(Index, Option<Shown>),
    /// What is said besides the state changes.
    Labelled(Index, u8),
    /// An event, true or not.
    Told(Index, EventType, bool),
    Listed,
    ListFails,
    /// The inspection that waits is answered, or fails.
    Inspected(bool),
    Cut,
    Passed(u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let id = any::<Index>;
    let shown = select(vec![
        None,
        Some(Shown::Created),
        Some(Shown::Running),
        Some(Shown::Exited),
        Some(Shown::Unknown),
    ]);
    let event = select(vec![
        EventType::Created,
        EventType::Started,
        EventType::Stopped,
        EventType::Deleted,
    ]);
    let step = prop_oneof![
        6 => (id(), shown).prop_map(|(id, shown)| Step::Is(id, shown)),
        2 => (id(), 0u8..3).prop_map(|(id, label)| Step::Labelled(id, label)),
        4 => (id(), event, any::<bool>()).prop_map(|(id, what, bare)| Step::Told(id, what, bare)),
        6 => Just(Step::Listed),
        1 => Just(Step::ListFails),
        5 => prop::bool::weighted(0.8).prop_map(Step::Inspected),
        1 => Just(Step::Cut),
        4 => select(vec![10, 300, 1_100, 6_000, 13_000]).prop_map(Step::Passed),
    ];
    vec(step, 1..60)
}

/// What is there, and what is said of it.
type Node = BTreeMap<&'static str, (Shown, u8)>;

fn report(id: &str, (shown, label): (Shown, u8)) -> Report {
    let mut report = match id.starts_with('s') {
        true => sandbox(id, "p", shown),
        false => container(id, "p", shown),
    };
    match &mut report.details {
        Details::Sandbox(d) => Arc::make_mut(d).runtime_handler = label.to_string().into(),
        Details::Container(d) => Arc::make_mut(d).image = label.to_string().into(),
    }
    report
}

fn reports(node: &Node) -> Vec<Report> {
    node.iter().map(|(id, state)| report(id, *state)).collect()
}

fn fingerprint(report: &Report) -> Fingerprint {
    let mut hasher = DefaultHasher::new();
    (&report.id, &report.identity, &report.details).hash(&mut hasher);
    hasher.finish().into()
}

/// Type, incarnation and exit code.
type Announced = (LifecycleType, u32, Option<i32>);

/// One machine, and what its lists are compared with, if they are.
struct Side {
    t: Script,
    before: Option<BTreeMap<Id, Fingerprint>>,
    /// Handed over again where the rows are the same.
    unchanged: Arc<[Unchanged]>,
}

impl Side {
    fn new(compares: bool) -> Self {
        Self {
            t: Script::confirmed(),
            before: compares.then(BTreeMap::new),
            unchanged: Arc::default(),
        }
    }

    /// Answers the list that waits. One that it could not take is answered again, in full.
    fn list(&mut self, node: &Node) {
        while self.t.lists_wanted() > 0 {
            let reports = reports(node);
            let in_full = self.t.full;
            let known = self.before.as_ref().filter(|_| !in_full);
            let is_known =
                |r: &Report| known.is_some_and(|k| k.get(&r.id) == Some(&fingerprint(r)));
            let (same, new): (Vec<_>, Vec<_>) = reports.iter().partition(|r| is_known(r));
            let full = new.into_iter().map(|r| FullRow {
                report: r.clone(),
                fingerprint: self.before.as_ref().map(|_| fingerprint(r)),
            });
            let unchanged = same.into_iter().map(|r| Unchanged {
                id: r.id.clone(),
                kind: r.identity.kind,
                shown: r.shown,
                fingerprint: fingerprint(r),
            });
            let (full, unchanged): (_, Vec<_>) = (full.collect(), unchanged.collect());
            if *unchanged != *self.unchanged {
                self.unchanged = unchanged.into();
            }
            let unchanged = self.unchanged.clone();
            let rows = Rows { full, unchanged };
            let before = reports.iter().map(|r| (r.id.clone(), fingerprint(r)));
            let before = before.collect();
            self.before = self.before.as_ref().map(|_| before);
            self.t.list_hands(rows);
        }
    }

    fn step(&mut self, node: &Node, step: &Step) {
        let t = &mut self.t;
        match step {
            Step::Is(..) | Step::Labelled(..) => {}
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

    /// What is believed, without when that was proved.
    fn believed(&self) -> (PodStatus, bool) {
        let view = self.t.get("p");
        ((*view.status).clone(), view.as_of.is_some())
    }

    /// What was announced, by id.
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
    fn law5_unchanged_rows_say_what_full_ones_say(steps in steps()) {
        let (mut fast, mut plain) = (Side::new(true), Side::new(false));
        let mut node = Node::new();
        for step in &steps {
            match step {
                Step::Is(at, Some(shown)) => {
                    node.entry(*at.get(&IDS)).or_insert((*shown, 0)).0 = *shown;
                }
                Step::Is(at, None) => {
                    node.remove(at.get(&IDS));
                }
                Step::Labelled(at, label) => {
                    if let Some(said) = node.get_mut(at.get(&IDS)) {
                        said.1 = *label;
                    }
                }
                _ => {}
            }
            fast.step(&node, step);
            plain.step(&node, step);
            // A list that is asked for again takes longer: from then on they may differ in time.
            if fast.t.machine.counters().lists_unresolved > 0 {
                break;
            }
            prop_assert_eq!(fast.believed(), plain.believed(), "after {:?}", step);
            prop_assert_eq!(fast.t.get("p").as_of, plain.t.get("p").as_of);
            prop_assert_eq!(fast.announced(), plain.announced());
            prop_assert_eq!(fast.t.missed(), plain.t.missed());
            prop_assert_eq!(fast.t.inspections_wanted(), plain.t.inspections_wanted());
        }
    }
}
