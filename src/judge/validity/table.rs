//! What each code means, what it makes of a measurement, and what to do about it.

use crate::results::record::validity::{Code, Family, Verdict};

/// The row of one code.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The code.
    pub code: Code,
    /// What it makes of a measurement; `valid` for a note.
    pub weight: Verdict,
    /// The families of figures that it concerns; empty if it concerns the whole measurement.
    pub only: &'static [Family],
    /// What happened, in one sentence.
    pub means: &'static str,
    /// What to do about it, in one sentence.
    pub mend: &'static str,
    /// The default of its bound, and which field of `validity:` sets it.
    pub bound: &'static str,
    /// Why the bound is what it is.
    pub source: &'static str,
    /// Other codes that may come with it as its consequence.
    pub brings: &'static [Code],
}

use Code::{
    AnswersDegenerate, BoundsLoosened, CacheWarm, ChunkedTokens, ClientLate, ClientSaturated,
    ClientSharesCpus, ClockJump, ClocksSpread, CpuStolen, EnergyDisagrees, EngineRestarted, Errors,
    FewSamples, FirstEventAhead, GpuErrors, GpuMemoryUnexplained, GpuNotAtRest, GpuShared, HostBusy,
    Imported, KvCacheFull, ListenerUnverified, Neighbour, NeverSteady, NumaRemote, OutputLong, OutputShort,
    PcieDowntrained, Preempted, PretendedGpus, PromptTokensDisagree, QueueGrowing, RateNotReached,
    ResetUnproven, Simulated, Swapping, TelemetryGap, ThrottledHardware, ThrottledPower, ThrottledThermal,
    TokensDisagree, TokensUncounted, WindowShort, WrongModel, WrongPrecision,
};
use Family::{Energy, Itl, Ttft};
use Verdict::{Invalid, Suspect, Valid};

