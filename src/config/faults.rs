//! What is wrong with a configuration file: every fault at once, each with the place it stands at.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// The file cannot be used.
    Error,
    /// The file works, but probably not as meant.
    Warning,
}

/// One finding about the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// How bad it is.
    pub level: Level,
    /// Bytes of the file it is about; see [`Faults::attach`] for places in another file.
    pub span: Range<usize>,
    /// The job it concerns, if one.
    pub job: Option<String>,
    /// What is wrong: lower case, names in backticks, no full stop.
    pub message: String,
    /// The way out.
    pub hint: Option<String>,
}

/// Findings in the order of the file, with the text they point into.
#[derive(Clone, Debug)]
pub struct Faults {
    /// The file itself, then those it names: their places are counted on from one another's ends.
    sources: Vec<Source>,
    found: Vec<Fault>,
}

/// A file that findings point into.
#[derive(Clone, Debug)]
struct Source {
    path: PathBuf,
    text: String,
    /// Where its first byte is, counted through all files.
    start: usize,
}

/// A finding with its place counted out, for JSON.
#[derive(Debug, Serialize)]
pub struct Located<'a> {
    file: String,
    line: usize,
    column: usize,
    job: Option<&'a str>,
    message: &'a str,
    hint: Option<&'a str>,
}

impl Faults {
    /// No findings yet about the file at `path` that holds `text`.
    pub fn new(path: &Path, text: &str) -> Self {
        let source = Source {
            path: path.to_owned(),
            text: text.to_owned(),
            start: 0,
        };
        Self {
            sources: vec![source],
            found: Vec::new(),
        }
    }

    /// Adds another file that findings can point into and returns what to add to their bytes there. A file that was
    /// added already keeps its place.
    pub fn attach(&mut self, path: &Path, text: &str) -> usize {
        if let Some(known) = self.sources.iter().find(|source| source.path == path) {
            return known.start;
        }
        let last = &self.sources[self.sources.len() - 1];
        // A finding may point at the very end of a file.
        let start = last.start + last.text.len() + 1;
        self.sources.push(Source {
            path: path.to_owned(),
            text: text.to_owned(),
            start,
        });
        start
    }

    /// Adds a finding; one said already (a default seen through many jobs) is not said again.
    pub fn add(&mut self, fault: Fault) {
        let is_known = self
            .found
            .iter()
            .any(|known| known.span == fault.span && known.message == fault.message);
        if !is_known {
            self.found.push(fault);
        }
    }

    /// Whether the file cannot be used.
    pub fn has_errors(&self) -> bool {
        self.found.iter().any(|fault| fault.level == Level::Error)
    }

    /// The findings of one level, in the order of the file.
    pub fn of(&self, level: Level) -> Vec<&Fault> {
        let mut faults: Vec<&Fault> = self.found.iter().filter(|f| f.level == level).collect();
        faults.sort_by_key(|fault| (fault.span.start, fault.span.end));
        faults
    }

    /// The text of the file itself.
    pub fn text(&self) -> &str {
        &self.sources[0].text
    }

    fn source(&self, span: &Range<usize>) -> &Source {
        let mut sources = self.sources.iter().rev();
        let source = sources.find(|source| source.start <= span.start);
        source.expect("the file itself starts at 0")
    }

    /// How many errors there are, in one line.
    pub fn summary(&self) -> String {
        let count = self.of(Level::Error).len();
        let plural = if count == 1 { "" } else { "s" };
        let path = self.sources[0].path.display();
        format!("{count} fault{plural} in {path}; nothing was run")
    }

    /// The findings of one level with line and column, for JSON.
    pub fn located(&self, level: Level) -> Vec<Located<'_>> {
        self.of(level)
            .into_iter()
            .map(|fault| {
                let source = self.source(&fault.span);
                let (line, column) = source.place(fault.span.start);
                Located {
                    file: source.path.display().to_string(),
                    line,
                    column,
                    job: fault.job.as_deref(),
                    message: &fault.message,
                    hint: fault.hint.as_deref(),
                }
            })
            .collect()
    }

    /// One finding as text: message, place, the line underlined, and the way out.
    pub fn show(&self, fault: &Fault) -> String {
        let source = self.source(&fault.span);
        let (line, column) = source.place(fault.span.start);
        let path = source.path.display();
        let marked = fault.span.start - source.start..fault.span.end - source.start;
        let marked = &source.text[marked];
        let source = masked(source.text.lines().nth(line - 1).unwrap_or_default());
        let rest_of_line = source.chars().count().saturating_sub(column - 1).max(1);
        let marked = marked.chars().take_while(|c| *c != '\n');
        let width = marked.count().clamp(1, rest_of_line);
        let lead: String = source
            .chars()
            .take(column - 1)
            .map(|c| if c == '\t' { '\t' } else { ' ' })
            .collect();
        let level = match fault.level {
            Level::Error => "error",
            Level::Warning => "warning",
        };
        let job = fault
            .job
            .as_deref()
            .map(|job| format!("job `{job}`: "))
            .unwrap_or_default();
        let pad = " ".repeat(line.to_string().len());
        let mut shown = format!(
            "{level}: {job}{message}\n{pad}--> {path}:{line}:{column}\n{pad} |\n{line} | {source}\n{pad} | {lead}{mark}",
            message = fault.message,
            mark = "^".repeat(width),
        );
        if let Some(hint) = &fault.hint {
            shown.push_str("\nhint: ");
            shown.push_str(hint);
        }
        shown
    }
}

