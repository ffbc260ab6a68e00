//! Work that may hang, in a thread of its own, waited for only so long.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Why there is no answer.
#[derive(Debug)]
pub enum NoAnswer {
    /// It took longer.
    TimedOut,
    /// There was no thread to be had.
    NotStarted(io::Error),
}

/// What `work` returns. The driver limits no more than the first step of connecting, and looking up a name has no limit
/// at all; work that goes on after its time ends with the process, and what it makes is dropped.
pub fn bounded<T: Send + 'static>(
    limit: Option<Duration>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, NoAnswer> {
    let Some(limit) = limit else {
        return Ok(work());
    };
    let (answer, answers) = mpsc::channel();
    let thread = thread::Builder::new().name("server".to_owned());
    thread
        .spawn(move || {
            // Nobody waits for it any more if this fails.
            let _ = answer.send(work());
        })
        .map_err(NoAnswer::NotStarted)?;
    answers.recv_timeout(limit).map_err(|error| match error {
        RecvTimeoutError::Timeout => NoAnswer::TimedOut,
        RecvTimeoutError::Disconnected => {
            NoAnswer::NotStarted(io::Error::other("the thread ended without an answer"))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_waited_for_only_so_long() {
        let limit = Some(Duration::from_millis(20));
        assert_eq!(bounded(None, || 1).unwrap(), 1);
        assert_eq!(bounded(Some(Duration::from_secs(60)), || 2).unwrap(), 2);
        let (hold, never) = mpsc::channel::<()>();
        let hung = bounded(limit, move || never.recv().is_ok());
        assert!(matches!(hung, Err(NoAnswer::TimedOut)));
        drop(hold);
    }
}
