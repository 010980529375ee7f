/* A library that answers like NVIDIA's management library, from a script that lies beside it, for tests on machines without a GPU.
 *
 * Written for these tests from the public names, types and numbers of the interface. The script and its words are described in
 * tests/nvml/stub.rs, which builds it. Where a real driver has a truth, this has one too: energy is the exact integral of power, and the
 * memory in use is what it holds at rest, plus what its processes hold, plus what nobody owns to.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef int Return;
typedef void *Device;
enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, NO_DRIVER = 9, LOST = 15 };
enum { GPUS = 16, RULES = 256, POINTS = 32 };

/* A moment: seconds after the library was initialized, after the engine came, or after it went. */
struct moment { enum { START, ENGINE, GONE, NEVER } after; double offset; };

struct rule {
    char word[24];
    char call[64];
    int gpu; /* -1 for all */
    int instance; /* -1 for none of them in particular */
    struct moment from, until;
    double number[3];
    int is_engine; /* of a process: whichever the engine's is */
};

static struct {
    int is_read, is_up;
    int gpus, links_up, mig, ecc, bare, follows_engine;
    double began, at_rest_mib, memory_mib, busy_w, limit_w;
    char name[96], driver[80];
    int cuda;
    struct { double at, watts; } power[GPUS][POINTS];
    int points[GPUS];
    struct rule rules[RULES];
    int count;
    /* The engine: the process that runs `sim` and that whoever loaded this has started. */
    int engine;
    double looked, scanned, engine_since, gone_since, busy_j;
} now_;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- the script ---- */

static struct moment moment(const char *text) {
    struct moment m = { START, 0 };
    if (!strncmp(text, "engine", 6)) { m.after = ENGINE; text += 6; }
    else if (!strncmp(text, "gone", 4)) { m.after = GONE; text += 4; }
    m.offset = *text ? strtod(text, NULL) : 0;
    if (m.after != START) now_.follows_engine = 1;
    return m;
}

static double reason(const char *text) {
    static const struct { const char *name; int bit; } known[] = {
        { "idle", 1 }, { "chosen", 2 }, { "power", 4 }, { "hardware", 8 }, { "sync", 16 },
        { "thermal", 32 }, { "hot", 64 | 8 }, { "brake", 128 | 8 }, { "display", 256 }, { "new", 1 << 20 },
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(text, known[i].name)) return known[i].bit;
    return strtod(text, NULL);
}

static void points(int gpu, int count, char **words) {
    for (int g = 0; g < GPUS; g++) {
        if (gpu >= 0 && g != gpu) continue;
        now_.points[g] = 0;
        for (int i = 0; i < count && i < POINTS; i++) {
            char *colon = strchr(words[i], ':');
            now_.power[g][i].at = colon ? strtod(words[i], NULL) : 0;
            now_.power[g][i].watts = strtod(colon ? colon + 1 : words[i], NULL);
            now_.points[g]++;
        }
    }
}

