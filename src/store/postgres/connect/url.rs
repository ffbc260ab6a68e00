//! The URL form of a connection string ("Connection URIs"), and what to say when a password breaks it.

/// Characters that end a part of a URL: raw in a password, they break it or are taken for something else.
const SPECIAL: [char; 9] = ['@', ':', '/', '?', '#', '%', '&', '[', ' '];

/// What follows `postgres://` or `postgresql://`.
pub fn after_scheme(text: &str) -> Option<&str> {
    text.strip_prefix("postgresql://")
        .or_else(|| text.strip_prefix("postgres://"))
}

/// The parts of a URL without its scheme as keywords and values; of several for the same keyword the last one counts.
/// The error holds nothing of a password.
pub fn pairs(rest: &str) -> Result<Vec<(String, String)>, String> {
    let pairs = parse(rest).map_err(|message| suspicion(rest).unwrap_or(message))?;
    let is_suspect = pairs
        .iter()
        .any(|(word, value)| matches!(word.as_str(), "host" | "port") && value.contains('@'));
    match is_suspect.then(|| suspicion(rest)).flatten() {
        Some(message) => Err(message),
        None => Ok(pairs),
    }
}

/// What is likely wrong if a URL cannot be used: its password is not encoded, or the name of its user, as an `@` follows
/// the one that should end them, or a `%` in it starts no code.
pub fn suspicion(rest: &str) -> Option<String> {
    let at = rest.rfind('@')?;
    let (_, password) = rest[..at].split_once(':').unwrap_or_default();
    let is_cut = user_part(rest).map(str::len) != Some(at) || decoded(password).is_err();
    if !is_cut {
        return None;
    }
    let seen: Vec<String> = SPECIAL
        .into_iter()
        .filter(|special| match special {
            '%' => decoded(password).is_err(),
            _ => password.contains(*special),
        })
        .map(|special| match special {
            ' ' => "a space".to_owned(),
            _ => format!("`{special}`"),
        })
        .collect();
    if seen.is_empty() {
        return Some(
            "more than one `@`: within the name of the user it is written `%40`".to_owned(),
        );
    }
    Some(format!(
        "the password seems to contain {} — percent-encode it (`@` is `%40`), or use `password_file`, PGPASSWORD or ~/.pgpass",
        seen.join(", ")
    ))
}

/// `user:password` in front of the `@`.
fn user_part(rest: &str) -> Option<&str> {
    let end = rest.find(['@', '/'])?;
    rest[end..].starts_with('@').then(|| &rest[..end])
}

fn parse(rest: &str) -> Result<Vec<(String, String)>, String> {
    let mut pairs = Vec::new();
    let mut add = |word: &str, value: &str| -> Result<(), String> {
        if !value.is_empty() {
            pairs.push((word.to_owned(), decoded(value)?));
        }
        Ok(())
    };
    let mut rest = rest;
    if let Some(user_part) = user_part(rest) {
        let (user, password) = user_part.split_once(':').unwrap_or((user_part, ""));
        add("user", user)?;
        add("password", password)?;
        rest = &rest[user_part.len() + 1..];
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (servers, after) = rest.split_at(end);
    let servers = servers
        .split(',')
        .map(server)
        .collect::<Result<Vec<_>, _>>()?;
    let (hosts, ports): (Vec<_>, Vec<_>) = servers.into_iter().unzip();
    // Several of which none is written are a comma or more, and as good as nothing.
    if hosts.iter().any(|host| !host.is_empty()) {
        add("host", &hosts.join(","))?;
    }
    if ports.iter().any(|port| !port.is_empty()) {
        add("port", &ports.join(","))?;
    }
    let (path, query) = after.split_once('?').unwrap_or((after, ""));
    let database = path.strip_prefix('/').unwrap_or(path);
    if database.contains('@') {
        return Err("the database's name contains `@`: write `%40`".to_owned());
    }
    add("dbname", database)?;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let Some((word, value)) = pair.split_once('=').filter(|pair| !pair.1.contains('=')) else {
            return Err(
                "each parameter after `?` must be `keyword=value`, with `=` and `&` in a value percent-encoded"
                    .to_owned(),
            );
        };
        match (decoded(word)?.as_str(), value) {
            // As JDBC writes it.
            ("ssl", "true") => pairs.push(("sslmode".to_owned(), "require".to_owned())),
            (word, value) => pairs.push((word.to_owned(), decoded(value)?)),
        }
    }
    Ok(pairs)
}

