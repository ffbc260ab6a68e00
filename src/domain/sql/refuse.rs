//! Statements that a job must not have: they would end its transaction, outlive it, or cannot run in one.

use std::ops::Range;

use super::lex::{Kind, Token};
use super::statement::{Verb, outside_parentheses, verb};
use super::{Dialect, Draft, Fault};

/// Why a statement is refused.
#[derive(Clone, Copy)]
enum Reason {
    /// It begins, ends or parts the transaction.
    Transaction,
    /// The database does not run it in a transaction.
    Alone,
    /// It changes the session.
    Session,
    /// It talks to a client that is not there.
    Client,
}

/// First words of statements, for both.
const TRANSACTION: &[&[&str]] = &[
    &["ABORT"],
    &["BEGIN"],
    &["COMMIT"],
    &["END"],
    &["PREPARE", "TRANSACTION"],
    &["RELEASE"],
    &["ROLLBACK"],
    &["SAVEPOINT"],
    &["SET", "TRANSACTION"],
    &["START", "TRANSACTION"],
];

/// First words of what PostgreSQL runs outside of transactions only.
const POSTGRES_ALONE: &[&[&str]] = &[
    &["ALTER", "SYSTEM"],
    &["CREATE", "DATABASE"],
    &["CREATE", "INDEX", "CONCURRENTLY"],
    &["CREATE", "TABLESPACE"],
    &["CREATE", "UNIQUE", "INDEX", "CONCURRENTLY"],
    &["DROP", "DATABASE"],
    &["DROP", "INDEX", "CONCURRENTLY"],
    &["DROP", "TABLESPACE"],
    &["VACUUM"],
];

/// First words of what changes PostgreSQL's session.
const POSTGRES_SESSION: &[&[&str]] = &[&["DISCARD"], &["LISTEN"], &["RESET"], &["SET"]];

/// First words of those that end with the transaction after all.
const POSTGRES_LOCAL: &[&[&str]] = &[&["SET", "CONSTRAINTS"], &["SET", "LOCAL"]];

/// First words of what SQLite runs outside of transactions only.
const SQLITE_ALONE: &[&[&str]] = &[
    &["ATTACH"],
    &["DETACH"],
    &["PRAGMA", "JOURNAL_MODE"],
    &["VACUUM"],
];

/// All that is wrong with one statement.
pub(super) fn refuse(draft: &Draft, dialect: Dialect) -> Vec<Fault> {
    let found = match dialect {
        Dialect::Postgres => postgres(draft.tokens),
        Dialect::Sqlite => sqlite(draft.tokens),
    };
    let transaction = starting(draft.tokens, TRANSACTION).map(|words| (words, Reason::Transaction));
    let first = transaction.or(found);
    let mut faults: Vec<Fault> = first
        .map(|(words, reason)| fault(draft, words, reason))
        .into_iter()
        .collect();
    if dialect == Dialect::Postgres {
        faults.extend(psql_command(draft));
    }
    faults
}

/// What is wrong with a script that has to be a query.
pub(super) fn refuse_all_but_a_query(drafts: &[Draft]) -> Option<Fault> {
    const HINT: &str = "write a single `SELECT`";
    if let Some(second) = drafts.get(1) {
        let at = second.tokens[0].start..second.tokens[second.tokens.len() - 1].end();
        return Some(Fault::new(at, "a query is one statement, this is another").hint(HINT));
    }
    let first = drafts.first()?;
    match verb(first.tokens) {
        Verb::Query => None,
        Verb::Change | Verb::Other => {
            let message = format!("`{}` starts no query", first.tokens[0].text);
            Some(Fault::new(first.tokens[0].at(), message).hint(HINT))
        }
    }
}

