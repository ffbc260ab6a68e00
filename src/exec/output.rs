//! The kept part of a run's output: of each stream its start and its end, in order of arrival, in bounded memory.

use std::collections::VecDeque;

use super::secrets::{Mask, Secrets};

/// Which stream of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    Stdout,
    Stderr,
}

/// What a piece of kept output is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tag {
    /// So many bytes of standard output.
    Stdout,
    /// So many bytes of standard error.
    Stderr,
    /// So many bytes of standard output are left out here.
    StdoutLeftOut,
    /// So many bytes of standard error are left out here.
    StderrLeftOut,
}

/// Kept output, byte for byte as the command wrote it but for what is masked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    /// The kept bytes of both streams, in order of arrival.
    pub bytes: Vec<u8>,
    /// What `bytes` consists of, in its order; adjacent pieces differ in their tag.
    pub index: Vec<(Tag, u64)>,
}

/// A stretch of one stream between two of the other; its number orders it among all.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    number: u64,
    length: usize,
}

/// Collects the output of one run.
#[derive(Debug)]
pub(super) struct Keep {
    stdout: Stream,
    stderr: Stream,
    stdout_mask: Mask,
    stderr_mask: Mask,
    last: Option<Which>,
    number: u64,
}

/// One stream: a head that fills up once, then a tail that moves.
#[derive(Debug)]
struct Stream {
    head: Vec<u8>,
    head_stretches: Vec<Stretch>,
    head_room: usize,
    tail: VecDeque<u8>,
    tail_stretches: VecDeque<Stretch>,
    tail_limit: usize,
    left_out: u64,
    seen: u64,
}

impl Keep {
    /// Keeps at most `limit` bytes of each stream, without `secrets`; allocates only as output comes.
    pub(super) fn new(limit: usize, secrets: &Secrets) -> Self {
        Self {
            stdout: Stream::new(limit),
            stderr: Stream::new(limit),
            stdout_mask: Mask::new(secrets.clone()),
            stderr_mask: Mask::new(secrets.clone()),
            last: None,
            number: 0,
        }
    }

    /// Takes in what came next.
    pub(super) fn push(&mut self, which: Which, bytes: &[u8]) {
        if self.last != Some(which) {
            self.last = Some(which);
            self.number += 1;
        }
        let (stream, mask) = match which {
            Which::Stdout => (&mut self.stdout, &mut self.stdout_mask),
            Which::Stderr => (&mut self.stderr, &mut self.stderr_mask),
        };
        stream.seen += bytes.len() as u64;
        stream.push(self.number, mask.pass(bytes));
    }

    /// Bytes that came in, kept or not.
    pub(super) fn seen(&self, which: Which) -> u64 {
        match which {
            Which::Stdout => self.stdout.seen,
            Which::Stderr => self.stderr.seen,
        }
    }

    /// What was kept.
    pub(super) fn finish(mut self) -> Kept {
        self.stdout.push(self.number + 1, &self.stdout_mask.rest());
        self.stderr.push(self.number + 2, &self.stderr_mask.rest());
        let mut pieces = self.stdout.pieces(Tag::Stdout, Tag::StdoutLeftOut);
        pieces.extend(self.stderr.pieces(Tag::Stderr, Tag::StderrLeftOut));
        // Stable: a stream's own pieces with one number stay in order, and no two streams share a number.
        pieces.sort_by_key(|(number, ..)| *number);
        let mut stdout = self.stdout.into_bytes();
        let mut stderr = self.stderr.into_bytes();
        let mut kept = Kept::default();
        for (_, tag, length) in pieces {
            let length_bytes = usize::try_from(length).unwrap_or(usize::MAX);
            match tag {
                Tag::Stdout => kept.bytes.extend(stdout.by_ref().take(length_bytes)),
                Tag::Stderr => kept.bytes.extend(stderr.by_ref().take(length_bytes)),
                Tag::StdoutLeftOut | Tag::StderrLeftOut => {}
            }
            match kept.index.last_mut() {
                Some((last, total)) if *last == tag => *total += length,
                _ => kept.index.push((tag, length)),
            }
        }
        kept
    }
}

impl Stream {
    fn new(limit: usize) -> Self {
        let head_room = limit / 4;
        Self {
            head: Vec::new(),
            head_stretches: Vec::new(),
            head_room,
            tail: VecDeque::new(),
            tail_stretches: VecDeque::new(),
            tail_limit: limit - head_room,
            left_out: 0,
            seen: 0,
        }
    }

    fn push(&mut self, number: u64, bytes: &[u8]) {
        let (head, tail) = bytes.split_at(bytes.len().min(self.head_room));
        if !head.is_empty() {
            self.head_room -= head.len();
            self.head.extend_from_slice(head);
            let length = head.len();
            match self.head_stretches.last_mut() {
                Some(last) if last.number == number => last.length += length,
                _ => self.head_stretches.push(Stretch { number, length }),
            }
        }
        self.push_tail(number, tail);
    }

