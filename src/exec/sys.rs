//! The system calls no safe crate offers, wrapped so that the rest of the module needs no `unsafe`.
//!
//! What the guard and the command's process call before their exec is async-signal-safe: no allocation, no lock.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use rustix::io::Errno;
use rustix::process::Pid;

/// One past the highest signal number of Linux.
pub(super) const SIGNAL_END: c_int = 65;
/// Room for the kernel's `struct sigaction`, whose first word is the handler. By system call, as the C library hides the
/// two signals it uses itself, and those are inherited ignored as well.
const ACTION_WORDS: usize = 16;
/// What the kernel wants to be told as the size of a signal set.
const SIGNAL_SET_BYTES: usize = 8;
/// Where closing one by one stops on kernels without `close_range` (older than 5.9, or a seccomp filter).
const CLOSE_FALLBACK_END: RawFd = 65_536;

/// Bytes the heap grows by, and more than a start needs.
#[cfg(target_env = "gnu")]
const HEAP_STEP_BYTES: c_int = 1024 * 1024;

/// Lets the heap grow in one step and never shrink: a short process that asks the kernel for a page here and gives one
/// back there spends a tenth of its time on that. Pages that are never touched stay the kernel's.
pub fn grow_memory_at_once() {
    #[cfg(target_env = "gnu")]
    // SAFETY: called before any thread is started; a setting that is refused stays as it was.
    unsafe {
        libc::mallopt(libc::M_TOP_PAD, HEAP_STEP_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, c_int::MAX);
    }
}

/// Forks; the new process runs `entry`, which never returns, so no frame of the caller is ever unwound twice.
///
/// `entry` is `extern "C"`: a panic in it aborts the process instead of unwinding into the caller's copy. Other
/// threads do not exist in the new process, so it may only do async-signal-safe work.
pub(super) fn fork_into<T>(entry: extern "C" fn(&mut T) -> !, state: &mut T) -> Result<Pid, Errno> {
    // SAFETY: fork has no preconditions; `entry` keeps to async-signal-safe calls and never returns.
    match unsafe { libc::fork() } {
        0 => entry(state),
        pid => Pid::from_raw(pid)
            .filter(|_| pid > 0)
            .ok_or_else(last_errno),
    }
}

/// Ends this process at once: no destructors, no flushing of what the parent buffered.
pub(super) fn exit_now(code: c_int) -> ! {
    // SAFETY: `_exit` has no preconditions.
    unsafe { libc::_exit(code) }
}

/// Strings as `execve` wants them: pointers with a null at the end, made before the fork.
pub(super) struct StringArray {
    pointers: Vec<*const c_char>,
    // Owns what the pointers point to; the heap blocks do not move with the vector.
    _strings: Vec<CString>,
}

impl StringArray {
    pub(super) fn new(strings: Vec<CString>) -> Self {
        let pointers = strings
            .iter()
            .map(|string| string.as_ptr())
            .chain([ptr::null()])
            .collect();
        Self {
            pointers,
            _strings: strings,
        }
    }
}

/// Becomes `path`; returns only what went wrong.
pub(super) fn execute(path: &CStr, argv: &StringArray, env: &StringArray) -> Errno {
    // SAFETY: both arrays end with a null and their strings live as long as they do.
    unsafe { libc::execve(path.as_ptr(), argv.pointers.as_ptr(), env.pointers.as_ptr()) };
    last_errno()
}

/// Names the process as `ps` and `killall` see it.
pub(super) fn set_name(name: &CStr) {
    // SAFETY: the kernel copies at most 16 bytes of a terminated string.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) };
}

/// Keeps every signal away while it lives; then the mask is what it was before.
pub(super) struct BlockedSignals {
    previous: libc::sigset_t,
}

impl BlockedSignals {
    pub(super) fn all() -> Self {
        let mut previous = signal_set(&[]);
        // SAFETY: both point to initialised sets.
        unsafe {
            let mut every = signal_set(&[]);
            libc::sigfillset(&raw mut every);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const every, &raw mut previous);
        }
        Self { previous }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the set was filled in by `all`.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.previous, ptr::null_mut())
        };
    }
}

/// Empties the signal mask of this thread.
pub(super) fn unblock_all_signals() {
    let none = signal_set(&[]);
    // SAFETY: the set is initialised.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut()) };
}

/// A descriptor that is readable when a child ended; SIGCHLD has to be blocked.
pub(super) fn child_signals() -> Result<OwnedFd, Errno> {
    let set = signal_set(&[libc::SIGCHLD]);
    // SAFETY: the set is initialised; -1 asks for a new descriptor, which nobody else owns.
    unsafe {
        let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 {
            Err(last_errno())
        } else {
            Ok(OwnedFd::from_raw_fd(fd))
        }
    }
}