/// Every code, in the order of [`Code::ALL`].
pub const TABLE: &[Entry] = &[
    Entry {
        code: ClientLate,
        weight: Invalid,
        only: &[],
        means: "Requests were sent later than they fell due, or answers were read later than they came (which makes a row suspect): the client was slow, not the engine.",
        mend: "Give the client processors of its own (`taskset`, `cpuset` for the engine), or send at a lower rate.",
        bound: "`send_lag`: 10ms for 99 of 100, and more than one; fewer than five are suspect. Never below three times the calibrated lag or a twentieth of the median TTFT, and of a burst never below a twentieth of the time that it took. Read late: one event of ten may be off by half the mean time between events, or a fortieth of `send_lag` (0.25 ms) where that is more; or one event of ten came at a rate above 150 000 events/s, counted over quarters of a second; or the client did nothing for 0.3 s",
        source: "`matrix calibrate` on the machine itself; wrk2's coordinated omission",
        brings: &[
            ClientSaturated,
            ClientSharesCpus,
            HostBusy,
            CpuStolen,
            RateNotReached,
            NeverSteady,
            QueueGrowing,
        ],
    },
    Entry {
        code: ClientSaturated,
        weight: Invalid,
        only: &[],
        means: "A thread of the client had nearly no processor time left, so the client was measured and not the engine.",
        mend: "Give the client a faster or less busy processor, spread the load over several clients, or send at a lower rate: one client sends on one thread.",
        bound: "`client_cpu`: 0.95 of a processor",
        source: "above it the event loop of the bench falls behind",
        brings: &[
            ChunkedTokens,
            ClientLate,
            ClientSharesCpus,
            RateNotReached,
            NeverSteady,
            QueueGrowing,
        ],
    },
    Entry {
        code: ClientSharesCpus,
        weight: Suspect,
        only: &[],
        means: "Client and engine may run on the same processors.",
        mend: "Hold the engine to a CPU set (`container: { cpuset: 2-31 }`), or the client with `taskset`; on a machine without other processors this is a note.",
        bound: "`client_wait`: 0.05 of the time spent waiting for a processor, where the host has others",
        source: "the scheduler's own account in /proc/self/task/*/schedstat",
        brings: &[],
    },
    Entry {
        code: RateNotReached,
        weight: Suspect,
        only: &[],
        means: "Requests were not sent at the rate at which they fell due.",
        mend: "Where the scenario has a concurrency limit, raise it or lower the rate: what was measured is a closed loop of that concurrency. Where it has none, the client sent late: give it processors of its own, or lower the rate.",
        bound: "`rate`: 0.05 below the rate at which the drawn arrivals fell due, of 20 arrivals on",
        source: "documents of vllm bench serve: a concurrency limit lowers the actual rate",
        brings: &[NeverSteady, QueueGrowing],
    },
    Entry {
        code: Errors,
        weight: Invalid,
        only: &[],
        means: "More requests failed than the scenario allows, or nobody took the connections of a point of a search.",
        mend: "Read the failures by class in the report and the engine's log beside the records; a failed request frees the engine for the others.",
        bound: "`error_share` of the scenario: 0.01",
        source: "a percentile P99 stands on one request in a hundred",
        brings: &[FewSamples, TokensDisagree, NeverSteady],
    },
    Entry {
        code: OutputShort,
        weight: Invalid,
        only: &[],
        means: "Answers ended before the length that was asked for though the end of text was to be ignored.",
        mend: "See whether the engine honours `ignore_eos`, and whether its context length holds prompt and answer; say `stop_at_eos: true` if answers may end early.",
        bound: "`short_outputs`: 0.01 of the answers; where the end of text counts, more than 0.05 of the answers empty, which is suspect",
        source: "outputs within 1 % of the request where EOS is ignored",
        brings: &[FewSamples, WindowShort, NeverSteady],
    },
    Entry {
        code: OutputLong,
        weight: Invalid,
        only: &[],
        means: "Answers went on beyond the length that was asked for.",
        mend: "See whether the engine honours `max_tokens`; the extra tokens raise its throughput.",
        bound: "`short_outputs`: 0.01 of the answers; one token more may be the end of text",
        source: "bench_serving divides the tokens that came by the time they took",
        brings: &[TokensDisagree],
    },
    Entry {
        code: PromptTokensDisagree,
        weight: Invalid,
        only: &[],
        means: "The server counts other prompt tokens than were sent. Fewer: prompts were cut, or another tokenizer counts. More, which is suspect: something was put around them.",
        mend: "Raise the engine's context length (of each slot, where it has slots), see whether it truncates prompts, and whether the matrix names the right tokenizer and chat template.",
        bound: "`prompt_tokens`: 0.02 of each prompt or 8 tokens, in more than one of 100; for chats 256 more, for a template; of the simulated engine, which has no tokenizer, only token ids. The engine's counter of prompt tokens falls short of all that were sent by more than `warm` (0.05), what prompts repeat of each other and what it says its caches held",
        source: "vLLM, SGLang and llama-server count random and ShareGPT prompts as the data set does, to one token",
        brings: &[FewSamples, WindowShort, NeverSteady, TokensDisagree],
    },
    Entry {
        code: TokensUncounted,
        weight: Suspect,
        only: &[],
        means: "The server reports no output tokens; rates of tokens rest on our tokenizer's count of the text.",
        mend: "Have the engine report `usage` in its streams (`stream_options: { include_usage: true }`), or compare requests per second.",
        bound: "more than one of 100 answers",
        source: "text that is split again has up to 16 % more tokens than made it on the real engines of the tests",
        brings: &[OutputShort, OutputLong],
    },
    Entry {
        code: AnswersDegenerate,
        weight: Invalid,
        only: &[],
        means: "Answers are one token or a few over and over, the prompt itself, or the same text whatever the prompt: the engine computes nonsense or nothing, quickly.",
        mend: "Look at the answers (`keep_text: true`); weights or caches that overflow, a wrong kernel or a wrong quantization answer with one token, and a server that was told to `echo` with the prompt; one that answers different prompts alike has not read them.",
        bound: "half of at least 8 answers: 90 % of each one token, event or character; or 32 characters of the prompt's beginning at theirs; or texts of at least 6 tokens that came to different prompts, word for word but for their first 8 events, which is suspect below 16 tokens; or 90 % of each a loop of two to eight tokens or events, which is suspect. Of one token and of the prompt, from 5 % of the answers on it is a note, and suspect where their tokens take less than 0.8 of the time of the others'; the shares of two sides are compared",
        source: "`!!!!!` of NaN weights; real engines that may not end repeat one token in up to 3 of 100 answers",
        brings: &[TokensDisagree, WindowShort, NeverSteady, ChunkedTokens],
    },
    Entry {
        code: TokensDisagree,
        weight: Suspect,
        only: &[],
        means: "The counts of output tokens do not agree: those in the answers, the engine's counter, our tokenizer's count of the text, or the events.",
        mend: "See whether somebody else used the engine, and whether the matrix names the right tokenizer; do not compare token rates until they agree.",
        bound: "`tokens`: 0.01 between answers and counter; `own_tokens`: a factor of 1.5 above our count, or twice as far below it; a factor of 1.25 where the events agree with our count; 5 % above both our count and the events, in most answers (15 % where the end of text is ignored, beyond which special tokens show no text); no more events with text than tokens, in most answers; where fewer answers report half as many again as text and events bear out, which makes 2 % of all tokens or more, this is suspect, and a note where the end of text is ignored; of two sides the quotients of the server's count and ours are held against each other: 2 % apart where the events say the same, 5 % where an event holds several tokens, else 10 %",
        source: "client and server must agree within 1 %; text that is split again has up to 16 % more tokens than made it on the real engines of the tests",
        brings: &[ChunkedTokens],
    },
    Entry {
        code: ChunkedTokens,
        weight: Suspect,
        only: &[Itl],
        means: "Several tokens come in one event, or several events at one moment, so times between events are not times between tokens.",
        mend: "Compare TPOT instead of ITL (answers that come whole or in a few large parts have neither), or have the engine stream each token (`--stream-interval 1` where it is known); take proxies that gather events out of the way.",
        bound: "`tokens_per_chunk`: 1.25, or two events at one moment on average though the client looked; with speculative decoding as many more as tokens were accepted at a time, by its counters. Where half of the answers arrive at one moment, or in parts of more than a fifth of them and of eight tokens, TPOT is suspect too, and with a target of TPOT goodput, SLO attainment and what a search found",
        source: "LMDeploy's reports of 2025, whose ITL is that of merged chunks",
        brings: &[],
    },
    Entry {
        code: FirstEventAhead,
        weight: Suspect,
        only: &[Ttft],
        means: "Most answers begin with an event that comes well ahead of the next one: white space, or the same word whatever the prompt. TTFT is its moment.",
        mend: "Have the server send nothing before the model's first token; compare the time of whole answers (E2E) meanwhile.",
        bound: "of at least 8 answers more than half, those left out whose second event waited while prompts of others were read: the next event after more than three times the median gap; after white space also four such events. Of words that differ from answer to answer it is a note, where nine of ten begin alike it is suspect. With a target of TTFT goodput, SLO attainment and what a search found are suspect too",
        source: "an engine's second token comes as soon after the first as the others do, unless it reads prompts in between or hands the request on",
        brings: &[TokensDisagree],
    },
    Entry {
        code: CacheWarm,
        weight: Invalid,
        only: &[],
        means: "Prompts that should be new to the engine were found in its prefix cache.",
        mend: "See that the caches are emptied before each cell (the reset may need a switch of the engine), have the recipe ask for `unique_prefixes`, or turn prefix caching off in the engine's arguments.",
        bound: "`warm`: 0.05 of the prompt tokens above the share that the prompts repeat of each other; of a chat template's own 64 tokens, and of the prompt that warms up, nobody expects otherwise; of the engine's counters and what answers report, the worse counts; each point of a search is judged by itself, and a warm one ends it",
        source: "prefix hits near zero where the workload says cold",
        brings: &[WindowShort, NeverSteady],
    },
    Entry {
        code: ResetUnproven,
        weight: Suspect,
        only: &[],
        means: "Nobody can tell whether the caches were empty.",
        mend: "Turn the engine's metrics or its reset endpoint on, have the recipe ask for `unique_prefixes`, or measure this cell on a start of its own.",
        bound: "its counters show no hits and the engine says success, or nothing was measured on this start before (each point of a search counts, unless its prompts were in no point before it); where it refused and no hits were counted, this is a note",
        source: "an engine may answer 200 and `{\"success\": false}`",
        brings: &[],
    },
    Entry {
        code: ThrottledThermal,
        weight: Suspect,
        only: &[],
        means: "A GPU slowed down for heat.",
        mend: "Mend its cooling or lower its power limit, let it cool down, and measure again.",
        bound: "`throttled`: 0.01 of the samples",
        source: "NVML's clocks-event reasons",
        brings: &[ClocksSpread],
    },
    Entry {
        code: ThrottledPower,
        weight: Valid,
        only: &[],
        means: "A GPU slowed down at its power limit.",
        mend: "Say the power limit beside the figures and compare only with the same limit, or raise it (`nvidia-smi -pl`).",
        bound: "`power_capped`: 0.1 of the samples; where two sides differ by more than 0.2 of them, no verdict is given",
        source: "NVML's clocks-event reasons; full prefill reaches the limit of many GPUs",
        brings: &[ClocksSpread],
    },
    Entry {
        code: ThrottledHardware,
        weight: Suspect,
        only: &[],
        means: "A GPU's hardware slowed it down: power brake, or a fault of its supply.",
        mend: "Look at the host's power supply and the kernel's log before anything is measured on it.",
        bound: "`throttled`: 0.01 of the samples",
        source: "NVML's clocks-event reasons",
        brings: &[ClocksSpread],
    },
    Entry {
        code: ClocksSpread,
        weight: Valid,
        only: &[],
        means: "A GPU's clock wandered while it was busy, or lay far below its highest.",
        mend: "Lock the clocks (`nvidia-smi -lgc`), or repeat until the spread is part of the interval.",
        bound: "`clock_spread`: 0.05 of the median between P5 and P95 of at least 30 busy samples, or 0.75 of the highest clock; where the mean clocks of two sides differ by more than 0.03, no verdict is given",
        source: "clock spread within a run of at most 5 %",
        brings: &[],
    },
    Entry {
        code: GpuShared,
        weight: Invalid,
        only: &[],
        means: "Somebody else's process was on a GPU of the launch.",
        mend: "End the process that is named, or measure on other GPUs.",
        bound: "none but the engine's own",
        source: "a GPU that is shared is not the GPU that is named",
        brings: &[GpuNotAtRest, ClocksSpread],
    },
    Entry {
        code: GpuNotAtRest,
        weight: Suspect,
        only: &[],
        means: "A GPU's memory was taken before the engine was started.",
        mend: "Find who holds it (`nvidia-smi`, `matrix clean`); the engine had less memory for its cache than another time.",
        bound: "`rest_memory`: 1GiB; on a GPU that draws a desktop this is a note",
        source: "a driver alone takes less",
        brings: &[GpuShared],
    },
    Entry {
        code: Preempted,
        weight: Suspect,
        only: &[],
        means: "The engine stopped requests that ran because its KV cache had no room left, and did their work again.",
        mend: "Lower the concurrency or the engine's limit of requests at once (`--max-num-seqs`), or give its KV cache more memory (`--gpu-memory-utilization`, `--mem-fraction-static`).",
        bound: "`preemptions`: 0.01 of the requests",
        source: "the engine's own counter; vLLM warns of it in its log",
        brings: &[KvCacheFull],
    },
    Entry {
        code: KvCacheFull,
        weight: Valid,
        only: &[],
        means: "The engine's KV cache was full, so its size limited how many requests ran at once.",
        mend: "Say so beside the figures; an engine with more memory for its cache serves the same load faster.",
        bound: "0.95 of the cache, for 0.05 of the samples",
        source: "the engine's own gauge, read once a second",
        brings: &[Preempted],
    },
    Entry {
        code: HostBusy,
        weight: Suspect,
        only: &[],
        means: "Other processes kept this host's processors busy.",
        mend: "End what else runs on this host (`top`), or give client and engine processors of their own, and measure again.",
        bound: "`other_cpus`: 0.1 of the processors, and never less than one of them, or a quarter of a host of fewer than four",
        source: "/proc/stat without the client's and the engine's own processor time",
        brings: &[
            ClientLate,
            ClientSharesCpus,
            ClientSaturated,
            NeverSteady,
            QueueGrowing,
        ],
    },
    Entry {
        code: CpuStolen,
        weight: Suspect,
        only: &[],
        means: "The hypervisor gave processor time of this machine to others.",
        mend: "Measure on a host whose processors are its own, or on a machine with dedicated ones.",
        bound: "`stolen`: 0.02 of the processors' time",
        source: "steal time in /proc/stat",
        brings: &[ClientLate, ClientSharesCpus, NeverSteady],
    },
    Entry {
        code: Swapping,
        weight: Suspect,
        only: &[],
        means: "Memory of this host went to and from swap.",
        mend: "Free memory or turn swap off (`swapoff -a`), and measure again.",
        bound: "`swap`: 1MiB in each second on average",
        source: "pswpin and pswpout in /proc/vmstat",
        brings: &[ClientLate, NeverSteady],
    },
    Entry {
        code: GpuMemoryUnexplained,
        weight: Suspect,
        only: &[],
        means: "Memory of a GPU belonged to no process of the engine, so somebody who is not seen from here may have used it.",
        mend: "Look for other containers, users and virtual machines on the GPU, and measure again.",
        bound: "`unexplained_memory`: 1GiB",
        source: "NVML's memory in use without that of the processes it names",
        brings: &[GpuNotAtRest, ClocksSpread],
    },
    Entry {
        code: GpuErrors,
        weight: Suspect,
        only: &[],
        means: "A GPU reported errors: in the kernel's log (Xid), of its memory (ECC), or rows that were replaced.",
        mend: "Look the Xid up in NVIDIA's catalogue, see `nvidia-smi -q -d ECC,ROW_REMAPPER`, and reset or replace the GPU.",
        bound: "none within the window",
        source: "the kernel's log; NVML's counters",
        brings: &[Errors, EngineRestarted],
    },
    Entry {
        code: PcieDowntrained,
        weight: Suspect,
        only: &[],
        means: "A GPU's PCIe link ran with fewer lanes or a lower generation than device and slot can do.",
        mend: "Reseat the GPU or its riser and see the BIOS; loading, offloading and GPUs without NVLink are slower.",
        bound: "the highest that device and slot can do, while the GPU is busy",
        source: "NVML's link generation and width",
        brings: &[],
    },
    Entry {
        code: NumaRemote,
        weight: Suspect,
        only: &[],
        means: "The engine was held to processors that are not on the NUMA nodes of its GPUs.",
        mend: "Give it a CPU set near its GPUs (`matrix plan` names it; `container: { cpuset: … }`, `numactl`).",
        bound: "one processor of those nodes",
        source: "the kernel's lists of processors of each NUMA node, and those that the engine may run on",
        brings: &[],
    },
    Entry {
        code: EngineRestarted,
        weight: Invalid,
        only: &[],
        means: "The engine began anew within the window: its counters fell.",
        mend: "Read the engine's log beside the records; a server that is attached to may have been restarted by somebody else.",
        bound: "counters only grow",
        source: "the definition of a Prometheus counter",
        brings: &[Errors, TokensDisagree, ResetUnproven, NeverSteady, TelemetryGap],
    },
    Entry {
        code: WrongModel,
        weight: Invalid,
        only: &[],
        means: "The engine says that it serves another model than was asked for, or its answers name another one.",
        mend: "Attach to the right server, or set the model's `served:` name; a router may have sent requests to a fallback.",
        bound: "the served name is among the engine's models, and no answer names another model; a path and its last part, and a name and the version of a day, are one name. Where all answers name the same other model and the server lists it, this is a note; where it lists none, suspect",
        source: "the engine's own list, asked again after the measurement; the `model` of the events of answers",
        brings: &[],
    },
    Entry {
        code: WrongPrecision,
        weight: Invalid,
        only: &[],
        means: "The engine says that it computes in another precision than the matrix names.",
        mend: "Correct `precision:` in the matrix, or the checkpoint or quantization arguments of the engine.",
        bound: "the same kind of number: 16-bit, fp8, fp4, int8, int4",
        source: "`quantization` and `dtype` of the engine's live configuration",
        brings: &[],
    },
    Entry {
        code: TelemetryGap,
        weight: Suspect,
        only: &[],
        means: "A source of telemetry was silent for a part of the window, so what happened meanwhile is not known.",
        mend: "Read why in the telemetry of the cell; where nobody watches the GPUs, install the driver's library or tool.",
        bound: "`gap`: 3s, and three periods of the source; of the engine's own metrics a note where they were read before and after",
        source: "a gap of at most 3 s, and a window with samples on both sides; llama-server answers about itself between its batches only",
        brings: &[],
    },
    Entry {
        code: FewSamples,
        weight: Valid,
        only: &[],
        means: "Fewer requests lie beyond a percentile that is printed than it takes to tell it.",
        mend: "Send more requests, or read the median; such a percentile is never compared.",
        bound: "`tail`: 10 requests beyond it",
        source: "order statistics: ten observations beyond the percentile",
        brings: &[],
    },
    Entry {
        code: WindowShort,
        weight: Suspect,
        only: &[],
        means: "The measurement was so short that its beginning and end are a large part of it.",
        mend: "Send more requests.",
        bound: "`window`: 10s",
        source: "start and drain take some seconds with the slowest of the standard workloads",
        brings: &[NeverSteady],
    },
    Entry {
        code: NeverSteady,
        weight: Suspect,
        only: &[],
        means: "Throughput never stayed the same for long.",
        mend: "Send more requests, or look at the course over time in the report for what changed.",
        bound: "`steady`: 0.3 of the time within a quarter of its own mean; at a rate also within what random arrivals explain (two standard deviations)",
        source: "tenths of the window, at least two of them alike",
        brings: &[],
    },
    Entry {
        code: QueueGrowing,
        weight: Suspect,
        only: &[],
        means: "Requests came faster than they were answered, to the end: latencies tell how long it was measured.",
        mend: "Lower the rate below what the engine can bear, or search it with `search: { by: rate }`.",
        bound: "`queue_growth`: a factor of 1.1 in flight from each quarter of the sending to the next, and more than random arrivals explain (three times the square root of the mean)",
        source: "an open loop beyond capacity has no steady state",
        brings: &[NeverSteady],
    },
    Entry {
        code: ClockJump,
        weight: Suspect,
        only: &[],
        means: "The wall clock was set meanwhile; moments that the kernel stamped around that time may be off.",
        mend: "Let the clock be slewed instead of set (chrony, `makestep` off) while measuring.",
        bound: "a millisecond, by two readings in a row",
        source: "the kernel stamps arrivals in wall time; the clocks of virtual machines move apart by some microseconds without being set",
        brings: &[],
    },
    Entry {
        code: EnergyDisagrees,
        weight: Valid,
        only: &[Energy],
        means: "The GPU's energy counter and its power over time tell different energies; the counter is used.",
        mend: "Believe neither to more than their distance.",
        bound: "5 % apart",
        source: "power is sampled ten times a second, and averaged by the driver",
        brings: &[],
    },
    Entry {
        code: ListenerUnverified,
        weight: Valid,
        only: &[],
        means: "It could not be verified that the process that answered on the engine's port was the engine.",
        mend: "Run as the user who owns the engine's processes, on the engine's host; a port that still answers after the engine was stopped fails the measurement.",
        bound: "the port is closed once the engine has stopped",
        source: "another server on the same port would be measured in its place",
        brings: &[],
    },
    Entry {
        code: Neighbour,
        weight: Suspect,
        only: &[],
        means: "Something else ran on this host meanwhile because the matrix allows it.",
        mend: "Leave `parallel` and `pull_ahead` out of the matrix where the figures are to be published.",
        bound: "alone on the host",
        source: "neighbours share memory, PCIe and processors",
        brings: &[ClientLate, ClientSharesCpus],
    },
    Entry {
        code: BoundsLoosened,
        weight: Valid,
        only: &[],
        means: "The matrix allows more than usual before it doubts a measurement, so that less is found.",
        mend: "Name these bounds beside the figures, or take them out of `validity:`.",
        bound: "the defaults of `validity:`",
        source: "a row without doubts says as much as the bounds that it was judged by",
        brings: &[],
    },
    Entry {
        code: PretendedGpus,
        weight: Valid,
        only: &[],
        means: "The GPUs are only pretended: nothing was computed on one.",
        mend: "Leave MATRIX_PRETEND_GPUS out on a host with GPUs.",
        bound: "–",
        source: "the environment",
        brings: &[],
    },
    Entry {
        code: Imported,
        weight: Valid,
        only: &[],
        means: "Another tool measured it; what that tool did not write is unknown.",
        mend: "Measure it again where the unknown matters.",
        bound: "–",
        source: "the origin of the run",
        brings: &[],
    },
    Entry {
        code: Simulated,
        weight: Valid,
        only: &[],
        means: "The engine is simulated: its figures say nothing about a real one.",
        mend: "Use them to try the tool.",
        bound: "–",
        source: "the recipe",
        brings: &[],
    },
];