    fn push_tail(&mut self, number: u64, bytes: &[u8]) {
        // Only the end of a large chunk can stay: what goes is never copied.
        let skipped = bytes.len().saturating_sub(self.tail_limit);
        let bytes = &bytes[skipped..];
        let excess = (self.tail.len() + bytes.len()).saturating_sub(self.tail_limit);
        self.left_out += (skipped + excess) as u64;
        self.tail.drain(..excess);
        self.forget_stretches(excess);
        if bytes.is_empty() {
            return;
        }
        self.tail.extend(bytes);
        let length = bytes.len();
        match self.tail_stretches.back_mut() {
            Some(last) if last.number == number => last.length += length,
            _ => self.tail_stretches.push_back(Stretch { number, length }),
        }
    }

    fn forget_stretches(&mut self, mut excess: usize) {
        while let Some(first) = self.tail_stretches.front_mut().filter(|_| excess > 0) {
            let cut = first.length.min(excess);
            first.length -= cut;
            excess -= cut;
            if first.length == 0 {
                self.tail_stretches.pop_front();
            }
        }
    }

    fn pieces(&self, kept: Tag, left_out: Tag) -> Vec<(u64, Tag, u64)> {
        let piece = |stretch: &Stretch| (stretch.number, kept, stretch.length as u64);
        let mut pieces: Vec<_> = self.head_stretches.iter().map(piece).collect();
        if self.left_out > 0 {
            let first_of_tail = self.tail_stretches.front();
            let number = first_of_tail.map_or(u64::MAX, |stretch| stretch.number);
            pieces.push((number, left_out, self.left_out));
        }
        pieces.extend(self.tail_stretches.iter().map(piece));
        pieces
    }

    fn into_bytes(self) -> impl Iterator<Item = u8> {
        self.head.into_iter().chain(self.tail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keep(limit: usize, chunks: &[(Which, &[u8])]) -> Kept {
        let mut keep = Keep::new(limit, &Secrets::default());
        for (which, bytes) in chunks {
            keep.push(*which, bytes);
        }
        keep.finish()
    }

    #[test]
    fn streams_are_kept_in_order_of_arrival() {
        use Which::{Stderr, Stdout};
        let kept = keep(
            64,
            &[
                (Stdout, b"a"),
                (Stderr, b"b"),
                (Stdout, b"c"),
                (Stdout, b"d"),
            ],
        );
        assert_eq!(kept.bytes, b"abcd");
        assert_eq!(
            kept.index,
            [(Tag::Stdout, 1), (Tag::Stderr, 1), (Tag::Stdout, 2)]
        );
    }

    #[test]
    fn the_middle_is_left_out_and_counted() {
        use Which::{Stderr, Stdout};
        let kept = keep(
            8,
            &[(Stdout, b"0123456789"), (Stderr, b"e"), (Stdout, b"xyz")],
        );
        assert_eq!(kept.bytes, b"01789exyz");
        assert_eq!(
            kept.index,
            [
                (Tag::Stdout, 2),
                (Tag::StdoutLeftOut, 5),
                (Tag::Stdout, 3),
                (Tag::Stderr, 1),
                (Tag::Stdout, 3)
            ]
        );
    }

    #[test]
    fn nothing_kept_is_still_counted() {
        let kept = keep(0, &[(Which::Stderr, b"gone")]);
        assert_eq!(kept.bytes, b"");
        assert_eq!(kept.index, [(Tag::StderrLeftOut, 4)]);
    }

    proptest! {
        #[test]
        fn kept_is_head_and_tail_of_each_stream(
            limit in 0usize..40,
            chunks in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..30)), 0..30),
        ) {
            let mut all = [Vec::new(), Vec::new()];
            let mut keep = Keep::new(limit, &Secrets::default());
            for (is_stderr, bytes) in &chunks {
                all[usize::from(*is_stderr)].extend_from_slice(bytes);
                keep.push(if *is_stderr { Which::Stderr } else { Which::Stdout }, bytes);
            }
            let kept = keep.finish();
            let mut got = [Vec::new(), Vec::new()];
            let mut left_out = [0, 0];
            let mut rest = &kept.bytes[..];
            for (tag, length) in &kept.index {
                let length = usize::try_from(*length).unwrap();
                match tag {
                    Tag::StdoutLeftOut => left_out[0] += length,
                    Tag::StderrLeftOut => left_out[1] += length,
                    Tag::Stdout | Tag::Stderr => {
                        let (piece, after) = rest.split_at(length);
                        got[usize::from(*tag == Tag::Stderr)].extend_from_slice(piece);
                        rest = after;
                    }
                }
            }
            prop_assert!(rest.is_empty());
            for stream in 0..2 {
                let whole = &all[stream];
                let wanted = if whole.len() <= limit {
                    whole.clone()
                } else {
                    [&whole[..limit / 4], &whole[whole.len() - (limit - limit / 4)..]].concat()
                };
                prop_assert_eq!(&got[stream], &wanted);
                prop_assert_eq!(left_out[stream], whole.len() - wanted.len());
            }
        }
    }
}
