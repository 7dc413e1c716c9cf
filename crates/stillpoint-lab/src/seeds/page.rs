//! Prints a system: a sentence on the patch, a table, and what was gained.

use comfy_table::{Cell, CellAlignment, Table, presets};

use super::systems::System;
use crate::machine::Machine;

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
    let busy = machine.load.as_ref().filter(|load| load.busy);
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
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(["", ""].into_iter().chain(system.columns.iter().copied()));
    for line in &system.lines {
        let mut cells = vec![Cell::new(line.origin), Cell::new(&line.label)];
        cells.extend(line.cells.iter().map(|cell| {
            Cell::new(cell.as_deref().unwrap_or("-")).set_alignment(CellAlignment::Right)
        }));
        table.add_row(cells);
    }
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
