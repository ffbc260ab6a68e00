//! What holds for any text.

use proptest::prelude::*;

use super::lex::{Kind, lex};
use super::{Dialect, Parameter, Script};

/// Pieces that mean something to one of the readers, in some order or other.
const PIECES: &[&str] = &[
    "'",
    "\"",
    "`",
    "[",
    "]",
    "(",
    ")",
    ";",
    ":",
    "::",
    ":=",
    ":key",
    ":slot",
    ":kye",
    "$",
    "$$",
    "$a$",
    "$1",
    "?",
    "@x",
    "\\",
    "--",
    "/*",
    "*/",
    "*",
    "/",
    "\n",
    "\r",
    " ",
    ".",
    "1",
    "E'",
    "U&'",
    "x'",
    "a",
    "ü",
    "\u{1f980}",
    "\u{feff}",
    "\u{a0}",
    "\0",
    "BEGIN ",
    "ATOMIC ",
    "CASE ",
    "END",
    "CREATE ",
    "FUNCTION ",
    "TRIGGER ",
    "COMMIT",
    "SELECT ",
    "WITH ",
    "AS ",
    "RETURNING ",
];

fn any_text() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(PIECES);
    let pieces = prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat());
    prop_oneof![4 => pieces, 1 => any::<String>()]
}

/// Without what is a fault anywhere, so that most of them can be read.
fn harmless_text() -> impl Strategy<Value = String> {
    let is_harmless = |piece: &&&str| {
        ![
            "'", "\"", "`", "[", "(", ")", "$1", "?", "@x", "\\", "/*", "E'", "U&'", "x'", "\0",
            "COMMIT", "$$", "$a$", ":kye", "$",
        ]
        .contains(piece)
    };
    let mut pieces: Vec<&str> = PIECES.iter().filter(is_harmless).copied().collect();
    pieces.extend(["'a;:key'", "/* ; :key */", "\"b;\"", "(", ")", ":task"]);
    let piece = prop::sample::select(pieces);
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

fn any_dialect() -> impl Strategy<Value = Dialect> {
    prop_oneof![Just(Dialect::Postgres), Just(Dialect::Sqlite)]
}

/// How many of the database's placeholders `text` has.
fn placeholders(text: &str, dialect: Dialect) -> usize {
    let mark = match dialect {
        Dialect::Postgres => '$',
        Dialect::Sqlite => '?',
    };
    let lexed = lex(text, dialect);
    let is_placeholder = |text: &str| {
        text.strip_prefix(mark)
            .is_some_and(|number| !number.is_empty())
    };
    let tokens = lexed
        .tokens
        .iter()
        .filter(|token| token.kind == Kind::Symbol);
    tokens.filter(|token| is_placeholder(token.text)).count()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2048) })]

    #[test]
    fn any_text_is_read_or_refused(text in any_text(), dialect in any_dialect(), position in 0..40_usize) {
        for parsed in [Script::parse(&text, dialect), Script::parse_query(&text, dialect)] {
            match parsed {
                Ok(script) => {
                    prop_assert!(!script.statements.is_empty());
                    for statement in &script.statements {
                        let (line, column) = statement.locate(position);
                        prop_assert!(line >= 1 && column >= 1);
                    }
                }
                Err(faults) => {
                    prop_assert!(!faults.is_empty());
                    for fault in faults {
                        prop_assert!(text.get(fault.at).is_some(), "not a piece of the text");
                    }
                }
            }
        }
    }

    #[test]
    fn tokens_and_gaps_make_up_the_text(text in any_text(), dialect in any_dialect()) {
        let mut end = 0;
        for token in lex(&text, dialect).tokens {
            prop_assert!(token.start >= end && !token.text.is_empty());
            prop_assert_eq!(&text[token.at()], token.text);
            end = token.end();
        }
        prop_assert!(end <= text.len());
    }

    #[test]
    fn each_parameter_has_its_placeholder(text in harmless_text(), dialect in any_dialect()) {
        if let Ok(script) = Script::parse(&text, dialect) {
            for statement in &script.statements {
                let found = placeholders(&statement.text, dialect);
                prop_assert_eq!(found, statement.parameters.len(), "{}", statement.text);
            }
        }
    }

    #[test]
    fn statements_stand_in_the_text_as_they_were_written(text in harmless_text(), dialect in any_dialect()) {
        if let Ok(script) = Script::parse(&text, dialect) {
            let mut rest = text.as_str();
            for statement in &script.statements {
                let written = written_again(&statement.text, &statement.parameters, dialect);
                let at = rest.find(&written);
                prop_assert!(at.is_some(), "{:?} is not in {:?}", written, rest);
                rest = &rest[at.unwrap_or_default() + written.len()..];
            }
        }
    }
}

/// The text with its placeholders replaced by names, from the last on so that `$1` is not found in `$10`.
fn written_again(text: &str, parameters: &[Parameter], dialect: Dialect) -> String {
    let mark = match dialect {
        Dialect::Postgres => '$',
        Dialect::Sqlite => '?',
    };
    let mut written = text.to_owned();
    for (index, parameter) in parameters.iter().enumerate().rev() {
        let placeholder = format!("{mark}{}", index + 1);
        written = written.replacen(&placeholder, &format!(":{}", parameter.word()), 1);
    }
    written
}
