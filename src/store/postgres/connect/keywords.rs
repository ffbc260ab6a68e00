//! The keywords of a connection string: the environment variable of each, and which values it takes.

/// Words that switch something on or off.
const ON_OR_OFF: &[&str] = &["0", "1"];
const TLS_VERSIONS: &[&str] = &["TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"];
const GSS: &str = "GSSAPI is not supported";
const OAUTH: &str = "OAuth is not supported";
/// Two names are alike enough to be a typing mistake from here on (Jaro-Winkler).
const ALIKE: f64 = 0.8;

/// One setting, as the PostgreSQL manual calls it ("Parameter Key Words").
#[derive(Debug)]
pub struct Keyword {
    /// Its name.
    pub word: &'static str,
    /// The environment variable that stands in when it is not written ("Environment Variables").
    pub variable: Option<&'static str>,
    takes: Takes,
}

#[derive(Debug)]
enum Takes {
    Text,
    Number,
    OneOf(&'static [&'static str]),
    /// What these ask for is so anyway; why nothing else can be asked for.
    Only(&'static [&'static str], &'static str),
}

use Takes::{Number, OneOf, Only, Text};

/// All of them, in alphabetical order.
pub const KEYWORDS: &[Keyword] = &[
    row("application_name", Some("PGAPPNAME"), Text),
    row(
        "channel_binding",
        Some("PGCHANNELBINDING"),
        OneOf(&["disable", "prefer", "require"]),
    ),
    row(
        "client_encoding",
        None,
        Only(
            &[
                "auto", "UTF8", "utf8", "UTF-8", "utf-8", "UNICODE", "unicode",
            ],
            "jobrun speaks UTF-8 only",
        ),
    ),
    row("connect_timeout", Some("PGCONNECT_TIMEOUT"), Number),
    row("dbname", Some("PGDATABASE"), Text),
    row("fallback_application_name", None, Text),
    row("gssdelegation", Some("PGGSSDELEGATION"), Only(&["0"], GSS)),
    row(
        "gssencmode",
        Some("PGGSSENCMODE"),
        Only(&["disable", "prefer"], GSS),
    ),
    // Which library and which name GSSAPI would use: it is not used.
    row("gsslib", None, Text),
    row("host", Some("PGHOST"), Text),
    row("hostaddr", Some("PGHOSTADDR"), Text),
    row("keepalives", None, OneOf(ON_OR_OFF)),
    row("keepalives_count", None, Number),
    row("keepalives_idle", None, Number),
    row("keepalives_interval", None, Number),
    row("krbsrvname", None, Text),
    row(
        "load_balance_hosts",
        Some("PGLOADBALANCEHOSTS"),
        OneOf(&["disable", "random"]),
    ),
    row(
        "max_protocol_version",
        Some("PGMAXPROTOCOLVERSION"),
        Only(&["3.0", "3.2", "latest"], "jobrun speaks protocol 3.0"),
    ),
    row(
        "min_protocol_version",
        Some("PGMINPROTOCOLVERSION"),
        Only(&["3.0"], "jobrun speaks protocol 3.0"),
    ),
    row("oauth_client_id", None, Only(&[], OAUTH)),
    row("oauth_client_secret", None, Only(&[], OAUTH)),
    row("oauth_issuer", None, Only(&[], OAUTH)),
    row("oauth_scope", None, Only(&[], OAUTH)),
    row("options", Some("PGOPTIONS"), Text),
    row("passfile", Some("PGPASSFILE"), Text),
    row("password", Some("PGPASSWORD"), Text),
    row("port", Some("PGPORT"), Text),
    row(
        "replication",
        None,
        Only(
            &["false", "off", "no", "0"],
            "jobrun needs an ordinary session",
        ),
    ),
    row(
        "require_auth",
        Some("PGREQUIREAUTH"),
        Only(
            &[],
            "jobrun cannot tell how the server authenticated it; `channel_binding=require` demands SCRAM over TLS",
        ),
    ),
    row(
        "requirepeer",
        Some("PGREQUIREPEER"),
        Only(
            &[],
            "jobrun cannot ask who serves a socket; put it into a directory that only its owner can write",
        ),
    ),
    row(
        "scram_client_key",
        None,
        Only(&[], "jobrun authenticates with a password"),
    ),
    row(
        "scram_server_key",
        None,
        Only(&[], "jobrun authenticates with a password"),
    ),
    row("service", Some("PGSERVICE"), Text),
    row("servicefile", Some("PGSERVICEFILE"), Text),
    row(
        "ssl_max_protocol_version",
        Some("PGSSLMAXPROTOCOLVERSION"),
        OneOf(TLS_VERSIONS),
    ),
    row(
        "ssl_min_protocol_version",
        Some("PGSSLMINPROTOCOLVERSION"),
        OneOf(TLS_VERSIONS),
    ),
    row("sslcert", Some("PGSSLCERT"), Text),
    row(
        "sslcertmode",
        Some("PGSSLCERTMODE"),
        Only(
            &["allow", "disable"],
            "jobrun cannot tell whether the server asked for a certificate",
        ),
    ),
    // OpenSSL's compression is off everywhere.
    row("sslcompression", Some("PGSSLCOMPRESSION"), OneOf(ON_OR_OFF)),
    row("sslcrl", Some("PGSSLCRL"), Text),
    row(
        "sslcrldir",
        Some("PGSSLCRLDIR"),
        Only(&[], "put the lists into one file and name it in `sslcrl`"),
    ),
    row("sslkey", Some("PGSSLKEY"), Text),
    row(
        "sslkeylogfile",
        None,
        Only(&[], "jobrun does not give away the keys of its sessions"),
    ),
    row(
        "sslmode",
        Some("PGSSLMODE"),
        OneOf(&[
            "disable",
            "allow",
            "prefer",
            "require",
            "verify-ca",
            "verify-full",
        ]),
    ),
    row(
        "sslnegotiation",
        Some("PGSSLNEGOTIATION"),
        OneOf(&["postgres", "direct"]),
    ),
    row(
        "sslpassword",
        None,
        Only(
            &[],
            "encrypted keys are not supported; decrypt it with `openssl pkey` and protect the file",
        ),
    ),
    row("sslrootcert", Some("PGSSLROOTCERT"), Text),
    row("sslsni", Some("PGSSLSNI"), OneOf(ON_OR_OFF)),
    row(
        "target_session_attrs",
        Some("PGTARGETSESSIONATTRS"),
        OneOf(&[
            "any",
            "read-write",
            "read-only",
            "primary",
            "standby",
            "prefer-standby",
        ]),
    ),
    row("tcp_user_timeout", None, Number),
    row("user", Some("PGUSER"), Text),
];

