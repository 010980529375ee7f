//! Folders that only this user can write to, so that their content can be trusted; and files in shared
//! folders, opened so that another user's symbolic link cannot redirect a write.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::process::geteuid;

/// Creates the folder, or checks that an existing one belongs to this user alone.
///
/// # Errors
/// The folder cannot be created, is a symbolic link, belongs to another user, or others can write to it.
pub(crate) fn create_folder(folder: &Path) -> io::Result<()> {
    if let Some(above) = folder.parent() {
        fs::create_dir_all(above)?;
    }
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let about = fs::symlink_metadata(folder)?;
    match about.is_dir() && is_private(&about) {
        true => Ok(()),
        false => Err(permission_denied(
            "the folder belongs to another user, or other users can write to it",
        )),
    }
}

/// Creates a cache folder, or checks an existing one as [`create_folder`] does. Write access of the group is
/// removed first.
pub(crate) fn create_cache_folder(folder: &Path) -> io::Result<()> {
    if let Ok(about) = fs::symlink_metadata(folder)
        && about.is_dir()
        && about.uid() == geteuid().as_raw()
        && about.mode() & 0o002 == 0
    {
        let closed = about.mode() & 0o7777 & !0o020;
        fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(closed))?;
    }
    create_folder(folder)
}

/// Opens a file in a folder that others may write to.
///
/// # Errors
/// The system refuses, or the path is a symbolic link or not a regular file. The error names the owner if the
/// file belongs to another user.
pub(crate) fn open_file(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or(0);
    let file = options.custom_flags(flags).open(path).map_err(|error| {
        let about = fs::symlink_metadata(path);
        match about {
            Ok(about) if about.is_symlink() => permission_denied(
                "the path is a symbolic link, which another user could have created; remove the link",
            ),
            Ok(about) if error.kind() == ErrorKind::PermissionDenied && about.uid() != geteuid().as_raw() => {
                permission_denied(&format!("it belongs to user {}", about.uid()))
            }
            _ => error,
        }
    })?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(permission_denied("the path is not a regular file")),
    }
}

/// Returns true if the path is a symbolic link that another user made.
pub(crate) fn is_foreign_link(folder: &Path) -> bool {
    let about = fs::symlink_metadata(folder);
    about.is_ok_and(|about| about.is_symlink() && about.uid() != geteuid().as_raw())
}

fn permission_denied(reason: &str) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, reason)
}

/// Returns true if the file or folder belongs to this user and no other user can write to it.
pub(crate) fn is_private(metadata: &Metadata) -> bool {
    metadata.uid() == geteuid().as_raw() && metadata.mode() & 0o022 == 0
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_file_is_opened_and_no_link_or_pipe() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link, dangling, pipe] =
            ["file", "link", "dangling", "pipe"].map(|name| folder.path().join(name));
        fs::write(&file, "precious").unwrap();
        symlink(&file, &link).unwrap();
        symlink(folder.path().join("new"), &dangling).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true);
        open_file(&mut options, &file).unwrap();
        for refused in [&link, &dangling, &pipe] {
            let error = open_file(&mut options, refused).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        }
        assert!(!folder.path().join("new").exists());
        assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
    }

    #[test]
    fn a_folder_that_others_can_write_to_or_that_is_a_link_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (own, open, link) = ["own", "open", "link"]
            .map(|name| folder.path().join(name))
            .into();
        create_folder(&own).unwrap();
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        symlink(&own, &link).unwrap();
        for refused in [&open, &link] {
            assert!(
                create_folder(refused).is_err() && create_cache_folder(refused).is_err(),
                "{refused:?}"
            );
        }
        // A umask of 002 creates folders with this mode.
        fs::set_permissions(&own, fs::Permissions::from_mode(0o775)).unwrap();
        assert!(create_folder(&own).is_err());
        create_cache_folder(&own).unwrap();
        assert_eq!(fs::metadata(&own).unwrap().mode() & 0o777, 0o755);
    }
}