static void line(char *text) {
    char *words[POINTS + 4], *save = NULL;
    int count = 0;
    struct rule rule = { .gpu = -1, .instance = -1, .until = { NEVER, 0 } };
    text[strcspn(text, "#\n")] = 0;
    for (char *word = strtok_r(text, " \t", &save); word && count < POINTS + 4; word = strtok_r(NULL, " \t", &save)) {
        if (!strncmp(word, "gpu=", 4)) rule.gpu = atoi(word + 4);
        else if (!strncmp(word, "instance=", 9)) rule.instance = atoi(word + 9);
        else if (!strncmp(word, "from=", 5)) rule.from = moment(word + 5);
        else if (!strncmp(word, "until=", 6)) rule.until = moment(word + 6);
        else words[count++] = word;
    }
    if (!count) return;
    const char *key = words[0];
    double first = count > 1 ? strtod(words[1], NULL) : 0;
    if (!strcmp(key, "gpus")) now_.gpus = (int)first < GPUS ? (int)first : GPUS;
    else if (!strcmp(key, "name")) {
        now_.name[0] = 0;
        for (int i = 1; i < count; i++) snprintf(now_.name + strlen(now_.name), sizeof now_.name - strlen(now_.name), "%s%s", i > 1 ? " " : "", words[i]);
    }
    else if (!strcmp(key, "driver")) snprintf(now_.driver, sizeof now_.driver, "%s", count > 1 ? words[1] : "");
    else if (!strcmp(key, "cuda")) now_.cuda = (int)first;
    else if (!strcmp(key, "memory")) now_.memory_mib = first;
    else if (!strcmp(key, "rest")) now_.at_rest_mib = first;
    else if (!strcmp(key, "limit")) now_.limit_w = first;
    else if (!strcmp(key, "nvlink")) now_.links_up = (int)first;
    else if (!strcmp(key, "mig")) now_.mig = 1;
    else if (!strcmp(key, "ecc")) now_.ecc = 1;
    else if (!strcmp(key, "bare")) now_.bare = 1;
    else if (!strcmp(key, "busy")) { now_.busy_w = first; now_.follows_engine = 1; }
    else if (!strcmp(key, "power")) points(rule.gpu, count - 1, words + 1);
    else if (now_.count < RULES) {
        snprintf(rule.word, sizeof rule.word, "%s", key);
        int at = 1;
        if (!strcmp(key, "error") || !strcmp(key, "slow") || !strcmp(key, "hang"))
            snprintf(rule.call, sizeof rule.call, "%s", at < count ? words[at++] : "*");
        if (!strcmp(key, "process") && at < count && !strcmp(words[at], "engine")) {
            rule.is_engine = 1;
            now_.follows_engine = 1;
        }
        for (int i = 0; i < 3 && at < count; i++, at++)
            rule.number[i] = !strcmp(key, "throttle") ? reason(words[at]) : strtod(words[at], NULL);
        now_.rules[now_.count++] = rule;
    }
}

static void script(void) {
    Dl_info self;
    char path[4096], text[1024];
    now_.is_read = 1;
    now_.gpus = 1;
    now_.at_rest_mib = 512;
    now_.memory_mib = 81920;
    now_.limit_w = 700;
    now_.cuda = 12080;
    now_.began = seconds();
    now_.engine_since = now_.gone_since = -1;
    snprintf(now_.name, sizeof now_.name, "NVIDIA Stub");
    snprintf(now_.driver, sizeof now_.driver, "570.86.15");
    char usual[] = "power 70";
    line(usual);
    if (!dladdr((void *)script, &self) || !self.dli_fname) return;
    const char *node = getenv("SLURMD_NODENAME");
    snprintf(path, sizeof path, "%s.script.%s", self.dli_fname, node ? node : "");
    FILE *file = fopen(path, "r");
    if (!file) {
        snprintf(path, sizeof path, "%s.script", self.dli_fname);
        file = fopen(path, "r");
    }
    if (!file) return;
    while (fgets(text, sizeof text, file)) line(text);
    fclose(file);
}

/* ---- what is so now ---- */

static int find_engine(void) {
    DIR *all = opendir("/proc");
    struct dirent *entry;
    int found = 0;
    while (all && !found && (entry = readdir(all))) {
        int pid = atoi(entry->d_name), parent = -1;
        char path[300], text[4096];
        if (pid <= 0) continue;
        snprintf(path, sizeof path, "/proc/%d/stat", pid);
        FILE *file = fopen(path, "r");
        if (!file) continue;
        size_t size = fread(text, 1, sizeof text - 1, file);
        fclose(file);
        text[size] = 0;
        char *after = strrchr(text, ')'), state = 0;
        if (!after || sscanf(after + 1, " %c %d", &state, &parent) != 2 || parent != getpid() || state == 'Z') continue;
        snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
        if (!(file = fopen(path, "r"))) continue;
        size = fread(text, 1, sizeof text, file);
        fclose(file);
        if (memmem(text, size, "\0sim\0", 5)) found = pid;
    }
    if (all) closedir(all);
    return found;
}

