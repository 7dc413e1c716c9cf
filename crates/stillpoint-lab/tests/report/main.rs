//! `stillpoint report`: the page from stored figures, what goes wrong, and a real run of the cheapest
//! parts. What a browser makes of the page is looked at by itself (`-- --ignored`).

mod browser;
mod head;
#[path = "../processes/mod.rs"]
mod processes;
#[path = "../program/mod.rs"]
mod program;
#[path = "../refused/mod.rs"]
mod refused;
mod runs;
mod seen;

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use program::stillpoint;
use refused::assert_refused;

/// A quick report's figures, shortened.
const FIXTURE: &str = include_str!("../fixtures/report.json");

/// The titles of the charts that a whole report has, from top to bottom.
const CHARTS: [&str; 18] = [
    "Enter and leave a read section",
    "Allocate an object and free it later",
    "Peak unreclaimed memory meanwhile",
    "Unreclaimed memory over time",
    "Wait beside 1,000 sleeping threads",
    "From queueing a callback to its call",
    "Sections of 10,000 tasks",
    "Counts: 14 threads count, 2 change lists",
    "Find the area around an address",
    "Check and copy 4 KiB, 16 threads",
    "98 % reads by two threads",
    "Make a box and defer its end, two threads",
    "Reads by two threads, all hits",
    "A get: the server's processor time",
    "Time until a broken flavour was detected",
    "Mean synchronize_rcu(), 32 idle CPUs",
    "Median wait, a bridge on 64 CPUs",
    "Mean RCU Tasks Trace wait by patch",
];

const SECTIONS: &str =
    "read kfree sync trace lru vmap map epoch cache server torture about patches simulated";

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

/// The charts of a page: the title, which is the first text in it, and the drawing.
fn charts(page: &str) -> Vec<(String, &str)> {
    let figures = page.split("<figure class=\"chart\">").skip(1);
    let chart = |figure: &'_ str| -> Option<String> {
        let (_, text) = figure.split_once("<text ")?.1.split_once('>')?;
        let title = text.split_once("</text>")?.0.trim();
        Some(title.replace("&apos;", "'").replace("&#39;", "'"))
    };
    figures
        .map(|figure| {
            let (drawing, _) = figure.split_once("</figure>").expect("it ends");
            (chart(drawing).expect("it has a title"), drawing)
        })
        .collect()
}

fn titles(page: &str) -> Vec<String> {
    charts(page).into_iter().map(|(title, _)| title).collect()
}

/// What is wrong with the nesting of a page's elements.
fn fault_of_html(page: &str) -> Option<String> {
    const EMPTY: [&str; 3] = ["meta", "wbr", "!DOCTYPE"];
    let mut open: Vec<&str> = Vec::new();
    for tag in page.split('<').skip(1) {
        let Some((tag, _)) = tag.split_once('>') else {
            return Some(format!("<{tag}"));
        };
        let name = tag.split([' ', '\n', '/']).find(|name| !name.is_empty());
        let name = name.unwrap_or_default();
        if tag.starts_with('/') {
            if open.pop() != Some(name) {
                return Some(format!("<{tag}> in {open:?}"));
            }
        } else if !tag.ends_with('/') && !EMPTY.contains(&name) {
            open.push(name);
        }
    }
    (!open.is_empty()).then(|| format!("{open:?} do not end"))
}

/// Fails unless a text has each of these.
#[track_caller]
fn assert_has(text: &str, parts: &[&str]) {
    let missing: Vec<_> = parts.iter().filter(|part| !text.contains(**part)).collect();
    assert!(missing.is_empty(), "no {missing:?}");
}

/// Fails if a text has one of these.
#[track_caller]
fn assert_has_not(text: &str, parts: &[&str]) {
    let found: Vec<_> = parts.iter().filter(|part| text.contains(**part)).collect();
    assert!(found.is_empty(), "{found:?}");
}

/// A list in stored figures.
fn list<'f>(figures: &'f mut Value, name: &str) -> &'f mut Vec<Value> {
    figures[name].as_array_mut().expect("it is a list")
}

/// The row of these names in stored figures.
fn row<'f>(figures: &'f mut Value, part: &str, subject: &str) -> &'f mut Value {
    list(figures, "rows")
        .iter_mut()
        .find(|row| row["part"] == part && row["subject"] == subject)
        .expect("the fixture has the row")
}

