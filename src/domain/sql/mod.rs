//! SQL as a job gives it: read word by word, taken apart into statements, its parameters numbered.
//!
//! Only as much is understood as is needed for that; what a statement means is the database's matter. `quoted` measures
//! what may hold anything, `lex` makes tokens, `split` finds where statements end, `refuse` those a job must not
//! have, and `statement` numbers the parameters of one.

#[cfg(test)]
mod corpus;
mod lex;
mod parameter;
#[cfg(test)]
mod properties;
mod quoted;
#[cfg(test)]
mod refusals;
mod refuse;
mod split;
#[cfg(test)]
mod sqlite_itself;
mod statement;
#[cfg(test)]
mod tests;

use std::ops::Range;

use lex::lex;
use refuse::{refuse, refuse_all_but_a_query};
use split::split;

pub use parameter::Parameter;
pub use statement::Statement;

/// Whose SQL it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// PostgreSQL, its `standard_conforming_strings` on.
    Postgres,
    /// SQLite.
    Sqlite,
}

/// SQL as a job gives it: at least one statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// In the order they are written.
    pub statements: Vec<Statement>,
}

/// What is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Bytes of the text it is about.
    pub at: Range<usize>,
    /// What is wrong: lower case, names in backticks, no full stop.
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

    /// Adds the way out.
    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl Script {
    /// Takes `text` apart, or says all that is wrong with it, in the order of the text.
    pub fn parse(text: &str, dialect: Dialect) -> Result<Self, Vec<Fault>> {
        read(text, dialect, |_| None)
    }

    /// The same for a query: one statement, which stands as well in parentheses after FROM. It may end in a `--` comment:
    /// whoever puts it there writes the `)` on a line of its own.
    pub fn parse_query(text: &str, dialect: Dialect) -> Result<Self, Vec<Fault>> {
        read(text, dialect, refuse_all_but_a_query)
    }

    /// Whether any statement names `parameter`.
    pub fn uses(&self, parameter: Parameter) -> bool {
        let mut statements = self.statements.iter();
        statements.any(|statement| statement.parameters.contains(&parameter))
    }
}

/// A statement before its parameters are numbered.
struct Draft<'a> {
    /// The whole script.
    script: &'a str,
    /// Its bytes in the script, comments around it included.
    at: Range<usize>,
    /// At least one.
    tokens: &'a [lex::Token<'a>],
}

fn read(
    text: &str,
    dialect: Dialect,
    also_refuse: fn(&[Draft]) -> Option<Fault>,
) -> Result<Script, Vec<Fault>> {
    let lexed = lex(text, dialect);
    let drafts = split(text, &lexed.tokens, dialect);
    let mut faults = nul_characters(text);
    let is_readable = lexed.faults.is_empty();
    faults.extend(lexed.faults);
    faults.extend(drafts.iter().flat_map(|draft| refuse(draft, dialect)));
    faults.extend(refuse_key_with_keys(&lexed.tokens));
    if is_readable {
        faults.extend(drafts.iter().filter_map(unbalanced));
        faults.extend(also_refuse(&drafts));
    }
    if drafts.is_empty() && faults.is_empty() {
        faults.push(Fault::new(0..text.len(), "there is no SQL statement in it"));
    }
    if faults.is_empty() {
        let statements = drafts.iter().map(|draft| Statement::new(draft, dialect));
        return Ok(Script {
            statements: statements.collect(),
        });
    }
    faults.sort_by_key(|fault| fault.at.start);
    Err(faults)
}

/// Both databases take it for the end of the text.
fn nul_characters(text: &str) -> Vec<Fault> {
    let found = text.match_indices('\0').take(1);
    found
        .map(|(at, nul)| Fault::new(at..at + nul.len(), "SQL cannot hold a NUL character"))
        .collect()
}

/// A batch has many keys, a single task has one: a script is written for either.
fn refuse_key_with_keys(tokens: &[lex::Token]) -> Option<Fault> {
    let first = |parameter| {
        let wanted = lex::Kind::Parameter(parameter);
        tokens.iter().position(|token| token.kind == wanted)
    };
    let later = first(Parameter::Key)?.max(first(Parameter::Keys)?);
    Some(
        Fault::new(tokens[later].at(), "`:key` and `:keys` do not go together")
            .hint("`:key` is the one task at hand, `:keys` all tasks of a batch"),
    )
}

/// The first parenthesis without its other half: what follows would be read in a way nobody meant.
fn unbalanced(draft: &Draft) -> Option<Fault> {
    let mut open = Vec::new();
    for token in draft.tokens {
        match token.text {
            "(" => open.push(token),
            ")" if open.pop().is_none() => {
                return Some(Fault::new(token.at(), "this `)` closes nothing"));
            }
            _ => {}
        }
    }
    open.first()
        .map(|token| Fault::new(token.at(), "this `(` is never closed"))
}
