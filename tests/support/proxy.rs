//! A proxy between jobrun and the server: the cable that can be pulled, cut, or forgotten by a firewall.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Between two looks at what the test wants.
const PAUSE: Duration = Duration::from_millis(20);
/// Bytes that are moved at once.
const PIECE: usize = 16 * 1024;

/// What becomes of bytes and of new connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cable {
    Whole,
    /// Nothing arrives, also not that a side has closed; what was sent meanwhile arrives once it is put back, as TCP
    /// would send it again.
    Pulled,
    /// The proxy is gone.
    Gone,
}

#[derive(Debug)]
struct State {
    server: u16,
    cable: Mutex<Cable>,
    /// Connections that began before this many cuts are reset.
    cuts: AtomicU64,
    /// For how long a connection may be silent before it is forgotten for good.
    idle_limit: Option<Duration>,
    open: AtomicUsize,
    bytes: AtomicU64,
}

/// A proxy on a port of 127.0.0.1; its connections are reset when it is dropped.
pub struct Proxy {
    state: Arc<State>,
    port: u16,
}

/// A connection through the proxy, seen from one of its directions.
#[derive(Clone)]
struct Flow {
    state: Arc<State>,
    cuts_at_start: u64,
    last_byte: Arc<Mutex<Instant>>,
}

impl Proxy {
    /// In front of the server at this port of 127.0.0.1.
    pub fn before(server: u16) -> Self {
        Self::start(server, None)
    }

    /// The same; it drops all that comes on a connection once that was silent for so long, and says so to nobody.
    pub fn forgetting(server: u16, idle_limit: Duration) -> Self {
        Self::start(server, Some(idle_limit))
    }

    fn start(server: u16, idle_limit: Option<Duration>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        listener.set_nonblocking(true).expect("a setting");
        let state = Arc::new(State {
            server,
            cable: Mutex::new(Cable::Whole),
            cuts: AtomicU64::new(0),
            idle_limit,
            open: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
        });
        let own = Arc::clone(&state);
        std::thread::spawn(move || accept(&own, &listener));
        Self { state, port }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Pulls the cable: nothing arrives any more and nobody is told.
    pub fn pull(&self) {
        self.state.set(Cable::Pulled);
    }

    /// Puts it back.
    pub fn put_back(&self) {
        self.state.set(Cable::Whole);
    }

    /// Resets every connection there is.
    pub fn cut(&self) {
        self.state.cuts.fetch_add(1, Ordering::SeqCst);
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        self.state.open.load(Ordering::SeqCst)
    }

    /// How many bytes have passed.
    pub fn bytes(&self) -> u64 {
        self.state.bytes.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.set(Cable::Gone);
    }
}

impl State {
    fn cable(&self) -> Cable {
        *self.cable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, cable: Cable) {
        *self.cable.lock().unwrap_or_else(PoisonError::into_inner) = cable;
    }
}

fn accept(state: &Arc<State>, listener: &TcpListener) {
    while state.cable() != Cable::Gone {
        // While the cable is pulled, who connects waits in the kernel's queue.
        let accepted = (state.cable() == Cable::Whole).then(|| listener.accept());
        match accepted {
            Some(Ok((client, _))) => serve(state, client),
            Some(Err(error)) if error.kind() != ErrorKind::WouldBlock => return,
            Some(Err(_)) | None => std::thread::sleep(PAUSE),
        }
    }
}

/// Connects a client to the server; without one, the client is refused.
fn serve(state: &Arc<State>, client: TcpStream) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", state.server)) else {
        reset(&client);
        return;
    };
    let flow = Flow {
        state: Arc::clone(state),
        cuts_at_start: state.cuts.load(Ordering::SeqCst),
        last_byte: Arc::new(Mutex::new(Instant::now())),
    };
    state.open.fetch_add(1, Ordering::SeqCst);
    for socket in [&client, &server] {
        socket.set_nonblocking(false).expect("a setting");
        socket.set_nodelay(true).expect("a setting");
        socket.set_read_timeout(Some(PAUSE)).expect("a setting");
    }
    let copies = (
        client.try_clone().expect("a copy"),
        server.try_clone().expect("a copy"),
    );
    let back = flow.clone();
    std::thread::spawn(move || {
        let returning = std::thread::spawn(move || back.carry(copies.1, copies.0));
        flow.carry(client, server);
        let _ = returning.join();
        flow.state.open.fetch_sub(1, Ordering::SeqCst);
    });
}

impl Flow {
    /// Moves bytes from one side to the other until one of them closes.
    fn carry(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut piece = [0; PIECE];
        while self.may_pass() {
            let read = from.read(&mut piece);
            // It may have been pulled while we waited for a byte.
            if !self.may_pass() {
                break;
            }
            match read {
                Ok(0) => {
                    let _ = to.shutdown(Shutdown::Write);
                    return;
                }
                Ok(count) => {
                    if to.write_all(&piece[..count]).is_err() {
                        break;
                    }
                    self.note(count);
                }
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => break,
            }
        }
        for side in [&from, &to] {
            reset(side);
        }
    }

    /// Waits until bytes may pass; `false` when the connection is to be reset.
    fn may_pass(&self) -> bool {
        loop {
            let is_cut = self.state.cuts.load(Ordering::SeqCst) != self.cuts_at_start;
            match self.state.cable() {
                Cable::Gone => return false,
                Cable::Whole if is_cut => return false,
                Cable::Whole if !self.is_forgotten() => return true,
                Cable::Whole | Cable::Pulled => std::thread::sleep(PAUSE),
            }
        }
    }

    fn is_forgotten(&self) -> bool {
        let last = *self
            .last_byte
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.state
            .idle_limit
            .is_some_and(|limit| last.elapsed() > limit)
    }

    fn note(&self, count: usize) {
        *self
            .last_byte
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Instant::now();
        let count = u64::try_from(count).expect("a count");
        self.state.bytes.fetch_add(count, Ordering::SeqCst);
    }
}

/// Ends a connection so that the other side gets an error, not an end.
fn reset(socket: &TcpStream) {
    let _ = rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO));
    let _ = socket.shutdown(Shutdown::Both);
}
