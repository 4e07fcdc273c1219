//! The page of `pleg agent` in headless Chromium.

use std::path::PathBuf;

use pleg_tests::kubelet::Life;
use serde_json::Value;
use tokio::net::TcpStream;

use super::agent::Agent;
use super::run::{Running, Sim, arg, control, run_pod, serve};
use crate::support::browser::Browser;
use crate::support::{SECRET, TestDir};

pub(super) const WIDE: (u32, u32) = (1600, 1000);
const NARROW: (u32, u32) = (400, 844);

/// An agent on the runtime, and a browser that shows its page.
pub(super) async fn open(sim: &Sim) -> (Agent, Browser) {
    let periods = ["--relist-period-max", "1s", "--probe-period", "1s"];
    let args = [&["-r", arg(&sim.socket)][..], &periods].concat();
    let agent = Agent::start(&args).await;
    let mut browser = Browser::start();
    browser.resize(WIDE, false);
    browser.open(&format!("http://{}/", agent.address)).await;
    browser.wait_for("READY").await;
    (agent, browser)
}

pub(super) fn assert_no_complaints(browser: &mut Browser) {
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:#?}");
}

#[tokio::test]
async fn pods_are_searched_shown_paused_and_closed_with_keys() {
    let sim = Sim::start().await;
    run_pod(&sim.kubelet, "cart-1").await;
    run_pod(&sim.kubelet, "web-1").await;
    let (_agent, mut browser) = open(&sim).await;
    browser.wait_for("test/web-1").await;
    browser.wait_for("SIMULATED NODE").await;

    browser.press(&["/", "c", "a", "r", "t"]);
    browser.wait_until("byId('rows').rows.length === 1").await;
    browser.eval("byId('pods').focus()");
    browser.press(&["Enter"]);
    browser.wait_for("How its containers ended").await;
    browser
        .wait_until("byId('detail-name').textContent === 'test/cart-1'")
        .await;
    browser.press(&["Escape"]);
    browser.wait_until("byId('detail').hidden").await;
    browser.press(&["c"]);
    browser.wait_until("byId('rows').rows.length === 2").await;

    browser.press(&["p"]);
    browser.wait_for("PAUSED").await;
    run_pod(&sim.kubelet, "late-1").await;
    browser.wait_for("PAUSED").await;
    assert!(!browser.text().contains("late-1"), "{}", browser.text());
    browser.press(&["p"]);
    browser.wait_for("test/late-1").await;
    browser.press(&["?"]);
    browser.wait_for("search in names, uids").await;
    assert_no_complaints(&mut browser);
}

/// From the detection of an event to its place on the page, as the page measures it: both have the same
/// clock.
const MEASURE: &str = "(() => {
  window.delays = [];
  let newest = '';
  new MutationObserver(() => {
    const item = byId('records').firstElementChild;
    if (!item || item.dataset.seq === newest) return;
    newest = item.dataset.seq;
    window.delays.push(Date.now() - Date.parse(item.querySelector('time').dateTime));
  }).observe(byId('records'), { subtree: true, childList: true, attributes: true, characterData: true });
})()";

/// How often a duration is measured at most, until one measurement is short enough: other tests share the machine.
const MEASUREMENTS: usize = 5;

#[tokio::test]
async fn first_picture_appears_within_a_second() {
    let sim = Sim::start().await;
    run_pod(&sim.kubelet, "web-1").await;
    let (agent, mut browser) = open(&sim).await;
    let mut pictures = Vec::new();
    for _ in 0..MEASUREMENTS {
        browser.open(&format!("http://{}/", agent.address)).await;
        browser.wait_for("test/web-1").await;
        let picture = "performance.getEntriesByName('picture')[0].startTime";
        let picture = browser.eval(picture).as_f64().expect("a time");
        pictures.push(picture);
        if picture <= 1000.0 {
            break;
        }
    }
    println!("first picture after so many ms: {pictures:?}");
    assert!(pictures.iter().any(|&p| p <= 1000.0), "{pictures:?}");
}

