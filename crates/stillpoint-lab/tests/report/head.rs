//! What stands at the head of the page.

use serde_json::{Value, json};

use crate::{draw, fixture, row};

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
    let batches = figures["rows"].as_array_mut().expect("there are rows");
    batches.retain(|row| row["variant"] != "batch-1024");
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
    let rows = figures["rows"].as_array_mut().expect("there are rows");
    rows.push(ours);
    let (text, class) = map(&figures).expect("a tile");
    assert!(text.contains("1st of 6 . Next: scc-hashindex, "), "{text}");
    assert_eq!(class, "first");
}

#[test]
fn the_torture_has_a_tile() {
    let mut figures = fixture();
    let torture = |figures: &Value| tile(&draw(figures).page, "Torture");
    let (text, class) = torture(&figures).expect("a tile");
    assert!(
        text.contains("0 errors 9 flavours") && text.contains("9 of 9 versions"),
        "{text}"
    );
    assert_eq!(class, "first");

    let part = |figures: &mut Value, name: &str| -> usize {
        let parts = figures["parts"].as_array().expect("there are parts");
        let found = parts.iter().position(|part| part["name"] == name);
        found.expect("it was run")
    };
    let index = part(&mut figures, "busted-cookie");
    figures["parts"][index]["failure"] = json!("it was not detected");
    let (text, class) = torture(&figures).expect("a tile");
    assert!(text.contains("8 of 9 versions"), "{text}");
    assert_eq!(class, "bad");

    let mut figures = fixture();
    row(&mut figures, "torture", "stillpoint")["metrics"]["errors"] = json!(2.0);
    let (text, class) = torture(&figures).expect("a tile");
    assert!(text.contains("2 errors"), "{text}");
    assert_eq!(class, "bad");

    // Killed, and nothing known.
    let index = part(&mut figures, "torture");
    figures["parts"][index]["failure"] = json!("ended by signal 9");
    let rows = figures["rows"].as_array_mut().expect("there are rows");
    rows.retain(|row| row["part"] != "torture");
    let (text, class) = torture(&figures).expect("a tile");
    assert!(text.contains("failed"), "{text}");
    assert_eq!(class, "bad");

    figures["rows"] = json!([]);
    figures["parts"] = json!([]);
    assert_eq!(torture(&figures), None);
}
