//! Colour: on a terminal that can show it and whose user wants it, and nowhere else.

use std::env;
use std::io::IsTerminal;

use anstyle::{AnsiColor, Style};

/// What a colour tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tint {
    /// All is well.
    Good,
    /// Not settled yet, or to be looked at some time.
    Open,
    /// Somebody has to act.
    Bad,
    /// The way out.
    Hint,
}

impl Tint {
    fn style(self) -> Style {
        let colour = match self {
            Self::Good => AnsiColor::Green,
            Self::Open => AnsiColor::Yellow,
            Self::Bad => AnsiColor::Red,
            Self::Hint => AnsiColor::Cyan,
        };
        colour.on_default()
    }

    /// The text in this colour.
    pub fn paint(self, text: &str) -> String {
        let style = self.style();
        format!("{style}{text}{style:#}")
    }
}

/// Whether what goes to stdout may be coloured.
pub fn is_on_stdout() -> bool {
    is_wanted() && std::io::stdout().is_terminal()
}

/// Whether what goes to stderr may be coloured.
pub fn is_on_stderr() -> bool {
    is_wanted() && std::io::stderr().is_terminal()
}

/// As <https://no-color.org> asks, and as terminfo(5) names a terminal that cannot; without a name none can be assumed.
fn is_wanted() -> bool {
    let refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !refused && env::var_os("TERM").is_some_and(|name| name != "dumb")
}

/// An error, a warning or a fault as text, with the word each line starts with and the marks below a line coloured.
pub fn findings(text: &str) -> String {
    let mut level = Tint::Bad;
    let lines = text.split('\n').map(|line| {
        for (word, tint) in [
            ("error:", Tint::Bad),
            ("warning:", Tint::Open),
            ("hint:", Tint::Hint),
        ] {
            if let Some(rest) = line.strip_prefix(word) {
                if tint != Tint::Hint {
                    level = tint;
                }
                return tint.paint(word) + rest;
            }
        }
        match line.find('^') {
            Some(start) if is_marks(line) => {
                format!("{}{}", &line[..start], level.paint(&line[start..]))
            }
            Some(_) | None => line.to_owned(),
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Whether it is the line below a line of the file: nothing in it but a rule and marks.
fn is_marks(line: &str) -> bool {
    line.trim_start()
        .strip_prefix('|')
        .is_some_and(|marks| marks.trim_start().chars().all(|mark| mark == '^'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_words_and_marks_are_coloured() {
        let shown = findings(
            "warning: odd\n  |\n2 | a = \"^^\"\n  |     ^^\nhint: even\n\nerror: ^ bad\n   |  ^\nsaid: error: x",
        );
        assert_eq!(
            shown,
            "\x1b[33mwarning:\x1b[0m odd\n  |\n2 | a = \"^^\"\n  |     \x1b[33m^^\x1b[0m\n\x1b[36mhint:\x1b[0m even\n\n\
             \x1b[31merror:\x1b[0m ^ bad\n   |  \x1b[31m^\x1b[0m\nsaid: error: x"
        );
    }
}
