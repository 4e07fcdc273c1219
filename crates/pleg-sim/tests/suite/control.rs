//! Tests the text commands that control a running simulator.

use pleg_sim::{Mode, Phase};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::UnixStream,
};

use crate::common::{Client, Events, sim_with_mode, with_timeout};

#[tokio::test(start_paused = true)]
async fn every_control_command_has_its_effect() {
    let sim = sim_with_mode(Mode::Containerd2);
    let mut cri = Client::connect(&sim).await;
    let s = cri.run("p").await;
    let a = cri.create_and_start(&s, "a", "").await;
    let b = cri.create_and_start(&s, "b", "").await;
    let knobs = sim.control("drop=50%  swap=#1 pod.uid-p.latency=1s");
    knobs.await.unwrap();
    let shown = sim.control("show").await.unwrap();
    assert_eq!(
        shown,
        "mode containerd-2: containerd v2.4.0, serving\n\
         1 sandboxes, 2 containers\n\
         0 subscribers; events: 6 queued, 0 discarded, 0 dropped\n\
         faults:\n  drop=50%\n  pod.uid-p.latency=1s\n  swap=#1\n"
    );
    cri.status(&a).await.unwrap();
    let shown = sim.control("show").await.unwrap();
    assert!(
        shown.ends_with("fired:\n  pod.uid-p.latency 1\n"),
        "{shown}"
    );
    assert_eq!(sim.control("reset").await.unwrap(), "");
    assert!(sim.control("show").await.unwrap().contains("no faults\n"));

    // `exit` names the container by the first 12 characters of its id.
    sim.control(&format!("exit {} 7", &a[..12])).await.unwrap();
    sim.control(&format!("oom {b}")).await.unwrap();
    assert_eq!(cri.status(&a).await.unwrap().exit_code, 7);
    sim.control(&format!("kill-sandbox {s}")).await.unwrap();
    let mut events = Events::subscribe(&sim).await;
    sim.control("cut").await.unwrap();
    let mut end = events.try_next().await;
    while let Ok(Some(_)) = end {
        end = events.try_next().await;
    }
    assert!(end.is_err(), "the stream does not end with OK");
    // A new connection sees the same node.
    let mut cri = Client::connect(&sim).await;
    assert_eq!(cri.sandboxes().await[0].id, s);

    let s = cri.run("q").await;
    for (containers, end) in [
        ("run", (0, "")),
        ("end:9", (9, "Error")),
        ("lost", (255, "Unknown")),
    ] {
        let a = Client::connect(&sim).await;
        let a = { a }.create_and_start(&s, containers, "").await;
        let restart = format!("restart kill down=2s starting=1s containers={containers}");
        sim.control(&restart).await.unwrap();
        let status = Client::connect(&sim).await.status(&a).await.unwrap();
        assert_eq!((status.exit_code, &*status.reason), end);
        assert_eq!(sim.phase(), Phase::Serving);
        assert_eq!(sim.counts().queued, 0, "no event is queued");
    }
    sim.control("down").await.unwrap();
    assert_eq!(sim.phase(), Phase::Down);
    sim.control("up").await.unwrap();
    assert_eq!(sim.phase(), Phase::Starting);
    sim.control("ready").await.unwrap();
    assert_eq!(sim.phase(), Phase::Serving);
    let help = sim.control("help").await.unwrap();
    assert!(help.contains("containers=run|end:CODE|lost") && help.contains("list.page=NUMBER"));
    sim.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn invalid_command_returns_error_and_changes_nothing() {
    let sim = sim_with_mode(Mode::Containerd2);
    let mut cri = Client::connect(&sim).await;
    let s = cri.run("p").await;
    let a = cri.create(&s, "a", 0, "").await;
    // Each case: a command => a part of its error.
    for row in "\
        explode => no command \"explode\"; the commands are show, reset
        drop=5% swap=often => swap=often: not a rate
        drop=5% second_subscriber => second_subscriber has no effect in mode containerd-2 (containerd v2.4.0)
        second_subscriber=5% => every event; use mode containerd-1.7, or mode crio with version 1.27 or older
        list.pages=3 => no knob \"list.pages\"; similar: list.empty
        reset down => reset: unexpected argument \"down\"; usage: reset
        restart now => restart: unexpected argument \"now\"; usage: restart [kill]
        restart down=5 => \"5\" is not a duration
        restart containers=end:x => \"containers=end:x\" is not valid
        down down=5s => down: unexpected argument \"down=5s\"; usage: down [kill]
        down starting=2s => unexpected argument \"starting=2s\"
        down kill containers=lost => unexpected argument \"containers=lost\"
        down kill kill => unexpected argument \"kill\"
        show all => show: unexpected argument \"all\"
        help restart => help: unexpected argument \"restart\"
        cut all => cut: unexpected argument \"all\"
        up 2s => up: unexpected argument \"2s\"
        ready now => ready: unexpected argument \"now\"
        exit => exit: an argument is missing; usage: exit CONTAINER [CODE]
        exit zz => no id begins with \"zz\"
        exit a b c => unexpected argument \"c\"
        oom => oom: an argument is missing
        kill-sandbox zz => no id begins with"
        .lines()
    {
        let (line, part) = row.split_once(" => ").unwrap();
        let error = sim.control(line).await.unwrap_err().to_string();
        assert!(error.contains(part), "{row}: {error}");
    }
    assert_eq!(sim.phase(), Phase::Serving);
    let error = sim.control(&format!("exit {a}")).await.unwrap_err();
    assert!(error.to_string().contains("is not running"));
    let error = sim.control(&format!("exit {a} 256")).await.unwrap_err();
    assert!(error.to_string().contains("not an exit code"));
    let shown = sim.control("show").await.unwrap();
    assert!(shown.contains("no faults\n"), "nothing is changed");
    assert_eq!(sim.control("").await.unwrap(), "");
    sim.control("second_subscriber=off").await.unwrap();
    sim.shutdown().await;
}

#[tokio::test]
async fn control_socket_answers_each_line_as_one_command() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sim.sock.ctl");
    let sim = sim_with_mode(Mode::Crio);
    let serving = sim.serve_control(&path).unwrap();
    let again = sim.serve_control(&path);
    assert!(again.unwrap_err().to_string().contains("is in use"));
    let mut connection = BufReader::new(UnixStream::connect(&path).await.unwrap());
    let mut send = async |line: &str| {
        let written = connection.get_mut().write_all(line.as_bytes()).await;
        written.unwrap();
        let mut response = String::new();
        while !response.ends_with("ok\n") && !response.contains("error: ") {
            let read = with_timeout(connection.read_line(&mut response)).await;
            assert!(read.unwrap() > 0);
        }
        response
    };
    assert_eq!(send("drop=#2 all.hang\n").await, "ok\n");
    let shown = send("show\n").await;
    let faults = "faults:\n  all.hang=on\n  drop=#2\nok\n";
    assert!(shown.ends_with(faults), "{shown}");
    let refused = send("drop=5\n").await;
    assert!(refused.starts_with("error: drop=5: not a rate"));
    assert_eq!(send("reset\n").await, "ok\n");
    // A command that is too long is rejected as a whole, even if its beginning is valid.
    let mut long = BufReader::new(UnixStream::connect(&path).await.unwrap());
    let knobs = "drop=5% ".repeat((64 << 10) / 8);
    let write = async { long.get_mut().write_all(knobs.as_bytes()).await.unwrap() };
    with_timeout(write).await;
    let mut response = String::new();
    with_timeout(long.read_line(&mut response)).await.unwrap();
    assert_eq!(response, "error: a command has at most 65536 bytes\n");
    assert!(sim.control("show").await.unwrap().contains("no faults\n"));
    with_timeout(serving.stop()).await;
    assert!(!path.exists());
    with_timeout(sim.shutdown()).await;
}
