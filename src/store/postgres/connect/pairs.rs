//! The keyword form of a connection string: `host=db1 user='a b'` ("Keyword/Value Connection Strings").

/// The pairs as written, in that order. The error holds nothing of the text, as it may be a piece of a password.
pub fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut found = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let end = rest
            .find(|c: char| c == '=' || c.is_ascii_whitespace())
            .unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let Some(after) = after.trim_start().strip_prefix('=') else {
            return Err(missing(&found));
        };
        let (value, after) = value(after.trim_start())?;
        found.push((word.to_owned(), value));
        rest = after.trim_start();
    }
    Ok(found)
}

fn missing(found: &[(String, String)]) -> String {
    match found.last() {
        None => "neither a URL that starts with `postgres://` nor pairs such as `host=db1 user=jobrun`"
            .to_owned(),
        Some(_) => "a keyword has no `=` after it; write a value with spaces in single quotes, and `\\'` for a quote in it"
            .to_owned(),
    }
}

/// The value at the start of `text`, and what follows it.
fn value(text: &str) -> Result<(String, &str), String> {
    let (quoted, text) = match text.strip_prefix('\'') {
        Some(text) => (true, text),
        None => (false, text),
    };
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => value.extend(letters.next().map(|(_, letter)| letter)),
            '\'' if quoted => return Ok((value, &text[at + 1..])),
            _ if !quoted && letter.is_ascii_whitespace() => return Ok((value, &text[at..])),
            _ => value.push(letter),
        }
    }
    if quoted {
        return Err("a quoted value does not end: `'` is missing".to_owned());
    }
    Ok((value, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_may_be_quoted_and_escaped() {
        let cases: [(&str, &[(&str, &str)]); 7] = [
            ("", &[]),
            ("host=a", &[("host", "a")]),
            (
                "  host = a\tport=\n5433 ",
                &[("host", "a"), ("port", "5433")],
            ),
            (
                r"password='it\'s \\ me' user=b",
                &[("password", r"it's \ me"), ("user", "b")],
            ),
            (r"password=it\'s\ me", &[("password", "it's me")]),
            ("password='' user=b", &[("password", ""), ("user", "b")]),
            ("password=a=b@c", &[("password", "a=b@c")]),
        ];
        for (text, expected) in cases {
            let found = pairs(text).unwrap();
            let found: Vec<_> = found
                .iter()
                .map(|(a, b)| (a.as_str(), b.as_str()))
                .collect();
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn malformed_pairs_are_refused_without_being_shown() {
        for text in [
            "hunter2",
            "user=a hunter2",
            "user=a hunter2 x=y",
            "password='hunter2",
        ] {
            let error = pairs(text).unwrap_err();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
