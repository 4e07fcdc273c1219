//! A page in headless Chromium, controlled through the Chrome DevTools Protocol over pipes.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use pleg_tests::wait::pass_time;
use serde_json::{Value, json};

use super::run::{TIMEOUT, TestDir};

/// Debian's package chromium-headless-shell. It reads calls from descriptor 3 and writes messages to descriptor 4.
const COMMAND: &str = "exec chromium-headless-shell --no-sandbox --disable-gpu \
     --remote-debugging-pipe --user-data-dir=\"$1\" about:blank 3<&0 4>&1 </dev/null >/dev/null";
const LOOK: std::time::Duration = std::time::Duration::from_millis(20);

/// A browser with one page. It is killed when this value is dropped.
pub(crate) struct Browser {
    child: Child,
    to: ChildStdin,
    messages: Receiver<Value>,
    session: Value,
    last_call: u64,
    complaints: Vec<String>,
    /// The browser writes to this directory.
    _dir: TestDir,
}

impl Browser {
    pub(crate) fn start() -> Self {
        let dir = TestDir::new();
        let mut command = Command::new("sh");
        command.args(["-c", COMMAND, "sh"]).arg(dir.root());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().expect("a shell");
        let (to, from) = (child.stdin.take(), child.stdout.take());
        let from = BufReader::new(from.expect("its output"));
        let (send, messages) = channel();
        std::thread::spawn(move || {
            let texts = from.split(0).map_while(Result::ok);
            let mut parsed = texts.filter_map(|text| serde_json::from_slice(&text).ok());
            parsed.try_for_each(|message: Value| send.send(message))
        });
        let mut browser = Self {
            child,
            to: to.expect("its input"),
            messages,
            session: Value::Null,
            last_call: 0,
            complaints: Vec::new(),
            _dir: dir,
        };
        let page = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": page["targetId"], "flatten": true });
        browser.session = browser.call("Target.attachToTarget", attach)["sessionId"].take();
        for domain in ["Page", "Runtime", "Log", "Accessibility"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        self.last_call += 1;
        let mut call = json!({ "id": self.last_call, "method": method, "params": params });
        if self.session.is_string() {
            call["sessionId"] = self.session.clone();
        }
        write!(self.to, "{call}\0").expect("the browser runs");
        loop {
            let message = self.messages.recv_timeout(TIMEOUT);
            let mut message = message.unwrap_or_else(|e| panic!("{method}: {e}"));
            if message["id"] == self.last_call {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].take();
            }
            self.complaints.extend(complaint(&message));
        }
    }

    pub(crate) fn resize(&mut self, (width, height): (u32, u32), is_dark: bool) {
        let mut size = json!({ "deviceScaleFactor": 1, "mobile": false });
        (size["width"], size["height"]) = (width.into(), height.into());
        self.call("Emulation.setDeviceMetricsOverride", size);
        let scheme = if is_dark { "dark" } else { "light" };
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", media);
    }

    pub(crate) async fn open(&mut self, address: &str) {
        let url = format!("http://{address}/");
        let opened = self.call("Page.navigate", json!({ "url": url }));
        assert!(opened["errorText"].is_null(), "{opened}");
        self.until("document.readyState === 'complete'").await;
    }

    /// The value of an expression in the page; promises are awaited. `byId` finds an element.
    pub(crate) fn eval(&mut self, expression: &str) -> Value {
        let body = format!("(byId => ({expression}))(id => document.getElementById(id))");
        let call = json!({ "expression": body, "returnByValue": true, "awaitPromise": true });
        let mut result = self.call("Runtime.evaluate", call);
        let failed = &result["exceptionDetails"];
        assert!(failed.is_null(), "{expression}: {result}");
        result["result"]["value"].take()
    }

    pub(crate) fn numbers(&mut self, expression: &str) -> Vec<f64> {
        serde_json::from_value(self.eval(expression)).expect("numbers")
    }

    pub(crate) async fn until(&mut self, expression: &str) {
        let waiting = async {
            while self.eval(expression) != true {
                pass_time(LOOK).await;
            }
        };
        if tokio::time::timeout(TIMEOUT, waiting).await.is_err() {
            panic!("not {expression}:\n{}", self.text("content"));
        }
    }

    pub(crate) async fn until_in(&mut self, id: &str, text: &str) {
        let shown = format!("byId('{id}').innerText.includes({})", Value::from(text));
        self.until(&shown).await;
    }

    pub(crate) async fn until_shows(&mut self, text: &str) {
        let shown = format!("document.body.innerText.includes({})", Value::from(text));
        self.until(&shown).await;
    }

    pub(crate) fn text(&mut self, id: &str) -> String {
        let text = self.eval(&format!("byId('{id}').innerText"));
        text.as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn search(&mut self, text: &str) {
        self.eval(&format!("byId('search').value = '{text}'"));
        self.eval("byId('search').dispatchEvent(new Event('input'))");
    }

    pub(crate) fn press(&mut self, keys: &[&str]) {
        for key in keys {
            let text = if key.chars().count() == 1 { key } else { "" };
            for (kind, text) in [("keyDown", text), ("keyUp", "")] {
                let event = json!({ "type": kind, "key": key, "text": text });
                self.call("Input.dispatchKeyEvent", event);
            }
        }
    }

    pub(crate) fn assert_no_complaints(&mut self) {
        // Until Chromium responds to this call, `complaints` collects what it reported before.
        self.eval("0");
        assert!(self.complaints.is_empty(), "{:#?}", self.complaints);
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn complaint(message: &Value) -> Option<String> {
    let params = &message["params"];
    let is_bad = |kind: &Value| ["error", "warning", "assert"].iter().any(|bad| kind == bad);
    let complaint = match message["method"].as_str()? {
        "Runtime.exceptionThrown" => &params["exceptionDetails"],
        "Runtime.consoleAPICalled" if is_bad(&params["type"]) => &params["args"],
        "Log.entryAdded" if params["entry"]["level"] != "verbose" => &params["entry"],
        _ => return None,
    };
    Some(complaint.to_string())
}
