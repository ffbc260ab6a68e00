//! Columns of text, as wide as their widest cell.

/// The rows under their headings, two spaces between columns, no space at the end of a line.
pub fn table(headings: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = headings
        .iter()
        .map(|heading| heading.chars().count())
        .collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let headings: Vec<String> = headings
        .iter()
        .map(|heading| (*heading).to_owned())
        .collect();
    let mut text = String::new();
    for row in std::iter::once(&headings).chain(rows) {
        let mut line = String::new();
        for (width, cell) in widths.iter().zip(row) {
            let pad = width - cell.chars().count();
            line.push_str(cell);
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

    #[test]
    fn columns_line_up() {
        let rows = vec![
            vec!["a".into(), "long cell".into(), String::new()],
            vec!["bbb".into(), "x".into(), "y".into()],
        ];
        assert_eq!(
            table(&["JOB", "S", "N"], &rows),
            "JOB  S          N\na    long cell\nbbb  x          y\n"
        );
    }
}
