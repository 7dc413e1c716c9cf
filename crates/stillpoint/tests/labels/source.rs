//! A source, as lines of code that know their comments.

/// Words of code that order memory accesses.
const ORDERINGS: [&str; 4] = ["Acquire", "Release", "AcqRel", "SeqCst"];

const BARRIERS: [&str; 7] = [
    "light",
    "light_asymmetric",
    "heavy",
    "heavy_barrier",
    "process_barrier",
    "full_fence",
    "fence_after_rmw",
];

/// Path suffix of the files that implement barriers by means of each other.
const MAKES_BARRIERS: &str = "/barrier.rs";

pub struct Source {
    /// Below the repository's `crates`.
    pub name: String,
    pub lines: Vec<Line>,
    /// The text of its `//!` lines.
    pub head: Vec<String>,
    /// The lines on which code orders, each with the line of its function's `fn`.
    pub accesses: Vec<(usize, Option<usize>)>,
}

#[derive(Default)]
pub struct Line {
    pub code: String,
    pub comment: String,
    /// Whether the line is in an item that only tests have.
    pub test: bool,
    /// The bracket that a statement on this line stands in, and the line that opens it.
    pub inside: Option<(char, usize)>,
}

impl Source {
    pub fn new(name: &str, text: &str) -> Self {
        let mut lines = split(text);
        let head = lines
            .iter()
            .filter_map(|line| line.comment.strip_prefix('!'))
            .map(str::to_owned)
            .collect();
        let mut open = Vec::new();
        for (number, line) in lines.iter_mut().enumerate() {
            line.inside = open.last().copied();
            for letter in line.code.chars() {
                match letter {
                    '(' | '[' | '{' => open.push((letter, number)),
                    ')' | ']' | '}' => drop(open.pop()),
                    _ => {}
                }
            }
        }
        let mut at = 0;
        while at < lines.len() {
            let code = lines[at].code.trim();
            let only_tests = code.starts_with("#[cfg(test)") || code.starts_with("#[cfg(all(test");
            at = if only_tests {
                skip_item(&mut lines, at)
            } else {
                at + 1
            };
        }
        let mut source = Self {
            name: name.to_owned(),
            lines,
            head,
            accesses: Vec::new(),
        };
        let orders = |number: &usize| {
            !source.lines[*number].test && source.orders(&source.lines[*number].code)
        };
        let accesses = (0..source.lines.len())
            .filter(orders)
            .map(|number| (number, source.function_around(number)));
        source.accesses = accesses.collect();
        source
    }

    /// Returns whether code names an ordering, or calls a barrier.
    fn orders(&self, code: &str) -> bool {
        let named = ORDERINGS
            .iter()
            .chain(&BARRIERS)
            .any(|name| code.contains(name));
        let item = code
            .trim_start()
            .trim_start_matches("pub")
            .trim_start_matches("(crate)")
            .trim_start();
        if !named || item.starts_with("use ") {
            return false;
        }
        let calls = |(before, word, after): &(&str, &str, char)| {
            *after == '(' && *before != "fn" && BARRIERS.contains(word)
        };
        let makes = self.name.ends_with(MAKES_BARRIERS);
        words(code)
            .iter()
            .any(|word| ORDERINGS.contains(&word.1) || !makes && calls(word))
    }

    /// The comment that belongs to a line of code: on the line, above it, above its statement, or
    /// above the function that has no other access.
    pub fn comment_of(&self, access: usize) -> String {
        let mut comment = self.lines[access].comment.clone();
        if self.lines[access].code.trim_start().starts_with('}') {
            // An `else if` has its comment inside.
            let inside = self.lines[access + 1..]
                .iter()
                .take_while(|line| line.is_comment());
            return inside.fold(comment, |all, line| all + &line.comment + "\n");
        }
        let mut at = access;
        while at > 0 {
            let above = &self.lines[at - 1];
            if above.is_comment() {
                return self.block_above(at) + &comment;
            }
            let goes_on = match above.code.trim_end().chars().last() {
                None | Some(';' | '}' | '{') => false,
                Some(',' | '(' | '[') => self.lines[at]
                    .inside
                    .is_some_and(|(bracket, _)| bracket != '{'),
                _ => true,
            };
            if !goes_on {
                break;
            }
            at -= 1;
            comment.push_str(&self.lines[at].comment);
        }
        let function = self
            .accesses
            .iter()
            .find(|(line, _)| *line == access)
            .and_then(|(_, function)| *function);
        if let Some(function) = function
            && self
                .accesses
                .iter()
                .filter(|(_, other)| *other == Some(function))
                .count()
                == 1
        {
            let attributes = self.lines[..function]
                .iter()
                .rev()
                .take_while(|line| line.code.trim().starts_with("#["))
                .count();
            comment.push_str(&self.block_above(function - attributes));
        }
        comment
    }

