//! What a command finds on its standard input: a file without a name, so that nobody has to feed it and no size is too
//! large.
//!
//! A pipe would need a writer that goes on while the command reads, and stops when it does not.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create, open, unlink};
use rustix::io::Errno;
use uuid::Uuid;

/// What `/proc` shows as the file.
const NAME: &std::ffi::CStr = c"jobrun-payload";

/// The command's standard input: the bytes from their start, or nothing.
pub(super) fn stdin(bytes: Option<&[u8]>) -> io::Result<OwnedFd> {
    match bytes {
        None => Ok(null()?),
        // An old kernel, a filter and a strict `vm.memfd_noexec` each refuse with an error of their own.
        Some(bytes) => filled(memfd_create(NAME, MemfdFlags::CLOEXEC), bytes)
            .or_else(|_| filled(nameless_in(&std::env::temp_dir()), bytes)),
    }
}

/// Reads as empty, and takes whatever is written.
pub(super) fn null() -> Result<OwnedFd, Errno> {
    open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

fn filled(file: Result<OwnedFd, Errno>, bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(file?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file.into())
}

/// A file of that folder that has lost its name.
fn nameless_in(folder: &Path) -> Result<OwnedFd, Errno> {
    let path = folder.join(format!(".jobrun-payload-{}", Uuid::new_v4()));
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = open(&path, flags, Mode::RUSR | Mode::WUSR)?;
    unlink(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn a_file_that_has_lost_its_name_serves_as_well() {
        let folder = tempfile::tempdir().unwrap();
        let file = filled(nameless_in(folder.path()), b"payload").unwrap();
        assert_eq!(folder.path().read_dir().unwrap().count(), 0);
        let mut text = String::new();
        File::from(file).read_to_string(&mut text).unwrap();
        assert_eq!(text, "payload");
    }
}
