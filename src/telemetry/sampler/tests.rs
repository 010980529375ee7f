use std::sync::{Mutex, mpsc};

use super::*;
use crate::results::record::telemetry::{SampleValues, TelemetrySource};
use crate::telemetry::sampler::track::signed_ns;

/// A probe whose `read` is a function.
struct Fake<F> {
    period: Duration,
    device: Option<u32>,
    read: F,
}

impl<F: FnMut() -> Result<Vec<DeviceReading>, String> + Send> Probe for Fake<F> {
    fn source(&self) -> TelemetrySource {
        TelemetrySource::Host
    }

    fn device(&self) -> Option<u32> {
        self.device
    }

    fn period(&self) -> Duration {
        self.period
    }

    fn read(&mut self) -> Result<Vec<DeviceReading>, String> {
        (self.read)()
    }
}

fn fake(
    period_ms: u64,
    read: impl FnMut() -> Result<Vec<DeviceReading>, String> + Send + 'static,
) -> Box<dyn Probe> {
    Box::new(Fake {
        period: Duration::from_millis(period_ms),
        device: None,
        read,
    })
}

fn reading(device: Option<u32>, value: f64) -> DeviceReading {
    DeviceReading {
        device,
        values: SampleValues::from([("v".to_owned(), value)]),
    }
}

fn read_result(value: f64) -> Result<Vec<DeviceReading>, String> {
    Ok(vec![reading(None, value)])
}

fn sleep_ms(millis: u64) {
    thread::sleep(Duration::from_millis(millis));
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap()
}

#[test]
fn a_probe_is_asked_at_multiples_of_its_period() {
    let (send, receiver) = mpsc::channel();
    let sampler = Sampler::start(vec![fake(20, move || {
        send.send(clock::now()).unwrap();
        read_result(1.0)
    })]);
    let moments: Vec<MonotonicTime> = receiver.iter().take(8).collect();
    drop(sampler);
    // A busy machine may wake the thread late, never early.
    let slots: Vec<u64> = moments.iter().map(|at| at.as_nanos() / 20_000_000).collect();
    assert!(slots.windows(2).all(|pair| pair[0] < pair[1]), "{slots:?}");
    let mut late: Vec<u64> = moments.iter().map(|at| at.as_nanos() % 20_000_000).collect();
    late.sort_unstable();
    assert!(late[2] < 5_000_000, "{late:?}");
}

#[test]
fn a_slow_answer_skips_turns_and_is_stamped_in_its_middle() {
    let began = clock::now();
    let sampler = Sampler::start(vec![fake(10, || {
        sleep_ms(100);
        read_result(1.0)
    })]);
    let runtime = runtime();
    for _ in 0..2 {
        runtime.block_on(sampler.sample_now(Duration::from_secs(30)));
    }
    let now = clock::now();
    let (samples, facts) = sampler.samples_between(began, began, now);
    let most = now.since(began).as_millis() / 100;
    assert!(samples.len() >= 2 && samples.len() as u128 <= most, "{samples:?}");
    let gaps: Vec<i64> = samples
        .windows(2)
        .map(|pair| pair[1].at_ns - pair[0].at_ns)
        .collect();
    assert!(gaps.iter().all(|gap| *gap >= 100_000_000), "{gaps:?}");
    assert!(samples[0].at_ns >= 50_000_000, "{samples:?}");
    assert_eq!(facts[0].samples as usize, samples.len());
    assert_eq!(facts[0].trouble, None);
}

