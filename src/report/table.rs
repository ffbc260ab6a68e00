//! Columns of text, as wide as their widest cell.

use super::colour::Tint;

/// A cell: text, and the colour it has where there is colour.
pub struct Cell {
    text: String,
    tint: Option<Tint>,
}

impl Cell {
    /// A cell with a colour, or without.
    pub fn tinted(text: impl Into<String>, tint: Option<Tint>) -> Self {
        Self {
            text: text.into(),
            tint,
        }
    }

    /// What it takes of the line; colour takes nothing.
    fn width(&self) -> usize {
        self.text.chars().count()
    }

    fn shown(&self, is_coloured: bool) -> String {
        match self.tint {
            Some(tint) if is_coloured && !self.text.is_empty() => tint.paint(&self.text),
            Some(_) | None => self.text.clone(),
        }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, tint: None }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// The rows under their headings, two spaces between columns, no space at the end of a line.
pub fn table(headings: &[&str], rows: &[Vec<Cell>], is_coloured: bool) -> String {
    let headings: Vec<Cell> = headings.iter().map(|heading| (*heading).into()).collect();
    let mut widths: Vec<usize> = headings.iter().map(Cell::width).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.width());
        }
    }
    let mut text = String::new();
    for row in std::iter::once(&headings).chain(rows) {
        let mut line = String::new();
        for (width, cell) in widths.iter().zip(row) {
            let pad = width - cell.width();
            line.push_str(&cell.shown(is_coloured));
            line.push_str(&" ".repeat(pad + 2));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Vec<Cell>> {
        vec![
            vec![
                "a".into(),
                Cell::tinted("long cell", Some(Tint::Bad)),
                "".into(),
            ],
            vec![
                "bbb".into(),
                Cell::tinted("x", Some(Tint::Good)),
                "y".into(),
            ],
        ]
    }

    #[test]
    fn columns_line_up() {
        assert_eq!(
            table(&["JOB", "S", "N"], &rows(), false),
            "JOB  S          N\na    long cell\nbbb  x          y\n"
        );
    }

    #[test]
    fn colour_does_not_move_columns() {
        assert_eq!(
            table(&["JOB", "S", "N"], &rows(), true),
            "JOB  S          N\na    \x1b[31mlong cell\x1b[0m\nbbb  \x1b[32mx\x1b[0m          y\n"
        );
    }
}
