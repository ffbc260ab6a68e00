//! Where statements end: at a `;`, but not at those that belong to a statement.

use std::ops::Range;

use super::lex::Token;
use super::{Dialect, Draft};

/// The statements of `script`, whose tokens are `tokens`; empty ones are left out.
pub(super) fn split<'a>(
    script: &'a str,
    tokens: &'a [Token<'a>],
    dialect: Dialect,
) -> Vec<Draft<'a>> {
    let mut drafts = Vec::new();
    let (mut rest, mut start) = (tokens, 0);
    loop {
        let length = match dialect {
            Dialect::Postgres => postgres_length(rest),
            Dialect::Sqlite => sqlite_length(rest),
        };
        let (tokens, after) = rest.split_at(length);
        let separator = after.first();
        let end = separator.map_or(script.len(), |separator| separator.start);
        if !tokens.is_empty() {
            drafts.push(Draft {
                script,
                at: trimmed(script, start, end),
                tokens,
            });
        }
        let Some(separator) = separator else {
            return drafts;
        };
        (rest, start) = (&after[1..], separator.end());
    }
}

/// The bytes from `start` to `end` without the spaces around them.
fn trimmed(script: &str, start: usize, end: usize) -> Range<usize> {
    let is_space = |c: char| c.is_ascii_whitespace();
    let text = script[start..end].trim_end_matches(is_space);
    let end = start + text.len();
    end - text.trim_start_matches(is_space).len()..end
}

/// Tokens before the `;`, by psql's rule: it counts neither in parentheses (CREATE RULE) nor in a body of statements.
fn postgres_length(tokens: &[Token]) -> usize {
    let is_routine = is_routine(tokens);
    let (mut parentheses, mut blocks) = (0_usize, 0_usize);
    for (at, token) in tokens.iter().enumerate() {
        match token.text {
            "(" => parentheses += 1,
            ")" => parentheses = parentheses.saturating_sub(1),
            ";" if parentheses == 0 && blocks == 0 => return at,
            _ if is_routine && opens_block(tokens, at, blocks) => blocks += 1,
            _ if token.is("END") && !is_label(tokens, at) => blocks = blocks.saturating_sub(1),
            _ => {}
        }
    }
    tokens.len()
}

fn is_routine(tokens: &[Token]) -> bool {
    let rest = match tokens {
        [create, or, replace, rest @ ..]
            if create.is("CREATE") && or.is("OR") && replace.is("REPLACE") =>
        {
            rest
        }
        [create, rest @ ..] if create.is("CREATE") => rest,
        _ => return false,
    };
    let kind = rest.first();
    kind.is_some_and(|kind| kind.is("FUNCTION") || kind.is("PROCEDURE"))
}

/// `BEGIN ATOMIC`, and in there each `CASE`, has an `END`.
fn opens_block(tokens: &[Token], at: usize, blocks: usize) -> bool {
    let is_atomic = || {
        let next = tokens.get(at + 1);
        tokens[at].is("BEGIN") && next.is_some_and(|next| next.is("ATOMIC"))
    };
    let is_case = || blocks > 0 && tokens[at].is("CASE");
    !is_label(tokens, at) && (is_atomic() || is_case())
}

/// Whether the keyword is but a name: `t.end`, `AS case`.
fn is_label(tokens: &[Token], at: usize) -> bool {
    let before = at.checked_sub(1).map(|before| tokens[before]);
    before.is_some_and(|before| before.is(".") || before.is("AS"))
}

/// Tokens before the `;`, by the rule of `sqlite3_complete()`: a trigger ends at `; END ;`.
fn sqlite_length(tokens: &[Token]) -> usize {
    let is_trigger = is_trigger(tokens);
    let ends_at = |at: usize| {
        tokens[at].is(";")
            && (!is_trigger
                || matches!(&tokens[..at], [.., semicolon, end] if semicolon.is(";") && end.is("END")))
    };
    let end = (0..tokens.len()).find(|&at| ends_at(at));
    end.unwrap_or(tokens.len())
}

fn is_trigger(tokens: &[Token]) -> bool {
    let mut words = tokens.iter().skip_while(|token| {
        ["EXPLAIN", "QUERY", "PLAN"]
            .iter()
            .any(|word| token.is(word))
    });
    if !words.next().is_some_and(|token| token.is("CREATE")) {
        return false;
    }
    let kind = words.find(|token| !token.is("TEMP") && !token.is("TEMPORARY"));
    kind.is_some_and(|token| token.is("TRIGGER"))
}