/// A line as it may be shown: the address of a server, which may have a password in any place, is starred out.
fn masked(line: &str) -> String {
    let secret = secret(line).unwrap_or(0..0);
    let letters = line.char_indices();
    letters
        .map(|(at, letter)| if secret.contains(&at) { '*' } else { letter })
        .collect()
}

/// Where such an address is: the value of `url`, unless it is that of a file.
fn secret(line: &str) -> Option<Range<usize>> {
    let (key, value) = line.split_once('=')?;
    let is_file = value
        .trim_start()
        .trim_start_matches(['"', '\''])
        .starts_with("sqlite:");
    let quote = value.find(['"', '\''])? + 1;
    let is_secret = key.trim().trim_matches(['"', '\'']).ends_with("url") && !is_file;
    is_secret.then(|| key.len() + 1 + quote..line.len())
}

impl Source {
    /// Line and column (characters), both from 1, of a byte counted through all files.
    fn place(&self, offset: usize) -> (usize, usize) {
        let mut end = (offset - self.start).min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        let before = &self.text[..end];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (
            before.matches('\n').count() + 1,
            before[line_start..].chars().count() + 1,
        )
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for fault in self.of(Level::Error) {
            writeln!(f, "{}\n", self.show(fault))?;
        }
        f.write_str(&self.summary())
    }
}

/// The name in `known` that `typed` was probably meant to be.
pub fn did_you_mean<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    /// Below this two names are not taken for a slip of the fingers.
    const ALIKE: f64 = 0.8;
    let typed = typed.to_lowercase();
    known
        .into_iter()
        .map(|name| (strsim::jaro_winkler(&typed, &name.to_lowercase()), name))
        .filter(|(likeness, _)| *likeness >= ALIKE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(span: Range<usize>) -> Fault {
        Fault {
            level: Level::Error,
            span,
            job: Some("a".into()),
            message: "bad".into(),
            hint: Some("good".into()),
        }
    }

    #[test]
    fn a_fault_shows_its_line_underlined() {
        let faults = Faults::new(Path::new("jobs.toml"), "x = 1\nschédule = \"0 30 * * *\"\n");
        let start = faults.text().find("30").expect("the text has it");
        assert_eq!(
            faults.show(&fault(start..start + 2)),
            "error: job `a`: bad\n --> jobs.toml:2:15\n  |\n2 | schédule = \"0 30 * * *\"\n  |               ^^\nhint: good"
        );
    }

    #[test]
    fn a_span_over_several_lines_is_underlined_to_the_end_of_the_first() {
        let faults = Faults::new(Path::new("j"), "ab\ncd\n");
        assert!(faults.show(&fault(1..5)).contains("1 | ab\n  |  ^\n"));
    }

    #[test]
    fn a_fault_at_the_end_of_the_file_has_a_place() {
        let faults = Faults::new(Path::new("j"), "ab\n");
        assert!(faults.show(&fault(3..3)).contains("j:2:1"));
    }

    #[test]
    fn a_fault_in_another_file_has_its_place_there() {
        let mut faults = Faults::new(Path::new("jobs.toml"), "ab\n");
        let start = faults.attach(Path::new("days.txt"), "sat\nsonntag\n");
        assert_eq!(
            faults.attach(Path::new("days.txt"), "sat\nsonntag\n"),
            start
        );
        faults.add(fault(start + 4..start + 11));
        faults.add(fault(0..2));
        let shown: Vec<String> = faults
            .of(Level::Error)
            .iter()
            .map(|f| faults.show(f))
            .collect();
        assert!(shown[0].contains("jobs.toml:1:1\n"), "{}", shown[0]);
        assert!(
            shown[1].contains("days.txt:2:1\n  |\n2 | sonntag\n  | ^^^^^^^\n"),
            "{}",
            shown[1]
        );
        assert!(
            faults
                .to_string()
                .ends_with("2 faults in jobs.toml; nothing was run")
        );
    }

    #[test]
    fn a_fault_is_said_once() {
        let mut faults = Faults::new(Path::new("j"), "ab\n");
        faults.add(fault(0..1));
        faults.add(fault(0..1));
        assert_eq!(faults.of(Level::Error).len(), 1);
    }

    #[test]
    fn a_slip_is_recognised_and_a_stranger_is_not() {
        assert_eq!(
            did_you_mean("timout", ["timeout", "retry"]),
            Some("timeout")
        );
        assert_eq!(did_you_mean("zzz", ["timeout", "retry"]), None);
    }
}
