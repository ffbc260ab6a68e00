//! The SQL of a job as its user writes it: split into statements, its parameters found and numbered.
//!
//! Read lexically only: what a statement means is the database's to say. So nothing valid is refused but what jobrun cannot
//! run in a transaction of its own.

mod rules;
mod scan;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use scan::{Kind, Scanner, Token};

/// Whose SQL it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// PostgreSQL's.
    Postgres,
    /// SQLite's.
    Sqlite,
}

/// What a statement may name as `:name`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Parameter {
    /// The slot, an instant.
    Slot,
    /// The start of its interval.
    IntervalStart,
    /// The end of its interval.
    IntervalEnd,
    /// The key of a task.
    Key,
    /// The keys of a batch of tasks.
    Keys,
    /// What a task came with.
    Payload,
    /// What a task is known by for ever.
    Task,
    /// Which run of the task it is, from 1.
    Attempt,
}

impl Parameter {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Slot,
        Self::IntervalStart,
        Self::IntervalEnd,
        Self::Key,
        Self::Keys,
        Self::Payload,
        Self::Task,
        Self::Attempt,
    ];

    /// Its name, without the colon.
    pub fn word(self) -> &'static str {
        match self {
            Self::Slot => "slot",
            Self::IntervalStart => "interval_start",
            Self::IntervalEnd => "interval_end",
            Self::Key => "key",
            Self::Keys => "keys",
            Self::Payload => "payload",
            Self::Task => "task",
            Self::Attempt => "attempt",
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|parameter| parameter.word() == word)
    }
}

/// What is wrong with a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where, in bytes.
    pub at: Range<usize>,
    /// What.
    pub message: String,
    /// The way out.
    pub hint: Option<String>,
}

impl Fault {
    fn new(at: Range<usize>, message: impl Into<String>) -> Self {
        Self {
            at,
            message: message.into(),
            hint: None,
        }
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// One statement, its parameters numbered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Without the semicolon, comments kept, each place of a parameter with a number of its own: `$1`, or `?1` of SQLite.
    pub text: String,
    /// What the numbers stand for, in order.
    pub parameters: Vec<Parameter>,
    /// All of the script.
    source: Arc<str>,
    /// Where a stretch of `text` begins, and where in `source` it is from.
    stretches: Vec<(usize, usize)>,
    has_rows: bool,
}

impl Statement {
    /// Whether it answers with rows.
    pub fn has_rows(&self) -> bool {
        self.has_rows
    }

    /// The line and column of the script, from 1, of a place in `text`: its characters counted from 1, as PostgreSQL does.
    pub fn locate(&self, position: usize) -> (usize, usize) {
        let place = self.text.char_indices().nth(position.saturating_sub(1));
        let place = place.map_or(self.text.len(), |(place, _)| place);
        let stretch = self.stretches.iter().rev().find(|(text, _)| *text <= place);
        let at = stretch.map_or(0, |(text, source)| source + place - text);
        let before = self.source.get(..at).unwrap_or(&self.source);
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        (line, column)
    }
}

/// SQL as a job gives it: at least one statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// The statements, in order.
    pub statements: Vec<Statement>,
}

impl Script {
    /// Reads statements to be run in one transaction with their done-mark.
    pub fn parse(text: &str, dialect: Dialect) -> Result<Self, Vec<Fault>> {
        let (script, faults) = Self::read(text, dialect);
        if faults.is_empty() {
            Ok(script)
        } else {
            Err(faults)
        }
    }

    /// Reads one query, to be used as a part of another statement.
    pub fn parse_query(text: &str, dialect: Dialect) -> Result<Self, Vec<Fault>> {
        let script = Self::parse(text, dialect)?;
        let words = ["SELECT", "WITH", "VALUES", "TABLE"];
        let first = script
            .statements
            .first()
            .map_or("", |first| first.text.as_str());
        let first = scan::significant(first, dialect).next();
        let is_query = first.is_some_and(|first| {
            first.kind == Kind::Symbol('(') || words.iter().any(|word| first.is(word))
        });
        let whole = 0..text.len();
        if !is_query {
            let fault = Fault::new(whole, "this is not a query");
            return Err(vec![fault.hint("it starts with SELECT, WITH or VALUES")]);
        }
        if script.statements.len() > 1 {
            return Err(vec![Fault::new(
                whole,
                "these are several statements, and one query is wanted",
            )]);
        }
        Ok(script)
    }

    /// Whether a statement names the parameter.
    pub fn uses(&self, parameter: Parameter) -> bool {
        let mut statements = self.statements.iter();
        statements.any(|statement| statement.parameters.contains(&parameter))
    }

    fn read(text: &str, dialect: Dialect) -> (Self, Vec<Fault>) {
        let mut faults = Vec::new();
        if let Some(at) = text.find('\0') {
            faults.push(Fault::new(at..at + 1, "SQL cannot have a NUL character"));
        }
        let tokens: Vec<Token<'_>> = match Scanner::new(text, dialect).collect() {
            Ok(tokens) => tokens,
            Err(fault) => {
                faults.push(fault);
                Vec::new()
            }
        };
        let source: Arc<str> = text.into();
        let mut statements = Vec::new();
        for tokens in rules::split(&tokens, dialect) {
            rules::check(tokens, dialect, &mut faults);
            statements.push(statement(tokens, &source, dialect, &mut faults));
        }
        let script = Self { statements };
        if faults.is_empty() && script.statements.is_empty() {
            faults.push(Fault::new(0..text.len(), "there is no statement"));
        }
        if script.uses(Parameter::Key) && script.uses(Parameter::Keys) {
            let message = "`:key` and `:keys` are both used";
            let hint = "`:key` is one task at a time, `:keys` a batch of them in one statement";
            faults.push(Fault::new(0..text.len(), message).hint(hint));
        }
        (script, faults)
    }
}

/// The statement of some tokens, with numbers in place of its parameters.
fn statement(
    tokens: &[Token<'_>],
    source: &Arc<str>,
    dialect: Dialect,
    faults: &mut Vec<Fault>,
) -> Statement {
    let sign = match dialect {
        Dialect::Postgres => '$',
        Dialect::Sqlite => '?',
    };
    let first = tokens.first().map_or(0, |token| token.at.start);
    let mut made = Statement {
        text: String::new(),
        parameters: Vec::new(),
        source: source.clone(),
        stretches: vec![(0, first)],
        has_rows: rules::has_rows(tokens),
    };
    for token in tokens {
        let Kind::Parameter(name) = token.kind else {
            made.text.push_str(token.text);
            continue;
        };
        let Some(parameter) = Parameter::from_word(name) else {
            faults.push(unknown(name, token.at.clone()));
            continue;
        };
        made.stretches.push((made.text.len(), token.at.start));
        made.parameters.push(parameter);
        made.text.push(sign);
        made.text.push_str(&made.parameters.len().to_string());
        made.stretches.push((made.text.len(), token.at.end));
    }
    made
}

fn unknown(name: &str, at: Range<usize>) -> Fault {
    let near = Parameter::ALL
        .into_iter()
        .map(|parameter| {
            (
                strsim::damerau_levenshtein(name, parameter.word()),
                parameter.word(),
            )
        })
        .min()
        .filter(|(distance, _)| *distance <= 2);
    let hint = near.map_or_else(
        || {
            let names = Parameter::ALL.map(|parameter| format!("`:{}`", parameter.word()));
            format!("there are {}", names.join(", "))
        },
        |(_, near)| format!("did you mean `:{near}`?"),
    );
    Fault::new(at, format!("`:{name}` is not a parameter")).hint(hint)
}