/// Host and port of `host`, `host:port`, `[v6]` or `[v6]:port`.
fn server(text: &str) -> Result<(&str, &str), String> {
    let Some(inner) = text.strip_prefix('[') else {
        return Ok(text.split_once(':').unwrap_or((text, "")));
    };
    let Some((address, after)) = inner.split_once(']') else {
        return Err("an IPv6 address does not end: `]` is missing".to_owned());
    };
    match (address, after.strip_prefix(':')) {
        ("", _) => Err("there is no address between `[` and `]`".to_owned()),
        (_, Some(port)) => Ok((address, port)),
        (_, None) if after.is_empty() => Ok((address, "")),
        (_, None) => Err("only a port may follow the `]` of an IPv6 address".to_owned()),
    }
}

/// Percent-decoded.
fn decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut pieces = text.split('%');
    bytes.extend(pieces.next().unwrap_or_default().bytes());
    for piece in pieces {
        let code = piece.get(..2).filter(|code| !code.starts_with('+'));
        let byte = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        match byte {
            None => return Err("a `%` does not start a code of two digits: write `%25`".to_owned()),
            Some(0) => return Err("`%00` is not allowed".to_owned()),
            Some(byte) => bytes.push(byte),
        }
        bytes.extend(piece[2..].bytes());
    }
    String::from_utf8(bytes).map_err(|_| "percent codes must make up UTF-8".to_owned())
}

/// Percent-encoded: everything that is not plain in any part of a URL.
pub fn encoded(text: &str) -> String {
    let code = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(code).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_url_become_keywords() {
        let cases: [(&str, &[(&str, &str)]); 18] = [
            ("", &[]),
            ("localhost", &[("host", "localhost")]),
            ("localhost:5433", &[("host", "localhost"), ("port", "5433")]),
            ("localhost/app", &[("host", "localhost"), ("dbname", "app")]),
            ("user@localhost", &[("user", "user"), ("host", "localhost")]),
            (
                "user:secret@localhost",
                &[
                    ("user", "user"),
                    ("password", "secret"),
                    ("host", "localhost"),
                ],
            ),
            (
                "other@localhost/otherdb?connect_timeout=10&application_name=my%20app",
                &[
                    ("user", "other"),
                    ("host", "localhost"),
                    ("dbname", "otherdb"),
                    ("connect_timeout", "10"),
                    ("application_name", "my app"),
                ],
            ),
            (
                "host1:123,host2:456/db?target_session_attrs=any",
                &[
                    ("host", "host1,host2"),
                    ("port", "123,456"),
                    ("dbname", "db"),
                    ("target_session_attrs", "any"),
                ],
            ),
            (
                "h1,h2:5/db",
                &[("host", "h1,h2"), ("port", ",5"), ("dbname", "db")],
            ),
            ("h1,h2/db", &[("host", "h1,h2"), ("dbname", "db")]),
            (
                "/mydb?host=localhost&port=5433",
                &[("dbname", "mydb"), ("host", "localhost"), ("port", "5433")],
            ),
            (
                "[2001:db8::1234]:5433/database",
                &[
                    ("host", "2001:db8::1234"),
                    ("port", "5433"),
                    ("dbname", "database"),
                ],
            ),
            ("[::1]", &[("host", "::1")]),
            (
                "/dbname?host=/var/lib/pg",
                &[("dbname", "dbname"), ("host", "/var/lib/pg")],
            ),
            (
                "%2Fvar%2Flib%2Fpg/db",
                &[("host", "/var/lib/pg"), ("dbname", "db")],
            ),
            (":@:5433/?", &[("port", "5433")]),
            ("h?ssl=true&", &[("host", "h"), ("sslmode", "require")]),
            // libpq takes these two for themselves in a password.
            (
                "u:a?b#c@h",
                &[("user", "u"), ("password", "a?b#c"), ("host", "h")],
            ),
        ];
        for (url, expected) in cases {
            let found = pairs(url).unwrap();
            let found: Vec<_> = found
                .iter()
                .map(|(a, b)| (a.as_str(), b.as_str()))
                .collect();
            assert_eq!(found, expected, "{url}");
        }
    }

    #[test]
    fn a_malformed_url_is_refused() {
        for (url, message) in [
            ("[::1/db", "`]` is missing"),
            ("[]/db", "no address"),
            ("[::1]x/db", "only a port"),
            ("h/db?sslmode", "`keyword=value`"),
            ("h/db?a=b=c", "`keyword=value`"),
            ("h/d%zz", "`%25`"),
            ("h/d%+1", "`%25`"),
            ("h/d%2", "`%25`"),
            ("h/d%é1", "`%25`"),
            ("h/%00", "`%00`"),
            ("h/%ff", "UTF-8"),
            ("h/a@b", "`%40`"),
        ] {
            let error = pairs(url).unwrap_err();
            assert!(error.contains(message), "{url}: {error}");
        }
    }

    #[test]
    fn an_encoded_text_is_decoded_to_itself() {
        for text in ["p@s:s/w?o#r%d{^ x", "ü€", "a-b_c.d~e", "\n"] {
            assert_eq!(decoded(&encoded(text)).unwrap(), text);
        }
    }
}
