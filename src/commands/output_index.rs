//! The index beside a run's kept output: which bytes came from which stream, and where how many were left out.
//!
//! A JSON array in the order of arrival, such as `[["stdout",120],["stdout_left_out",9000],["stderr",8]]`.

use crate::exec::{Kept, Tag};
use crate::report::logs::{Piece, Stream};

/// The index of what was kept.
pub fn write(kept: &Kept) -> String {
    let name = |tag: &Tag| match tag {
        Tag::Stdout => "stdout",
        Tag::Stderr => "stderr",
        Tag::StdoutLeftOut => "stdout_left_out",
        Tag::StderrLeftOut => "stderr_left_out",
    };
    let pieces = kept.index.iter().map(|(tag, count)| (name(tag), count));
    serde_json::json!(pieces.collect::<Vec<_>>()).to_string()
}

/// The index of so many bytes that all went to standard error.
pub fn of_stderr(length: usize) -> String {
    serde_json::json!([["stderr", length]]).to_string()
}

/// Takes kept output apart again. Bytes that the index does not account for are taken for stdout: what was written
/// matters more than where to.
pub fn read<'a>(index: &str, bytes: &'a [u8]) -> Vec<Piece<'a>> {
    let index: Vec<(String, u64)> = serde_json::from_str(index).unwrap_or_default();
    let mut rest = bytes;
    let mut pieces = Vec::new();
    for (name, count) in index {
        let (stream, is_left_out) = match name.as_str() {
            "stdout" => (Stream::Stdout, false),
            "stderr" => (Stream::Stderr, false),
            "stdout_left_out" => (Stream::Stdout, true),
            "stderr_left_out" => (Stream::Stderr, true),
            _ => continue,
        };
        if is_left_out {
            pieces.push(Piece::LeftOut(stream, count));
            continue;
        }
        let length = usize::try_from(count).unwrap_or(usize::MAX).min(rest.len());
        let (piece, after) = rest.split_at(length);
        pieces.push(Piece::Kept(stream, piece));
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Kept(Stream::Stdout, rest));
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_back() {
        let kept = Kept {
            bytes: b"out\xfferr!".to_vec(),
            index: vec![
                (Tag::Stdout, 3),
                (Tag::StdoutLeftOut, 9),
                (Tag::Stdout, 1),
                (Tag::Stderr, 4),
                (Tag::StderrLeftOut, 1),
            ],
        };
        assert_eq!(
            read(&write(&kept), &kept.bytes),
            [
                Piece::Kept(Stream::Stdout, b"out"),
                Piece::LeftOut(Stream::Stdout, 9),
                Piece::Kept(Stream::Stdout, b"\xff"),
                Piece::Kept(Stream::Stderr, b"err!"),
                Piece::LeftOut(Stream::Stderr, 1),
            ]
        );
    }

    #[test]
    fn no_byte_is_lost_to_an_index_that_does_not_fit() {
        let all = |index, bytes| -> Vec<u8> {
            let pieces = read(index, bytes);
            let kept = pieces.into_iter().filter_map(|piece| match piece {
                Piece::Kept(_, bytes) => Some(bytes.to_vec()),
                Piece::LeftOut(..) => None,
            });
            kept.flatten().collect()
        };
        for index in [
            "",
            "null",
            "[[\"stderr\",2]]",
            "[[\"stdout\",99]]",
            "[[\"new\",3]]",
        ] {
            assert_eq!(all(index, b"abc"), b"abc", "{index}");
        }
    }
}