/* Follows the engine; what it burns is added up by the same rule as its power is told. */
static void follow(double now) {
    if (!now_.follows_engine) return;
    if (now_.engine) now_.busy_j += now_.busy_w * (now - now_.looked);
    now_.looked = now;
    if (now_.scanned && now - now_.scanned < 0.02) return;
    now_.scanned = now;
    int engine = find_engine();
    if (engine && engine != now_.engine) { now_.engine_since = now; now_.gone_since = -1; }
    if (!engine && now_.engine) now_.gone_since = now;
    now_.engine = engine;
}

static int reached(struct moment m, double now) {
    switch (m.after) {
    case START: return now - now_.began >= m.offset;
    case ENGINE: return now_.engine && now - now_.engine_since >= m.offset;
    case GONE: return now_.gone_since >= 0 && now - now_.gone_since >= m.offset;
    default: return 0;
    }
}

static int holds(const struct rule *rule, const char *word, int gpu, double now) {
    return !strcmp(rule->word, word) && (rule->gpu < 0 || rule->gpu == gpu) && reached(rule->from, now)
        && !(rule->until.after != NEVER && reached(rule->until, now));
}

/* The last line of the script that holds wins. */
static const struct rule *last(const char *word, int gpu, double now) {
    const struct rule *found = NULL;
    for (int i = 0; i < now_.count; i++)
        if (holds(&now_.rules[i], word, gpu, now)) found = &now_.rules[i];
    return found;
}

static double watts(int gpu, double at) {
    int n = now_.points[gpu];
    if (!n) return 0;
    if (at <= now_.power[gpu][0].at) return now_.power[gpu][0].watts;
    for (int i = 1; i < n; i++) {
        double a = now_.power[gpu][i - 1].at, b = now_.power[gpu][i].at;
        double p = now_.power[gpu][i - 1].watts, q = now_.power[gpu][i].watts;
        if (at < b) return p + (q - p) * (at - a) / (b - a);
    }
    return now_.power[gpu][n - 1].watts;
}

/* The integral of `watts` from 0: a trapezium between any two bends. */
static double joules(int gpu, double to) {
    double sum = 0, from = 0;
    for (int i = 0; i < now_.points[gpu]; i++) {
        double bend = now_.power[gpu][i].at;
        if (bend <= from) continue;
        if (bend >= to) break;
        sum += (watts(gpu, from) + watts(gpu, bend - 1e-9)) / 2 * (bend - from);
        from = bend;
    }
    return sum + (watts(gpu, from) + watts(gpu, to)) / 2 * (to - from);
}

/* Begins a call: sleeps or hangs as the script says, and gives the error that it plants. The lock is held where it gives none. */
static Return begin(const char *call, int gpu, double *at) {
    pthread_mutex_lock(&lock);
    if (!now_.is_read) script();
    double now = seconds(), sleep_ms = 0;
    int hangs = 0;
    Return planted = SUCCESS;
    follow(now);
    for (int i = 0; i < now_.count; i++) {
        const struct rule *rule = &now_.rules[i];
        int is_it = !strcmp(rule->call, "*") || !strcmp(rule->call, call);
        if (holds(rule, "lost", gpu, now) && gpu >= 0) planted = LOST;
        if (!is_it) continue;
        if (holds(rule, "slow", gpu, now)) sleep_ms = rule->number[0];
        if (holds(rule, "hang", gpu, now)) hangs = 1;
        if (holds(rule, "error", gpu, now)) planted = (Return)rule->number[0];
    }
    if (!planted && gpu >= 0 && gpu >= now_.gpus) planted = INVALID;
    if (!planted && !now_.is_up && strncmp(call, "nvmlInit", 8)) planted = UNINITIALIZED;
    if (hangs || sleep_ms > 0) {
        pthread_mutex_unlock(&lock);
        struct timespec t = { (time_t)(sleep_ms / 1e3), (long)(sleep_ms * 1e6) % 1000000000L };
        if (sleep_ms > 0) nanosleep(&t, NULL);
        while (hangs) pause();
        pthread_mutex_lock(&lock);
    }
    *at = seconds();
    if (planted) pthread_mutex_unlock(&lock);
    return planted;
}

