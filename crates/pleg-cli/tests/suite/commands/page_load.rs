//! The page of `pleg agent` with many pods, many events, and hostile names, in headless Chromium.

use std::time::Duration;

use pleg_tests::kubelet::Life;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::agent::Agent;
use super::page::{WIDE, open};
use super::run::{Running, Sim, TIMEOUT, arg, run_pod};
use crate::support::TestDir;
use crate::support::browser::Browser;

/// Scrolls through the pods in 60 frames: the times between the frames, and the most rows.
const SCROLL: &str = "new Promise(resolve => {
  const frames = []; let rows = 0; let last = performance.now(); const box = byId('pods');
  box.scrollTop = 0;
  const step = now => {
    frames.push(now - last); last = now;
    box.scrollTop += box.scrollHeight / 60;
    rows = Math.max(rows, byId('rows').rows.length);
    if (frames.length < 60) requestAnimationFrame(step); else resolve({ frames, rows });
  };
  requestAnimationFrame(step);
})";

#[tokio::test]
async fn thousand_pods_are_scrolled_with_few_rows() {
    let dir = TestDir::new();
    let socket = dir.path("cri.sock");
    let mut sim = Running::start(&["sim", "--pods", "1000", "--socket", arg(&socket)]);
    sim.message().await.expect("the socket");
    let agent = Agent::start(&["-r", arg(&socket)]).await;
    let mut browser = Browser::start();
    browser.resize(WIDE, false);
    browser.open(&agent.address).await;
    let count = "/^1,00\\d$/.test(byId('pods-count').textContent)";
    browser.until(count).await;
    // Three times through all pods. The best time counts: other tests share the machine.
    let mut medians = Vec::new();
    for _ in 0..3 {
        let scrolled = browser.eval(SCROLL);
        let frames = scrolled["frames"].clone();
        let mut frames: Vec<f64> = serde_json::from_value(frames).expect("numbers");
        frames.sort_by(f64::total_cmp);
        println!("frames in ms: {frames:?}");
        medians.push(frames[30]);
        let rows = scrolled["rows"].as_u64().expect("a number");
        assert!(rows < 60, "{rows} rows");
    }
    assert!(medians.iter().any(|&median| median <= 50.0), "{medians:?}");
    // The last rows arrive.
    for expression in [
        "byId('rows').rows.length > 0 && !byId('rows').innerText.includes('…')",
        "Number([...byId('rows').rows].at(-1).ariaRowIndex) >= 1000",
    ] {
        browser.until(expression).await;
    }
    browser.assert_no_complaints();
}

/// Answers instead of an agent: a view of 10,000 pods, and 1,000 records per second. `VIEW` is the view of one pod.
const STORM: &str = "(() => {
  const view = VIEW;
  const [row] = Object.values(view.pods.rows);
  window.sent = 0;
  window.fetch = async url => {
    const offset = Number(new URLSearchParams(url.split('?')[1]).get('offset'));
    const order = Array.from({ length: 100 }, (_, n) => `uid-${offset + n}`);
    const rows = Object.fromEntries(order.map((uid, n) => [uid, { ...row, pod: { ...row.pod, uid, name: `pod-${offset + n}` } }]));
    const pods = { ...view.pods, total: 10000, matching: 10000, offset, order, rows };
    const encode = text => new TextEncoder().encode(text);
    let timer = 0;
    const start = out => {
      timer = setInterval(() => {
        const records = Array.from({ length: 50 }, () => {
          window.sent += 1;
          return { seq: window.sent, time: view.time, type: 'ContainerStarted', pod: row.pod, id: 'x'.repeat(64), kind: 'container', name: `app-${window.sent}` };
        });
        const head = { time: view.time, agent: view.since, missed: 0, last: window.sent };
        const data = [head, ...records].map(line => `data: ${JSON.stringify(line)}\\n`).join('');
        out.enqueue(encode(`event: records\\nid: a/${window.sent}\\n${data}\\n`));
        if (window.sent % 250 === 0) out.enqueue(encode(`event: view\\ndata: ${JSON.stringify({ ...view, pods })}\\n\\n`));
      }, 50);
    };
    return new Response(new ReadableStream({ start, cancel: () => clearInterval(timer) }));
  };
})()";

/// A client of `/debug/live`, and what it got up to the end of the first view.
async fn live(agent: &Agent) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(&agent.address).await.expect("connected");
    let request = b"GET /debug/live?limit=100&records=0 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request).await.expect("sent");
    let mut got = Vec::new();
    let is_whole = |got: &[u8]| {
        let text = String::from_utf8_lossy(got);
        let view = text.split_once("event: view\n");
        view.is_some_and(|(_, view)| view.contains("\n\n"))
    };
    let read = async {
        while !is_whole(&got) {
            stream.read_buf(&mut got).await.expect("read");
        }
    };
    tokio::time::timeout(TIMEOUT, read).await.expect("a view");
    (stream, String::from_utf8(got).expect("UTF-8"))
}

