//! The tokens of SQL: what is quoted or commented is one token, so that nothing in it is taken for anything else.
//!
//! PostgreSQL's rules are those of its manual, "Lexical Structure"; SQLite's those of its "SQLite Keywords" and "SQL As
//! Understood By SQLite".

use std::ops::Range;

use super::{Dialect, Fault};

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind<'t> {
    /// White space or a comment.
    Blank,
    /// A word that is not quoted.
    Word,
    Number,
    /// A string, or a quoted name.
    Quoted,
    /// `:name`, by its name.
    Parameter(&'t str),
    /// Another database's way to write a parameter.
    Placeholder,
    /// Anything else, a character at a time.
    Symbol(char),
}

/// A stretch of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token<'t> {
    pub(super) kind: Kind<'t>,
    pub(super) text: &'t str,
    pub(super) at: Range<usize>,
}

impl Token<'_> {
    /// Whether it is that keyword.
    pub(super) fn is(&self, keyword: &str) -> bool {
        self.kind == Kind::Word && self.text.eq_ignore_ascii_case(keyword)
    }

    /// Whether a colon right behind it belongs to it: a slice, a path.
    fn takes_colon(&self) -> bool {
        match self.kind {
            Kind::Word | Kind::Number | Kind::Quoted | Kind::Symbol(']' | ')') => true,
            Kind::Blank | Kind::Parameter(_) | Kind::Placeholder | Kind::Symbol(_) => false,
        }
    }
}

/// The tokens of a text that are neither space nor comment, as far as it can be read.
pub(super) fn significant(text: &str, dialect: Dialect) -> impl Iterator<Item = Token<'_>> {
    Scanner::new(text, dialect)
        .map_while(Result::ok)
        .filter(|token| token.kind != Kind::Blank)
}

/// Reads one token after the other; ends after an error.
pub(super) struct Scanner<'t> {
    text: &'t str,
    at: usize,
    dialect: Dialect,
    /// Whether a colon right here belongs to what is before it.
    takes_colon: bool,
    is_over: bool,
}

impl<'t> Iterator for Scanner<'t> {
    type Item = Result<Token<'t>, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.text.get(self.at..)?;
        let first = rest.chars().next().filter(|_| !self.is_over)?;
        let (kind, length) = match self.measure(first, rest) {
            Ok(measured) => measured,
            Err(fault) => {
                self.is_over = true;
                return Some(Err(fault));
            }
        };
        let at = self.at..self.at + length;
        let token = Token {
            kind,
            text: &self.text[at.clone()],
            at,
        };
        self.at = token.at.end;
        self.takes_colon = token.takes_colon();
        Some(Ok(token))
    }
}

impl<'t> Scanner<'t> {
    pub(super) fn new(text: &'t str, dialect: Dialect) -> Self {
        Self {
            text,
            at: 0,
            dialect,
            takes_colon: false,
            is_over: false,
        }
    }

