//! A thread that does what may hang, so that whoever waits for it can give up.
//!
//! The driver waits for an answer for as long as the connection lives, and that may be for ever: a server that is stopped
//! still has a kernel that answers for it.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than a server that is well takes, whose own limit for a statement is 30 s.
const LIMIT: Duration = Duration::from_secs(35);
/// How long is waited once jobrun was told to stop.
const LIMIT_STOPPED: Duration = Duration::from_secs(4);
/// How often it is asked whether it was.
const LOOK: Duration = Duration::from_millis(100);

/// Whether jobrun was told to stop.
pub type Stop = Arc<dyn Fn() -> bool + Send + Sync>;

type Work = Box<dyn FnOnce() + Send>;

/// Does one thing after the other.
pub(super) struct Hand {
    work: Option<Sender<Work>>,
    stop: Stop,
    limit: Duration,
}

impl Hand {
    pub(super) fn new(stop: Stop) -> Self {
        Self {
            work: None,
            stop,
            limit: LIMIT,
        }
    }

    /// With another limit.
    pub(super) fn within(&mut self, limit: Option<Duration>) -> &mut Self {
        self.limit = limit.unwrap_or(LIMIT);
        self
    }

    pub(super) fn is_stopped(&self) -> bool {
        (self.stop)()
    }

    /// Has `work` done, hears what it says meanwhile, and returns what `hear` makes of it at last; none if nothing was
    /// heard for too long. Then the thread is left to itself: it ends with the process, or when it is answered.
    pub(super) fn call<M: Send + 'static, T>(
        &mut self,
        work: impl FnOnce(&Sender<M>) + Send + 'static,
        hear: impl FnMut(M) -> Option<T>,
    ) -> Option<T> {
        let (stop, limit) = (self.stop.clone(), self.limit);
        self.call_while(work, hear, limit, &mut || stop())
    }

    /// The same within another limit, and for a moment longer once `stop` says so, which is asked now and then.
    pub(super) fn call_while<M: Send + 'static, T>(
        &mut self,
        work: impl FnOnce(&Sender<M>) + Send + 'static,
        mut hear: impl FnMut(M) -> Option<T>,
        limit: Duration,
        stop: &mut dyn FnMut() -> bool,
    ) -> Option<T> {
        let (says, said) = channel();
        let work = Box::new(move || work(&says));
        self.start().ok()?.send(work).ok()?;
        let began = Instant::now();
        let mut stopped = None;
        loop {
            match said.recv_timeout(LOOK) {
                Ok(message) => {
                    if let Some(answer) = hear(message) {
                        return Some(answer);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if stop() {
                stopped.get_or_insert_with(Instant::now);
            }
            let is_late = began.elapsed() >= limit;
            if is_late || stopped.is_some_and(|stopped| stopped.elapsed() >= LIMIT_STOPPED) {
                break;
            }
        }
        self.work = None;
        None
    }

    fn start(&mut self) -> std::io::Result<&Sender<Work>> {
        let work = if let Some(work) = self.work.take() {
            work
        } else {
            let (work, to_do) = channel::<Work>();
            let body = move || to_do.into_iter().for_each(|work| work());
            thread::Builder::new().name("server".into()).spawn(body)?;
            work
        };
        Ok(self.work.insert(work))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_waited_for_until_a_stop_has_been_asked_for() {
        let mut hand = Hand::new(Arc::new(|| false));
        let twice = hand.call(|says| says.send(21).expect("heard"), |half| Some(2 * half));
        assert_eq!(twice, Some(42));
        let mut hand = Hand::new(Arc::new(|| true));
        let began = Instant::now();
        let (never, forever) = channel::<()>();
        let hung = hand.call(
            move |_: &Sender<()>| {
                let _ = forever.recv();
            },
            |()| Some(()),
        );
        assert_eq!(hung, None);
        assert!((LIMIT_STOPPED..LIMIT).contains(&began.elapsed()));
        // The next one has a thread of its own.
        let mut hand = Hand {
            stop: Arc::new(|| false),
            ..hand
        };
        assert_eq!(
            hand.call(|says| says.send(1).expect("heard"), Some),
            Some(1)
        );
        drop(never);
    }
}