#[tokio::test]
async fn event_is_visible_within_200_ms() {
    let sim = Sim::start().await;
    let (_agent, mut browser) = open(&sim).await;
    let mut medians = Vec::new();
    for round in 0..MEASUREMENTS {
        browser.eval(MEASURE);
        for n in 0..11 {
            let name = format!("pod-{round}-{n}");
            run_pod(&sim.kubelet, &name).await;
            browser
                .wait_until(&format!("byId('records').innerText.includes('{name} app')"))
                .await;
        }
        let mut delays: Vec<f64> =
            serde_json::from_value(browser.eval("window.delays")).expect("numbers");
        delays.sort_by(f64::total_cmp);
        println!("from an event to its place on the page, in ms: {delays:?}");
        assert!(delays.len() >= 11, "{delays:?}");
        medians.push(delays[delays.len() / 2]);
        if medians[round] <= 200.0 {
            break;
        }
    }
    assert!(medians.iter().any(|&m| m <= 200.0), "{medians:?}");
}

#[tokio::test]
async fn restart_of_the_agent_leaves_no_gap_and_no_double() {
    let sim = Sim::start().await;
    let (agent, mut browser) = open(&sim).await;
    run_pod(&sim.kubelet, "before").await;
    browser
        .wait_until("byId('records').innerText.includes('ContainerStarted test/before app')")
        .await;

    let address = agent.address.clone();
    agent.running.signal("TERM").await;
    agent.running.end().await;
    browser.wait_for("No answer of the agent").await;
    assert!(
        browser
            .eval("document.title")
            .as_str()
            .expect("a title")
            .starts_with("old data")
    );
    let _agent = Running::start(&["agent", "-r", arg(&sim.socket), "--listen", &address]);
    browser.wait_until("byId('old').hidden").await;
    run_pod(&sim.kubelet, "after").await;
    browser
        .wait_until("byId('records').innerText.includes('ContainerStarted test/after app')")
        .await;

    let text = browser.eval("byId('records').innerText");
    let text = text.as_str().expect("text");
    assert!(text.contains("the agent was started at"), "{text}");
    for pod in ["before", "after"] {
        let started = format!("ContainerStarted test/{pod} app");
        assert_eq!(text.matches(&started).count(), 1, "{text}");
    }
}

#[tokio::test]
async fn stream_resumes_after_the_last_record() {
    let sim = Sim::start().await;
    let (_agent, mut browser) = open(&sim).await;
    for n in 0..5 {
        run_pod(&sim.kubelet, &format!("pod-{n}")).await;
        // Whatever is asked for anew is a new connection.
        browser.eval(&format!(
            "(byId('search').value = 'pod-{n}', byId('search').dispatchEvent(new Event('input')))"
        ));
    }
    browser.press(&["c"]);
    // With the search of before, only the last pod's records are shown.
    for pod in ["pod-0", "pod-4"] {
        browser
            .wait_until(&format!("byId('records').innerText.includes('{pod} app')"))
            .await;
    }
    let numbers = "[...byId('records').children].map(item => Number(item.dataset.seq))";
    let mut numbers: Vec<u64> = serde_json::from_value(browser.eval(numbers)).expect("numbers");
    numbers.reverse();
    assert!(numbers.is_sorted_by(|a, b| a + 1 == *b), "{numbers:?}");
}

/// Texts with a contrast of less than 4.5, as WCAG AA requires of small text.
const LOW_CONTRAST: &str = "(() => {
  const context = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgb = color => { context.clearRect(0, 0, 1, 1); context.fillStyle = color; context.fillRect(0, 0, 1, 1); return [...context.getImageData(0, 0, 1, 1).data]; };
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((sum, v, n) => sum + v * [0.2126, 0.7152, 0.0722][n], 0);
  const back = element => { for (let e = element; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c[3] > 0) return c; } return [255, 255, 255]; };
  const low = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility() || element.matches('style, script, option')) continue;
    const [a, b] = [rgb(getComputedStyle(element).color), back(element)].map(light).sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < 4.5) low.push(`${walker.currentNode.data}: ${contrast.toFixed(2)}`);
  }
  return low;
})()";

