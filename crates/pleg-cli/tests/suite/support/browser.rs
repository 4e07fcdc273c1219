//! A page in headless Chromium, by the Chrome DevTools Protocol over pipes.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use pleg_tests::wait::until;
use serde_json::{Value, json};

use super::TestDir;
use crate::commands::run::TIMEOUT;

/// Debian's package chromium-headless-shell.
const PROGRAM: &str = "chromium-headless-shell";

/// A browser with one page. It is killed when this is dropped.
pub(crate) struct Browser {
    child: Child,
    to: File,
    messages: Receiver<Value>,
    session: String,
    last_call: u64,
    /// What the page or the browser has complained about.
    complaints: Vec<String>,
    /// It writes to this directory.
    _dir: TestDir,
}

impl Browser {
    pub(crate) fn start() -> Self {
        let dir = TestDir::new();
        let [to, from] = ["to", "from"].map(|name| dir.path(name));
        let made = Command::new("mkfifo").args([&to, &from]).status();
        assert!(made.is_ok_and(|status| status.success()), "pipes");
        let script = format!(
            "exec {PROGRAM} --no-sandbox --disable-gpu --remote-debugging-pipe --user-data-dir=\"$3\" about:blank 3<\"$1\" 4>\"$2\""
        );
        let child = Command::new("sh")
            .args(["-c", &script, "sh"])
            .args([&to, &from, &dir.path("profile")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell");
        let to = File::options().write(true).open(to).expect("its input");
        let from = File::open(from).expect("its output");
        let (send, messages) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(from).split(0).map_while(Result::ok) {
                let Ok(message) = serde_json::from_slice(&message) else {
                    continue;
                };
                if send.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser = Self {
            child,
            to,
            messages,
            session: String::new(),
            last_call: 0,
            complaints: Vec::new(),
            _dir: dir,
        };
        let page = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": page["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session = attached["sessionId"]
            .as_str()
            .expect("a session")
            .to_owned();
        for domain in ["Page", "Runtime", "Log", "Accessibility"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// The result of a call.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        self.last_call += 1;
        let mut call = json!({ "id": self.last_call, "method": method, "params": params });
        if !self.session.is_empty() {
            call["sessionId"] = self.session.clone().into();
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

    /// Sets the size of the window, and whether the user prefers dark pages.
    pub(crate) fn resize(&mut self, (width, height): (u32, u32), is_dark: bool) {
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size);
        let scheme = if is_dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call(
            "Emulation.setEmulatedMedia",
            json!({ "features": features }),
        );
    }

    /// Loads a page, and waits until its document is complete.
    pub(crate) async fn open(&mut self, url: &str) {
        let opened = self.call("Page.navigate", json!({ "url": url }));
        assert!(opened["errorText"].is_null(), "{opened}");
        self.wait_until("document.readyState === 'complete'").await;
    }

    /// The value of an expression in the page; promises are awaited. `byId` finds an element.
    pub(crate) fn eval(&mut self, expression: &str) -> Value {
        let body = format!("(byId => ({expression}))(id => document.getElementById(id))");
        let call = json!({ "expression": body, "returnByValue": true, "awaitPromise": true });
        let mut result = self.call("Runtime.evaluate", call);
        assert!(
            result["exceptionDetails"].is_null(),
            "{expression}: {result}"
        );
        result["result"]["value"].take()
    }

    /// Waits until the expression is true.
    pub(crate) async fn wait_until(&mut self, expression: &str) {
        let waited = {
            let this = std::sync::Mutex::new(&mut *self);
            let is = || {
                let value = this.lock().expect("one at a time").eval(expression);
                async move { (value == true).then_some(()) }
            };
            until(TIMEOUT, expression, is).await
        };
        assert!(waited.is_ok(), "not {expression}:\n{}", self.text());
    }

    /// Waits until the page shows a text.
    pub(crate) async fn wait_for(&mut self, text: &str) {
        let text = Value::from(text);
        self.wait_until(&format!("document.body.innerText.includes({text})"))
            .await;
    }

    /// What the page shows.
    pub(crate) fn text(&mut self) -> String {
        self.eval("document.body.innerText")
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// Presses a key, such as `Enter`, `ArrowDown` or `p`.
    pub(crate) fn key(&mut self, key: &str) {
        let text = if key.chars().count() == 1 { key } else { "" };
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            let event = json!({ "type": kind, "key": key, "text": text });
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    pub(crate) fn press(&mut self, keys: &[&str]) {
        for key in keys {
            self.key(key);
        }
    }

    /// The bytes that the page's script holds.
    pub(crate) fn heap(&mut self) -> u64 {
        self.call("HeapProfiler.collectGarbage", json!({}));
        let usage = self.call("Runtime.getHeapUsage", json!({}));
        usage["usedSize"].as_f64().expect("a size") as u64
    }

    /// The page as it looks, as PNG.
    pub(crate) fn screenshot(&mut self) -> Vec<u8> {
        let shot = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        let data = shot["data"].as_str().expect("an image");
        BASE64_STANDARD.decode(data).expect("base64")
    }

    /// What the page or the browser has complained about so far.
    pub(crate) fn complaints(&mut self) -> Vec<String> {
        // Events that precede the response are read with it.
        self.eval("0");
        std::mem::take(&mut self.complaints)
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
    match message["method"].as_str()? {
        "Runtime.exceptionThrown" => Some(params["exceptionDetails"].to_string()),
        "Runtime.consoleAPICalled"
            if matches!(
                params["type"].as_str(),
                Some("error" | "warning" | "assert")
            ) =>
        {
            Some(params["args"].to_string())
        }
        "Log.entryAdded" if params["entry"]["level"] != "verbose" => {
            Some(params["entry"].to_string())
        }
        _ => None,
    }
}
