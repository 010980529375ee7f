//! Leases the host's GPUs to launches, including launches that run one after another.

use std::sync::Mutex;

use tokio::sync::Notify;

/// The GPUs that a run uses.
pub(crate) struct Pool {
    /// Free GPUs. The lock is never held across an await.
    free: Mutex<Vec<u32>>,
    total: u32,
    returned: Notify,
}

/// GPUs of a launch, returned on drop.
pub(crate) struct Lease<'p> {
    pool: &'p Pool,
    devices: Vec<u32>,
}

impl Pool {
    pub(crate) fn new(mut devices: Vec<u32>) -> Self {
        devices.sort_unstable();
        Self {
            total: u32::try_from(devices.len()).unwrap_or(u32::MAX),
            free: Mutex::new(devices),
            returned: Notify::new(),
        }
    }

    /// Waits until `count` GPUs are free and takes the lowest of them. If the run has fewer GPUs in total, it
    /// takes all of them: the preflight has reported this, and the engine will too.
    pub(crate) async fn acquire(&self, count: u32) -> Lease<'_> {
        let needed = count.min(self.total) as usize;
        loop {
            let returned = self.returned.notified();
            {
                let mut free = self.free.lock().expect("leasing does not panic");
                if free.len() >= needed {
                    let devices = free.drain(..needed).collect();
                    return Lease { pool: self, devices };
                }
            }
            returned.await;
        }
    }
}

impl Pool {
    /// Number of free GPUs.
    pub(crate) fn free_count(&self) -> u32 {
        let free = self.free.lock().expect("leasing does not panic");
        u32::try_from(free.len()).unwrap_or(u32::MAX)
    }
}

impl Lease<'_> {
    /// The GPUs, lowest first.
    pub(crate) fn devices(&self) -> &[u32] {
        &self.devices
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        let mut free = self.pool.free.lock().expect("leasing does not panic");
        free.append(&mut self.devices);
        free.sort_unstable();
        self.pool.returned.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn leases_are_disjoint_and_a_third_waits() {
        let pool = Pool::new(vec![0, 1, 2, 3]);
        let first = pool.acquire(2).await;
        let second = pool.acquire(2).await;
        assert_eq!((first.devices(), second.devices()), (&[0, 1][..], &[2, 3][..]));
        let third = pool.acquire(1);
        tokio::pin!(third);
        assert!(
            tokio::time::timeout(std::time::Duration::from_millis(10), &mut third)
                .await
                .is_err()
        );
        drop(second);
        assert_eq!(third.await.devices(), [2]);
    }
}