#[tokio::test]
async fn page_is_accessible_at_each_width_dark_and_light() {
    let sim = Sim::start().await;
    let pod = sim.kubelet.run_pod("pod").await.expect("run");
    let life = Life::Exit {
        code: 3,
        after_ms: 1,
    };
    let id = sim
        .kubelet
        .create(&pod, "job", 0, life)
        .await
        .expect("created");
    let (_agent, mut browser) = open(&sim).await;
    sim.kubelet.start(&id).await.expect("started");
    browser.wait_for("exit 3").await;
    control(&sim.socket, &["all.hang=on"]).await;
    browser.wait_for("Do: ").await;
    browser.eval("byId('rows').rows[0].click()");
    browser.wait_for("How its containers ended").await;
    // What is old is dimmed on purpose.
    browser
        .eval("document.styleSheets[0].insertRule('.is-old #content { opacity: 1 !important }')");
    for size in [(1600, 1000), (1000, 1000), NARROW] {
        for dark in [false, true] {
            browser.resize(size, dark);
            let low = browser.eval(LOW_CONTRAST);
            assert_eq!(low, serde_json::json!([]), "{size:?}, dark: {dark}");
            // What is wrong with a pod is visible, in a column or below its name.
            assert_eq!(
                browser.eval("[...byId('rows').querySelectorAll('small, td:last-child')].some(e => e.checkVisibility() && e.innerText.trim() !== '')"),
                true,
                "{size:?}"
            );
            assert_eq!(
                browser.eval("document.documentElement.scrollWidth <= innerWidth"),
                true,
                "{size:?}"
            );
        }
    }
    let tree = browser.call("Accessibility.getFullAXTree", serde_json::json!({}));
    let nodes = tree["nodes"].as_array().expect("nodes");
    let all = |role: &str| -> Vec<&Value> {
        let of_role = |node: &&Value| node["role"]["value"] == role && node["ignored"] == false;
        nodes.iter().filter(of_role).collect()
    };
    for role in [
        "button",
        "searchbox",
        "combobox",
        "checkbox",
        "image",
        "grid",
        "region",
        "list",
    ] {
        for node in all(role) {
            let is_list_of_detail = role == "list";
            let name = node["name"]["value"].as_str().unwrap_or_default();
            assert!(
                !name.is_empty() || is_list_of_detail,
                "{role} without a name: {node}"
            );
        }
        assert!(!all(role).is_empty(), "no {role}");
    }
    let levels: Vec<_> = all("heading")
        .iter()
        .map(|h| h["properties"][0]["value"]["value"].as_u64())
        .collect();
    assert_eq!(
        levels.iter().filter(|level| **level == Some(1)).count(),
        1,
        "{levels:?}"
    );
    assert!(all("row").len() >= 2 && !all("rowheader").is_empty());
    assert_eq!(all("main").len(), 1);
}

/// Everything that a wide and a narrow page show of a node in trouble.
#[tokio::test]
async fn hung_pod_frozen_runtime_and_lossy_stream_are_named() {
    let sim = Sim::start().await;
    for n in 0..3 {
        run_pod(&sim.kubelet, &format!("pod-{n}")).await;
    }
    let (_agent, mut browser) = open(&sim).await;
    control(&sim.socket, &["drop=100%"]).await;
    // No event is expected in the first seconds of a stream.
    let lose = async {
        for n in 0.. {
            run_pod(&sim.kubelet, &format!("lost-{n}")).await;
            pleg_tests::wait::pass_time(std::time::Duration::from_secs(2)).await;
        }
    };
    tokio::select! {
        () = lose => {}
        () = browser.wait_for("stream_lossy") => {}
    }
    control(&sim.socket, &["drop=off"]).await;
    control(&sim.socket, &["pod.uid-pod-1.hang=on"]).await;
    browser.wait_for("pods_hung").await;
    browser
        .wait_until("/^test.pod-1\\t(Hung|Failing)/.test(byId('rows').innerText)")
        .await;
    control(&sim.socket, &["all.hang=on"]).await;
    browser.wait_for("No answer of the runtime").await;
    browser.wait_for("What is shown is old").await;
    // Whether events would arrive is not known, and the states are those of the last answer.
    browser
        .wait_until("/Event stream\\s+unknown/.test(byId('figures').innerText)")
        .await;
    browser
        .wait_until("byId('rows').innerText.includes('Running?')")
        .await;
    assert!(
        browser
            .eval("byId('announcement').textContent")
            .as_str()
            .expect("text")
            .contains("degraded")
    );
}