#[test]
fn eight_probes_at_ten_a_second_take_less_than_a_hundredth_of_a_processor() {
    let read_time: Vec<Arc<Mutex<Duration>>> = (0..8).map(|_| Arc::default()).collect();
    let probes = read_time.iter().zip(0..).map(|(read_time, device)| {
        let read_time = Arc::clone(read_time);
        let values = [
            "power_w",
            "energy_j",
            "gpu_util_share",
            "sm_clock_mhz",
            "memory_used_bytes",
            "temperature_c",
        ];
        Box::new(Fake {
            period: Duration::from_millis(100),
            device: Some(device),
            read: move || {
                // CPU time of the whole thread, including waiting and storing.
                *read_time.lock().unwrap() = clock::thread_cpu();
                sleep_ms(3);
                let values = values.iter().map(|name| ((*name).to_owned(), 1.0)).collect();
                Ok(vec![DeviceReading {
                    device: Some(device),
                    values,
                }])
            },
        }) as Box<dyn Probe>
    });
    let sampler = Sampler::start(probes.collect());
    let spent = || -> Duration { read_time.iter().map(|read_time| *read_time.lock().unwrap()).sum() };
    // On a busy machine each wake-up takes longer, which says nothing about the sampler: the best of some windows counts.
    let mut share = f64::INFINITY;
    for _ in 0..6 {
        let (began, before) = (clock::now(), spent());
        sleep_ms(1500);
        let window = clock::now().since(began).as_secs_f64();
        let (samples, _) = sampler.samples_between(began, began, clock::now());
        if samples.len() > 50 {
            share = share.min((spent() - before).as_secs_f64() / window);
        }
        if share < 0.01 {
            break;
        }
    }
    drop(sampler);
    // Eight probes wake up twice for each of ten samples a second. What that costs by itself depends on the machine.
    let bare = thread::spawn(|| {
        let before = clock::thread_cpu();
        (0..160).for_each(|_| sleep_ms(3));
        (clock::thread_cpu() - before).as_secs_f64()
    });
    let bare = bare.join().unwrap();
    assert!(
        share < f64::max(0.01, 8.0 * bare),
        "{share}, and {bare} for waking up alone"
    );
}

#[test]
fn a_window_is_cut_with_samples_on_both_sides() {
    let mut sampler = Sampler::default();
    let mut count = 0.0;
    sampler.add(fake(5, move || {
        count += 1.0;
        read_result(count)
    }));
    let runtime = runtime();
    runtime.block_on(sampler.sample_now(Duration::from_secs(5)));
    let from = clock::now();
    sleep_ms(60);
    let to = clock::now();
    runtime.block_on(sampler.sample_now(Duration::from_secs(5)));
    sleep_ms(30);
    let (samples, facts) = sampler.samples_between(from, from, to);
    let length = i64::try_from(to.since(from).as_nanos()).unwrap();
    let inside = samples
        .iter()
        .filter(|sample| (0..=length).contains(&sample.at_ns))
        .count();
    let before = samples.iter().filter(|sample| sample.at_ns < 0).count();
    assert_eq!(before, 1, "only the last one before");
    assert!(samples.len() > inside + before && samples.last().unwrap().at_ns > length);
    let values: Vec<f64> = samples.iter().map(|sample| sample.values["v"]).collect();
    assert!(
        values.windows(2).all(|pair| pair[1] == pair[0] + 1.0),
        "{values:?}"
    );
    assert!(facts[0].is_bracketed);
    assert_eq!(facts[0].samples as usize, inside);
    assert_eq!(facts[0].period_s, 0.005);
    let span = samples.last().unwrap().at_ns - samples[0].at_ns;
    assert!(facts[0].longest_gap_s > 0.0 && facts[0].longest_gap_s <= span as f64 / 1e9);

    sampler.discard_before(to);
    let (samples, facts) = sampler.samples_between(from, from, to);
    assert!(samples.iter().all(|sample| sample.at_ns >= length));
    assert_eq!((facts[0].samples, facts[0].is_bracketed), (0, false));
}

/// A probe with a value that only requested readings have.
struct Costly;

impl Probe for Costly {
    fn source(&self) -> TelemetrySource {
        TelemetrySource::Host
    }

    fn period(&self) -> Duration {
        Duration::from_millis(5)
    }

    fn read(&mut self) -> Result<Vec<DeviceReading>, String> {
        read_result(1.0)
    }

    fn read_all(&mut self) -> Result<Vec<DeviceReading>, String> {
        let mut all = reading(None, 1.0);
        all.values.insert("costly".to_owned(), 2.0);
        Ok(vec![all])
    }
}

