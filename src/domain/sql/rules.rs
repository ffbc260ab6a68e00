//! Where a statement ends, and which statements cannot be run in a transaction with their done-mark.

use super::scan::{Kind, Token};
use super::{Dialect, Fault};

/// The tokens of each statement, from its first to its last that is not space; without those that say nothing.
pub(super) fn split<'s, 't>(tokens: &'s [Token<'t>], dialect: Dialect) -> Vec<&'s [Token<'t>]> {
    let mut statements = Vec::new();
    let mut first = 0;
    let mut body = Body::new(dialect);
    for (place, token) in tokens.iter().enumerate() {
        if body.ends_with(token) {
            statements.push(trimmed(&tokens[first..place]));
            first = place + 1;
            body = Body::new(dialect);
        }
    }
    statements.push(trimmed(&tokens[first..]));
    let says_something =
        |tokens: &&[Token<'_>]| tokens.iter().any(|token| token.kind != Kind::Blank);
    statements.into_iter().filter(says_something).collect()
}

fn trimmed<'s, 't>(tokens: &'s [Token<'t>]) -> &'s [Token<'t>] {
    let is_space = |token: &Token<'_>| token.text.trim().is_empty();
    let first = tokens.iter().position(|token| !is_space(token));
    let last = tokens.iter().rposition(|token| !is_space(token));
    match (first, last) {
        (Some(first), Some(last)) => &tokens[first..=last],
        (_, _) => &[],
    }
}

/// What was seen of a statement so far, as far as it decides whether a semicolon ends it.
struct Body {
    dialect: Dialect,
    /// Parentheses that are open.
    depth: usize,
    /// Its first words.
    words: Vec<String>,
    /// Blocks of `BEGIN ATOMIC … END` that are open, and CASEs in them.
    blocks: usize,
    was_begin: bool,
    /// Of SQLite's triggers: the last two tokens are a semicolon and END.
    was_semicolon: bool,
    was_end: bool,
}

impl Body {
    fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            depth: 0,
            words: Vec::new(),
            blocks: 0,
            was_begin: false,
            was_semicolon: false,
            was_end: false,
        }
    }

    /// Whether the token is the semicolon that ends the statement.
    fn ends_with(&mut self, token: &Token<'_>) -> bool {
        /// CREATE OR REPLACE TEMP FUNCTION and the like.
        const FIRST_WORDS: usize = 5;
        match token.kind {
            Kind::Blank => return false,
            Kind::Symbol('(') => self.depth += 1,
            Kind::Symbol(')') => self.depth = self.depth.saturating_sub(1),
            Kind::Symbol(';') => {
                let is_within = match self.dialect {
                    Dialect::Postgres => self.blocks > 0,
                    Dialect::Sqlite => self.makes("TRIGGER") && !self.was_end,
                };
                if self.depth == 0 && !is_within {
                    return true;
                }
                self.was_semicolon = true;
                (self.was_end, self.was_begin) = (false, false);
                return false;
            }
            Kind::Word => self.note(token),
            Kind::Number
            | Kind::Quoted
            | Kind::Parameter(_)
            | Kind::Placeholder
            | Kind::Symbol(_) => {}
        }
        if token.kind == Kind::Word && self.words.len() < FIRST_WORDS {
            self.words.push(token.text.to_ascii_uppercase());
        }
        self.was_end = token.is("END") && self.was_semicolon;
        self.was_semicolon = false;
        self.was_begin = token.is("BEGIN");
        false
    }

    fn note(&mut self, token: &Token<'_>) {
        let makes_routine = self.makes("FUNCTION") || self.makes("PROCEDURE");
        if token.is("ATOMIC") && self.was_begin && makes_routine {
            self.blocks = 1;
        } else if self.blocks > 0 && token.is("CASE") {
            self.blocks += 1;
        } else if self.blocks > 0 && token.is("END") {
            self.blocks -= 1;
        }
    }

    fn makes(&self, what: &str) -> bool {
        let is_create = self.words.first().is_some_and(|word| word == "CREATE");
        is_create && self.words.iter().any(|word| word == what)
    }
}

