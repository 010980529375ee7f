//! What it costs to ask eight devices.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use matrix::telemetry::gpu::{Gpus, Places, Processes};
use rustix::time::{ClockId, clock_gettime};

use crate::stub::Stub;

/// For how long they are asked.
const LONG: Duration = Duration::from_secs(10);

#[test]
fn eight_devices_whose_calls_take_milliseconds_cost_less_than_a_hundredth_of_a_processor() {
    let stub = Stub::of("gpus 8\npower 0:100 10:400\nutil 90 50\nlinks 100 100\nslow * 3\nslow nvmlDeviceGetPowerUsage 5\n");
    let places = Places {
        nvml: Some(stub.library()),
        path: None,
    };
    let gpus = Gpus::open(&places).expect("it can be used").expect("it knows devices");
    let devices: Vec<u32> = (0..8).collect();
    let probes = gpus.probes(&devices, &Processes::default());
    let spent = Arc::new(Mutex::new(Duration::ZERO));
    let readings = Arc::new(Mutex::new(0_usize));
    let is_over = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = probes
        .into_iter()
        .map(|mut probe| {
            let (spent, readings, is_over) = (Arc::clone(&spent), Arc::clone(&readings), Arc::clone(&is_over));
            std::thread::spawn(move || {
                let mut next = Instant::now();
                while !is_over.load(Ordering::Relaxed) {
                    probe.read().expect("it tells");
                    *readings.lock().expect("counting does not panic") += 1;
                    next += probe.period();
                    std::thread::sleep(next.saturating_duration_since(Instant::now()));
                }
                let own = clock_gettime(ClockId::ThreadCPUTime);
                let own = Duration::new(own.tv_sec.unsigned_abs(), u32::try_from(own.tv_nsec).expect("below a second"));
                *spent.lock().expect("adding does not panic") += own;
            })
        })
        .collect();
    std::thread::sleep(LONG);
    is_over.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().expect("asking does not panic");
    }
    let share = spent.lock().expect("nobody adds any more").as_secs_f64() / LONG.as_secs_f64();
    let readings = *readings.lock().expect("nobody counts any more");
    println!("8 devices, {readings} readings in 10 s: {:.2} % of a processor", share * 100.0);
    assert!(readings > 700, "they keep up: {readings} readings");
    assert!(share < 0.01, "{:.2} % of a processor", share * 100.0);
}
