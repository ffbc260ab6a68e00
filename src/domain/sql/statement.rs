//! One statement, its parameters numbered, and the way back from an error's position to what was written.

use std::ops::Range;

use super::lex::{Kind, Token};
use super::{Dialect, Draft, Parameter};

/// One statement, its parameters numbered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// As the database takes it: without the `;`, each occurrence of a parameter as its own `$1`, `$2`, … (PostgreSQL)
    /// or `?1`, `?2`, … (SQLite).
    pub text: String,
    /// What number i+1 stands for, at i.
    pub parameters: Vec<Parameter>,
    verb: Verb,
    has_returning: bool,
    /// As it was written.
    written: String,
    /// Line and column, from 1, of its first character in the script.
    origin: (usize, usize),
    placeholders: Vec<Placeholder>,
}

/// Characters that stand for one another.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Placeholder {
    in_text: Range<usize>,
    in_written: Range<usize>,
}

/// What a statement is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    /// `SELECT`, `VALUES`, `TABLE`, also after `WITH` or in parentheses.
    Query,
    /// `INSERT`, `UPDATE`, `DELETE`, `MERGE`, `REPLACE`, also after `WITH`.
    Change,
    /// Anything else.
    Other,
}

impl Statement {
    /// Numbers the parameters of `draft`.
    pub(super) fn new(draft: &Draft, dialect: Dialect) -> Self {
        let written = &draft.script[draft.at.clone()];
        let mut statement = Self {
            text: String::with_capacity(written.len()),
            parameters: Vec::new(),
            verb: verb(draft.tokens),
            has_returning: outside_parentheses(draft.tokens)
                .any(|at| draft.tokens[at].is("RETURNING")),
            written: written.to_owned(),
            origin: advance((1, 1), &draft.script[..draft.at.start]),
            placeholders: Vec::new(),
        };
        statement.number(draft, dialect);
        statement
    }

    /// Writes the text, a placeholder for each parameter.
    fn number(&mut self, draft: &Draft, dialect: Dialect) {
        let mark = match dialect {
            Dialect::Postgres => '$',
            Dialect::Sqlite => '?',
        };
        let mut copied = draft.at.start;
        let (mut text_length, mut written_length) = (0, 0);
        for token in draft.tokens {
            let Kind::Parameter(parameter) = token.kind else {
                continue;
            };
            let between = &draft.script[copied..token.start];
            copied = token.end();
            self.parameters.push(parameter);
            let placeholder = format!("{mark}{}", self.parameters.len());
            self.text.extend([between, &placeholder]);
            let characters = between.chars().count();
            let in_text = span(text_length + characters, placeholder.len());
            let in_written = span(written_length + characters, token.text.len());
            (text_length, written_length) = (in_text.end, in_written.end);
            self.placeholders.push(Placeholder {
                in_text,
                in_written,
            });
        }
        self.text.push_str(&draft.script[copied..draft.at.end]);
    }

    /// Whether it may give rows: a query, or a change with `RETURNING`.
    pub fn has_rows(&self) -> bool {
        match self.verb {
            Verb::Query => true,
            Verb::Change => self.has_returning,
            Verb::Other => false,
        }
    }

    /// Line and column in the whole script, as it was written, of character `position` in `text`; all counted from 1, in
    /// characters. The beginning of a parameter for any place in its placeholder; the end for a position after it.
    pub fn locate(&self, position: usize) -> (usize, usize) {
        let index = position.saturating_sub(1);
        let mut before = self.placeholders.iter().rev();
        let index = match before.find(|placeholder| placeholder.in_text.start <= index) {
            None => index,
            Some(near) if index < near.in_text.end => near.in_written.start,
            Some(near) => near.in_written.end + (index - near.in_text.end),
        };
        let end = self.written.char_indices().nth(index);
        let end = end.map_or(self.written.len(), |(end, _)| end);
        advance(self.origin, &self.written[..end])
    }
}

fn span(start: usize, length: usize) -> Range<usize> {
    start..start + length
}

/// Where line and column are after `text`.
fn advance((line, column): (usize, usize), text: &str) -> (usize, usize) {
    match text.rsplit_once('\n') {
        Some((lines, last)) => {
            let lines = lines.matches('\n').count() + 1;
            (line + lines, last.chars().count() + 1)
        }
        None => (line, column + text.chars().count()),
    }
}

/// What a statement is for; behind `WITH` it is found after the common table expressions.
pub(super) fn verb(tokens: &[Token]) -> Verb {
    let first = tokens.iter().find(|token| !token.is("("));
    let Some(first) = first.filter(|first| first.kind == Kind::Word) else {
        return Verb::Other;
    };
    if !first.is("WITH") {
        return named(first).unwrap_or(Verb::Other);
    }
    let inner = &tokens[tokens.iter().take_while(|token| token.is("(")).count()..];
    let mut places = outside_parentheses(inner).filter(|&at| !is_name(inner, at));
    let verb = places.find_map(|at| named(&inner[at]));
    // Without one, the query after the expressions is in parentheses.
    verb.unwrap_or(Verb::Query)
}

/// Whether the token names a common table expression.
fn is_name(tokens: &[Token], at: usize) -> bool {
    let before = at.checked_sub(1).map(|before| tokens[before]);
    before.is_some_and(|before| {
        [",", "RECURSIVE", "WITH"]
            .iter()
            .any(|word| before.is(word))
    })
}

fn named(word: &Token) -> Option<Verb> {
    const QUERIES: [&str; 3] = ["SELECT", "TABLE", "VALUES"];
    const CHANGES: [&str; 5] = ["DELETE", "INSERT", "MERGE", "REPLACE", "UPDATE"];
    if QUERIES.iter().any(|query| word.is(query)) {
        Some(Verb::Query)
    } else if CHANGES.iter().any(|change| word.is(change)) {
        Some(Verb::Change)
    } else {
        None
    }
}

/// Indices of the tokens that no parentheses are around, nor any of the parentheses themselves.
pub(super) fn outside_parentheses(tokens: &[Token]) -> impl Iterator<Item = usize> {
    let mut depth = 0_usize;
    tokens.iter().enumerate().filter_map(move |(at, token)| {
        match token.text {
            "(" => depth += 1,
            ")" => depth = depth.saturating_sub(1),
            _ => return (depth == 0).then_some(at),
        }
        None
    })
}
