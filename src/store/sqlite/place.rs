//! Where a store may be: on a file system whose locks and shared memory hold between the processes of one host.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::statfs;

/// File systems that several hosts share, or that a program serves: their numbers in statfs(2), from the kernel's
/// `linux/magic.h` and the file systems' own headers.
const SHARED: [(u32, &str); 15] = [
    (0x6969, "NFS"),
    (0x517B, "SMB"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB"),
    (0x0102_1997, "9P"),
    (0x6573_5546, "FUSE"),
    (0x00C3_6400, "Ceph"),
    (0x5346_414F, "AFS"),
    (0x6B41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x0BD0_0BD0, "Lustre"),
    (0x7461_636F, "OCFS2"),
    (0x0116_1970, "GFS2"),
    (0x786F_4256, "VirtualBox shared folder"),
    (0xBACB_ACBC, "VMware shared folder"),
];

/// The name of the file system that `path` is on, or would be made on, if it is one that cannot hold a store.
pub(super) fn shared_file_system(path: &Path) -> Option<&'static str> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let on = statfs(path)
        .or_else(|_| statfs(folder.unwrap_or(Path::new("."))))
        .ok()?;
    // How wide the field is, and whether signed, depends on the machine; the number has 32 bits.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let number = on.f_type as u32;
    SHARED
        .iter()
        .find(|(shared, _)| *shared == number)
        .map(|(_, name)| *name)
}

/// The file itself, whatever its name: a copy of it is another.
pub(super) fn identity(path: &Path) -> String {
    let metadata = path.metadata();
    metadata.map_or_else(
        |_| String::new(),
        |metadata| format!("{}:{}", metadata.dev(), metadata.ino()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_file_system_is_none_of_them() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(shared_file_system(&folder.path().join("s.db")), None);
        assert_eq!(shared_file_system(Path::new("/proc/s.db")), None);
    }
}
