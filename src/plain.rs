//! A system's error as people say it: without its number.

use std::io;

/// `no such file or directory`, where the standard library adds "(os error 2)".
pub fn error(error: &io::Error) -> String {
    let text = error.to_string();
    let end = text.rfind(" (os error").unwrap_or(text.len());
    text[..end].to_lowercase()
}

/// The same for an error number.
pub fn errno(number: i32) -> String {
    error(&io::Error::from_raw_os_error(number))
}
