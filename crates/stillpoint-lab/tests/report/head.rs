//! What stands at the head of the page.

use serde_json::{Value, json};

use crate::{assert_has, draw, fixture, list, row};

/// A tile of the head: its text, and its class.
fn tile(page: &str, title: &str) -> Option<(String, String)> {
    let tile = page
        .split("<div class=\"tile")
        .skip(1)
        .find(|tile| tile.contains(&format!("<h2>{title}</h2>")))?;
    let (class, rest) = tile.split_once("\">")?;
    let rest = rest.split("</div>").next()?;
    let text: String = rest
        .split('<')
        .map(|part| part.split_once('>').map_or(part, |(_, text)| text))
        .collect::<Vec<_>>()
        .join(" ");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    Some((text, class.trim().to_owned()))
}

#[test]
fn the_head_has_the_place_among_the_best_of_all() {
    let mut figures = fixture();
    for (title, place, class) in [
        (
            "Enter and leave a read section",
            "2nd of 6 . Best: liburcu-qsbr, 0.285 ns, 3.0 times as long here; its readers must",
            "",
        ),
        (
            "Allocate an object and free it later",
            "1st of 4 . Next: seize, 60.2 ns, 1.7 times as long",
            "first",
        ),
        (
            "Peak unreclaimed memory meanwhile",
            "2nd of 4 . Best: seize, 0.996 MiB, at 68.6 ns an object, 9.5 times as much here",
            "",
        ),
        (
            "From queueing a callback to its call",
            "1st of 3 . Next: liburcu-memb, 10.1 ms, 7,000 times as long",
            "first",
        ),
        // Less than a tenth apart.
        (
            "Sections of 10,000 tasks",
            "1st of 3 . Next: arc-swap, 1.37 M/s, level;",
            "",
        ),
    ] {
        let (text, found) = tile(&draw(&figures).page, title).expect("a tile");
        assert!(text.contains(place), "{place}: {text}");
        assert_eq!(found, class, "{title}");
    }
    // The rounds overlap.
    row(&mut figures, "kfree", "stillpoint")["spread"] = json!({"ns_per_object": [30.0, 70.0]});
    row(&mut figures, "kfree", "seize")["spread"] = json!({"ns_per_object": [65.0, 75.0]});
    list(&mut figures, "rows").retain(|row| row["variant"] != "batch-1024");
    let (text, class) =
        tile(&draw(&figures).page, "Allocate an object and free it later").expect("a tile");
    assert!(text.contains("rounds: 30.0 ns to 70.0 ns"), "{text}");
    assert!(text.contains("seize, 68.6 ns, level"), "{text}");
    assert_eq!(class, "");
}

#[test]
fn the_hash_map_has_a_place_among_its_peers() {
    let mut figures = fixture();
    let map = |figures: &Value| tile(&draw(figures).page, "98 % reads by two threads");
    assert_eq!(map(&figures), None, "no figure of ours, no tile");
    let mut ours = row(&mut figures, "map", "scc-hashindex").clone();
    ours["subject"] = json!("stillpoint");
    ours["variant"] = json!("hash");
    ours["scenario"] = json!("readheavy-2");
    ours["metrics"] = json!({"ops_per_s": 1e9});
    list(&mut figures, "rows").push(ours);
    let (text, class) = map(&figures).expect("a tile");
    assert!(text.contains("1st of 6 . Next: scc-hashindex, "), "{text}");
    assert_eq!(class, "first");
}

#[test]
fn the_torture_has_a_tile() {
    let torture = |figures: &Value| tile(&draw(figures).page, "Torture");
    let assert_tile = |figures: &Value, texts: &[&str], class: &str| {
        let (text, found) = torture(figures).expect("a tile");
        assert_has(&text, texts);
        assert_eq!(found, class);
    };
    let fail = |figures: &mut Value, name: &str, how: &str| {
        let mut parts = list(figures, "parts").iter_mut();
        let part = parts.find(|part| part["name"] == name);
        part.expect("it was run")["failure"] = json!(how);
    };
    let mut figures = fixture();
    assert_tile(
        &figures,
        &["0 errors 9 flavours", "9 of 9 versions"],
        "first",
    );
    fail(&mut figures, "busted-cookie", "it was not detected");
    assert_tile(&figures, &["8 of 9 versions"], "bad");

    let mut figures = fixture();
    row(&mut figures, "torture", "stillpoint")["metrics"]["errors"] = json!(2.0);
    assert_tile(&figures, &["2 errors"], "bad");

    // Killed, and nothing known.
    fail(&mut figures, "torture", "ended by signal 9");
    list(&mut figures, "rows").retain(|row| row["part"] != "torture");
    assert_tile(&figures, &["failed"], "bad");

    list(&mut figures, "rows").clear();
    list(&mut figures, "parts").clear();
    assert_eq!(torture(&figures), None);
}