#[test]
fn all_sections_and_charts_are_there() {
    let drawn = draw(&fixture());
    assert_eq!(drawn.code, 0);
    assert_eq!(fault_of_html(&drawn.page), None);
    assert_eq!(titles(&drawn.page), CHARTS);
    for section in SECTIONS.split(' ') {
        let [element, link] = [
            format!("<section id=\"{section}\">"),
            format!("href=\"#{section}\""),
        ];
        assert_has(&drawn.page, &[&element, &link]);
    }
    for (title, drawing) in charts(&drawn.page) {
        assert!(drawing.starts_with("<svg role=\"img\" aria-label=\""));
        let marks = ["<rect ", "<circle ", "<polyline "].map(|mark| drawing.matches(mark).count());
        assert!(marks.iter().sum::<usize>() > 1, "{title} is empty");
    }
    assert!(fault_of_html(&drawn.page.replacen("</section>", "", 1)).is_some());
    // Commands stand below the sections, peers in charts, and every part's figures in a table.
    assert_has(
        &drawn.page,
        &[
            "stillpoint scale kfree --rounds",
            "stillpoint sim bridge --seed",
            "crossbeam-epoch",
            "std-rwlock-btreemap",
            "ns_<wbr>per_<wbr>object",
            "busted-cookie",
        ],
    );
    // The patches' own figures.
    assert_has(
        &drawn.page,
        &[
            "3343 MB",
            "66 MB",
            "9.75 ms",
            "6.04 ms",
            "980 ms",
            "18 ms",
            "64.96 %",
            "113,537/s",
            "583,730/s",
        ],
    );
}

#[test]
fn the_page_refers_to_nothing() {
    let drawn = draw(&fixture());
    assert_has_not(
        &drawn.page,
        &[
            "http:", "https:", "src=", "url(", "@import", "<link", "<script", "<img", "<iframe",
            "file:", "data:",
        ],
    );
    let targets = drawn.page.split("href=\"").skip(1);
    assert!(targets.clone().count() > 5);
    assert!(targets.into_iter().all(|target| target.starts_with('#')));
    let picture = drawn
        .picture
        .replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    assert_has_not(&picture, &["http", "href", "url(", "@import", "<script"]);
}

#[test]
fn the_picture_has_every_peer_once_in_each_group() {
    let drawn = draw(&fixture());
    assert!(drawn.picture.starts_with("<svg role="));
    let named = |name: &str| {
        drawn
            .picture
            .matches(&format!(">\n{name}\n</text>"))
            .count()
    };
    assert_eq!(
        ["Stillpoint", "limit", "crossbeam-epoch"].map(named),
        [4, 4, 3]
    );
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
        assert_has(&page, &[&format!(">\n{name}\n</text>")]);
        let [chart, table] = [
            format!("Stillpoint {variant}\n"),
            format!("<td>stillpoint</td><td>{variant}</td>"),
        ];
        assert_has_not(&page, &[&chart, &table]);
    }
    let kfree = charts(&page)[1].1;
    let colours = ["#0B7A75", "#B9A7C0"].map(|colour| kfree.matches(colour).count());
    assert_eq!(colours, [1, 1], "Stillpoint and the older way");
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
    assert_eq!(repeated, 12, "all but the machine's and the patches'");
    assert!(page.contains("<code>stillpoint torture NAME --duration 10 --seed 1</code>"));
}

#[test]
fn the_spread_of_the_rounds_is_drawn_where_it_is_known() {
    let mut figures = fixture();
    let older = draw(&figures);
    assert!(!older.page.contains("rounds: "));
    row(&mut figures, "kfree", "stillpoint")["spread"] =
        json!({"ns_per_object": [30.0, 70.0], "peak_mib": [9.0, 12.0]});
    let newer = draw(&figures);
    for (older, newer) in [(older.page, newer.page), (older.picture, newer.picture)] {
        let lines = |text: &str| text.matches("stroke=\"#1C2126\"").count();
        assert_eq!(lines(&newer), lines(&older) + 2, "a line in two charts");
    }
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
    assert_has(after, &["took 41 % of", "took 3 %", "was 8.5 before"]);
}

/// A file of the documentation.
fn documented(name: &str) -> String {
    fs::read_to_string(documents().join(name)).expect("the file is there")
}

fn documents() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// A file of the documentation is what the lab draws. If it is not, it is drawn again, and the test fails to say so.
fn assert_drawn(name: &str, drawn: &str) {
    if documented(name) != drawn {
        fs::write(documents().join(name), drawn).expect("the file can be written");
        panic!("docs/{name} was another: it is drawn again");
    }
}

#[test]
fn the_picture_of_the_readme_is_drawn_from_the_manuals_figures() {
    let mut figures = fixture();
    list(&mut figures, "rows").clear();
    for part in ["read", "sync", "kfree"] {
        let text = documented(&format!("figures/{part}.json"));
        let mut found: Value = serde_json::from_str(&text).expect("it is JSON");
        for row in list(&mut found, "rows") {
            row["part"] = json!(part);
            list(&mut figures, "rows").push(row.take());
        }
        for fact in ["cpus", "kernel"] {
            figures["machine"][fact] = found["machine"][fact].take();
        }
    }
    assert_drawn("src/report.svg", &draw(&figures).picture);
}

#[test]
fn the_sample_report_is_drawn_as_the_lab_draws_it() {
    let text = documented("src/sample/report.json");
    let drawn = draw(&serde_json::from_str(&text).expect("it is JSON"));
    assert_eq!(drawn.code, 0, "no part of it failed");
    assert_drawn("src/sample/report.html", &drawn.page);
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
    assert_eq!(fault_of_html(&drawn.page), None);
}

