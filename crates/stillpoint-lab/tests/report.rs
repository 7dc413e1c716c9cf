//! `stillpoint report`: the page from stored figures, what goes wrong, a real run of the cheapest
//! parts, and what a browser makes of the page.

#[path = "report/browser.rs"]
mod browser;
mod processes;
mod program;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use processes::{Orphan, child_of, is_alive, signal, wait_for};
use program::stillpoint;

/// A quick report's figures, shortened.
const FIXTURE: &str = include_str!("fixtures/report.json");

/// The charts that a whole report has: titles, from top to bottom.
const CHARTS: &[&str] = &[
    "Time for an object, allocated, retired and freed",
    "Memory that waits to be freed (rcuscale's footprint)",
    "Before and after: a grace period for each page",
    "From the last retire until nothing waits",
    "Memory over time, above the start",
    "A pair of lock and unlock",
    "The same beside a thread that retires",
    "Before and after",
    "A wait without readers",
    "A wait beside 16 threads that sleep",
    "A wait beside 1,000 threads that sleep",
    "A wait beside a thread that reads without a pause",
    "A wait beside two such readers, on the waiter's own two CPUs",
    "A wait of each of 64 threads at once",
    "A wait of 400, one after the other, beside 64 threads that sleep",
    "From queueing a callback to its call",
    "A callback and the barrier behind it",
    "From starting a grace period to the first poll that says it has ended",
    "Waits of 64 threads together",
    "A wait beside 1,000 threads that sleep",
    "A wait beside a thread that reads without a pause",
    "A wait beside two such readers, on the waiter's own two CPUs",
    "A wait of each of 64 threads at once",
    "From queueing a callback to its call",
    "From starting a grace period to the first poll that says it has ended",
    "Before and after",
    "A grace period without readers",
    "A pair of lock and unlock on a thread",
    "From the last reader's end to the wait's",
    "Sections of 10,000 tasks",
    "Updates beside 10,000 tasks",
    "A wait elsewhere, while 10,000 sections are open",
    "Before and after: time in locks",
    "Counts, 14 threads beside 2 that add and delete",
    "Additions meanwhile",
    "Counts, one thread beside one",
    "Counts, 14 threads, each at another list",
    "Additions meanwhile, each at another list",
    "Before and after: every copy checked",
    "To find an area among 1,000",
    "To find an area among 100,000",
    "To find an area among 1,000,000",
    "To check a range, among 100,000 areas",
    "Checked messages of 256 bytes, 16 threads",
    "Checked messages of 4 KiB, 16 threads",
    "Checked messages of 256 bytes, 2 threads",
    "Checked messages of 4 KiB, 2 threads",
    "To allocate and free 4 pages",
    "To allocate and free areas of random size",
    "To give a page back, areas of 16 pages",
    "To give a page back, areas of one page",
    "synchronize_rcu() on an idle machine of 32 CPUs: mean",
    "Waits while a network bridge is set up, 64 CPUs: median",
    "RCU Tasks Trace on a laptop, patch by patch: mean",
    "How long the broken flavours survived",
];

const SECTIONS: [&str; 10] = [
    "patches",
    "kfree",
    "read",
    "grace",
    "trace",
    "lru",
    "vmap",
    "simulated",
    "torture",
    "about",
];

/// A folder, and a page drawn in it.
struct Drawn {
    _folder: TempDir,
    code: i32,
    page: String,
    picture: String,
}

fn fixture() -> Value {
    serde_json::from_str(FIXTURE).expect("the fixture is JSON")
}

/// What is drawn from these figures.
fn draw(figures: &Value) -> Drawn {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    fs::write(at("r.json"), figures.to_string()).expect("the folder can be written");
    let [from, page, picture] =
        ["r.json", "r.html", "r.svg"].map(|name| at(name).display().to_string());
    let run = stillpoint(&format!(
        "report --from {from} --output {page} --picture {picture}"
    ));
    assert!(run.err.contains(&format!("wrote {page}")), "{}", run.err);
    let read = |name: &str| fs::read_to_string(at(name)).expect("the program wrote it");
    Drawn {
        code: run.code,
        page: read("r.html"),
        picture: read("r.svg"),
        _folder: folder,
    }
}