/* A handle is the GPU's number from 1 on; that of an instance has its own number, from 1 on, in the higher digits. */
#define INDEX(device) ((int)((uintptr_t)(device) % 256) - 1)
#define INSTANCE(device) ((int)((uintptr_t)(device) / 256) - 1)
#define BEGIN(gpu)                                    \
    double at;                                        \
    Return planted = begin(__func__, (gpu), &at);     \
    if (planted) return planted
#define OF(device)                                    \
    int gpu = INDEX(device);                          \
    BEGIN(gpu)
/* What an instance does not tell. */
#define WHOLE(device)                                 \
    OF(device);                                       \
    if (INSTANCE(device) >= 0) END(NOT_SUPPORTED)
#define END(code)                                     \
    do {                                              \
        Return result = (code);                       \
        pthread_mutex_unlock(&lock);                  \
        return result;                                \
    } while (0)

static Return text(char *out, unsigned size, const char *value) {
    if (strlen(value) + 1 > size) return TOO_SMALL;
    strcpy(out, value);
    return SUCCESS;
}

/* ---- the library ---- */

Return nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    BEGIN(-1);
    now_.is_up = 1;
    END(SUCCESS);
}
Return nvmlInit_v2(void) {
    BEGIN(-1);
    now_.is_up = 1;
    END(now_.gpus < 0 ? NO_DRIVER : SUCCESS);
}
Return nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(Return code) { return code == SUCCESS ? "Success" : "planted"; }
Return nvmlSystemGetDriverVersion(char *out, unsigned size) { BEGIN(-1); END(text(out, size, now_.driver)); }
Return nvmlSystemGetCudaDriverVersion_v2(int *out) { BEGIN(-1); *out = now_.cuda; END(SUCCESS); }
Return nvmlSystemGetCudaDriverVersion(int *out) { BEGIN(-1); *out = now_.cuda; END(SUCCESS); }
Return nvmlDeviceGetCount_v2(unsigned *out) { BEGIN(-1); *out = (unsigned)now_.gpus; END(SUCCESS); }

Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *out) {
    BEGIN((int)index);
    *out = (Device)(uintptr_t)(index + 1);
    END(SUCCESS);
}
static void uuid(int gpu, int instance, char *out) {
    if (instance < 0) sprintf(out, "GPU-57b00000-0000-4000-8000-%012d", gpu);
    else sprintf(out, "MIG-57b00000-0000-4000-800%d-%012d", instance, gpu);
}
static void bus(int gpu, char *out) { sprintf(out, "00000000:%02X:00.0", 0x10 + 0x11 * gpu); }
Return nvmlDeviceGetHandleByUUID(const char *wanted, Device *out) {
    char own[80];
    for (int gpu = 0; gpu < GPUS; gpu++) {
        for (int instance = -1; instance < 8; instance++) {
            uuid(gpu, instance, own);
            if (strcmp(own, wanted)) continue;
            BEGIN(gpu);
            *out = (Device)(uintptr_t)(256 * (instance + 1) + gpu + 1);
            END(SUCCESS);
        }
    }
    return NOT_FOUND;
}
static int instances(int gpu, double at) {
    const struct rule *rule = last("instances", gpu, at);
    return rule ? (int)rule->number[0] : 0;
}
Return nvmlDeviceGetMaxMigDeviceCount(Device d, unsigned *out) { OF(d); *out = 7; END(SUCCESS); }
Return nvmlDeviceGetMigDeviceHandleByIndex(Device d, unsigned index, Device *out) {
    OF(d);
    if ((int)index >= instances(gpu, at)) END(NOT_FOUND);
    *out = (Device)(uintptr_t)(256 * (index + 1) + gpu + 1);
    END(SUCCESS);
}
Return nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device d, Device *out) { OF(d); *out = (Device)(uintptr_t)(gpu + 1); END(SUCCESS); }
Return nvmlDeviceIsMigDeviceHandle(Device d, unsigned *out) { OF(d); *out = INSTANCE(d) >= 0; END(SUCCESS); }
Return nvmlDeviceGetName(Device d, char *out, unsigned size) {
    char own[128];
    OF(d);
    snprintf(own, sizeof own, "%s%s", now_.name, INSTANCE(d) >= 0 ? " MIG 1g.10gb" : "");
    END(text(out, size, own));
}
Return nvmlDeviceGetUUID(Device d, char *out, unsigned size) { char own[80]; OF(d); uuid(gpu, INSTANCE(d), own); END(text(out, size, own)); }
Return nvmlDeviceGetVbiosVersion(Device d, char *out, unsigned size) { OF(d); END(text(out, size, "96.00.A5.00.01")); }

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char address[32]; };
Return nvmlDeviceGetPciInfo_v3(Device d, struct pci *out) {
    OF(d);
    memset(out, 0, sizeof *out);
    bus(gpu, out->address);
    out->bus = (unsigned)(0x10 + 0x11 * gpu);
    END(SUCCESS);
}
Return nvmlDeviceGetMigMode(Device d, unsigned *current, unsigned *pending) {
    OF(d);
    *current = *pending = (unsigned)(now_.mig || instances(gpu, at));
    END(SUCCESS);
}
/* Told only where the script names them, as by devices that do not know. */
static Return number(Device d, const char *word, int place, unsigned *out) {
    WHOLE(d);
    const struct rule *rule = last(word, gpu, at);
    if (!rule) END(NOT_SUPPORTED);
    *out = (unsigned)rule->number[place];
    END(SUCCESS);
}
Return nvmlDeviceGetCurrPcieLinkGeneration(Device d, unsigned *out) { return number(d, "link", 0, out); }
Return nvmlDeviceGetCurrPcieLinkWidth(Device d, unsigned *out) { return number(d, "link", 1, out); }
Return nvmlDeviceGetMaxPcieLinkGeneration(Device d, unsigned *out) { return number(d, "slot", 0, out); }
Return nvmlDeviceGetMaxPcieLinkWidth(Device d, unsigned *out) { return number(d, "slot", 1, out); }
Return nvmlDeviceGetDisplayActive(Device d, unsigned *out) { return number(d, "desktop", 0, out); }
Return nvmlDeviceGetEccMode(Device d, unsigned *current, unsigned *pending) {
    OF(d);
    *current = *pending = (unsigned)now_.ecc;
    END(SUCCESS);
}
Return nvmlDeviceGetEnforcedPowerLimit(Device d, unsigned *out) { WHOLE(d); *out = (unsigned)(now_.limit_w * 1e3); END(SUCCESS); }
Return nvmlDeviceGetMaxClockInfo(Device d, unsigned clock, unsigned *out) { OF(d); *out = clock == 2 ? 2619 : 1980; END(SUCCESS); }
Return nvmlDeviceGetTopologyCommonAncestor(Device a, Device b, unsigned *out) {
    (void)b;
    OF(a);
    *out = 40;
    END(SUCCESS);
}
Return nvmlDeviceGetNvLinkState(Device d, unsigned link, unsigned *out) {
    OF(d);
    if (link >= (unsigned)now_.links_up) END(INVALID);
    *out = 1;
    END(SUCCESS);
}
Return nvmlDeviceGetNvLinkRemotePciInfo_v2(Device d, unsigned link, struct pci *out) {
    (void)link;
    OF(d);
    memset(out, 0, sizeof *out);
    strcpy(out->legacy, "0000:00:00.0");
    strcpy(out->address, "00000000:07:00.0"); /* a switch */
    END(SUCCESS);
}

