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
fn in_a_browser_every_chart_is_seen_and_nothing_overflows() {
    let Some(browser) = browser::find() else {
        return;
    };
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
fn the_browser_finds_what_is_broken_on_purpose() {
    let Some(browser) = browser::find() else {
        return;
    };
    let page = draw(&with_rounds(fixture())).page;
    let style = |rule: &str| page.replacen("</style>", &format!("{rule}</style>"), 1);
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
        (
            page.replace(
                "<circle class=\"dot\"",
                "<rect class=\"bar\" height=\"14\" width=\"50%\"",
            ),
            "has a bar on a logarithmic axis",
        ),
        (
            page.replacen(
                "<line class=\"whisker\" x1=\"",
                "<line class=\"whisker\" x1=\"-1",
                1,
            ),
            "has a whisker outside of its axis",
        ),
        (style("td{padding:6px 60px}"), "is cut off by"),
        (style("p{color:#ccc}"), "has a contrast of"),
        (style(".ticks span{font-size:40px}"), "overlap"),
    ];
    let widths = [360, 1200];
    let mut pages: Vec<(u32, &str)> = broken
        .iter()
        .flat_map(|(page, _)| widths.map(|width| (width, page.as_str())))
        .collect();
    let missing = page.replacen(&format!("<figure class=\"chart\">{chart}</figure>"), "", 1);
    pages.push((1440, &missing));
    let seen = browser::open(browser, false, &pages);
    let (without_chart, seen) = seen.split_last().expect("there are pages");
    for (all, (_, fault)) in seen.chunks(widths.len()).zip(&broken) {
        let problems: Vec<_> = all.iter().flat_map(|seen| &seen.problems).collect();
        assert!(
            problems.iter().any(|problem| problem.contains(fault)),
            "{fault}: {problems:?}"
        );
    }
    assert!(!without_chart.charts.contains(&CHARTS[0].to_owned()));
    assert_eq!(without_chart.charts, CHARTS[1..]);
}
