//! How long a space, a comment, a string or a quoted name is: all that may hold anything without meaning it.
//!
//! The rules are those of PostgreSQL's scan.l and of SQLite's tokenize.c. Each function looks at the beginning of `rest` and
//! counts bytes; all of them stop beside an ASCII character, so that no other character is ever cut.

use super::Dialect;

/// How far it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// It has an end after so many bytes.
    Closed(usize),
    /// The text ends first.
    Unclosed {
        /// Bytes of what opens it.
        opening: usize,
        /// What it is called.
        what: &'static str,
    },
}

/// A space or a comment.
pub(super) fn gap(rest: &str, dialect: Dialect) -> Option<Extent> {
    let spaces = rest.bytes().take_while(|&byte| is_space(byte)).count();
    if spaces > 0 {
        Some(Extent::Closed(spaces))
    } else if rest.starts_with("--") {
        Some(Extent::Closed(line_comment(rest, dialect)))
    } else if rest.starts_with("/*") {
        Some(block_comment(rest, dialect))
    } else if dialect == Dialect::Sqlite && rest.starts_with('\u{feff}') {
        Some(Extent::Closed('\u{feff}'.len_utf8()))
    } else {
        None
    }
}

/// A string or a quoted name.
pub(super) fn quoted(rest: &str, dialect: Dialect) -> Option<Extent> {
    match (rest.as_bytes().first()?, dialect) {
        (b'\'', _) => Some(doubled(rest, b'\'', "string")),
        (b'"', _) => Some(doubled(rest, b'"', "identifier")),
        (b'`', Dialect::Sqlite) => Some(doubled(rest, b'`', "identifier")),
        (b'[', Dialect::Sqlite) => Some(until(rest, "[", "]", "identifier")),
        (b'E' | b'e', Dialect::Postgres) => escaped(rest),
        (b'$', Dialect::Postgres) => {
            let tag = dollar_tag(rest)?;
            Some(until(rest, tag, tag, "dollar quote"))
        }
        _ => None,
    }
}

fn is_space(byte: u8) -> bool {
    // The vertical tab is a space in PostgreSQL 16, and in SQLite after another space.
    byte.is_ascii_whitespace() || byte == b'\x0b'
}

fn line_comment(rest: &str, dialect: Dialect) -> usize {
    let is_end = |byte: u8| byte == b'\n' || (byte == b'\r' && dialect == Dialect::Postgres);
    let end = rest.bytes().position(is_end);
    end.unwrap_or(rest.len())
}

/// Those of PostgreSQL nest. SQLite would take one without end for closed; it is a slip all the same.
fn block_comment(rest: &str, dialect: Dialect) -> Extent {
    const MARK: usize = 2;
    let bytes = rest.as_bytes();
    let (mut depth, mut at) = (1, MARK);
    while let Some(mark) = bytes.get(at..at + MARK) {
        match mark {
            b"/*" if dialect == Dialect::Postgres => depth += 1,
            b"*/" => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += MARK;
        if depth == 0 {
            return Extent::Closed(at);
        }
    }
    Extent::Unclosed {
        opening: MARK,
        what: "comment",
    }
}

/// Quotes in which the quote itself is written twice.
fn doubled(rest: &str, quote: u8, what: &'static str) -> Extent {
    let bytes = rest.as_bytes();
    let mut at = 1;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        if byte != quote {
            continue;
        }
        if bytes.get(at) != Some(&quote) {
            return Extent::Closed(at);
        }
        at += 1;
    }
    Extent::Unclosed { opening: 1, what }
}

/// From `opening` to the next `closing`.
fn until(rest: &str, opening: &str, closing: &str, what: &'static str) -> Extent {
    let opening = opening.len();
    match rest[opening..].find(closing) {
        Some(at) => Extent::Closed(opening + at + closing.len()),
        None => Extent::Unclosed { opening, what },
    }
}

/// PostgreSQL's `E'…'`, with what continues it on later lines.
fn escaped(rest: &str) -> Option<Extent> {
    const OPENING: usize = 2;
    let bytes = rest.as_bytes();
    if bytes.get(1) != Some(&b'\'') {
        return None;
    }
    let mut at = OPENING;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'\\' => at += 1,
            b'\'' if bytes.get(at) == Some(&b'\'') => at += 1,
            b'\'' => match continued(&rest[at..]) {
                Some(length) => at += length,
                None => return Some(Extent::Closed(at)),
            },
            _ => {}
        }
    }
    Some(Extent::Unclosed {
        opening: OPENING,
        what: "string",
    })
}

/// Up to and with the quote that goes on with a string after a line break.
fn continued(rest: &str) -> Option<usize> {
    let mut at = 0;
    while let Some(Extent::Closed(length)) = gap(&rest[at..], Dialect::Postgres) {
        // Block comments end the string.
        if rest[at..].starts_with("/*") {
            return None;
        }
        at += length;
    }
    let has_line_break = rest[..at].contains(['\n', '\r']);
    (has_line_break && rest[at..].starts_with('\'')).then_some(at + 1)
}

/// `$$` or `$tag$`.
fn dollar_tag(rest: &str) -> Option<&str> {
    let end = rest[1..].find('$')? + 1;
    let tag = &rest.as_bytes()[1..end];
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || !byte.is_ascii();
    let is_tag = tag.iter().all(is_name) && !tag.first().is_some_and(u8::is_ascii_digit);
    is_tag.then(|| &rest[..=end])
}
