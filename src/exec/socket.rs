//! Sockets in a folder: one jobrun listens, processes of its commands connect.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, fchmod, open};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen,
    shutdown, socket_with,
};

/// Callers that wait while one is answered.
const BACKLOG: i32 = 64;
/// Between a name and its use are microseconds: a younger file may be that of a socket that is just being made.
const SURELY_MADE: Duration = Duration::from_secs(10);

/// Listens under that name, which must not be taken; only this user may connect.
pub fn listen_at(path: &Path) -> io::Result<UnixListener> {
    let socket = new_socket()?;
    // Before it has a name: afterwards were too late.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    at_address(path, |address| bind(&socket, address))?;
    listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Connects to who listens under that name.
pub fn connect_to(path: &Path) -> io::Result<UnixStream> {
    let socket = new_socket()?;
    at_address(path, |address| connect(&socket, address))?;
    Ok(socket.into())
}

/// Has nobody connect any more, and ends a wait for that.
pub fn stop_listening(listener: &UnixListener) {
    let _ = shutdown(listener.as_fd(), Shutdown::Both);
}

/// Removes what jobruns that were killed have left in the folder: sockets under such a name that nobody listens at.
pub fn remove_abandoned(folder: &Path, is_socket: impl Fn(&str) -> bool) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(&is_socket);
        let age = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
        if is_ours
            && age().is_some_and(|age| age >= SURELY_MADE)
            && let Err(error) = connect_to(&entry.path())
            && error.kind() == io::ErrorKind::ConnectionRefused
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn new_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// An address has room for 107 bytes; a longer path is taken through its folder.
fn at_address(
    path: &Path,
    work: impl FnOnce(&SocketAddrUnix) -> Result<(), Errno>,
) -> Result<(), Errno> {
    if let Ok(address) = SocketAddrUnix::new(path) {
        return work(&address);
    }
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno::INVAL);
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = open(folder, flags, Mode::empty())?;
    let through = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string());
    work(&SocketAddrUnix::new(through.join(name))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
    use std::time::SystemTime;

    #[test]
    fn a_path_of_any_length_serves_and_only_its_user() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("x".repeat(200));
        fs::create_dir(&deep).unwrap();
        for folder in [folder.path(), &deep] {
            let path = folder.join("s");
            let listener = listen_at(&path).unwrap();
            let metadata = path.metadata().unwrap();
            assert!(metadata.file_type().is_socket());
            assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
            let mut caller = connect_to(&path).unwrap();
            caller.write_all(b"hello").unwrap();
            caller.shutdown(std::net::Shutdown::Write).unwrap();
            let mut heard = String::new();
            let (mut answering, _) = listener.accept().unwrap();
            answering.read_to_string(&mut heard).unwrap();
            assert_eq!(heard, "hello");
            assert!(listen_at(&path).is_err(), "its name is taken");
        }
    }

    #[test]
    fn a_wait_for_callers_can_be_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let listener = listen_at(&path).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| listener.accept().is_err());
            std::thread::sleep(Duration::from_millis(20));
            stop_listening(&listener);
            assert!(waiting.join().unwrap());
        });
    }

    #[test]
    fn what_nobody_listens_at_any_more_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let _alive = listen_at(&path("alive-sock")).unwrap();
        for name in ["dead-sock", "young-sock", "dead-other"] {
            drop(listen_at(&path(name)).unwrap());
        }
        fs::write(path("a-sock"), "no socket").unwrap();
        let long_ago = SystemTime::now() - 2 * SURELY_MADE;
        let long_ago = rustix::fs::Timespec::try_from(
            long_ago.duration_since(SystemTime::UNIX_EPOCH).unwrap(),
        )
        .unwrap();
        let times = rustix::fs::Timestamps {
            last_access: long_ago,
            last_modification: long_ago,
        };
        for name in ["alive-sock", "dead-sock", "dead-other"] {
            let flags = rustix::fs::AtFlags::empty();
            rustix::fs::utimensat(rustix::fs::CWD, path(name), &times, flags).unwrap();
        }
        remove_abandoned(folder.path(), |name| name.ends_with("-sock"));
        let mut left: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, ["a-sock", "alive-sock", "dead-other", "young-sock"]);
    }
}
