//! Kept output, passed on after the run: each stream to its own, in order of arrival.

use std::io::{self, Write as _};

/// Where the pieces of kept output go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// stdout to stdout, stderr to stderr.
    Own,
    /// Both to stderr.
    Stderr,
}

/// Writes kept output as `index` (the JSON of a run's row) says, and on stderr how much was left out where. A reader
/// that went away is not our failure.
pub fn replay(bytes: &[u8], index: &str, to: To) {
    let pieces: Vec<(String, usize)> = serde_json::from_str(index).unwrap_or_default();
    let (mut out, mut err) = (io::stdout().lock(), io::stderr().lock());
    let mut rest = bytes;
    for (tag, count) in pieces {
        let written = match tag.as_str() {
            "stdout" | "stderr" => {
                let piece;
                (piece, rest) = rest.split_at(count.min(rest.len()));
                if tag == "stdout" && to == To::Own {
                    out.write_all(piece).and_then(|()| out.flush())
                } else {
                    err.write_all(piece)
                }
            }
            left_out => {
                let stream = left_out.trim_end_matches("_left_out");
                writeln!(err, "\n[jobrun: {count} bytes of {stream} left out]")
            }
        };
        if written.is_err() {
            return;
        }
    }
}