/// The titles of a page's charts, as text.
fn titles(page: &str) -> Vec<String> {
    let figures = page
        .split("<figure class=\"chart\"><figcaption><strong>")
        .skip(1);
    figures
        .map(|rest| {
            rest.split('<')
                .next()
                .unwrap_or_default()
                .replace("&#39;", "'")
        })
        .collect()
}

/// The row of these names in stored figures.
fn row<'f>(figures: &'f mut Value, part: &str, subject: &str) -> &'f mut Value {
    let rows = figures["rows"].as_array_mut().expect("there are rows");
    rows.iter_mut()
        .find(|row| row["part"] == part && row["subject"] == subject)
        .expect("the fixture has the row")
}

#[test]
fn all_sections_and_charts_are_there() {
    let drawn = draw(&fixture());
    assert_eq!(drawn.code, 0);
    assert_eq!(titles(&drawn.page), CHARTS);
    for section in SECTIONS {
        assert!(
            drawn.page.contains(&format!("<section id=\"{section}\">")),
            "{section}"
        );
        assert!(
            section == "patches" || drawn.page.contains(&format!("href=\"#{section}\"")),
            "{section}"
        );
    }
    for chart in drawn.page.split("<figure class=\"chart\">").skip(1) {
        let chart = chart
            .split("</figure>")
            .next()
            .expect("text before the end");
        assert!(chart.contains("role=\"img\" aria-label=\""), "{chart}");
        assert!(chart.contains("<svg"), "{chart}");
    }
    // Commands stand below the charts, peers in them, and every part's figures in a table.
    for text in [
        "stillpoint scale kfree --rounds",
        "stillpoint sim bridge --seed",
        "crossbeam-epoch",
        "std-rwlock-btreemap",
        "ns_per_object",
        "busted-cookie",
    ] {
        assert!(drawn.page.contains(text), "{text}");
    }
    // The patches' own figures.
    for text in [
        "3343 MB",
        "66 MB",
        "2248 to 6549 MB, then 61 to 93 MB",
        "9.75 ms",
        "6.04 ms",
        "980 ms",
        "18.0 ms",
        "65.0 %",
        "114 k/s",
        "584 k/s",
    ] {
        assert!(drawn.page.contains(text), "{text}");
    }
}

#[test]
fn the_page_refers_to_nothing() {
    let drawn = draw(&fixture());
    for text in [
        "http:", "https:", "src=", "url(", "@import", "<link", "<script", "<img", "<iframe",
        "file:", "data:",
    ] {
        assert!(!drawn.page.contains(text), "{text}");
    }
    let targets = drawn.page.split("href=\"").skip(1);
    assert!(targets.clone().count() > 5);
    assert!(targets.into_iter().all(|target| target.starts_with('#')));
    let picture = drawn
        .picture
        .replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    for text in ["http", "href", "url(", "@import", "<script"] {
        assert!(!picture.contains(text), "{text}");
    }
}

#[test]
fn the_picture_has_every_peer_once_in_each_group() {
    let drawn = draw(&fixture());
    assert!(drawn.picture.starts_with("<svg xmlns="));
    assert_eq!(drawn.picture.matches(">Stillpoint</text>").count(), 4);
    assert_eq!(drawn.picture.matches(">limit</text>").count(), 4);
    assert_eq!(drawn.picture.matches(">crossbeam-epoch</text>").count(), 3);
    assert!(drawn.picture.contains("prefers-color-scheme:dark"));
}

