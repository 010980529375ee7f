//! Free TCP ports.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::plan::{Launch, Ports, further_ports};

/// Finds a port that is free and that this process has not returned recently.
///
/// It is outside the range of the system's ephemeral ports. An engine may take minutes until it listens, and
/// a client may use an ephemeral port by then.
///
/// # Errors
/// No port is free.
pub fn free_port() -> io::Result<u16> {
    static NEXT_OFFSET: AtomicU16 = AtomicU16::new(0);
    let range = unassigned_range();
    let width = range.end - range.start;
    // Different `matrix` processes start at different offsets.
    let offset = (std::process::id().wrapping_mul(97) % u32::from(width)) as u16;
    for _ in 0..width {
        let turn = NEXT_OFFSET.fetch_add(1, Ordering::Relaxed) % width;
        let port = range.start + ((u32::from(offset) + u32::from(turn)) % u32::from(width)) as u16;
        if is_free(port) {
            return Ok(port);
        }
    }
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    Ok(listener.local_addr()?.port())
}

/// The ports of a start of a launch.
///
/// # Errors
/// No port is free.
pub(crate) fn ports_for(launch: &Launch) -> io::Result<Ports> {
    let further = (0..further_ports(launch.members())).map(|_| free_port());
    Ok(Ports {
        endpoint: match launch.api.port.fixed {
            Some(port) => port,
            None => free_port()?,
        },
        further: further.collect::<io::Result<_>>()?,
    })
}

/// Whether no process listens on the port, on any IPv4 address.
pub(crate) fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok()
}

fn unassigned_range() -> Range<u16> {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let low = range
        .split_whitespace()
        .next()
        .and_then(|low| low.parse().ok())
        .unwrap_or(32768);
    if low > 21_000 { 20_000..low } else { 40_000..60_000 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_differ_and_can_be_had() {
        let (a, b) = (free_port().unwrap(), free_port().unwrap());
        assert_ne!(a, b);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, a)).unwrap();
        assert!(
            !is_free(a),
            "somebody listens on {}",
            listener.local_addr().unwrap()
        );
    }
}