static double power_now(int gpu, double at) { return watts(gpu, at - now_.began) + (now_.engine ? now_.busy_w : 0); }
static double energy_now(int gpu, double at) {
    return joules(gpu, at - now_.began) + now_.busy_j + (now_.engine ? now_.busy_w * (at - now_.looked) : 0);
}
/* An instance holds what is said of it, and the whole all of that. */
static int is_its(const struct rule *rule, int instance) { return instance < 0 || rule->instance == instance; }
static double memory_now(int gpu, int instance, double at) {
    double mib = instance < 0 ? now_.at_rest_mib : 20;
    for (int i = 0; i < now_.count; i++) {
        const struct rule *rule = &now_.rules[i];
        if (!is_its(rule, instance)) continue;
        if (holds(rule, "hold", gpu, at)) mib += rule->number[0];
        if (holds(rule, "process", gpu, at) && (!rule->is_engine || now_.engine)) mib += rule->number[1];
    }
    return mib;
}

Return nvmlDeviceGetPowerUsage(Device d, unsigned *out) { WHOLE(d); *out = (unsigned)(power_now(gpu, at) * 1e3 + 0.5); END(SUCCESS); }
Return nvmlDeviceGetTotalEnergyConsumption(Device d, unsigned long long *out) {
    WHOLE(d);
    /* The driver was loaded long before. */
    *out = 123456789ULL + (unsigned long long)(energy_now(gpu, at) * 1e3);
    END(SUCCESS);
}
struct utilization { unsigned gpu, memory; };
Return nvmlDeviceGetUtilizationRates(Device d, struct utilization *out) {
    WHOLE(d);
    const struct rule *rule = last("util", gpu, at);
    out->gpu = rule ? (unsigned)rule->number[0] : 0;
    out->memory = rule ? (unsigned)rule->number[1] : 0;
    END(SUCCESS);
}
struct memory { unsigned version; unsigned long long total, reserved, free, used; };
Return nvmlDeviceGetMemoryInfo_v2(Device d, struct memory *out) {
    OF(d);
    out->total = (unsigned long long)((INSTANCE(d) < 0 ? now_.memory_mib : now_.memory_mib / 8) * 1048576);
    out->reserved = 0;
    out->used = (unsigned long long)(memory_now(gpu, INSTANCE(d), at) * 1048576);
    out->free = out->total - out->used;
    END(SUCCESS);
}
Return nvmlDeviceGetTemperature(Device d, unsigned sensor, unsigned *out) {
    (void)sensor;
    WHOLE(d);
    const struct rule *rule = last("heat", gpu, at);
    *out = rule ? (unsigned)rule->number[0] : 34;
    END(SUCCESS);
}
Return nvmlDeviceGetClockInfo(Device d, unsigned clock, unsigned *out) {
    WHOLE(d);
    const struct rule *rule = last("clock", gpu, at);
    *out = clock == 2 ? (rule && rule->number[1] > 0 ? (unsigned)rule->number[1] : 2619) : rule ? (unsigned)rule->number[0] : 345;
    END(SUCCESS);
}
Return nvmlDeviceGetCurrentClocksThrottleReasons(Device d, unsigned long long *out) {
    WHOLE(d);
    *out = 0;
    for (int i = 0; i < now_.count; i++)
        if (holds(&now_.rules[i], "throttle", gpu, at)) *out |= (unsigned long long)now_.rules[i].number[0];
    END(SUCCESS);
}
Return nvmlDeviceGetPcieThroughput(Device d, unsigned counter, unsigned *out) {
    WHOLE(d);
    const struct rule *rule = last("pcie", gpu, at);
    *out = rule ? (unsigned)rule->number[counter ? 1 : 0] : 0;
    END(SUCCESS);
}

