//! Answers the `jobrun checkpoint` of commands while they run: a socket, and a thread that asks a store of its own.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use uuid::Uuid;

use crate::commands::checkpoint::{Answer, Request, SAID_MAX_BYTES, What};
use crate::exec;
use crate::plain;
use crate::store::{self, Store, StoreError, Target};

const PREFIX: &str = "checkpoint-";
const SUFFIX: &str = ".sock";
/// How long a caller may take to say what it wants, as the others wait.
const SAY_WITHIN: Duration = Duration::from_secs(5);
/// After a caller could not be let in, as when there are no descriptors left.
const PAUSE: Duration = Duration::from_millis(100);

/// The socket of one start, made when the first command needs it, and removed with this.
pub(super) struct Checkpoints<'a> {
    target: &'a Target,
    answering: OnceLock<Option<Answering>>,
}

struct Answering {
    path: PathBuf,
    listener: Arc<UnixListener>,
    is_over: Arc<AtomicBool>,
}

impl<'a> Checkpoints<'a> {
    /// For commands whose tasks are in that store.
    pub(super) fn of(target: &'a Target) -> Self {
        Self {
            target,
            answering: OnceLock::new(),
        }
    }

    /// Where commands reach this process; none where no socket can be, which is no reason not to run them.
    pub(super) fn socket(&self) -> Option<&Path> {
        let answering = self.answering.get_or_init(|| {
            Answering::start(self.target)
                .inspect_err(|error| {
                    let error = plain::error(error);
                    tracing::info!("there are no checkpoints, as no socket can be made: {error}");
                })
                .ok()
        });
        answering.as_ref().map(|answering| answering.path.as_path())
    }
}

impl Answering {
    fn start(target: &Target) -> io::Result<Self> {
        let folder = std::path::absolute(&target.state_dir)?;
        let is_socket = |name: &str| name.starts_with(PREFIX) && name.ends_with(SUFFIX);
        exec::remove_abandoned(&folder, is_socket);
        let (number, _) = Uuid::new_v4().as_u64_pair();
        let path = folder.join(format!("{PREFIX}{number:016x}{SUFFIX}"));
        let answering = Self {
            listener: Arc::new(exec::listen_at(&path)?),
            path,
            is_over: Arc::default(),
        };
        let (listener, is_over) = (answering.listener.clone(), answering.is_over.clone());
        let target = target.clone();
        // Never joined: a store that does not answer must not keep jobrun from its end.
        thread::Builder::new()
            .name("checkpoint".into())
            .spawn(move || Desk::of(target).serve(&listener, &is_over))?;
        Ok(answering)
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = std::fs::remove_file(&self.path);
        exec::stop_listening(&self.listener);
    }
}

/// Where requests are answered one by one.
struct Desk {
    target: Target,
    /// Opened for the first request: most commands have none.
    store: Option<Box<dyn Store>>,
}

impl Desk {
    fn of(target: Target) -> Self {
        Self {
            target,
            store: None,
        }
    }

    fn serve(&mut self, listener: &UnixListener, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) {
            match listener.accept() {
                Ok((caller, _)) => {
                    if let Err(error) = self.answer(caller) {
                        tracing::debug!("a command that asked for a checkpoint is gone: {error}");
                    }
                }
                Err(_) if is_over.load(Ordering::Relaxed) => {}
                Err(_) => thread::sleep(PAUSE),
            }
        }
    }

    fn answer(&mut self, mut caller: UnixStream) -> io::Result<()> {
        caller.set_read_timeout(Some(SAY_WITHIN))?;
        caller.set_write_timeout(Some(SAY_WITHIN))?;
        let mut said = String::new();
        (&caller).take(SAID_MAX_BYTES).read_to_string(&mut said)?;
        let answer = match Request::decode(&said) {
            Some(request) => self.ask(&request).unwrap_or_else(|error| {
                // A new one may serve again.
                self.store = None;
                Answer::Failed(error.to_string())
            }),
            None => Answer::Failed("that is no request about a checkpoint".to_owned()),
        };
        caller.write_all(answer.encode().as_bytes())
    }

    fn ask(&mut self, request: &Request) -> Result<Answer, StoreError> {
        let store = match self.store.take() {
            Some(store) => store,
            None => store::open(&self.target)?,
        };
        let store = self.store.insert(store);
        let token = &request.token;
        let is_saved = match &request.what {
            What::Set(value) => store.set_checkpoint(token, Some(value))?,
            What::Clear => store.set_checkpoint(token, None)?,
            What::Get => {
                let value = store.checkpoint(token)?;
                return Ok(value.map_or(Answer::Nothing, Answer::Value));
            }
        };
        Ok(if is_saved {
            Answer::Saved
        } else {
            Answer::Stale
        })
    }
}
