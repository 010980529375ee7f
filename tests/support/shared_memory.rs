//! Whose turn it is at the host's shared memory, across test programs that run at the same time.

use std::fs::File;

fn file() -> File {
    let path = std::env::temp_dir().join("matrix-tests-shared-memory.lock");
    File::create(path).expect("a file can be made")
}

/// Waits until no real engine runs that may leave something in shared memory. None starts while the file is open.
#[allow(dead_code, reason = "each test program needs one of the two")]
pub fn look() -> File {
    let file = file();
    file.lock().expect("a file can be locked");
    file
}

/// Waits until no test looks for what is left in shared memory. None does while the file is open.
#[allow(dead_code, reason = "each test program needs one of the two")]
pub fn use_it() -> File {
    let file = file();
    file.lock_shared().expect("a file can be locked");
    file
}
