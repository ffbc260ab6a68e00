//! From text to tokens, and what is wrong with single ones.

use std::ops::Range;

use super::parameter::{foreign, unknown};
use super::quoted::{Extent, gap, quoted};
use super::{Dialect, Fault, Parameter};

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A keyword or a bare name.
    Word,
    /// Anything that starts with a digit.
    Number,
    /// A string or a quoted name.
    Quoted,
    /// A `:name` to be bound.
    Parameter(Parameter),
    /// A single other character, or a faulty placeholder.
    Symbol,
}

/// A piece of the script and where it stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub kind: Kind,
    pub text: &'a str,
    /// Its first byte in the whole script.
    pub start: usize,
}

impl Token<'_> {
    /// The bytes it covers in the whole script.
    pub fn at(&self) -> Range<usize> {
        self.start..self.end()
    }

    /// The byte after it.
    pub fn end(&self) -> usize {
        self.start + self.text.len()
    }

    /// Whether it is this keyword or symbol.
    pub fn is(&self, word: &str) -> bool {
        self.text.eq_ignore_ascii_case(word)
    }
}

/// All that is neither space nor comment.
pub(super) struct Lexed<'a> {
    pub tokens: Vec<Token<'a>>,
    pub faults: Vec<Fault>,
}

/// Reads the whole of `text`.
pub(super) fn lex(text: &str, dialect: Dialect) -> Lexed<'_> {
    let mut lexer = Lexer {
        text,
        dialect,
        at: 0,
        found: Lexed {
            tokens: Vec::new(),
            faults: Vec::new(),
        },
    };
    while lexer.at < text.len() {
        lexer.step();
    }
    lexer.found
}

struct Lexer<'a> {
    text: &'a str,
    dialect: Dialect,
    /// The first byte not read yet.
    at: usize,
    found: Lexed<'a>,
}

impl Lexer<'_> {
    fn step(&mut self) {
        let rest = &self.text[self.at..];
        if let Some(extent) = gap(rest, self.dialect) {
            self.at += self.length(extent);
        } else if let Some(extent) = quoted(rest, self.dialect) {
            let length = self.length(extent);
            self.push(Kind::Quoted, length);
        } else if let Some(length) = self.placeholder() {
            self.found.faults.push(foreign(self.at, &rest[..length]));
            self.push(Kind::Symbol, length);
        } else if let Some(length) = self.name() {
            let kind = self.parameter(&rest[..length]);
            self.push(kind, length);
        } else {
            let (kind, length) = plain(rest);
            self.push(kind, length);
        }
    }

    fn push(&mut self, kind: Kind, length: usize) {
        let start = self.at;
        self.at += length;
        let text = &self.text[start..self.at];
        self.found.tokens.push(Token { kind, text, start });
    }

    /// What `extent` covers; the rest of the text, and a fault, if it has no end.
    fn length(&mut self, extent: Extent) -> usize {
        match extent {
            Extent::Closed(length) => length,
            Extent::Unclosed { opening, what } => {
                let at = self.at..self.at + opening;
                let message = format!("this {what} is never closed");
                self.found.faults.push(Fault::new(at, message));
                self.text.len() - self.at
            }
        }
    }

    /// A placeholder that is the database's own: `$1`, and in SQLite `?`, `?1`, `@x`, `$x` and, undocumented, `#x`.
    fn placeholder(&self) -> Option<usize> {
        let rest = &self.text[self.at..];
        let mark = rest.chars().next()?;
        let name = match (mark, self.dialect) {
            ('$', Dialect::Postgres) | ('?', Dialect::Sqlite) => digits(&rest[1..]),
            ('$' | '@' | '#', Dialect::Sqlite) => variable(&rest[1..]),
            _ => return None,
        };
        (name > 0 || mark == '?').then_some(1 + name)
    }

    /// A `:name` that is neither a cast nor half of a slice.
    fn name(&self) -> Option<usize> {
        let name = self.text[self.at..].strip_prefix(':')?;
        let before = self.found.tokens.last();
        let before = before.filter(|token| token.end() == self.at);
        let (length, is_name) = match self.dialect {
            Dialect::Postgres => {
                let is_word = !name.starts_with(|c: char| c.is_ascii_digit() || c == '$');
                (word(name), is_word && !before.is_some_and(ends_a_value))
            }
            // It has neither: there a colon always starts a name, which would be left unbound and NULL.
            Dialect::Sqlite => (variable(name), before.is_none_or(|token| token.text != ":")),
        };
        (is_name && length > 0).then_some(1 + length)
    }

    /// What the `:name` stands for.
    fn parameter(&mut self, name: &str) -> Kind {
        if let Some(parameter) = Parameter::named(&name[1..]) {
            return Kind::Parameter(parameter);
        }
        let fault = unknown(self.at, name, self.is_in_brackets());
        self.found.faults.push(fault);
        Kind::Symbol
    }

    /// Looks back for a `[` still open, no further than the nearest `;`.
    fn is_in_brackets(&self) -> bool {
        let tokens = self.found.tokens.iter().rev();
        let mark = tokens
            .map(|token| token.text)
            .find(|text| ["[", "]", ";"].contains(text));
        mark == Some("[")
    }
}

/// Whether a colon right after it belongs to a slice, or to a cast; after a lone `$` a placeholder would make a quote.
fn ends_a_value(token: &Token) -> bool {
    match token.kind {
        Kind::Word | Kind::Number | Kind::Quoted | Kind::Parameter(_) => true,
        Kind::Symbol => ["]", ")", ":", "$"].contains(&token.text),
    }
}

/// A word, a number or a single character; `rest` is not empty.
fn plain(rest: &str) -> (Kind, usize) {
    let first = rest.chars().next().map_or(0, char::len_utf8);
    let length = word(rest);
    if rest.starts_with(|c: char| c.is_ascii_digit()) {
        // A dollar sign would start a quote, or a placeholder.
        let is_part = |byte: &u8| (is_in_word(*byte) && *byte != b'$') || *byte == b'.';
        (Kind::Number, rest.bytes().take_while(is_part).count())
    } else if length > 0 && !rest.starts_with('$') {
        (Kind::Word, length)
    } else {
        (Kind::Symbol, first)
    }
}

/// Bytes of the name at the beginning of `rest`, a leading digit or dollar sign included.
fn word(rest: &str) -> usize {
    rest.bytes().take_while(|&byte| is_in_word(byte)).count()
}

/// Bytes of a name as SQLite reads them after a colon and the like, for Tcl's `::namespace::name`; 0 for colons only.
fn variable(rest: &str) -> usize {
    let mut at = 0;
    let mut has_word = false;
    loop {
        let length = word(&rest[at..]);
        has_word |= length > 0;
        at += length;
        if !rest[at..].starts_with("::") {
            return if has_word { at } else { 0 };
        }
        at += 2;
    }
}

fn digits(rest: &str) -> usize {
    rest.bytes().take_while(u8::is_ascii_digit).count()
}

/// Both databases take all that is not ASCII for letters.
fn is_in_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || !byte.is_ascii()
}
