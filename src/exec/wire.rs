//! The packets between jobrun and its guard: fixed size, no allocation, one message each.

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::os::fd::BorrowedFd;

use super::ended::Exit;

const WORDS: usize = 4;
const PACKET_BYTES: usize = WORDS * 4;
/// A reset is told once; then comes the rest.
const RECEIVE_TRIES: usize = 2;
type Words = [i32; WORDS];

/// Which step of starting the command failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The guard could not set itself up.
    Guard,
    /// The command's process could not be made.
    Fork,
    /// Its directory could not be entered.
    Chdir,
    /// Its niceness could not be set.
    Nice,
    /// No candidate could be executed.
    Exec,
}

/// What the guard (and, up to its exec, the command's process) tells jobrun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Report {
    /// The command's process exists.
    Started { pid: i32 },
    /// It could not become the command.
    NotStarted { stage: Stage, errno: i32 },
    /// The command itself ended; descendants may live on.
    Exited(Exit),
    /// None of the tree lives, and the guard exits.
    Over,
    /// The leash has ended, and the guard ends the tree.
    Unleashed,
}

/// What jobrun tells the guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Send this signal to the whole tree once.
    Signal(i32),
    /// Kill the tree, again and again until none of it lives.
    Kill,
    /// Go: the command itself has ended, and what outlived it goes on.
    Leave,
}

/// What came over the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Received<T> {
    Message(T),
    Nothing,
    Closed,
}

impl Stage {
    const ALL: [Self; 5] = [Self::Guard, Self::Fork, Self::Chdir, Self::Nice, Self::Exec];

    fn decode(word: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| *stage as i32 == word)
    }
}

impl Report {
    fn encode(self) -> Words {
        match self {
            Self::Started { pid } => [1, pid, 0, 0],
            Self::NotStarted { stage, errno } => [2, stage as i32, errno, 0],
            Self::Exited(Exit::Code(code)) => [3, code, 0, 0],
            Self::Exited(Exit::Signal(signal)) => [4, signal, 0, 0],
            Self::Over => [5, 0, 0, 0],
            Self::Unleashed => [6, 0, 0, 0],
        }
    }

    fn decode(words: Words) -> Option<Self> {
        match words {
            [1, pid, ..] => Some(Self::Started { pid }),
            [2, stage, errno, _] => {
                Stage::decode(stage).map(|stage| Self::NotStarted { stage, errno })
            }
            [3, code, ..] => Some(Self::Exited(Exit::Code(code))),
            [4, signal, ..] => Some(Self::Exited(Exit::Signal(signal))),
            [5, ..] => Some(Self::Over),
            [6, ..] => Some(Self::Unleashed),
            _ => None,
        }
    }

    /// Sends the report; a jobrun that is gone is noticed elsewhere, by end-of-file.
    pub(super) fn send(self, control: BorrowedFd<'_>) {
        send_words(control, self.encode());
    }

    /// Takes the next report without waiting for one.
    pub(super) fn receive(control: BorrowedFd<'_>) -> Received<Self> {
        receive_words(control, Self::decode)
    }
}

impl Order {
    fn encode(self) -> Words {
        match self {
            Self::Signal(signal) => [1, signal, 0, 0],
            Self::Kill => [2, 0, 0, 0],
            Self::Leave => [3, 0, 0, 0],
        }
    }

    fn decode(words: Words) -> Option<Self> {
        match words {
            [1, signal, ..] => Some(Self::Signal(signal)),
            [2, ..] => Some(Self::Kill),
            [3, ..] => Some(Self::Leave),
            _ => None,
        }
    }

    /// Sends the order; a guard that is gone is noticed elsewhere, by end-of-file.
    pub(super) fn send(self, control: BorrowedFd<'_>) {
        send_words(control, self.encode());
    }

    /// Takes the next order without waiting for one.
    pub(super) fn receive(control: BorrowedFd<'_>) -> Received<Self> {
        receive_words(control, Self::decode)
    }
}

fn send_words(control: BorrowedFd<'_>, words: Words) {
    let mut packet = [0; PACKET_BYTES];
    for (bytes, word) in packet.chunks_exact_mut(4).zip(words) {
        bytes.copy_from_slice(&word.to_ne_bytes());
    }
    // Never waits: a run sends a handful of packets, and a socket takes hundreds.
    let _ = send(control, &packet, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

fn receive_words<T>(control: BorrowedFd<'_>, decode: fn(Words) -> Option<T>) -> Received<T> {
    let mut packet = [0; PACKET_BYTES];
    for _ in 0..RECEIVE_TRIES {
        return match recv(control, &mut packet[..], RecvFlags::DONTWAIT) {
            Ok((PACKET_BYTES, _)) => {
                let mut words = [0; WORDS];
                for (word, bytes) in words.iter_mut().zip(packet.chunks_exact(4)) {
                    *word = i32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                }
                decode(words).map_or(Received::Nothing, Received::Message)
            }
            Err(Errno::AGAIN | Errno::INTR) => Received::Nothing,
            // The other side went without reading all it was sent. Told once, before what it had sent itself.
            Err(Errno::CONNRESET) => continue,
            // A short packet is never sent: zero bytes are the end, and an error is one as well.
            Ok(_) | Err(_) => Received::Closed,
        };
    }
    Received::Closed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_report_arrives_though_an_order_was_never_read() {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
        use std::os::fd::AsFd;
        let (ours, guards) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        Order::Kill.send(ours.as_fd());
        let report = Report::Exited(Exit::Code(3));
        report.send(guards.as_fd());
        drop(guards);
        assert_eq!(Report::receive(ours.as_fd()), Received::Message(report));
        assert_eq!(Report::receive(ours.as_fd()), Received::Closed);
    }

    #[test]
    fn every_message_survives_the_wire() {
        for stage in Stage::ALL {
            let report = Report::NotStarted { stage, errno: 2 };
            assert_eq!(Report::decode(report.encode()), Some(report));
        }
        for report in [
            Report::Started { pid: 7 },
            Report::Exited(Exit::Code(255)),
            Report::Exited(Exit::Signal(9)),
            Report::Over,
            Report::Unleashed,
        ] {
            assert_eq!(Report::decode(report.encode()), Some(report));
        }
        for order in [Order::Signal(15), Order::Kill, Order::Leave] {
            assert_eq!(Order::decode(order.encode()), Some(order));
        }
        assert_eq!(Order::decode([9, 0, 0, 0]), None);
    }
}
