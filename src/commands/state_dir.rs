//! Whether this user can keep locks, and results that cannot be recorded, in the state directory. Nothing is made.

use std::io;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::plain;

/// Why this user cannot use `folder`, or make it, and the way out.
pub fn lack(folder: &Path) -> Option<(String, String)> {
    // The folder itself, else the nearest one that is there.
    let there = folder.ancestors().find(|there| there.exists())?;
    let cause = refusal(there)?;
    let user = rustix::process::geteuid().as_raw();
    let shown = folder.display();
    let what = if there == folder {
        "cannot be written"
    } else {
        "is not there and cannot be made"
    };
    let lack = format!("`{shown}`, where locks are kept, {what} by user id {user}: {cause}");
    let way_out = format!(
        "`mkdir -p {shown} && chown {user} {shown}` as root, or another `state_dir` in `[store]`"
    );
    Some((lack, way_out))
}

/// Why nothing can be made in `there`.
fn refusal(there: &Path) -> Option<String> {
    if !there.is_dir() {
        return Some(format!("`{}` is not a directory", there.display()));
    }
    let wanted = Access::WRITE_OK | Access::EXEC_OK;
    let denied = accessat(CWD, there, wanted, AtFlags::EACCESS).err()?;
    Some(plain::error(&io::Error::from(denied)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_there_or_can_be_made_will_do() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(lack(folder.path()).is_none());
        assert!(lack(&folder.path().join("a/b")).is_none());
    }

    #[test]
    fn one_that_cannot_be_made_is_said_with_the_way_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        std::fs::write(&file, "").expect("written");
        let (said, way_out) = lack(&file.join("state")).expect("it cannot be made");
        assert!(said.contains("is not there and cannot be made"), "{said}");
        assert!(said.ends_with("file` is not a directory"), "{said}");
        assert!(way_out.starts_with("`mkdir -p "), "{way_out}");
        let (said, _) = lack(&file).expect("it is none");
        assert!(said.contains("cannot be written"), "{said}");
    }
}
