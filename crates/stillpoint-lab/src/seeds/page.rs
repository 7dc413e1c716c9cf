//! Prints a system: a sentence on the patch, a table, and what was gained.

use super::systems::{Line, System};
use crate::machine::Machine;
use crate::output::table::draw;

/// The page's width in columns.
const WIDTH: usize = 108;

/// Returns the text above the systems.
pub fn head(machine: &Machine, rounds: u32, quick: bool) -> String {
    let rounds = match rounds {
        1 => "one round".to_owned(),
        rounds => format!("medians of {rounds} rounds"),
    };
    let quick = if quick {
        " These are no figures: --quick has measured next to nothing."
    } else {
        ""
    };
    let busy = machine.busy();
    let busy = busy.map_or(String::new(), |load| {
        format!("\n{}", wrapped(&load.to_string()))
    });
    let about = format!(
        "Five patches to the Linux kernel, before and after them, and the same five systems here. Lines that begin with \
         `kernel` are the figures of the patch's author, on machines of up to 64 CPUs: compare the factors, not the figures. \
         `simulated` is the kernel's machinery in virtual time, which nothing here has measured. `here` is measured on this \
         machine now.{quick}"
    );
    format!("{machine}; {rounds}{busy}\n\n{}", wrapped(&about))
}

/// Returns a system's part of the page.
pub fn render(system: &System) -> String {
    let column = |name: &str, cell: &dyn Fn(&Line) -> &str| {
        let cells = system.lines.iter().map(|line| cell(line).to_owned());
        [name.to_owned()]
            .into_iter()
            .chain(cells)
            .collect::<Vec<_>>()
    };
    let mut columns = vec![
        column("", &|line| line.origin),
        column("", &|line| &line.label),
    ];
    for (index, name) in system.columns.iter().enumerate() {
        columns.push(column(name, &|line| {
            line.cells[index].as_deref().unwrap_or("-")
        }));
    }
    let table = draw(&columns, 2);
    let gains: Vec<String> = system
        .gains
        .iter()
        .map(|line| format!("- {line}"))
        .collect();
    format!(
        "{}\n{}\n\n{table}\n\n{}\n\n{}\n\nMore: {}",
        system.title,
        wrapped(system.patch),
        wrapped(system.about),
        gains.join("\n"),
        system.more
    )
}

/// Wraps the text into lines of at most [`WIDTH`] columns.
fn wrapped(text: &str) -> String {
    let (mut lines, mut width) = (String::new(), 0);
    for word in text.split_whitespace() {
        let columns = word.chars().count();
        if width > 0 {
            let fits = width + 1 + columns <= WIDTH;
            lines.push(if fits { ' ' } else { '\n' });
            width = if fits { width + 1 } else { 0 };
        }
        lines += word;
        width += columns;
    }
    lines
}
