//! A browser without a window, which opens pages in frames of given widths.

use std::fs;
use std::process::{Command, Stdio};
use std::{env, iter};

use serde::Deserialize;

/// What the browser found in one frame.
#[derive(Deserialize)]
pub struct Seen {
    /// The frame's width.
    pub width: u32,
    /// The page's height in it.
    pub height: u32,
    /// True if the page was asked for its dark colours.
    pub dark: bool,
    /// Scripts of the page.
    pub scripts: u32,
    /// Titles of the charts that can be seen.
    pub charts: Vec<String>,
    /// What is wrong.
    pub problems: Vec<String>,
}

const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// The browser's name.
pub fn find() -> &'static str {
    let paths = env::var_os("PATH").unwrap_or_default();
    NAMES
        .into_iter()
        .find(|name| env::split_paths(&paths).any(|path| path.join(name).is_file()))
        .expect("no Chromium here: install the package chromium")
}

/// Opens each page in a frame of its width, all of them in light or dark colours.
pub fn open(browser: &str, dark: bool, pages: &[(u32, &str)]) -> Vec<Seen> {
    let folder = tempfile::tempdir().expect("a folder for the browser");
    let frame = |&(width, page): &(u32, &str)| {
        let page = page.replace('&', "&amp;").replace('"', "&quot;");
        format!(
            "<iframe width={width} height=900 style='border:0;display:block' srcdoc=\"{page}\"></iframe>"
        )
    };
    let script = include_str!("measure.js");
    let start =
        format!("<!DOCTYPE html><meta charset=utf-8><pre id=found></pre><script>{script}</script>");
    let harness: String = iter::once(start).chain(pages.iter().map(frame)).collect();
    let file = folder.path().join("harness.html");
    fs::write(&file, harness).expect("the folder can be written");

    let output = Command::new(browser)
        .args("--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking".split(' '))
        .args(
            "--disable-component-update --disable-sync --disable-dev-shm-usage --virtual-time-budget=20000 --hide-scrollbars --dump-dom".split(' '),
        )
        .arg(format!("--blink-settings=preferredColorScheme={}", u8::from(!dark)))
        .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
        .arg(format!("file://{}", file.display()))
        .stderr(Stdio::null())
        .output()
        .expect("the browser starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let found = text
        .split_once("<pre id=\"found\">")
        .and_then(|(_, rest)| rest.split_once("</pre>"));
    let found = found
        .map(|(found, _)| found)
        .filter(|found| !found.is_empty());
    let found = found.unwrap_or_else(|| {
        panic!(
            "the browser has measured nothing ({}): {}",
            output.status,
            text.get(..600).unwrap_or(&text)
        )
    });
    serde_json::from_str(found).expect("the script wrote JSON")
}