#[test]
fn a_part_that_failed_is_shown_and_costs_no_other_its_figures() {
    let mut figures = fixture();
    let mut parts = list(&mut figures, "parts").iter_mut();
    let part = parts.find(|part| part["name"] == "vmap");
    part.expect("vmap was run")["failure"] = json!("exited with 1; it wrote:\nno more mappings");
    list(&mut figures, "rows").retain(|row| row["part"] != "vmap");
    let drawn = draw(&figures);
    assert_eq!(drawn.code, 1);
    assert_has(&drawn.page, &["no more mappings", "1 of 23 parts failed"]);
    let titles = titles(&drawn.page).join("; ");
    assert_has(&titles, &["Counts: 14 threads count, 2 change lists"]);
    assert_has_not(&titles, &["Check and copy"]);
}

#[test]
fn a_page_of_a_report_that_was_broken_off_says_what_is_missing() {
    let mut figures = fixture();
    let parts = list(&mut figures, "parts");
    let planned: Vec<Value> = parts.iter().map(|part| part["command"].clone()).collect();
    figures["planned"] = json!(planned);
    assert_has_not(&draw(&figures).page, &["Not finished"]);
    list(&mut figures, "parts").truncate(21);
    let page = draw(&figures).page;
    let (head, _) = page.split_once("class=\"tiles\"").expect("there are tiles");
    assert_has(
        head,
        &[
            "Not finished: 2 of 23 parts are missing",
            "stillpoint torture busted-barrier ",
            "stillpoint torture busted-wake ",
        ],
    );
}

#[test]
fn what_is_absent_is_absent() {
    let mut figures = fixture();
    row(&mut figures, "kfree", "stillpoint")["metrics"] = json!({});
    list(&mut figures, "rows").retain(|row| row["part"] == "kfree" || row["part"] == "read");
    list(&mut figures, "parts").retain(|part| part["name"] == "kfree" || part["name"] == "read");
    let drawn = draw(&figures);
    assert_eq!(drawn.code, 0);
    assert!(titles(&drawn.page).contains(&"Allocate an object and free it later".to_owned()));
    assert_has_not(&drawn.page, &["id=\"lru\"", "NaN", "inf"]);

    list(&mut figures, "rows").clear();
    list(&mut figures, "parts").clear();
    let drawn = draw(&figures);
    assert_eq!(titles(&drawn.page), [""; 0]);
    assert_has(&drawn.page, &["id=\"about\""]);
    assert!(drawn.picture.starts_with("<svg"));
}

#[test]
fn bad_usage_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::write(at("r.json"), FIXTURE).expect("the folder can be written");
    let (json, page, other) = (at("r.json"), at("r.html"), at("x.json"));
    assert_refused(&format!(
        "\
report => --output
report --output {page} --parts nothing => no part 'nothing'
report --output {page} --rounds 0 => --rounds
report --output {page} --torture-s 0 => say seconds
report --from {json} --output {page} --quick => --quick
report --from {json} --output {page} --seed 3 => --seed
report --from {json} => --output
report --from {json} --output {json} => name different ones
report --output {page} --json {page} => name different ones
report --parts sim-trace --output {other} => name different ones
"
    ));
    assert_eq!(fs::read_to_string(json).expect("it is there"), FIXTURE);
    assert!(!Path::new(&page).exists());
}

#[test]
fn an_output_that_cannot_be_written_is_told_before_anything_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("kept.html");
    fs::write(&file, "an older page").expect("the folder can be written");
    let kept = file.display();
    for arguments in [
        "--output /nowhere/at/all.html".to_owned(),
        format!("--output {kept} --json /nowhere/at/all"),
        format!("--output {kept} --picture /nowhere/at/all"),
    ] {
        // A whole report would take longer than any test may.
        let run = stillpoint(&format!("report {arguments}"));
        assert_eq!(run.code, 2, "{}", run.err);
        assert_has(&run.err, &["cannot write /nowhere/at/all"]);
    }
    assert_eq!(
        fs::read_to_string(file).expect("it is there"),
        "an older page"
    );
}

#[test]
fn what_is_no_report_is_refused_and_explained() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("r.json");
    let (from, page) = (file.display().to_string(), folder.path().join("r.html"));
    let assert_refused = |from: &str, said: &[&str]| {
        let run = stillpoint(&format!("report --from {from} --output {}", page.display()));
        assert_eq!(run.code, 1, "{}", run.err);
        assert_has(&run.err, said);
        assert!(!page.exists());
    };
    let alone = r#"{"experiment": "kfree", "params": {}, "rows": []}"#;
    for (text, said) in [
        ("Stillpoint", "is no JSON file"),
        (&FIXTURE[..1000], "is no JSON file"),
        ("{}", "has no figures of this program"),
        (alone, "has the figures of `kfree` alone"),
        (
            r#"{"experiment": "report", "rows": []}"#,
            "is no whole report",
        ),
    ] {
        fs::write(&file, text).expect("the folder can be written");
        assert_refused(&from, &[said, "stillpoint report"]);
    }
    assert_refused("/nowhere/at/all", &["cannot read /nowhere/at/all"]);
}