/// Whether this process ignores the signal.
pub(super) fn is_ignored(signal: c_int) -> bool {
    let mut action = [0; ACTION_WORDS];
    // SAFETY: a null new action only asks; the old one fits into the words.
    let result = unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            signal,
            ptr::null::<u64>(),
            action.as_mut_ptr(),
            SIGNAL_SET_BYTES,
        )
    };
    result == 0 && action[0] == libc::SIG_IGN
}

/// Gives the signal its default disposition.
pub(super) fn set_default(signal: c_int) {
    set_disposition(signal, libc::SIG_DFL);
}

/// Has the signal ignored.
pub(super) fn ignore(signal: c_int) {
    set_disposition(signal, libc::SIG_IGN);
}

fn set_disposition(signal: c_int, disposition: usize) {
    let mut action = [0usize; ACTION_WORDS];
    action[0] = disposition;
    // SAFETY: a handler that is none, and zeroes, which are no flags, in every layout of the structure.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            signal,
            action.as_ptr(),
            ptr::null_mut::<u64>(),
            SIGNAL_SET_BYTES,
        )
    };
}

/// Any child that has ended, left unreaped so that its pid stays taken. `Err(CHILD)`: no children at all.
pub(super) fn ended_child() -> Result<Option<Pid>, Errno> {
    wait_for_any(libc::WEXITED)
}

/// Whether a child lives (not: is a zombie).
///
/// Asked for state changes other than ending, Linux answers ECHILD when all children have ended. A kernel that does
/// not makes this true too often, and the answer then comes from a scan.
pub(super) fn has_live_child() -> bool {
    wait_for_any(libc::WCONTINUED) != Err(Errno::CHILD)
}

fn wait_for_any(options: c_int) -> Result<Option<Pid>, Errno> {
    let mut information = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: the kernel writes a siginfo of a child, or leaves the zeroes, which is a valid one with pid 0.
    unsafe {
        let options = options | libc::WNOHANG | libc::WNOWAIT;
        if libc::waitid(libc::P_ALL, 0, information.as_mut_ptr(), options) == -1 {
            return Err(last_errno());
        }
        Ok(Pid::from_raw(information.assume_init().si_pid()))
    }
}

/// Closes one descriptor of a forked process, which owns its copies of all.
pub(super) fn close(fd: RawFd) {
    // SAFETY: called in the guard only, on a number it never uses again.
    unsafe { libc::close(fd) };
}

/// Reads what is in these pipes, which do not wait, and forgets it.
pub(super) fn drain(pipes: &[RawFd]) {
    let mut bytes = [0u8; 4096];
    for pipe in pipes {
        // SAFETY: writes at most as many bytes as there are; a number that is no descriptor is an error.
        while unsafe { libc::read(*pipe, bytes.as_mut_ptr().cast(), bytes.len()) } > 0 {}
    }
}

/// The descriptor of that number, while it is open; none for -1.
pub(super) fn borrow(number: &RawFd) -> Option<BorrowedFd<'_>> {
    // SAFETY: whoever keeps the number keeps the descriptor open; -1 is excluded.
    (*number >= 0).then(|| unsafe { BorrowedFd::borrow_raw(*number) })
}

/// Closes every descriptor from 3 on but those in `keep`.
pub(super) fn close_all_but(keep: &[RawFd]) {
    let mut from = 3;
    // At most one turn for each kept descriptor, and the last.
    for _ in 0..=keep.len() {
        let next = keep.iter().copied().filter(|fd| *fd >= from).min();
        if next != Some(from) {
            close_between(from, next.map_or(RawFd::MAX, |fd| fd - 1));
        }
        let Some(next) = next else { break };
        from = next + 1;
    }
}

fn close_between(first: RawFd, last: RawFd) {
    if close_range(first, last, 0).is_err() {
        for fd in first..=last.min(CLOSE_FALLBACK_END) {
            // SAFETY: the guard owns its copies of all descriptors, and uses only those it keeps.
            unsafe { libc::close(fd) };
        }
    }
}

/// Makes an exec close every descriptor from 3 on.
pub(super) fn close_all_on_exec() {
    const FLAG: c_uint = libc::CLOSE_RANGE_CLOEXEC;
    if close_range(3, RawFd::MAX, FLAG).is_err() {
        for fd in 3..CLOSE_FALLBACK_END {
            // SAFETY: sets a flag on a number that is a descriptor of this process or none.
            unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
}

fn close_range(first: RawFd, last: RawFd, flags: c_uint) -> Result<(), Errno> {
    // SAFETY: by number and raw, as the libc wrapper is missing in older libraries; see the callers for ownership.
    let result = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first.cast_unsigned(),
            last.cast_unsigned(),
            flags,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(last_errno())
    }
}

fn signal_set(signals: &[c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: sigemptyset initialises the set; sigaddset refuses bad numbers.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), *signal);
        }
        set.assume_init()
    }
}

fn last_errno() -> Errno {
    Errno::from_raw_os_error(
        std::io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EINVAL),
    )
}