/// Whether a statement answers with rows.
pub(super) fn has_rows(tokens: &[Token<'_>]) -> bool {
    let mut words = tokens.iter().filter(|token| token.kind == Kind::Word);
    let is_query = words.next().is_some_and(|first| {
        ["SELECT", "VALUES", "TABLE"]
            .iter()
            .any(|word| first.is(word))
    });
    is_query || has_word(tokens, "RETURNING") || with_query(tokens)
}

/// Whether a word stands outside of parentheses.
fn has_word(tokens: &[Token<'_>], word: &str) -> bool {
    outside(tokens).any(|token| token.is(word))
}

/// Whether it is WITH … SELECT.
fn with_query(tokens: &[Token<'_>]) -> bool {
    let mut outside = outside(tokens);
    let is_with = outside.next().is_some_and(|first| first.is("WITH"));
    let main = outside.find(|token| {
        [
            "SELECT", "VALUES", "TABLE", "INSERT", "UPDATE", "DELETE", "MERGE", "REPLACE",
        ]
        .iter()
        .any(|word| token.is(word))
    });
    is_with
        && main.is_some_and(|main| {
            ["SELECT", "VALUES", "TABLE"]
                .iter()
                .any(|word| main.is(word))
        })
}

/// The words outside of parentheses.
fn outside<'s, 't>(tokens: &'s [Token<'t>]) -> impl Iterator<Item = &'s Token<'t>> {
    let mut depth = 0_usize;
    tokens.iter().filter(move |token| {
        match token.kind {
            Kind::Symbol('(') => depth += 1,
            Kind::Symbol(')') => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && token.kind == Kind::Word
    })
}

const ONE_TRANSACTION: &str =
    "jobrun begins and ends the transaction: effect and done-mark are one";
const NO_CLIENT: &str = "there is no client that could feed it: read a file with a command instead";
const OUTSIDE: &str =
    "it cannot run in a transaction: run it with `command` and the database's own shell";
const OUTLIVES: &str = "what is set would outlive the task: `SET LOCAL` ends with it";

/// Adds what keeps a statement from being run with its done-mark.
pub(super) fn check(tokens: &[Token<'_>], dialect: Dialect, faults: &mut Vec<Fault>) {
    for token in tokens {
        match token.kind {
            Kind::Placeholder => {
                let message = format!("`{}` is not how jobrun names a parameter", token.text);
                let hint = "write `:key`, `:slot` and so on";
                faults.push(Fault::new(token.at.clone(), message).hint(hint));
            }
            Kind::Symbol('\\') if dialect == Dialect::Postgres => {
                let message = "a command of psql is not SQL";
                faults.push(Fault::new(token.at.clone(), message));
            }
            _ => {}
        }
    }
    let words: Vec<&Token<'_>> = tokens
        .iter()
        .filter(|token| token.kind == Kind::Word)
        .collect();
    let Some(first) = words.first() else { return };
    let names: Vec<String> = words
        .iter()
        .map(|word| word.text.to_ascii_uppercase())
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let why = match dialect {
        Dialect::Postgres => refused_by_postgres(&names, tokens),
        Dialect::Sqlite => refused_by_sqlite(&names),
    };
    if let Some(why) = refused_by_both(&names).or(why) {
        let message = format!("`{}` cannot be used here", names[0]);
        faults.push(Fault::new(first.at.clone(), message).hint(why));
    }
}

fn refused_by_both(words: &[&str]) -> Option<&'static str> {
    match words {
        [
            "BEGIN" | "COMMIT" | "END" | "ROLLBACK" | "SAVEPOINT" | "RELEASE",
            ..,
        ] => Some(ONE_TRANSACTION),
        ["VACUUM", ..] => Some(OUTSIDE),
        _ => None,
    }
}

fn refused_by_postgres(words: &[&str], tokens: &[Token<'_>]) -> Option<&'static str> {
    match words {
        ["START", "TRANSACTION", ..] | ["ABORT", ..] | ["PREPARE", "TRANSACTION", ..] => {
            Some(ONE_TRANSACTION)
        }
        ["COPY", ..] if has_word(tokens, "STDIN") || has_word(tokens, "STDOUT") => Some(NO_CLIENT),
        ["CREATE" | "DROP", "DATABASE" | "TABLESPACE", ..]
        | ["ALTER", "SYSTEM", ..]
        | ["CREATE" | "DROP", "INDEX", "CONCURRENTLY", ..]
        | ["CREATE", "UNIQUE", "INDEX", "CONCURRENTLY", ..] => Some(OUTSIDE),
        ["SET", "LOCAL" | "CONSTRAINTS" | "TRANSACTION", ..] => None,
        ["SET" | "RESET" | "DISCARD" | "LISTEN" | "UNLISTEN", ..] => Some(OUTLIVES),
        ["DECLARE", ..] if words.windows(2).any(|pair| pair == ["WITH", "HOLD"]) => Some(OUTLIVES),
        _ => None,
    }
}

fn refused_by_sqlite(words: &[&str]) -> Option<&'static str> {
    match words {
        ["ATTACH" | "DETACH", ..] => Some(OUTSIDE),
        [
            "PRAGMA",
            "JOURNAL_MODE" | "WAL_CHECKPOINT" | "SYNCHRONOUS" | "LOCKING_MODE",
            ..,
        ] => Some(OUTLIVES),
        _ => None,
    }
}
