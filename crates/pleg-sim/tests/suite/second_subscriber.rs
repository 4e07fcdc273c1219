//! The knob `second_subscriber`: another subscriber takes a share of the events, where each event
//! goes to one subscriber only.

use pleg_sim::{Mode, Sim};

use crate::common::{Client, Events, sim, sim_with_mode};

const KNOB: &str = "second_subscriber";

/// The timestamps of the events that arrive until every task is idle.
async fn timestamps(events: &mut Events) -> Vec<i64> {
    let mut all = Vec::new();
    while !events.is_silent().await {
        all.push(events.take_kept().created_at);
    }
    all
}

fn events_taken(sim: &Sim) -> usize {
    let fired = sim.fired().get(KNOB).copied().unwrap_or_default();
    usize::try_from(fired).unwrap()
}

async fn run_pods(cri: &mut Client, names: std::ops::Range<usize>) {
    for name in names {
        cri.run(&name.to_string()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn second_subscriber_takes_its_share_while_it_is_on() {
    for sim in [
        sim_with_mode(Mode::Containerd17),
        sim().mode(Mode::Crio).runtime_version("1.27.5").build(),
    ] {
        let per_pod = if sim.control("show").await.unwrap().contains("cri-o") {
            1
        } else {
            2
        };
        let mut events = Events::subscribe(&sim).await;
        let mut cri = Client::connect(&sim).await;
        run_pods(&mut cri, 0..10).await;
        assert_eq!(timestamps(&mut events).await.len(), 10 * per_pod);
        assert_eq!(events_taken(&sim), 0);

        sim.control("second_subscriber=50%").await.unwrap();
        let shown = sim.control("show").await.unwrap();
        let set = "faults:\n  second_subscriber=50%\n";
        assert!(shown.contains(set), "{shown}");
        run_pods(&mut cri, 10..210).await;
        let left = timestamps(&mut events).await;
        let total = 200 * per_pod;
        let received = left.len() + events_taken(&sim);
        assert_eq!(received, total, "each event goes to one");
        let percent = 100 * events_taken(&sim) / total;
        assert!((35..65).contains(&percent), "{percent} %");
        assert_eq!((sim.counts().held, sim.counts().dropped), (0, 0));
        assert_eq!(sim.counts().subscribers, 1, "it is not counted");

        sim.control("second_subscriber=off").await.unwrap();
        let before = events_taken(&sim);
        run_pods(&mut cri, 210..220).await;
        assert_eq!(timestamps(&mut events).await.len(), 10 * per_pod);
        assert_eq!(events_taken(&sim), before);
        sim.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn second_subscriber_that_takes_everything_leaves_nothing_queued() {
    let sim = sim_with_mode(Mode::Containerd17);
    let mut cri = Client::connect(&sim).await;
    sim.set_knob(KNOB).unwrap();
    run_pods(&mut cri, 0..3).await;
    assert_eq!((sim.counts().held, events_taken(&sim)), (0, 6));
    let mut events = Events::subscribe(&sim).await;
    run_pods(&mut cri, 3..6).await;
    assert!(events.is_silent().await);
    // One case by number: the second event from now.
    sim.set_knob("second_subscriber=#2").unwrap();
    run_pods(&mut cri, 6..8).await;
    assert_eq!(timestamps(&mut events).await.len(), 3);
    assert_eq!(events_taken(&sim), 13);
    sim.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn second_subscriber_is_rejected_where_it_takes_nothing() {
    let (to_all, none) = (
        "every subscriber gets every event",
        "there is no event stream",
    );
    for (mode, version, name, why) in [
        (Mode::Containerd2, "v2.4.0", "containerd", to_all),
        (Mode::Crio, "1.28.0", "cri-o", to_all),
        (Mode::CrioDisabled, "1.36.3", "cri-o", none),
        (Mode::Unimplemented, "1.6.20", "containerd", none),
    ] {
        let sim = sim().mode(mode).runtime_version(version).build();
        let why = &format!("mode {mode} ({name} {version}), where {why}");
        let rejected = sim.set_knob("second_subscriber=50%").unwrap_err();
        let advice = "use mode containerd-1.7, or mode crio with version 1.27 or older";
        let expected = format!("second_subscriber has no effect in {why}; {advice}");
        assert_eq!(rejected.to_string(), expected);
        let line = "drop=5% second_subscriber=50%";
        let rejected = sim.control(line).await.unwrap_err().to_string();
        assert!(rejected.contains(why), "{rejected}");
        let shown = sim.control("show").await.unwrap();
        assert!(shown.contains("no faults\n"), "nothing is set");
        sim.set_knob("second_subscriber=off").unwrap();
        sim.shutdown().await;
    }
}
