//! What a browser makes of the page.

use serde_json::{Value, json};

use crate::{CHARTS, browser, draw, fixture};

/// The figures with rounds around each median.
fn with_rounds(mut figures: Value) -> Value {
    for row in figures["rows"].as_array_mut().expect("there are rows") {
        let metrics = row["metrics"].as_object().expect("there are figures");
        let ends = |value: &Value| value.as_f64().map(|value| [0.6 * value, 1.7 * value]);
        let spread: serde_json::Map<_, _> = metrics
            .iter()
            .map(|(name, value)| (name.clone(), json!(ends(value))))
            .collect();
        row["spread"] = spread.into();
    }
    figures
}

/// The widths that a page must fit.
const WIDTHS: [u32; 4] = [360, 400, 1200, 1440];

#[test]
#[ignore = "needs Chromium; a release runs it"]
fn in_a_browser_every_chart_is_seen_and_nothing_overflows() {
    let browser = browser::find();
    let mut figures = with_rounds(fixture());
    figures["machine"]["load"] =
        json!({"before": 8.5, "own": 0.5, "others": 0.4, "steal": 0.1, "busy": true});
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
#[ignore = "needs Chromium; a release runs it"]
fn the_browser_finds_what_is_broken_on_purpose() {
    let browser = browser::find();
    let page = draw(&with_rounds(fixture())).page;
    let style = |rule: &str| page.replacen("</style>", &format!("{rule}</style>"), 1);
    let broken = [
        (
            page.replacen("<main>", "<main><div style=\"width:2000px\">wide</div>", 1),
            "wide in a window of",
        ),
        (style("h1{white-space:nowrap;font-size:80px}"), "outside of"),
        (style(".chart svg{visibility:hidden}"), "cannot be seen"),
        (
            style(".chart text{font-size:40px}"),
            "outside of its picture",
        ),
        (style("td{padding:6px 60px}"), "is cut off by"),
        (style("p{color:#ccc}"), "has a contrast of"),
    ];
    let widths = [360, 1200];
    let pages: Vec<(u32, &str)> = broken
        .iter()
        .flat_map(|(page, _)| widths.map(|width| (width, page.as_str())))
        .collect();
    let seen = browser::open(browser, false, &pages);
    for (all, (_, fault)) in seen.chunks(widths.len()).zip(&broken) {
        let problems: Vec<_> = all.iter().flat_map(|seen| &seen.problems).collect();
        assert!(
            problems.iter().any(|problem| problem.contains(fault)),
            "{fault}: {problems:?}"
        );
    }
}