#[test]
fn a_value_that_not_every_reading_has_is_cut_with_its_last_one_before() {
    let mut sampler = Sampler::default();
    sampler.add(Box::new(Costly));
    let runtime = runtime();
    runtime.block_on(sampler.sample_now(Duration::from_secs(5)));
    sleep_ms(40);
    let from = clock::now();
    sleep_ms(40);
    let to = clock::now();
    runtime.block_on(sampler.sample_now(Duration::from_secs(5)));
    let (samples, _) = sampler.samples_between(from, from, to);
    let has = |sample: &&Sample| sample.values.contains_key("costly");
    let costly: Vec<i64> = samples.iter().filter(has).map(|sample| sample.at_ns).collect();
    assert!(costly.len() >= 2 && costly[0] < 0, "{costly:?}");
    assert!(*costly.last().unwrap() > signed_ns(from, to), "{costly:?}");
    let before = samples.iter().filter(|sample| sample.at_ns < 0).count();
    assert!(before <= 2, "{before} before the window");
}

#[test]
fn who_hangs_is_cut_off_reported_and_left_behind() {
    let (hold, held) = mpsc::channel::<()>();
    let (send, receiver) = mpsc::channel();
    let sampler = Sampler::start(vec![
        fake(10, move || {
            send.send(()).unwrap();
            let _ = held.recv();
            read_result(0.0)
        }),
        fake(10, || read_result(1.0)),
    ]);
    receiver.recv().unwrap();
    let began = clock::now();
    runtime().block_on(sampler.sample_now(Duration::from_millis(50)));
    assert!(
        clock::now().since(began) < Duration::from_secs(2),
        "a bracket is bounded"
    );
    // As if the reading had begun long ago.
    sampler.threads[0].lock().reading_since = Some(MonotonicTime::from_nanos(0));
    let now = Duration::from_secs(10);
    let error = sampler.threads[0]
        .lock()
        .current_error(MonotonicTime::from_nanos(0).plus(now));
    assert_eq!(error.as_deref(), Some("no response for 10.0 s"));
    let (samples, facts) = sampler.samples_between(began, began, clock::now());
    assert!(!samples.is_empty(), "the other goes on");
    assert_eq!((facts[0].samples, facts[0].is_bracketed), (0, false));
    let began = clock::now();
    drop(sampler);
    assert!(
        clock::now().since(began) < Duration::from_secs(2),
        "the end is bounded"
    );
    drop(hold);
}

#[test]
fn errors_and_panics_are_told_and_an_answer_mends_an_error() {
    let mut turn = 0;
    let sampler = Sampler::start(vec![
        fake(5, || Err("no such device".to_owned())),
        fake(5, || panic!("at the disco")),
        fake(5, move || {
            turn += 1;
            if turn == 1 {
                Err("not yet".to_owned())
            } else {
                read_result(1.0)
            }
        }),
        fake(5, || Ok(vec![DeviceReading::default()])),
    ]);
    let began = clock::now();
    let runtime = runtime();
    for _ in 0..2 {
        runtime.block_on(sampler.sample_now(Duration::from_secs(5)));
    }
    let to = clock::now();
    let (samples, facts) = sampler.samples_between(began, began, to);
    let error: Vec<Option<&str>> = facts.iter().map(|facts| facts.trouble.as_deref()).collect();
    let broke = "its probe panicked: at the disco";
    assert_eq!(error, [Some("no such device"), Some(broke), None, None]);
    assert_eq!(facts[3].samples, 0, "a reading without values is none");
    // Samples from after the window are included too.
    let within = samples
        .iter()
        .filter(|sample| sample.at_ns <= signed_ns(began, to));
    assert_eq!(within.count(), facts[2].samples as usize);
}

#[test]
fn a_probe_of_many_devices_has_facts_of_each() {
    let mut turn = 0;
    let began = clock::now();
    let sampler = Sampler::start(vec![fake(5, move || {
        turn += 1;
        let mut readings = vec![reading(Some(0), 1.0)];
        readings.extend((turn == 1).then(|| reading(Some(1), 2.0)));
        Ok(readings)
    })]);
    // Two readings are inside of the window, however late the probe's thread runs, and one is after it.
    let runtime = runtime();
    let read = || runtime.block_on(sampler.sample_now(Duration::from_secs(5)));
    read();
    read();
    let now = clock::now();
    read();
    let (_, facts) = sampler.samples_between(began, began, now);
    let devices: Vec<(Option<u32>, bool)> = facts
        .iter()
        .map(|facts| (facts.device, facts.is_bracketed))
        .collect();
    assert_eq!(devices[1], (Some(1), false), "it fell silent");
    assert_eq!(facts[1].samples, 1);
    assert!(facts[0].samples > 1);
}