/// Tokens, and why they are refused.
type Refused<'a> = (&'a [Token<'a>], Reason);

fn postgres<'a>(tokens: &'a [Token<'a>]) -> Option<Refused<'a>> {
    let alone = starting(tokens, POSTGRES_ALONE).map(|words| (words, Reason::Alone));
    let session = || {
        let words = starting(tokens, POSTGRES_SESSION)?;
        let is_local = starting(tokens, POSTGRES_LOCAL).is_some();
        (!is_local).then_some((words, Reason::Session))
    };
    let hold = || with_hold(tokens).map(|words| (words, Reason::Session));
    let copy = || client_copy(tokens).map(|words| (words, Reason::Client));
    alone.or_else(session).or_else(hold).or_else(copy)
}

fn sqlite<'a>(tokens: &'a [Token<'a>]) -> Option<Refused<'a>> {
    let alone = starting(tokens, SQLITE_ALONE);
    let of_a_schema = || match tokens {
        [pragma, _, dot, name, ..] if pragma.is("PRAGMA") && dot.is(".") => {
            is_word(name, "JOURNAL_MODE").then(|| &tokens[..4])
        }
        _ => None,
    };
    let words = alone.or_else(of_a_schema)?;
    Some((words, Reason::Alone))
}

/// The words of the one of `phrases` that the statement starts with.
fn starting<'a>(tokens: &'a [Token<'a>], phrases: &[&[&str]]) -> Option<&'a [Token<'a>]> {
    let is_start = |phrase: &&&[&str]| {
        let words = phrase.iter().zip(tokens);
        phrase.len() <= tokens.len() && words.clone().all(|(word, token)| is_word(token, word))
    };
    let phrase = phrases.iter().find(is_start)?;
    Some(&tokens[..phrase.len()])
}

/// SQLite takes quoted names of pragmas, too.
fn is_word(token: &Token, word: &str) -> bool {
    let bare = match token.kind {
        Kind::Quoted => token.text.trim_matches(['"', '\'', '`', '[', ']']),
        Kind::Word => token.text,
        Kind::Number | Kind::Parameter(_) | Kind::Symbol => return false,
    };
    bare.eq_ignore_ascii_case(word)
}

/// `WITH HOLD` of a cursor.
fn with_hold<'a>(tokens: &'a [Token<'a>]) -> Option<&'a [Token<'a>]> {
    let is_cursor = tokens.first()?.is("DECLARE");
    let end = tokens.iter().position(|token| token.is("FOR"))?;
    let mut pairs = tokens[..end].windows(2).filter(|_| is_cursor);
    pairs.find(|pair| pair[0].is("WITH") && pair[1].is("HOLD"))
}

/// `FROM STDIN` or `TO STDOUT`; PostgreSQL also takes one for the other.
fn client_copy<'a>(tokens: &'a [Token<'a>]) -> Option<&'a [Token<'a>]> {
    let is_copy = tokens.first()?.is("COPY");
    let mut places = outside_parentheses(tokens).filter(|_| is_copy);
    places.find_map(|at| {
        let pair = tokens.get(at..at + 2)?;
        let is_client = (pair[0].is("FROM") || pair[0].is("TO"))
            && (pair[1].is("STDIN") || pair[1].is("STDOUT"));
        is_client.then_some(pair)
    })
}

/// A backslash outside of strings is psql's, and nothing to the server.
fn psql_command(draft: &Draft) -> Option<Fault> {
    let backslash = draft.tokens.iter().find(|token| token.is("\\"))?;
    let command = &draft.script[backslash.start..draft.at.end];
    let command = command
        .split(|c: char| c.is_whitespace() || c == ';')
        .next();
    let command = command.unwrap_or_default();
    let at = backslash.start..backslash.start + command.len();
    Some(
        Fault::new(at, format!("`{command}` is a command of psql's, not SQL"))
            .hint("run psql as `command` instead of `sql`"),
    )
}

fn fault(draft: &Draft, words: &[Token], reason: Reason) -> Fault {
    let at = words[0].start..words[words.len() - 1].end();
    let texts: Vec<&str> = words.iter().map(|word| word.text).collect();
    let written = texts.join(" ").replace(" . ", ".");
    let first = &draft.tokens[0];
    match reason {
        Reason::Transaction => Fault::new(
            at,
            format!(
                "`{written}` is jobrun's: what a task does and that it is done are one transaction"
            ),
        )
        .hint("leave it out: jobrun commits when all went well and rolls back when not"),
        Reason::Alone => Fault::new(
            at,
            format!("`{written}` cannot run in a transaction, and each task is one"),
        )
        .hint("run it as `command`, with the database's own client"),
        Reason::Session => session_fault(at, first, &written),
        Reason::Client => Fault::new(
            at,
            format!("`{written}` needs a client to talk to, there is none"),
        )
        .hint("run psql as `command`, or copy from and to a file of the server"),
    }
}

fn session_fault(at: Range<usize>, first: &Token, written: &str) -> Fault {
    let fault = Fault::new(at, format!("what `{written}` does would outlive the task"));
    if first.is("SET") {
        fault.hint("`SET LOCAL` ends with the task's transaction")
    } else if first.is("RESET") {
        fault.hint("`SET LOCAL … TO DEFAULT` ends with the task's transaction")
    } else if first.is("DECLARE") {
        fault.hint("a cursor without it ends with the task's transaction")
    } else {
        fault.hint("run it as `command`, in a session of its own")
    }
}