struct field { unsigned id, scope; long long timestamp, latency; unsigned type; Return code; union { unsigned u; unsigned long long ull; double d; } value; };
Return nvmlDeviceGetFieldValues(Device d, int count, struct field *fields) {
    WHOLE(d);
    const struct rule *rule = last("memory-heat", gpu, at), *faults = last("faults", gpu, at);
    for (int i = 0; i < count; i++) {
        struct field *field = &fields[i];
        field->value.ull = 0;
        field->type = 1; /* an unsigned int; 3 is an unsigned long long */
        field->code = SUCCESS;
        if (field->id == 82 && rule) field->value.u = (unsigned)rule->number[0];
        else if (field->id == 83 && !now_.bare) {
            field->type = 3;
            field->value.ull = 123456789ULL + (unsigned long long)(energy_now(gpu, at) * 1e3);
        }
        else if (field->id == 186 && !now_.bare) field->value.u = (unsigned)(power_now(gpu, at) * 1e3 + 0.5);
        else if (faults && (field->id == 4 || field->id == 143 || field->id == 145))
            field->value.u = (unsigned)faults->number[field->id == 4 ? 0 : field->id == 143 ? 1 : 2];
        else field->code = NOT_SUPPORTED;
    }
    END(SUCCESS);
}

struct process { unsigned pid; unsigned long long memory; unsigned instance, compute; };
Return nvmlDeviceGetComputeRunningProcesses_v3(Device d, unsigned *count, struct process *out) {
    unsigned found = 0, room = *count;
    OF(d);
    for (int i = 0; i < now_.count; i++) {
        const struct rule *rule = &now_.rules[i];
        if (!is_its(rule, INSTANCE(d)) || !holds(rule, "process", gpu, at) || (rule->is_engine && !now_.engine)) continue;
        if (out && found < room) {
            out[found].pid = rule->is_engine ? (unsigned)now_.engine : (unsigned)rule->number[0];
            out[found].memory = (unsigned long long)(rule->number[1] * 1048576);
            out[found].instance = out[found].compute = 0xFFFFFFFFu;
        }
        found++;
    }
    *count = found;
    END(found > room || (found && !out) ? TOO_SMALL : SUCCESS);
}