#[test]
fn text_is_escaped() {
    let mut figures = fixture();
    let evil = "<script>alert(1)</script>\"'&";
    figures["machine"]["cpu_model"] = json!(evil);
    figures["machine"]["kernel"] = json!(evil);
    figures["parts"][0]["command"] = json!(evil);
    figures["parts"][0]["failure"] = json!(format!("</pre>{evil}"));
    figures["parts"][1]["notes"] = json!(evil);
    let subject = row(&mut figures, "kfree", "seize");
    subject["subject"] = json!(evil);
    subject["variant"] = json!(evil);
    subject["metrics"][evil] = json!(1.0);
    let drawn = draw(&figures);
    for text in [&drawn.page, &drawn.picture] {
        assert!(!text.contains("<script"), "it is not escaped");
        assert!(text.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    }
    assert!(!drawn.page.contains("</pre>&lt;script"));
    assert!(!drawn.page.contains(&format!("aria-label=\"{evil}")));
}

#[test]
fn a_part_that_failed_is_shown_and_costs_nobody_else_his_figures() {
    let mut figures = fixture();
    let parts = figures["parts"].as_array_mut().expect("there are parts");
    let part = parts
        .iter_mut()
        .find(|part| part["name"] == "vmap")
        .expect("vmap was run");
    part["failure"] = json!("exited with 1; it wrote:\nno more mappings");
    let rows = figures["rows"].as_array_mut().expect("there are rows");
    rows.retain(|row| row["part"] != "vmap");
    let drawn = draw(&figures);
    assert_eq!(drawn.code, 1);
    assert!(drawn.page.contains("no more mappings"));
    assert!(
        drawn.page.contains("1 of 19 parts failed"),
        "{:?}",
        drawn
            .page
            .split("parts failed")
            .next()
            .map(|text| &text[text.len() - 40..])
    );
    let titles = titles(&drawn.page);
    assert!(titles.contains(&"Counts, one thread beside one".to_owned()));
    assert!(
        !titles
            .iter()
            .any(|title| title.starts_with("To find an area"))
    );
}

#[test]
fn what_is_absent_is_absent() {
    let mut figures = fixture();
    row(&mut figures, "kfree", "stillpoint")["metrics"] = json!({});
    figures["rows"]
        .as_array_mut()
        .expect("there are rows")
        .retain(|row| row["part"] == "kfree" || row["part"] == "read");
    figures["parts"]
        .as_array_mut()
        .expect("there are parts")
        .retain(|part| part["name"] == "kfree" || part["name"] == "read");
    let drawn = draw(&figures);
    assert_eq!(drawn.code, 0);
    assert!(
        titles(&drawn.page)
            .contains(&"Time for an object, allocated, retired and freed".to_owned())
    );
    assert!(!drawn.page.contains("id=\"lru\""));
    assert!(!drawn.page.contains("NaN") && !drawn.page.contains("inf"));

    figures["rows"] = json!([]);
    figures["parts"] = json!([]);
    let drawn = draw(&figures);
    assert_eq!(titles(&drawn.page), [""; 0]);
    assert!(drawn.page.contains("id=\"about\""));
    assert!(drawn.picture.starts_with("<svg"));
}

#[test]
fn bad_usage_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::write(at("r.json"), FIXTURE).expect("the folder can be written");
    let (json, page) = (at("r.json"), at("r.html"));
    for (arguments, text) in [
        ("".to_owned(), "--output"),
        (
            format!("--output {page} --parts nothing"),
            "no part 'nothing'",
        ),
        (format!("--output {page} --rounds 0"), "--rounds"),
        (format!("--output {page} --torture-s 0"), "say seconds"),
        (format!("--from {json} --output {page} --quick"), "--quick"),
        (format!("--from {json} --output {page} --seed 3"), "--seed"),
        (format!("--from {json}"), "--output"),
        (
            format!("--from {json} --output {json}"),
            "name different ones",
        ),
        (
            format!("--output {page} --json {page}"),
            "name different ones",
        ),
        (
            format!("--parts sim-trace --output {}", at("x.json")),
            "name different ones",
        ),
    ] {
        let run = stillpoint(format!("report {arguments}").trim());
        assert_eq!(run.code, 2, "{arguments}: {}", run.err);
        assert!(run.err.contains(text), "{arguments}: {}", run.err);
    }
    assert_eq!(fs::read_to_string(json).expect("it is there"), FIXTURE);
    assert!(!Path::new(&page).exists());
}

#[test]
fn an_output_that_cannot_be_written_is_told_before_anything_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let kept = folder.path().join("kept.html");
    fs::write(&kept, "an older page").expect("the folder can be written");
    let kept = kept.display();
    for arguments in [
        "--output /nowhere/at/all.html".to_owned(),
        format!("--output {kept} --json /nowhere/at/all"),
        format!("--output {kept} --picture /nowhere/at/all"),
    ] {
        // A whole report would take longer than any test may.
        let run = stillpoint(&format!("report {arguments}"));
        assert_eq!(run.code, 1, "{}", run.err);
        assert!(
            run.err.contains("cannot write /nowhere/at/all"),
            "{}",
            run.err
        );
    }
    assert_eq!(
        fs::read_to_string(folder.path().join("kept.html")).expect("it is there"),
        "an older page"
    );
}