#[tokio::test]
async fn token_is_asked_for() {
    let dir = TestDir::new();
    let (socket, token) = (dir.path("cri.sock"), dir.path("token"));
    let _sim = serve(&socket).await;
    std::fs::write(&token, SECRET).expect("written");
    let agent = Agent::start(&["-r", arg(&socket), "--token-file", arg(&token)]).await;
    let mut browser = Browser::start();
    browser.open(&format!("http://{}/", agent.address)).await;
    browser.wait_until("byId('token-dialog').open").await;
    browser.eval("byId('token').value = 'wrong'");
    browser.eval("byId('token-form').requestSubmit()");
    browser.wait_until("byId('token-dialog').open").await;
    browser.eval("byId('token').value = 'secret'");
    browser.eval("byId('token-form').requestSubmit()");
    browser.wait_for("READY").await;
}

#[tokio::test]
async fn page_of_another_site_cannot_read() {
    let sim = Sim::start().await;
    let agent = Agent::start(&["-r", arg(&sim.socket)]).await;
    agent.until_ready().await;
    for (host, code) in [
        ("127.0.0.1:9394", 200),
        ("[::1]:9394", 200),
        ("LOCALHOST", 200),
        ("evil.example:9394", 421),
        ("127.0.0.1.evil.example", 421),
    ] {
        let stream = TcpStream::connect(&agent.address).await.expect("connected");
        let reply = Agent::get_as(stream, "/debug/view", host, "").await;
        assert_eq!(reply.0, code, "{host}: {reply:?}");
        // What names no pod is for everybody on this host, also through a proxy that passes the header on.
        for path in ["/metrics", "/readyz", "/healthz", "/"] {
            let stream = TcpStream::connect(&agent.address).await;
            let reply = Agent::get_as(stream.expect("connected"), path, host, "").await;
            assert_eq!(reply.0, 200, "{host}: {reply:?}");
        }
    }
    let (code, head, page) = agent.get("/").await;
    assert_eq!(code, 200);
    assert!(
        head.contains("content-security-policy: default-src 'none'; script-src 'sha256-"),
        "{head}"
    );
    assert!(page.starts_with("<!doctype html>"));
}

#[tokio::test]
#[ignore = "writes images: just screenshots"]
async fn screenshots() {
    let dir = PathBuf::from(std::env::var_os("PLEG_IMAGES").expect("a directory"));
    let socket = TestDir::new();
    let socket = socket.path("cri.sock");
    let mut sim = Running::start(&["sim", "--pods", "120", "--socket", arg(&socket)]);
    sim.message().await.expect("the socket");
    let agent = Agent::start(&["-r", arg(&socket)]).await;
    let mut browser = Browser::start();
    for (name, size, dark) in [
        ("page", WIDE, false),
        ("page-dark", WIDE, true),
        ("page-medium", (1000, 1000), false),
        ("page-narrow", NARROW, true),
    ] {
        browser.resize(size, dark);
        browser.open(&format!("http://{}/", agent.address)).await;
        browser
            .wait_until("byId('records').children.length > 8")
            .await;
        if name == "page-dark" {
            browser.eval("byId('pods').focus()");
            browser.press(&["ArrowDown", "Enter"]);
            browser.wait_for("How its containers ended").await;
        }
        std::fs::write(dir.join(format!("{name}.png")), browser.screenshot()).expect("written");
    }
    assert_no_complaints(&mut browser);
}