struct support { unsigned version, is_supported; };
Return nvmlGpmQueryDeviceSupport(Device d, struct support *out) {
    WHOLE(d);
    out->is_supported = last("links", gpu, at) != NULL;
    END(SUCCESS);
}
struct sample { int gpu; double at; };
Return nvmlGpmSampleAlloc(struct sample **out) { *out = calloc(1, sizeof **out); return SUCCESS; }
Return nvmlGpmSampleFree(struct sample *sample) { free(sample); return SUCCESS; }
Return nvmlGpmSampleGet(Device d, struct sample *out) { OF(d); out->gpu = gpu; out->at = at; END(SUCCESS); }
struct metric { unsigned id; Return code; double value; char *name, *long_name, *unit; };
struct metrics { unsigned version, count; struct sample *first, *second; struct metric metric[]; };
Return nvmlGpmMetricsGet(struct metrics *out) {
    BEGIN(out->second->gpu);
    const struct rule *rule = last("links", out->second->gpu, at);
    for (unsigned i = 0; i < out->count; i++) {
        struct metric *metric = &out->metric[i];
        metric->code = rule && (metric->id == 60 || metric->id == 61) ? SUCCESS : NOT_SUPPORTED;
        /* 60 is what is received, 61 what is sent, in MiB per second. */
        metric->value = rule ? rule->number[metric->id - 60 ? 0 : 1] : 0;
    }
    END(SUCCESS);
}
