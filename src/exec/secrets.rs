//! Values that must not be seen in what is kept of a run.

/// The shortest value that is masked: shorter ones (`true`, `8080`) would be found everywhere.
const SHORTEST: usize = 8;
const MASK: &[u8] = b"***";

/// The values to be masked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Secrets {
    /// Longest first, so that none hides the end of another.
    values: Vec<Vec<u8>>,
}

impl Secrets {
    /// Those of `values` that are long enough to be told from ordinary text.
    pub fn new(values: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let mut values: Vec<_> = values
            .into_iter()
            .filter(|value| value.len() >= SHORTEST)
            .collect();
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        Self { values }
    }

    /// `text` with `***` in place of each value.
    pub fn mask(&self, text: &str) -> String {
        let mut mask = Mask::new(self.clone());
        let mut bytes = mask.pass(text.as_bytes()).to_vec();
        bytes.extend(mask.rest());
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Masks one stream, whose values may come in pieces.
#[derive(Debug)]
pub(super) struct Mask {
    secrets: Secrets,
    /// Which bytes are the first of a value.
    is_first: [bool; 256],
    /// Came in, and may be the start of a value.
    held: Vec<u8>,
    out: Vec<u8>,
}

/// What stands at a place of a stream.
enum Found {
    Nothing,
    /// A value of this length.
    Value(usize),
    /// What may become one.
    Start,
}

impl Mask {
    pub(super) fn new(secrets: Secrets) -> Self {
        let mut is_first = [false; 256];
        for value in &secrets.values {
            is_first[usize::from(value[0])] = true;
        }
        Self {
            secrets,
            is_first,
            held: Vec::new(),
            out: Vec::new(),
        }
    }

    /// Takes in what came next; returns what can be shown by now.
    pub(super) fn pass<'a>(&'a mut self, bytes: &'a [u8]) -> &'a [u8] {
        if self.secrets.values.is_empty() {
            return bytes;
        }
        self.held.extend_from_slice(bytes);
        self.out.clear();
        let mut place = 0;
        while place < self.held.len() {
            // Most bytes are the first of no value, and go on together.
            let rest = &self.held[place..];
            let is_first = |byte: &u8| self.is_first[usize::from(*byte)];
            let plain = rest.iter().position(is_first).unwrap_or(rest.len());
            self.out.extend_from_slice(&rest[..plain]);
            place += plain;
            if place == self.held.len() {
                break;
            }
            match self.found(&self.held[place..]) {
                Found::Nothing => {
                    self.out.push(self.held[place]);
                    place += 1;
                }
                Found::Value(length) => {
                    self.out.extend_from_slice(MASK);
                    place += length;
                }
                Found::Start => break,
            }
        }
        self.held.drain(..place);
        &self.out
    }

    /// What was held back at the end of the stream: it became no value.
    pub(super) fn rest(self) -> Vec<u8> {
        self.held
    }

    fn found(&self, rest: &[u8]) -> Found {
        for value in &self.secrets.values {
            if value[0] != rest[0] {
                continue;
            }
            if rest.starts_with(value) {
                return Found::Value(value.len());
            }
            if value.starts_with(rest) {
                return Found::Start;
            }
        }
        Found::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn secrets(values: &[&str]) -> Secrets {
        Secrets::new(values.iter().map(|value| value.as_bytes().to_vec()))
    }

    fn in_pieces(secrets: &Secrets, text: &str, length: usize) -> String {
        let mut mask = Mask::new(secrets.clone());
        let mut out = Vec::new();
        for piece in text.as_bytes().chunks(length) {
            out.extend_from_slice(mask.pass(piece));
        }
        out.extend(mask.rest());
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn values_are_masked_whole_however_they_come_in() {
        let secrets = secrets(&["hunter2-hunter2", "hunter2-", "short", "aaaaaaab"]);
        let text = "a hunter2-hunter2, hunter2-x; short aaaaaaaaab hunter2";
        for length in 1..text.len() {
            assert_eq!(
                in_pieces(&secrets, text, length),
                "a ***, ***x; short aa*** hunter2"
            );
        }
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(text in "[ab]{0,60}", length in 1usize..9, values in prop::collection::vec("[ab]{8,10}", 0..3)) {
            let secrets = Secrets::new(values.iter().map(|value| value.as_bytes().to_vec()));
            let masked = in_pieces(&secrets, &text, length);
            prop_assert_eq!(&masked, &secrets.mask(&text));
            for value in &values {
                prop_assert!(!masked.contains(value.as_str()));
            }
        }
    }
}
