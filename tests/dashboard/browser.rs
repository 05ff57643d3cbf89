//! A headless Chromium, driven by its DevTools protocol over a web socket.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tungstenite::stream::MaybeTlsStream;
use tungstenite::{Message, WebSocket};

/// Timeout of every browser operation; the machine may be busy.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A browser with one page.
pub struct Browser {
    process: Child,
    socket: WebSocket<MaybeTlsStream<TcpStream>>,
    session: Option<String>,
    next: u64,
    /// Console output of the page and uncaught exceptions.
    pub console: Vec<String>,
    _profile: tempfile::TempDir,
}

/// The browser's command, if there is one.
pub fn installed() -> Option<String> {
    let named = std::env::var("TILEWRIGHT_CHROMIUM").ok();
    let known = ["chromium", "chromium-browser", "google-chrome"].map(str::to_owned);
    named.into_iter().chain(known).find(|command| {
        let version = Command::new(command).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    })
}

impl Browser {
    /// Starts the browser with a profile of its own and opens a file.
    pub fn open(command: &str, file: &Path) -> Browser {
        let profile = tempfile::tempdir().expect("a folder");
        let mut process = Command::new(command)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-port=0"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("Chromium starts");
        let lines = BufReader::new(process.stderr.take().expect("standard error")).lines();
        let mut lines = lines.map_while(Result::ok);
        let address = lines.find_map(|line| line.strip_prefix("DevTools listening on ").map(str::to_owned));
        let address = address.expect("Chromium says where it listens");
        // Later output is read too, so that the browser never blocks on a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let (socket, _) = tungstenite::connect(address).expect("a web socket");
        if let MaybeTlsStream::Plain(stream) = socket.get_ref() {
            stream.set_read_timeout(Some(TIMEOUT)).expect("a limit of time");
        }
        let session = None;
        let console = Vec::new();
        let mut browser = Browser { process, socket, session, next: 0, console, _profile: profile };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        browser.session = browser.call("Target.attachToTarget", attach)["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser.call("Page.navigate", json!({ "url": format!("file://{}", file.display()) }));
        browser.wait("document.readyState === 'complete' && document.querySelector('.view.shown') !== null");
        browser
    }

    /// Calls a method of the protocol; its result.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.next += 1;
        let mut request = json!({ "id": self.next, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            request["sessionId"] = json!(session);
        }
        self.socket.send(Message::text(request.to_string())).expect("sends");
        loop {
            let Message::Text(text) = self.socket.read().expect("an answer in time") else { continue };
            let answer: Value = serde_json::from_str(&text).expect("JSON");
            if answer["id"] == json!(self.next) {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
            self.note(&answer);
        }
    }

    /// Keeps console output and network requests of the page.
    fn note(&mut self, event: &Value) {
        let of_the_network = |event: &Value| {
            let url = event["params"]["request"]["url"].as_str().unwrap_or_default();
            !url.starts_with("file:") && !url.starts_with("data:") && url != "about:blank"
        };
        match event["method"].as_str() {
            Some("Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded") => {
                self.console.push(event["params"].to_string());
            }
            Some("Network.requestWillBeSent") if of_the_network(event) => {
                self.console.push(event["params"].to_string())
            }
            _ => {}
        }
    }

    /// The value of an expression of the page.
    pub fn eval(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let result = self.call("Runtime.evaluate", parameters);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Counts the elements that a selector finds and that are visible.
    pub fn visible(&mut self, selector: &str) -> u64 {
        let count = "[...document.querySelectorAll(SELECTOR)].filter((e) => e.getClientRects().length > 0).length";
        self.eval(&count.replace("SELECTOR", &json!(selector).to_string())).as_u64().expect("a count")
    }

    /// Waits until an expression is true.
    pub fn wait(&mut self, expression: &str) {
        let start = Instant::now();
        while self.eval(expression) != json!(true) {
            assert!(start.elapsed() < TIMEOUT, "never true: {expression}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Clicks the middle of the first element that a selector finds, as a person would.
    pub fn click(&mut self, selector: &str) {
        let middle = "(() => { const e = document.querySelector(SELECTOR); e.scrollIntoView({ block: 'center', inline: 'center' }); \
                      const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()";
        let at = self.eval(&middle.replace("SELECTOR", &json!(selector).to_string()));
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({ "type": kind, "x": at[0], "y": at[1], "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    /// Presses a key.
    pub fn press(&mut self, key: &str) {
        let text = if key.chars().count() == 1 { key } else { "" };
        for kind in ["keyDown", "keyUp"] {
            let code = match key {
                "Escape" => 27,
                "Enter" => 13,
                _ => 0,
            };
            let text = if kind == "keyDown" && code == 13 { "\r" } else { text };
            let event = json!({ "type": kind, "key": key, "windowsVirtualKeyCode": code, "text": text });
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Presses the key of a view and waits until the view is shown; the page handles its new
    /// address asynchronously.
    pub fn press_for(&mut self, key: &str, view: &str) {
        self.press(key);
        self.wait_for_view(view);
    }

    /// Waits until a view, and no other, is shown.
    pub fn wait_for_view(&mut self, view: &str) {
        let shown = "[...document.querySelectorAll('.view.shown')].map((e) => e.id).join() === VIEW";
        self.wait(&shown.replace("VIEW", &json!(view).to_string()));
    }

    /// Sets the size of the window, and whether the system is dark.
    pub fn resize(&mut self, width: u32, height: u32, dark: bool) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.call("Emulation.setDeviceMetricsOverride", size);
        let scheme =
            json!({ "features": [{ "name": "prefers-color-scheme", "value": if dark { "dark" } else { "light" } }] });
        self.call("Emulation.setEmulatedMedia", scheme);
    }

    /// A picture of the window, PNG.
    pub fn picture(&mut self) -> Vec<u8> {
        let picture = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        data_encoding::BASE64.decode(picture["data"].as_str().expect("data").as_bytes()).expect("base 64")
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
