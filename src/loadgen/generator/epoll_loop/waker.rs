//! Wakes an event loop from another thread: when the run is stopped, or when a slot becomes free.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::Wake;

use rustix::event::{EventfdFlags, eventfd};

/// A waker that makes a file descriptor readable.
pub(super) struct LoopWaker(OwnedFd);

impl LoopWaker {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Wakes the thread that waits for the file descriptor.
    pub(super) fn notify(&self) {
        // A counter at its limit wakes the thread too.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Clears the wake-ups so far.
    pub(super) fn clear(&self) {
        // If there is nothing to read, there was no wake-up.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl Wake for LoopWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.notify();
    }
}

impl AsFd for LoopWaker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