const fn row(word: &'static str, variable: Option<&'static str>, takes: Takes) -> Keyword {
    Keyword {
        word,
        variable,
        takes,
    }
}

/// The keyword of this name.
pub fn find(word: &str) -> Option<&'static Keyword> {
    KEYWORDS.iter().find(|keyword| keyword.word == word)
}

/// The keyword that was meant by a name there is not.
pub fn meant(word: &str) -> Option<&'static str> {
    let word = word.to_lowercase();
    // As other programs call them.
    match word.as_str() {
        "username" | "role" => return Some("user"),
        "database" | "db" => return Some("dbname"),
        "hostname" | "server" => return Some("host"),
        "pass" | "passwd" | "pwd" => return Some("password"),
        "ssl" => return Some("sslmode"),
        _ => {}
    }
    KEYWORDS
        .iter()
        .map(|keyword| (strsim::jaro_winkler(keyword.word, &word), keyword.word))
        .filter(|(alike, _)| *alike >= ALIKE)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, word)| word)
}

impl Keyword {
    /// What is wrong with a value, if anything is; the value itself is in it only if it `is_shown`. The empty value stands
    /// for none and is right everywhere.
    pub fn fault(&self, value: &str, is_shown: bool) -> Option<String> {
        let word = self.word;
        let not = if is_shown {
            format!(", not `{}`", value.escape_debug())
        } else {
            String::new()
        };
        if value.contains('\0') {
            return Some(format!("`{word}` must not contain a null character"));
        }
        match self.takes {
            _ if value.is_empty() => None,
            Text => None,
            Number => match value.trim().parse::<i32>() {
                Ok(_) => None,
                Err(_) => Some(format!("`{word}` must be a whole number{not}")),
            },
            OneOf(words) if words.contains(&value) => None,
            OneOf(words) => Some(format!("`{word}` must be `{}`{not}", words.join("`, `"))),
            Only(words, _) if words.contains(&value) => None,
            Only([], why) => Some(format!("`{word}` cannot be used: {why}")),
            Only(_, why) => Some(format!("`{word}` cannot be so: {why}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_are_sorted_and_unique() {
        let words: Vec<_> = KEYWORDS.iter().map(|keyword| keyword.word).collect();
        assert!(words.is_sorted_by(|one, next| one < next), "{words:?}");
    }

    #[test]
    fn a_value_is_checked_by_its_keyword() {
        let cases = [
            ("sslmode", "verify-full", None),
            ("sslmode", "", None),
            (
                "keepalives",
                "yes",
                Some("`keepalives` must be `0`, `1`, not `yes`"),
            ),
            (
                "connect_timeout",
                "5s",
                Some("`connect_timeout` must be a whole number, not `5s`"),
            ),
            ("connect_timeout", " 5 ", None),
            ("gssencmode", "prefer", None),
            (
                "gssencmode",
                "require",
                Some("`gssencmode` cannot be so: GSSAPI is not supported"),
            ),
            (
                "dbname",
                "a\0b",
                Some("`dbname` must not contain a null character"),
            ),
        ];
        for (word, value, fault) in cases {
            let keyword = find(word).unwrap();
            assert_eq!(keyword.fault(value, true).as_deref(), fault, "{word}");
        }
        let hidden = find("sslmode").unwrap().fault("hunter2", false).unwrap();
        assert!(!hidden.contains("hunter2"));
    }

    #[test]
    fn a_mistyped_keyword_is_recognized() {
        assert_eq!(meant("sslmod"), Some("sslmode"));
        assert_eq!(meant("SSLMode"), Some("sslmode"));
        assert_eq!(meant("database"), Some("dbname"));
        assert_eq!(meant("zzz"), None);
    }
}