/// The row of a code.
pub fn entry(code: Code) -> &'static Entry {
    TABLE
        .iter()
        .find(|entry| entry.code == code)
        .expect("a test keeps the table complete")
}

/// The rules of verdicts on comparisons, with their simulated rates.
const VERDICTS: &str = include_str!("../compare/rules.md");

/// The whole table as a document, with the rules of verdicts on comparisons at its end.
pub fn described() -> String {
    let mut text = String::from(
        "# Validity\n\nWhat is judged of every measurement, made from the table in `src/judge/validity/table.rs` by \
         `matrix explain --codes`. A measurement is as bad as its worst finding: `invalid` gives no ratio, wins no comparison, sets no \
         baseline and raises no alarm; `suspect` is marked in every table; a `note` changes nothing. A finding that concerns only some figures, such as ITL, is about \
         those alone. Bounds are set in \
         the matrix, as in `validity: { window: 60s, warm: 0.02 }`.\n",
    );
    for entry in TABLE {
        let brings: Vec<String> = entry
            .brings
            .iter()
            .map(|code| format!("`{}`", code.name()))
            .collect();
        let brings = match brings.is_empty() {
            true => "none".to_owned(),
            false => brings.join(", "),
        };
        let weight = match entry.weight {
            Valid => "note",
            Suspect | Invalid => entry.weight.name(),
        };
        let only: Vec<&str> = entry.only.iter().map(|family| family.name()).collect();
        let only = match only.is_empty() {
            true => String::new(),
            false => format!(" ({} only)", only.join(", ")),
        };
        text.push_str(&format!(
            "\n## `{}`: {}{only}\n\n{} {}\n\n- bound: {}\n- why this bound: {}\n- may bring: {brings}\n",
            entry.code.name(),
            weight,
            entry.means,
            entry.mend,
            entry.bound,
            entry.source
        ));
    }
    text.push_str(VERDICTS);
    text
}
