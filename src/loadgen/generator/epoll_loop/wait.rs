//! Waits for sockets or for a time.

use std::time::Duration;

use rustix::event::epoll;
use rustix::time::Timespec;

/// Waits up to `wait` until sockets are ready, and appends their events to `events`.
pub(super) fn wait_for(epoll: &rustix::fd::OwnedFd, events: &mut Vec<epoll::Event>, wait: Duration) {
    let buffer = rustix::buffer::spare_capacity(events);
    let Err(error) = epoll::wait(epoll, buffer, Some(&timespec(wait))) else {
        return;
    };
    // Kernels before 5.11 wait only for whole milliseconds. The delay this causes is part of the lag.
    if error == rustix::io::Errno::INTR {
        return;
    }
    let millis = Duration::from_millis(
        u64::try_from(wait.as_millis())
            .unwrap_or(u64::MAX)
            .saturating_add(1),
    );
    let _ = epoll::wait(
        epoll,
        rustix::buffer::spare_capacity(events),
        Some(&timespec(millis)),
    );
}

/// Sleeps for `span`; a signal may end the sleep early.
pub(super) fn sleep(span: Duration) {
    let _ = rustix::thread::nanosleep(&timespec(span));
}

fn timespec(span: Duration) -> Timespec {
    // No wait is longer, and every kernel accepts this value.
    let span = span.min(Duration::from_secs(86_400));
    Timespec {
        tv_sec: span.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: span.subsec_nanos().into(),
    }
}
