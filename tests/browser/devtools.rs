//! A headless Chromium, driven over its pipe: messages of the DevTools protocol as JSON, each ended by a zero byte.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

/// The file descriptors 3 and 4 are the browser's ends of the pipe; a shell puts its own in their place.
const START: &str = "exec 3<&0 4>&1 </dev/null >/dev/null 2>&1; exec \"$0\" \"$@\"";

/// A page in a browser of its own.
pub struct Page {
    browser: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: Option<String>,
    last: u64,
    /// What the browser told without being asked.
    pub events: Vec<Value>,
    _profile: TempDir,
}

impl Page {
    /// Opens an empty page that tells of its network, its console and its errors.
    pub fn open(browser: &str) -> Self {
        let profile = tempfile::tempdir().expect("a folder can be made");
        let mut child = Command::new("sh")
            .args(["-c", START, browser])
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
            ])
            .args([
                "--no-first-run",
                "--disable-background-networking",
                "--disable-extensions",
            ])
            .args(["--hide-scrollbars", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell is there");
        let to = child.stdin.take().expect("it is piped");
        let from = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut page = Self {
            browser: child,
            to,
            from,
            session: None,
            last: 0,
            events: Vec::new(),
            _profile: profile,
        };
        let target = page.ask("Target.createTarget", json!({ "url": "about:blank" }));
        let attached = page.ask(
            "Target.attachToTarget",
            json!({ "targetId": target["targetId"], "flatten": true }),
        );
        page.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Network", "Runtime", "Log"] {
            page.ask(&format!("{domain}.enable"), json!({}));
        }
        page
    }

    /// Asks and waits for the answer; what is told meanwhile is kept.
    pub fn ask(&mut self, method: &str, parameters: Value) -> Value {
        self.last += 1;
        let mut message = json!({ "id": self.last, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to
            .write_all(format!("{message}\0").as_bytes())
            .expect("the browser listens");
        loop {
            let actual = self.next();
            if actual["id"] == json!(self.last) {
                assert!(actual["error"].is_null(), "{method}: {actual}");
                return actual["result"].clone();
            }
            self.events.push(actual);
        }
    }

    fn next(&mut self) -> Value {
        let mut message = Vec::new();
        self.from
            .read_until(0, &mut message)
            .expect("the pipe can be read");
        assert_eq!(message.pop(), Some(0), "the browser ended");
        serde_json::from_slice(&message).expect("it speaks JSON")
    }

    /// Opens a file and waits until it is loaded.
    pub fn load(&mut self, file: &Path) {
        self.events.clear();
        self.ask(
            "Page.navigate",
            json!({ "url": format!("file://{}", file.display()) }),
        );
        let is_loaded = |event: &Value| event["method"] == "Page.loadEventFired";
        while !self.events.iter().any(is_loaded) {
            let actual = self.next();
            self.events.push(actual);
        }
    }

    /// As wide and high as a screen, light or dark.
    pub fn look(&mut self, width: u32, height: u32, is_phone: bool, scheme: &str) {
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone }),
        );
        self.ask(
            "Emulation.setEmulatedMedia",
            json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] }),
        );
    }

    /// The value of an expression on the page.
    pub fn value(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.ask("Runtime.evaluate", parameters);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// A picture of the whole page, as base64 of a PNG.
    pub fn picture(&mut self) -> String {
        let answer = self.ask(
            "Page.captureScreenshot",
            json!({ "format": "png", "captureBeyondViewport": true }),
        );
        answer["data"].as_str().expect("a picture is text").to_owned()
    }

    /// The parameters of what was told under a name.
    pub fn events(&self, method: &str) -> Vec<Value> {
        let events = self.events.iter().filter(|event| event["method"] == method);
        events.map(|event| event["params"].clone()).collect()
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.browser.kill();
        let _ = self.browser.wait();
    }
}
