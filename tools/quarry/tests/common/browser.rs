// SPDX-License-Identifier: MIT
//! Drives Chromium by its DevTools protocol, over two pipes: real keys and pointers, what a reader of the screen is told, and what the
//! page asks of the network.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::PATIENCE;

/// The screen of a page.
#[derive(Debug, Clone, Copy)]
pub struct Screen {
    pub width: u32,
    pub height: u32,
    pub is_dark: bool,
    pub is_phone: bool,
}

pub const DESKTOP: Screen = Screen { width: 1200, height: 900, is_dark: false, is_phone: false };
pub const DARK: Screen = Screen { is_dark: true, ..DESKTOP };
pub const PHONE: Screen = Screen { width: 390, height: 800, is_dark: false, is_phone: true };

/// Waits until two pictures could have been drawn.
const DRAWN: &str =
    "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))";

/// A browser with one page.
pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    session: String,
    number: u64,
    /// What the browser told without being asked.
    events: Vec<Value>,
    _folder: TempDir,
}

impl Browser {
    /// `None`, and a word about it, where there is none.
    pub fn new(screen: Screen) -> Option<Self> {
        if Command::new("chromium").arg("--version").stderr(Stdio::null()).output().is_err() {
            eprintln!("skipped: needs chromium (the package chromium)");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        // The browser reads commands from descriptor 3 and answers on 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec chromium \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", "chromium"])
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
            ])
            .args(["--disable-background-networking", "--hide-scrollbars", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", folder.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let (send, receive) = channel();
        std::thread::spawn(move || {
            for message in from.split(0).map_while(Result::ok) {
                if send.send(serde_json::from_slice(&message).unwrap_or_default()).is_err() {
                    return;
                }
            }
        });
        let mut browser = Self {
            child,
            to,
            from: receive,
            session: String::new(),
            number: 0,
            events: Vec::new(),
            _folder: folder,
        };
        browser.begin(screen);
        Some(browser)
    }

    fn begin(&mut self, screen: Screen) {
        let page = self.call("Target.createTarget", json!({ "url": "about:blank" }));
        let session =
            self.call("Target.attachToTarget", json!({ "targetId": page["targetId"], "flatten": true }));
        self.session = session["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Runtime", "Network", "Log"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
        self.screen(screen);
    }

    /// Take another screen.
    pub fn screen(&mut self, screen: Screen) {
        let Screen { width, height, is_dark, is_phone } = screen;
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        self.call("Emulation.setTouchEmulationEnabled", json!({ "enabled": is_phone }));
        let scheme = if is_dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }, { "name": "prefers-reduced-motion", "value": "reduce" }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    fn next(&mut self, what: &str) -> Value {
        self.from.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("the browser and {what}: {error}"))
    }

    /// Call a method of the protocol.
    #[track_caller]
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.number += 1;
        let mut message = json!({ "id": self.number, "method": method, "params": parameters });
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let mut answer = self.next(method);
            if answer["id"] == self.number {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].take();
            }
            self.events.push(answer);
        }
    }

    /// Open a file, and wait until it is loaded and drawn.
    pub fn open(&mut self, page: &Path) {
        self.events.clear();
        self.call("Page.navigate", json!({ "url": format!("file://{}", page.display()) }));
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            let event = self.next("the page");
            self.events.push(event);
        }
        self.drawn();
    }

    /// Wait until what was changed is on the screen.
    pub fn drawn(&mut self) {
        self.eval(DRAWN);
    }

    /// The value of an expression.
    #[track_caller]
    pub fn eval(&mut self, expression: &str) -> Value {
        let wanted = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut answer = self.call("Runtime.evaluate", wanted);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer:#}");
        answer["result"]["value"].take()
    }

    /// A text that an expression gives.
    #[track_caller]
    pub fn text(&mut self, expression: &str) -> String {
        let value = self.eval(expression);
        value.as_str().unwrap_or_else(|| panic!("{expression}: {value}")).to_owned()
    }

    /// Press a key, with shift or without, and wait until all is drawn.
    pub fn key(&mut self, key: &str) {
        let (shift, key) = key.strip_prefix("Shift+").map_or((0, key), |key| (8, key));
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            "Escape" => 27,
            "Home" => 36,
            "ArrowLeft" => 37,
            "ArrowUp" => 38,
            "ArrowRight" => 39,
            "ArrowDown" => 40,
            " " => 32,
            "/" => 191,
            other => u32::from(other.as_bytes()[0].to_ascii_uppercase()),
        };
        let text = match key {
            "Enter" => "\r",
            key if key.len() == 1 => key,
            _ => "",
        };
        let code_name = if key == " " { "Space" } else { key };
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            let event = json!({ "type": kind, "key": key, "code": code_name, "windowsVirtualKeyCode": code, "modifiers": shift, "text": text });
            self.call("Input.dispatchKeyEvent", event);
        }
        self.drawn();
    }

    /// Type letter by letter.
    pub fn type_text(&mut self, text: &str) {
        text.chars().for_each(|letter| self.key(&letter.to_string()));
    }

    /// Where the middle of the first element is that fits, brought into view.
    #[track_caller]
    pub fn place(&mut self, element: &str) -> (f64, f64) {
        let place = self.eval(&format!(
            "(() => {{ const at = {element}; at.scrollIntoView({{ block: 'center' }}); const r = at.getBoundingClientRect(); return [r.left + r.width / 2, r.top + r.height / 2]; }})()"
        ));
        (place[0].as_f64().unwrap(), place[1].as_f64().unwrap())
    }

    fn mouse(&mut self, kind: &str, (x, y): (f64, f64), buttons: u32) {
        let event =
            json!({ "type": kind, "x": x, "y": y, "button": "left", "buttons": buttons, "clickCount": 1 });
        self.call("Input.dispatchMouseEvent", event);
    }

    /// Click on an element.
    #[track_caller]
    pub fn click(&mut self, element: &str) {
        let place = self.place(element);
        self.drag(place, place);
    }

    /// Drag from one place to another.
    pub fn drag(&mut self, from: (f64, f64), to: (f64, f64)) {
        self.mouse("mouseMoved", from, 0);
        self.mouse("mousePressed", from, 1);
        if from != to {
            for step in 1..=4 {
                let part = f64::from(step) / 4.0;
                let at = (from.0 + (to.0 - from.0) * part, from.1 + (to.1 - from.1) * part);
                self.mouse("mouseMoved", at, 1);
                self.drawn();
            }
        }
        self.mouse("mouseReleased", to, 0);
        self.drawn();
    }

    /// Drag a finger from one place to another.
    pub fn swipe(&mut self, from: (f64, f64), to: (f64, f64)) {
        let touch = |(x, y): (f64, f64)| json!([{ "x": x, "y": y }]);
        let middle = ((from.0 + to.0) / 2.0, (from.1 + to.1) / 2.0);
        for (kind, points) in [
            ("touchStart", touch(from)),
            ("touchMove", touch(middle)),
            ("touchMove", touch(to)),
            ("touchEnd", json!([])),
        ] {
            self.call("Input.dispatchTouchEvent", json!({ "type": kind, "touchPoints": points }));
            self.drawn();
        }
    }

    /// Go back or forward in the history.
    pub fn history(&mut self, by: i32) {
        self.eval(&format!(
            "new Promise(done => {{ addEventListener('popstate', () => done(true), {{ once: true }}); history.go({by}); }})"
        ));
        self.drawn();
    }

    /// Everything that was asked of the network, beside the page itself, and everything that the browser complains of.
    pub fn complaints(&self) -> Vec<String> {
        let mut complaints: Vec<String> = Vec::new();
        for event in &self.events {
            let params = &event["params"];
            match event["method"].as_str() {
                Some("Network.requestWillBeSent") if params["type"] != "Document" => {
                    complaints.push(format!("asked for {}", params["request"]["url"]));
                }
                Some("Runtime.exceptionThrown" | "Log.entryAdded" | "Runtime.consoleAPICalled") => {
                    complaints.push(params.to_string());
                }
                _ => {}
            }
        }
        complaints
    }

    /// What a reader of the screen is told: role and name of each element.
    pub fn told(&mut self) -> Vec<(String, String)> {
        let tree = self.call("Accessibility.getFullAXTree", json!({}));
        let nodes = tree["nodes"].as_array().unwrap().iter().filter(|node| node["ignored"] == false);
        let text = |value: &Value| value["value"].as_str().unwrap_or_default().to_owned();
        nodes.map(|node| (text(&node["role"]), text(&node["name"]))).collect()
    }

    /// A picture of the whole page, where one is wanted.
    pub fn picture(&mut self, file: &Path) {
        let size = self.eval("[document.documentElement.scrollWidth, document.documentElement.scrollHeight]");
        let clip = json!({ "x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1 });
        let wanted = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        let picture = self.call("Page.captureScreenshot", wanted);
        fs::write(file, base64(picture["data"].as_str().unwrap())).unwrap();
    }
}

/// The bytes of text in base 64.
fn base64(text: &str) -> Vec<u8> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut bytes = Vec::new();
    for four in text.trim_end_matches('=').as_bytes().chunks(4) {
        let bits =
            four.iter().fold(0u32, |bits, &c| bits << 6 | u32::from(digit(c))) << (6 * (4 - four.len()));
        bytes.extend_from_slice(&bits.to_be_bytes()[1..four.len()]);
    }
    bytes
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It ends when it is killed: what it keeps lies in the folder.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