#[test]
fn what_is_no_report_is_refused_and_explained() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("r.json");
    let (from, page) = (file.display(), folder.path().join("r.html"));
    for (text, said) in [
        ("Stillpoint", "is no JSON file"),
        (&FIXTURE[..1000], "is no JSON file"),
        ("{}", "has no figures of this program"),
        (
            r#"{"experiment": "kfree", "params": {}, "rows": []}"#,
            "has the figures of `kfree` alone",
        ),
        (
            r#"{"experiment": "report", "rows": []}"#,
            "is no whole report",
        ),
    ] {
        fs::write(&file, text).expect("the folder can be written");
        let run = stillpoint(&format!("report --from {from} --output {}", page.display()));
        assert_eq!(run.code, 1, "{}", run.err);
        assert!(
            run.err.contains(said) && run.err.contains("stillpoint report"),
            "{}",
            run.err
        );
        assert!(!page.exists());
    }
    let run = stillpoint(&format!(
        "report --from /nowhere/at/all --output {}",
        page.display()
    ));
    assert!(
        run.code == 1 && run.err.contains("cannot read /nowhere/at/all"),
        "{}",
        run.err
    );
}

#[test]
fn a_report_runs_its_parts_and_can_be_drawn_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let page = at("r.html").display().to_string();
    let run = stillpoint(&format!(
        "report --parts sim-bridge,sim-trace --seed 5 --output {page}"
    ));
    assert_eq!(run.code, 0, "{}", run.err);
    let lines: Vec<_> = run
        .err
        .lines()
        .filter(|line| !line.starts_with("stillpoint: busy machine:"))
        .collect();
    assert_eq!((run.out.as_str(), lines.len()), ("", 3), "{}", run.err);
    for (line, begins) in lines.iter().zip([
        "stillpoint: 1 of 2: sim bridge: ",
        "stillpoint: 2 of 2: sim trace: ",
        &format!("stillpoint: wrote {page}"),
    ]) {
        assert!(
            line.starts_with(begins),
            "no progress bar in a pipe: {line}"
        );
    }
    assert!(!at("r.json.partial").exists());

    let text = fs::read_to_string(at("r.json")).expect("the JSON lies beside the page");
    let figures: Value = serde_json::from_str(&text).expect("it is JSON");
    let commands: Vec<_> = figures["parts"]
        .as_array()
        .expect("parts")
        .iter()
        .map(|part| part["command"].as_str())
        .collect();
    assert_eq!(
        commands,
        [
            Some("stillpoint sim bridge --seed 5"),
            Some("stillpoint sim trace --seed 5")
        ]
    );
    let rows = figures["rows"].as_array().expect("rows");
    assert_eq!(
        rows.iter()
            .filter(|row| row["part"] == "sim-bridge" && row["subject"] == "stillpoint")
            .count(),
        4
    );

    // The command that the page shows gives the figures that it shows.
    let again = at("again.json").display().to_string();
    assert_eq!(
        stillpoint(&format!("sim bridge --seed 5 --json {again}")).code,
        0
    );
    let again: Value =
        serde_json::from_str(&fs::read_to_string(again).expect("written")).expect("JSON");
    assert_eq!(again["rows"][0]["metrics"], rows[0]["metrics"]);

    let drawn = draw(&figures);
    assert_eq!(
        drawn.page,
        fs::read_to_string(at("r.html")).expect("written")
    );
}

/// A report of two parts, and its child that runs the one whose command line has this in it.
fn start_report(folder: &Path, parts: &str, command: &str) -> (Child, PathBuf) {
    let report = Command::new(env!("CARGO_BIN_EXE_stillpoint"))
        .args([
            "report",
            "--parts",
            parts,
            "--torture-s",
            "3600",
            "--output",
        ])
        .arg(folder.join("r.html"))
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let child = wait_for(|| child_of(report.id(), command));
    (report, child)
}

#[test]
fn a_part_that_is_killed_is_a_failure_and_the_report_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut report, child) = start_report(folder.path(), "kfree,sim-trace", "\0scale\0kfree\0");
    signal("KILL", &child);
    assert_eq!(report.wait().expect("it ends").code(), Some(1));
    let page = fs::read_to_string(folder.path().join("r.html")).expect("it was written");
    assert!(page.contains("1 of 2 parts failed") && page.contains("ended by signal 9"));
    assert!(
        titles(&page).contains(&"RCU Tasks Trace on a laptop, patch by patch: mean".to_owned())
    );
}