/// Part of a minute in which the bytes are counted.
const WINDOW: Duration = Duration::from_secs(6);
const WINDOWS_PER_MINUTE: usize = 10;

#[tokio::test]
async fn idle_page_with_100_pods_costs_100_kb_a_minute() {
    let sim = Sim::start().await;
    for n in 0..100 {
        run_pod(&sim.kubelet, &format!("pod-{n}")).await;
    }
    let agent = Agent::start(&["-r", arg(&sim.socket)]).await;
    agent
        .until_shows("/debug/view?limit=0", "\"total\":100")
        .await;
    let (mut stream, first) = live(&agent).await;
    // At first, status calls still complete the pods.
    let mut minutes = Vec::new();
    for _ in 0..5 {
        let mut got = Vec::new();
        let read = stream.read_to_end(&mut got);
        assert!(tokio::time::timeout(WINDOW, read).await.is_err());
        minutes.push(first.len() + WINDOWS_PER_MINUTE * got.len());
        if minutes.last() <= Some(&100_000) {
            break;
        }
    }
    let first = first.len();
    println!("bytes of an idle page in a minute: {minutes:?}, {first} at first");
    assert!(minutes.last() <= Some(&100_000), "{minutes:?}");
}

#[tokio::test]
async fn memory_stays_bounded_with_10000_pods_under_load() {
    let sim = Sim::start().await;
    run_pod(&sim.kubelet, "pod").await;
    let (agent, mut browser) = open(&sim).await;
    browser.until_shows("test/pod").await;
    let (_stream, view) = live(&agent).await;
    let (_, view) = view.split_once("event: view\ndata: ").expect("a view");
    let storm = STORM.replace("VIEW", view.lines().next().expect("a line"));
    let storm = serde_json::json!({ "source": storm });
    browser.call("Page.addScriptToEvaluateOnNewDocument", storm);
    browser.open(&agent.address).await;
    browser.until("window.sent >= 2500").await;
    let before = browser.heap();
    browser.eval("byId('pods').scrollTop = 150000");
    browser.until("window.sent >= 7500").await;
    let after = browser.heap();
    println!("heap after 2,500 and 7,500 events: {before} and {after} bytes");
    assert!(after < before + (4 << 20), "{before} bytes, then {after}");
    browser.until_in("rows", "pod-5000").await;
    let elements = browser.eval("document.querySelectorAll('*').length");
    assert!(elements.as_u64() < Some(3_000), "{elements} elements");
    let newest =
        "[...document.querySelectorAll('#records [data-seq]')].some(r => r.dataset.seq >= 7000)";
    browser.until(newest).await;
    browser.assert_no_complaints();
}

#[tokio::test]
async fn names_with_markup_and_control_characters_are_text() {
    let sim = Sim::start().await;
    let evil = "<img src=x onerror=alert(1)>\u{202e}\u{1b}[31m\u{200b}";
    let pod = sim.kubelet.run_pod(evil).await.expect("run");
    for n in 0..100 {
        let name = format!("<b>{n}</b>\u{202e}");
        let created = sim.kubelet.create(&pod, &name, 0, Life::UntilStopped);
        created.await.expect("created");
    }
    run_pod(&sim.kubelet, &"long".repeat(2_500)).await;
    let (_agent, mut browser) = open(&sim).await;
    let escaped = "<img src=x onerror=alert(1)>\\u{202e}\\u{1b}[31m\\u{200b}";
    browser.until_shows(escaped).await;
    browser.search("onerror");
    browser.until("byId('rows').rows.length === 1").await;
    browser.eval("byId('rows').rows[0].click()");
    browser.until_shows("<b>99</b>\\u{202e}").await;
    // The label of 10 kB is that of the other pod.
    browser.press(&["Escape", "c"]);
    browser.until("byId('rows').rows.length === 2").await;
    browser.eval("[...byId('rows').rows].find(row => row.innerText.includes('long')).click()");
    let label = "io.kubernetes.pod.uid=uid-long";
    browser.until_shows(label).await;
    for (expression, expected) in [
        (
            "/[\\u202e\\u001b\\u200b]/.test(document.documentElement.outerHTML)",
            false,
        ),
        (
            "document.images.length + document.querySelectorAll('#content b b').length > 0",
            false,
        ),
        ("document.documentElement.scrollWidth <= innerWidth", true),
    ] {
        assert_eq!(browser.eval(expression), expected, "{expression}");
    }
    browser.assert_no_complaints();
}
