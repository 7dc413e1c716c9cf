//! `stillpoint report`: the page from stored figures, what goes wrong, a real run of the cheapest
//! parts, and what a browser makes of the page.

mod browser;
mod head;
#[path = "../processes/mod.rs"]
mod processes;
#[path = "../program/mod.rs"]
mod program;
mod runs;
mod seen;

use std::{fs, path::Path};

use serde_json::{Value, json};
use tempfile::TempDir;

use program::stillpoint;

/// A quick report's figures, shortened.
const FIXTURE: &str = include_str!("../fixtures/report.json");

/// The charts that a whole report has: titles, from top to bottom.
const CHARTS: &[&str] = &[
    "Enter and leave a read section",
    "The same beside a thread that retires",
    "Allocate an object and free it later",
    "From the last retire until all is freed",
    "Peak unreclaimed memory",
    "Average unreclaimed memory",
    "Unreclaimed memory over time",
    "Wait without readers",
    "Wait beside 16 sleeping threads",
    "Wait beside 1,000 sleeping threads",
    "Wait beside a thread that always reads",
    "Wait while two readers fill its two CPUs",
    "64 threads wait at once: a wait",
    "400 waits in a row, beside 64 sleeping threads",
    "Callback: from queued to called",
    "A callback and a barrier behind it",
    "From start_poll() to the first poll() that is true",
    "64 threads wait at once: waits a second",
    "Slowest waits: 1,000 sleeping threads",
    "Slowest waits: a thread that always reads",
    "Slowest waits: two readers on its two CPUs",
    "Slowest waits: 64 threads at once",
    "Slowest callbacks",
    "Slowest polls",
    "Read sections of 10,000 tasks",
    "Updates beside 10,000 reading tasks",
    "Enter and leave a section on a thread",
    "Grace period without readers",
    "From the last reader's end to the wait's end",
    "Wait in one domain, 10,000 sections open in another",
    "Counts a second: 14 threads count, 2 change the lists",
    "Additions a second meanwhile",
    "Counts a second: one thread counts, one changes",
    "Counts a second: 14 threads, each its own list",
    "Additions a second meanwhile, each its own list",
    "Find an area among 1,000",
    "Find an area among 100,000",
    "Find an area among 1,000,000",
    "Check a range among 100,000 areas",
    "Check and copy 256 bytes, 16 threads",
    "Check and copy 4 KiB, 16 threads",
    "Check and copy 256 bytes, 2 threads",
    "Check and copy 4 KiB, 2 threads",
    "Allocate and free 4 pages",
    "Allocate and free areas of random size",
    "Give a page back to the system, in areas of 16",
    "Give a page back to the system, one by one",
    "Read one of 100,000 entries",
    "The same, if the last one told its key",
    "98 % reads: operations a second",
    "80 % inserts and removals: operations a second",
    "80 % inserts, from empty: operations a second",
    "Bytes an entry, of 2,000,000",
    "A pin and its end",
    "Make a box and defer its end, two threads",
    "moka: half reads, half writes, two threads",
    "MiB at the peak: 16 threads flood two busy CPUs",
    "Reads a second, by two threads",
    "A quarter inserts: operations a second",
    "Hits of 200,000 that a neighbour's scan costs",
    "A get: the server's processor time",
    "One of 50 gets in a write: the server's processor time",
    "Hits that a neighbour's flood costs",
    "Time until a broken flavour was detected",
    "Deferred frees: a grace period per page",
    "Waiting: direct wake-ups, one scan where one will do",
    "LRU lists: time in locks",
    "Readers that sleep: shorter polls and pauses",
    "Address space: no lock for all areas",
    "Mean synchronize_rcu(), 32 idle CPUs",
    "Median wait, a network bridge on 64 CPUs",
    "Mean RCU Tasks Trace wait, patch by patch",
];