#[test]
fn nothing_outlives_a_report_that_is_broken_off_and_what_it_had_is_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut report, child) = start_report(folder.path(), "sim-trace,torture", "\0torture\0all\0");
    assert!(is_alive(&child));
    report.kill().expect("it runs");
    report.wait().expect("it ends");
    // Left alone it would go on for an hour.
    let orphan = Orphan(&child);
    wait_for(|| (!is_alive(orphan.0)).then_some(()));
    let partial = folder.path().join("r.json.partial");
    let figures = fs::read_to_string(partial).expect("it is there");
    let drawn = draw(&serde_json::from_str(&figures).expect("it is whole"));
    assert_eq!(
        titles(&drawn.page).last().map(String::as_str),
        Some("RCU Tasks Trace on a laptop, patch by patch: mean")
    );
}

/// The widths that a page must fit.
const WIDTHS: [u32; 2] = [360, 1440];

#[test]
fn in_a_browser_every_chart_is_seen_and_nothing_overflows() {
    let Some(browser) = browser::find() else {
        return;
    };
    let mut figures = fixture();
    let whole = draw(&figures).page;
    figures["parts"][0]["failure"] = json!(format!(
        "exited with 1; it wrote:\n{}",
        "/a/very/long/path".repeat(40)
    ));
    let failed = draw(&figures).page;
    for dark in [false, true] {
        let pages: Vec<(u32, &str)> = WIDTHS
            .iter()
            .flat_map(|&width| [(width, whole.as_str()), (width, failed.as_str())])
            .collect();
        for (seen, (width, _)) in browser::open(browser, dark, &pages).into_iter().zip(&pages) {
            assert_eq!((seen.width, seen.dark, seen.scripts), (*width, dark, 0));
            assert!(seen.height > 4000, "{}", seen.height);
            assert_eq!(seen.problems, [""; 0], "at {width}, dark: {dark}");
            assert_eq!(seen.charts, CHARTS, "at {width}, dark: {dark}");
        }
    }
}

#[test]
fn the_browser_finds_what_is_broken_on_purpose() {
    let Some(browser) = browser::find() else {
        return;
    };
    let page = draw(&fixture()).page;
    let style = |rule: &str| page.replacen("</style>", &format!("{rule}</style>"), 1);
    let first = "Time for an object, allocated, retired and freed";
    let chart = page
        .split("<figure class=\"chart\">")
        .nth(1)
        .and_then(|rest| rest.split("</figure>").next())
        .expect("a chart");
    let broken = [
        (
            page.replacen("<main>", "<main><div style=\"width:2000px\">wide</div>", 1),
            "wide in a window of",
        ),
        (style("h1{white-space:nowrap;font-size:80px}"), "outside of"),
        (
            style(".row .name{white-space:nowrap;font-size:40px}"),
            "outside of its box",
        ),
        (style(".chart .bars{visibility:hidden}"), "cannot be seen"),
        (
            style(".multiples{height:0;overflow:hidden}"),
            "cannot be seen",
        ),
        (style(".bar{width:0}"), "has no mark inside"),
        (style("p{color:#ccc}"), "has a contrast of"),
        (style(".ticks span{font-size:40px}"), "overlap"),
    ];
    let mut pages: Vec<(u32, &str)> = broken
        .iter()
        .flat_map(|(page, _)| WIDTHS.map(|width| (width, page.as_str())))
        .collect();
    let missing = page.replacen(&format!("<figure class=\"chart\">{chart}</figure>"), "", 1);
    pages.push((1440, &missing));
    let seen = browser::open(browser, false, &pages);
    let (without_chart, seen) = seen.split_last().expect("there are pages");
    for (pair, (_, fault)) in seen.chunks(2).zip(&broken) {
        let problems: Vec<_> = pair.iter().flat_map(|seen| &seen.problems).collect();
        assert!(
            problems.iter().any(|problem| problem.contains(fault)),
            "{fault}: {problems:?}"
        );
    }
    assert!(!without_chart.charts.contains(&first.to_owned()));
    assert_eq!(without_chart.charts, CHARTS[1..]);
}