    fn block_above(&self, line: usize) -> String {
        let above = self.lines[..line]
            .iter()
            .rev()
            .take_while(|line| line.is_comment());
        above
            .map(|line| line.comment.as_str())
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .fold(String::new(), |all, line| all + line + "\n")
    }

    /// The line with the `fn` of the innermost function around a line.
    fn function_around(&self, line: usize) -> Option<usize> {
        let mut at = line;
        loop {
            if words(&self.lines[at].code)
                .iter()
                .any(|(before, ..)| *before == "fn")
            {
                return Some(at);
            }
            let goes_on = |above: &Line| {
                !above.is_comment() && !above.code.trim_end().ends_with([';', '{', '}'])
            };
            let blank = |above: &Line| above.code.trim().is_empty();
            at = match at.checked_sub(1).map(|above| &self.lines[above]) {
                Some(above) if goes_on(above) && !blank(above) => at - 1,
                _ => self.lines[at].inside?.1,
            };
        }
    }

    pub fn folder(&self) -> &str {
        self.name.rsplit_once('/').map_or("", |(folder, _)| folder)
    }
}

impl Line {
    fn is_comment(&self) -> bool {
        self.code.trim().is_empty() && !self.comment.is_empty()
    }
}

/// The words of a line of code, each with the word before and the character after it.
pub fn words(code: &str) -> Vec<(&str, &str, char)> {
    let part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut before = "";
    let found = code
        .split(|letter| !part(letter))
        .filter(|word| !word.is_empty());
    found
        .map(|word| {
            let end = word.as_ptr() as usize + word.len() - code.as_ptr() as usize;
            (
                std::mem::replace(&mut before, word),
                word,
                code[end..].chars().next().unwrap_or(' '),
            )
        })
        .collect()
}

/// Separates code and comments, and leaves out the contents of strings.
pub fn split(text: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    // What ends the string that a line begins in, for strings of several lines.
    let mut string: Option<String> = None;
    for text in text.lines() {
        let mut line = Line::default();
        let mut rest = text;
        while let Some(letter) = rest.chars().next() {
            if let Some(end) = &string {
                let escape = end == "\"" && letter == '\\';
                let ends = !escape && rest.starts_with(end.as_str());
                let skip = if escape {
                    rest.len().min(2)
                } else if ends {
                    end.len()
                } else {
                    letter.len_utf8()
                };
                rest = rest.get(skip..).unwrap_or("");
                if ends {
                    string = None;
                }
                continue;
            }
            if let Some(comment) = rest.strip_prefix("//") {
                line.comment = comment.to_owned();
                break;
            }
            let hashes = rest
                .strip_prefix('r')
                .map_or(0, |raw| raw.len() - raw.trim_start_matches('#').len());
            let raw = hashes > 0 && rest[1 + hashes..].starts_with('"');
            let character = ["'\"'", "'\\\"'", "'{'", "'}'", "'('", "')'", "'['", "']'"]
                .iter()
                .find(|quoted| rest.starts_with(**quoted));
            let skip = match character {
                _ if raw => {
                    string = Some(format!("\"{}", "#".repeat(hashes)));
                    2 + hashes
                }
                Some(character) => character.len(),
                None if letter == '"' => {
                    string = Some("\"".to_owned());
                    1
                }
                None => {
                    line.code.push(letter);
                    letter.len_utf8()
                }
            };
            rest = &rest[skip..];
        }
        lines.push(line);
    }
    lines
}

/// Marks the item after the attribute on line `at` as a test's. Returns the line after the item.
fn skip_item(lines: &mut [Line], at: usize) -> usize {
    let mut depth = 0i32;
    for (number, line) in lines.iter_mut().enumerate().skip(at) {
        line.test = true;
        let code = line.code.trim();
        let attribute = depth == 0 && (code.starts_with("#[") || code.is_empty());
        depth += code
            .chars()
            .map(|letter| i32::from("([{".contains(letter)) - i32::from(")]}".contains(letter)))
            .sum::<i32>();
        if depth < 0 || depth == 0 && !attribute && code.ends_with([';', '}', ',', ')']) {
            return number + 1;
        }
    }
    lines.len()
}
