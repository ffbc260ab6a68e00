//! A system's error as people say it after a colon.

use std::io;

/// A cause as it is said after a colon: lower case, and without the number of the system's error.
pub fn text(cause: &str) -> String {
    let end = cause.rfind(" (os error ").unwrap_or(cause.len());
    let mut letters = cause[..end].chars();
    match (letters.next(), letters.as_str()) {
        // A name in capitals stays one.
        (Some(first), rest) if rest.starts_with(|c: char| c.is_lowercase()) => {
            first.to_lowercase().chain(rest.chars()).collect()
        }
        (Some(_) | None, _) => cause[..end].to_owned(),
    }
}

/// The same for an error of the system.
pub fn error(error: &io::Error) -> String {
    text(&error.to_string())
}

/// The same for its number.
pub fn errno(number: i32) -> String {
    error(&io::Error::from_raw_os_error(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_lower_case_and_without_numbers() {
        let denied = std::io::Error::from_raw_os_error(13);
        assert_eq!(error(&denied), "permission denied");
        assert_eq!(text("SQLite said no"), "SQLite said no");
    }
}
