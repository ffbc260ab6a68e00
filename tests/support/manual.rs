//! The examples of a manual page, as text to be tried.

/// The examples after a comment that is `mark`, in order.
pub fn examples(page: &str, mark: &str) -> Vec<String> {
    let start = format!("\n.\\\" {mark}\n");
    let marked = page.split(&start).skip(1).map(|rest| {
        let (_, example) = rest.split_once(".EX\n").expect("an example");
        example.split_once(".EE").expect("its end").0
    });
    marked.map(unescaped).collect()
}

fn unescaped(text: &str) -> String {
    let mut text = text.to_owned();
    for (escape, character) in [("\\&", ""), ("\\-", "-"), ("\\(aq", "'"), ("\\e", "\\")] {
        text = text.replace(escape, character);
    }
    text
}