    /// What begins here, and how many bytes it has.
    fn measure(&self, first: char, rest: &'t str) -> Result<(Kind<'t>, usize), Fault> {
        let is_postgres = self.dialect == Dialect::Postgres;
        match first {
            _ if first.is_whitespace() => {
                let end = rest.find(|c: char| !c.is_whitespace());
                Ok((Kind::Blank, end.unwrap_or(rest.len())))
            }
            '-' if rest.starts_with("--") => {
                Ok((Kind::Blank, rest.find('\n').unwrap_or(rest.len())))
            }
            '/' if rest.starts_with("/*") => self.comment(rest),
            '\'' => self.quoted(rest, 0, '\'', self.is_escape_string()),
            '"' => self.quoted(rest, 0, '"', false),
            '`' if !is_postgres => self.quoted(rest, 0, '`', false),
            '[' if !is_postgres => match rest.find(']') {
                Some(end) => Ok((Kind::Quoted, end + 1)),
                None => Err(self.unfinished(1, "a name in brackets")),
            },
            '$' if is_postgres => self.dollar(rest),
            '$' | '@' | '?' if !is_postgres => Ok((Kind::Placeholder, placeholder(rest))),
            ':' => Ok(self.colon(rest)),
            _ if is_word_start(first) => Ok((Kind::Word, word(rest))),
            _ if first.is_ascii_digit() => {
                let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '.' || c == '_'));
                Ok((Kind::Number, end.unwrap_or(rest.len())))
            }
            _ => Ok((Kind::Symbol(first), first.len_utf8())),
        }
    }

    /// Whether the string that begins here is one of `E'…'`.
    fn is_escape_string(&self) -> bool {
        let before = &self.text[..self.at];
        let is_e = before.ends_with(['e', 'E']);
        let is_alone = !before[..before.len() - usize::from(is_e)].ends_with(is_word_part);
        self.dialect == Dialect::Postgres && is_e && is_alone
    }

    /// A text up to the next `quote` that is not doubled, nor escaped where there are escapes.
    fn quoted(
        &self,
        rest: &'t str,
        skip: usize,
        quote: char,
        has_escapes: bool,
    ) -> Result<(Kind<'t>, usize), Fault> {
        let mut chars = rest.char_indices().skip(skip + 1).peekable();
        while let Some((at, c)) = chars.next() {
            if c == '\\' && has_escapes {
                chars.next();
            } else if c == quote {
                if chars.next_if(|(_, next)| *next == quote).is_none() {
                    return Ok((Kind::Quoted, at + 1));
                }
            }
        }
        let what = if quote == '\'' {
            "a string"
        } else {
            "a quoted name"
        };
        Err(self.unfinished(1, what))
    }

    fn comment(&self, rest: &'t str) -> Result<(Kind<'t>, usize), Fault> {
        let is_nested = self.dialect == Dialect::Postgres;
        let (mut depth, mut at) = (1, 2);
        while depth > 0 {
            let Some(end) = rest[at..].find("*/") else {
                // SQLite takes the rest of the text for a comment.
                return if is_nested {
                    Err(self.unfinished(2, "a comment"))
                } else {
                    Ok((Kind::Blank, rest.len()))
                };
            };
            match rest[at..at + end].find("/*").filter(|_| is_nested) {
                Some(inner) => {
                    depth += 1;
                    at += inner + 2;
                }
                None => {
                    depth -= 1;
                    at += end + 2;
                }
            }
        }
        Ok((Kind::Blank, at))
    }

    /// `$$…$$`, `$tag$…$tag$`, or `$1`.
    fn dollar(&self, rest: &'t str) -> Result<(Kind<'t>, usize), Fault> {
        let digits = rest[1..].find(|c: char| !c.is_ascii_digit());
        let digits = digits.unwrap_or(rest.len() - 1);
        if digits > 0 {
            return Ok((Kind::Placeholder, digits + 1));
        }
        let name = if rest[1..].starts_with(is_word_start) {
            rest[1..].find(|c: char| !is_tag_part(c))
        } else {
            Some(0)
        };
        let Some(tag) = name
            .and_then(|name| rest.get(..name + 2))
            .filter(|tag| tag.ends_with('$'))
        else {
            return Ok((Kind::Symbol('$'), 1));
        };
        match rest[tag.len()..].find(tag) {
            Some(end) => Ok((Kind::Quoted, end + 2 * tag.len())),
            None => Err(self.unfinished(tag.len(), "a dollar-quoted string")),
        }
    }

    fn colon(&self, rest: &'t str) -> (Kind<'t>, usize) {
        if rest.starts_with("::") || rest.starts_with(":=") {
            return (Kind::Symbol(':'), 2);
        }
        let name = &rest[1..];
        if self.takes_colon || !name.starts_with(is_word_start) {
            return (Kind::Symbol(':'), 1);
        }
        let length = word(name);
        (Kind::Parameter(&name[..length]), length + 1)
    }

    fn unfinished(&self, length: usize, what: &str) -> Fault {
        Fault::new(self.at..self.at + length, format!("{what} is not closed"))
    }
}

fn is_word_start(c: char) -> bool {
    c.is_alphabetic() || c == '_' || !c.is_ascii() && !c.is_whitespace()
}

fn is_tag_part(c: char) -> bool {
    is_word_start(c) || c.is_ascii_digit()
}

fn is_word_part(c: char) -> bool {
    is_tag_part(c) || c == '$'
}

/// How long the word is that begins here.
fn word(rest: &str) -> usize {
    rest.find(|c: char| !is_word_part(c)).unwrap_or(rest.len())
}

/// How long SQLite's `?`, `?1`, `@x` or `$x` is.
fn placeholder(rest: &str) -> usize {
    1 + rest[1..]
        .find(|c: char| !is_word_part(c))
        .unwrap_or(rest.len() - 1)
}