const SECTIONS: [&str; 15] = [
    "read",
    "kfree",
    "memory",
    "grace",
    "trace",
    "lru",
    "vmap",
    "map",
    "epoch",
    "cache",
    "server",
    "torture",
    "about",
    "patches",
    "simulated",
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
            drawn.page.contains(&format!("href=\"#{section}\"")),
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
    // Commands stand below the sections, peers in charts, and every part's figures in a table.
    for text in [
        "stillpoint scale kfree --rounds",
        "stillpoint sim bridge --seed",
        "crossbeam-epoch",
        "std-rwlock-btreemap",
        "ns_<wbr>per_<wbr>object",
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
fn older_ways_have_neither_the_name_nor_the_colour() {
    let page = draw(&fixture()).page;
    for (name, variant) in [
        ("one spinlock", "spinlock"),
        ("one mutex", "mutex"),
        ("rwlock per node", "node-rwlock"),
        ("spinlock per node", "node-spinlock"),
        ("one spinlock", "global-lock"),
        ("no check", "unchecked"),
        ("no check, on the heap", "heap"),
        ("as a callback", "service-led"),
        ("one grace period for all", "whole-batch"),
    ] {
        let drawn = format!("<div class=\"row old\"><span class=\"name\">{name}</span>");
        assert!(page.contains(&drawn), "{name}");
        assert!(
            !page.contains(&format!("Stillpoint {variant}")),
            "{variant}"
        );
        assert!(
            !page.contains(&format!("<td>stillpoint</td><td>{variant}</td>")),
            "{variant}"
        );
    }
    assert!(page.contains("<div class=\"row accent\"><span class=\"name\">Stillpoint</span>"));
}

#[test]
fn a_section_names_each_command_once() {
    let page = draw(&fixture()).page;
    let sections: Vec<_> = page.split("<section id=\"").skip(1).collect();
    let mut repeated = 0;
    for section in &sections {
        let lines: Vec<_> = section.split("<p class=\"repeat\">").skip(1).collect();
        assert!(lines.len() <= 1, "{}", &section[..20]);
        let before = section
            .split("<p class=\"repeat\">")
            .next()
            .unwrap_or_default();
        repeated += lines.len();
        for command in lines.iter().flat_map(|line| line.split("<code>").skip(1)) {
            let command = command.split("</code>").next().expect("text");
            assert!(command.starts_with("stillpoint "), "{command}");
            assert!(!before.contains(command), "{command}");
            assert_eq!(section.matches(&format!("{command}</code>")).count(), 1);
        }
    }
    assert_eq!(repeated, 13, "all but the machine's and the patches'");
    assert!(page.contains("<code>stillpoint torture NAME --duration 10 --seed 1</code>"));
}

#[test]
fn the_spread_of_the_rounds_is_drawn_where_it_is_known() {
    let mut figures = fixture();
    let older = draw(&figures);
    assert!(!older.page.contains("class=\"whisker\"") && !older.page.contains("rounds: "));
    row(&mut figures, "kfree", "stillpoint")["spread"] =
        json!({"ns_per_object": [30.0, 70.0], "peak_mib": [9.0, 12.0]});
    let newer = draw(&figures);
    // Two charts: a line, and its two ends.
    assert_eq!(newer.page.matches("class=\"whisker\"").count(), 6);
    assert!(
        newer
            .page
            .contains("Stillpoint 35.6 ns (30.0 ns to 70.0 ns)")
    );
    assert_eq!(newer.picture.matches("<path").count(), 2);
}

#[test]
fn a_busy_machine_is_told_at_the_top() {
    let mut figures = fixture();
    assert!(!draw(&figures).page.contains("The machine was busy"));
    let load =
        |busy| json!({"before": 8.54, "own": 0.5, "others": 0.412, "steal": 0.03, "busy": busy});
    figures["machine"]["load"] = load(false);
    assert!(!draw(&figures).page.contains("The machine was busy"));
    figures["machine"]["load"] = load(true);
    let page = draw(&figures).page;
    let (before, after) = page.split_once("The machine was busy").expect("it is told");
    assert!(!before.contains("class=\"tiles\""));
    for text in ["took 41 % of", "took 3 %", "was 8.5 before"] {
        assert!(after.contains(text), "{text}");
    }
}

/// README's picture has the figures that the manual quotes. If it has not, it is drawn again, and
/// the test fails to say so.
#[test]
fn the_picture_of_the_readme_is_drawn_from_the_manuals_figures() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let read = |name: &str| fs::read_to_string(docs.join(name)).expect("the file is there");
    let mut figures = fixture();
    let (mut rows, mut machine) = (Vec::new(), Value::Null);
    for part in ["read", "sync", "kfree"] {
        let mut found: Value =
            serde_json::from_str(&read(&format!("figures/{part}.json"))).expect("it is JSON");
        for row in found["rows"].as_array_mut().expect("there are rows") {
            row["part"] = json!(part);
            rows.push(row.take());
        }
        machine = found["machine"].take();
    }
    figures["rows"] = json!(rows);
    for fact in ["cpus", "kernel"] {
        figures["machine"][fact] = machine[fact].take();
    }
    let picture = draw(&figures).picture;
    if read("src/report.svg") != picture {
        fs::write(docs.join("src/report.svg"), picture).expect("the file can be written");
        panic!("docs/src/report.svg was another: it is drawn again");
    }
}

/// The sample report of the documentation is what the lab draws of the figures beside it. If it is
/// not, it is drawn again, and the test fails to say so.
#[test]
fn the_sample_report_is_drawn_as_the_lab_draws_it() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/sample");
    let read = |name: &str| fs::read_to_string(docs.join(name)).expect("the file is there");
    let figures: Value = serde_json::from_str(&read("report.json")).expect("it is JSON");
    let drawn = draw(&figures);
    assert_eq!(drawn.code, 0, "no part of it failed");
    if read("report.html") != drawn.page {
        fs::write(docs.join("report.html"), drawn.page).expect("the file can be written");
        panic!("docs/src/sample/report.html was another: it is drawn again");
    }
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
fn a_part_that_failed_is_shown_and_costs_no_other_its_figures() {
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
        drawn.page.contains("1 of 23 parts failed"),
        "{:?}",
        drawn
            .page
            .split("parts failed")
            .next()
            .map(|text| &text[text.len() - 40..])
    );
    let titles = titles(&drawn.page);
    assert!(titles.contains(&"Counts a second: one thread counts, one changes".to_owned()));
    assert!(!titles.iter().any(|title| title.starts_with("Find an area")));
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
    assert!(titles(&drawn.page).contains(&"Allocate an object and free it later".to_owned()));
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
