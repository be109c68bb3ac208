/* A stand-in for libnvidia-ml.so.1, so that the real nvidia-ml-py can be tested where there is no GPU.
 *
 * It answers from the text file named by FAKE_NVML_FILE, looked at again at every call and read again
 * when it changed: a test changes a card while the program under test runs (write a new file and
 * rename it over the old one). As with
 * the real library, the number of cards is counted when NVML is initialised: a card added later is
 * seen only after nvmlShutdown and nvmlInit. A card taken out of the file is lost.
 *
 * Top of the file:
 *   driver=575.51.03     cuda=12090
 *   init_error=9         nvmlInit fails with this code (9: driver not loaded, 18: version mismatch);
 *                        without a file it fails with 9
 *   call_error=4         every getter fails with this code
 *   delay_us=2000        every getter takes this long, as a busy driver does
 * [gpu]                  one section for each card, in PCI order
 *   name= uuid= cc=8.6 mem_total= mem_used= mem_reserved= (bytes) util= temp= power= limit= (milliwatts)
 *   fan= (percent)  clock= clock_limit= (MHz of the SMs)
 *   throttle=BITS        clock event reasons
 *   proc=PID:BYTES  graphics=PID:BYTES      repeatable
 *   nvlink=CARD:COUNT    active links to that card; "switch:COUNT" for links into an NVSwitch
 *   socket=0             CPU socket: decides the topology level between two cards
 *   mig=0 or mig=1       absent: the card does not support MIG
 *   lost=1               every getter of the card fails with 15
 *   unsupported=temp,power,limit,util,memory,throttle,procs,cc,name,uuid,pci,fan,clock,clock_limit
 *                        those fail with 3
 *   fail=SENSOR:CODE     repeatable: that one fails with this code (procs:4 no permission, fan:999 unknown,
 *                        temp:15 the card is found to be lost when it is asked for its heat)
 * [mig]                  one section for each slice of the card above it
 *   name= uuid= mem_total= mem_used= gi= ci= gslices= cslices=
 *
 * Functions that are not here are "function not found" to nvidia-ml-py, as with an old driver.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef int status;
typedef unsigned int u32;
typedef unsigned long long u64;

enum {
    OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, NOT_LOADED = 9, LOST = 15
};
enum { MAX_CARDS = 16, MAX_SLICES = 7, MAX_PROCESSES = 16, MAX_LINKS = 18, SWITCH = -1, NO_LINK = -2 };

#define API __attribute__((visibility("default")))

typedef struct { u32 pid; u64 bytes; } process;

typedef struct {
    char name[96], uuid[96], unsupported[192], failing[96];
    u64 total, used, reserved, throttle;
    u32 util, temp, power, limit, fan, clock, clock_limit, gi, ci, graphics_slices, compute_slices;
    int major, minor, lost, mig, socket, processes, drawing, slices;
    int link[MAX_LINKS];
    process running[MAX_PROCESSES], graphics[MAX_PROCESSES];
} device;

static device cards[MAX_CARDS], slices[MAX_CARDS][MAX_SLICES];
static int present, counted, initialised, init_error, call_error, cuda_version, delay_us;
static char driver[80];

/* A handle is the address of its cell: cell 0 of a row is the card, the others are its slices. */
static char cells[MAX_CARDS][MAX_SLICES + 1];

static void set_text(char *to, size_t size, const char *from) { snprintf(to, size, "%s", from); }

static void new_card(device *d) {
    memset(d, 0, sizeof *d);
    set_text(d->name, sizeof d->name, "NVIDIA H100 80GB HBM3");
    snprintf(d->uuid, sizeof d->uuid, "GPU-%08x-0000-0000-0000-000000000000", present - 1);
    d->total = 80ull << 30;
    d->limit = 700000;
    d->clock_limit = 1980;
    d->major = 9;
    d->mig = -1;
    for (int i = 0; i < MAX_LINKS; i++) d->link[i] = NO_LINK;
}

static void add_process(process *list, int *count, const char *value) {
    const char *colon = strchr(value, ':');
    if (*count >= MAX_PROCESSES) return;
    list[*count].pid = (u32)strtoul(value, 0, 10);
    list[*count].bytes = colon ? strtoull(colon + 1, 0, 10) : 0;
    (*count)++;
}

static void add_links(device *d, const char *value) {
    const char *colon = strchr(value, ':');
    int to = strncmp(value, "switch", 6) ? atoi(value) : SWITCH, left = colon ? atoi(colon + 1) : 1;
    for (int i = 0; i < MAX_LINKS && left > 0; i++)
        if (d->link[i] == NO_LINK) { d->link[i] = to; left--; }
}

/* Kept as ",fan:999,procs:4". */
static void add_failure(device *d, const char *value) {
    size_t used = strlen(d->failing);
    snprintf(d->failing + used, sizeof d->failing - used, ",%s", value);
}

static void set_field(device *d, const char *key, const char *value) {
    u64 number = strtoull(value, 0, 10);
    if (!strcmp(key, "name")) set_text(d->name, sizeof d->name, value);
    else if (!strcmp(key, "uuid")) set_text(d->uuid, sizeof d->uuid, value);
    else if (!strcmp(key, "unsupported")) snprintf(d->unsupported, sizeof d->unsupported, ",%s,", value);
    else if (!strcmp(key, "mem_total")) d->total = number;
    else if (!strcmp(key, "mem_used")) d->used = number;
    else if (!strcmp(key, "mem_reserved")) d->reserved = number;
    else if (!strcmp(key, "throttle")) d->throttle = number;
    else if (!strcmp(key, "util")) d->util = (u32)number;
    else if (!strcmp(key, "temp")) d->temp = (u32)number;
    else if (!strcmp(key, "power")) d->power = (u32)number;
    else if (!strcmp(key, "limit")) d->limit = (u32)number;
    else if (!strcmp(key, "fan")) d->fan = (u32)number;
    else if (!strcmp(key, "clock")) d->clock = (u32)number;
    else if (!strcmp(key, "clock_limit")) d->clock_limit = (u32)number;
    else if (!strcmp(key, "fail")) add_failure(d, value);
    else if (!strcmp(key, "gi")) d->gi = (u32)number;
    else if (!strcmp(key, "ci")) d->ci = (u32)number;
    else if (!strcmp(key, "gslices")) d->graphics_slices = (u32)number;
    else if (!strcmp(key, "cslices")) d->compute_slices = (u32)number;
    else if (!strcmp(key, "lost")) d->lost = (int)number;
    else if (!strcmp(key, "mig")) d->mig = (int)number;
    else if (!strcmp(key, "socket")) d->socket = (int)number;
    else if (!strcmp(key, "cc")) sscanf(value, "%d.%d", &d->major, &d->minor);
    else if (!strcmp(key, "proc")) add_process(d->running, &d->processes, value);
    else if (!strcmp(key, "graphics")) add_process(d->graphics, &d->drawing, value);
    else if (!strcmp(key, "nvlink")) add_links(d, value);
}

static void set_global(const char *key, const char *value) {
    if (!strcmp(key, "driver")) set_text(driver, sizeof driver, value);
    else if (!strcmp(key, "cuda")) cuda_version = atoi(value);
    else if (!strcmp(key, "init_error")) init_error = atoi(value);
    else if (!strcmp(key, "call_error")) call_error = atoi(value);
    else if (!strcmp(key, "delay_us")) delay_us = atoi(value);
}

static int unchanged(const char *path) {
    static struct stat read;
    struct stat now;
    memset(&now, 0, sizeof now);
    if (!path || stat(path, &now)) now.st_ino = 0;
    int same = now.st_ino && now.st_ino == read.st_ino && now.st_dev == read.st_dev && now.st_size == read.st_size &&
               now.st_mtim.tv_sec == read.st_mtim.tv_sec && now.st_mtim.tv_nsec == read.st_mtim.tv_nsec;
    read = now;
    return same;
}

static void load(void) {
    char line[512];
    device *current = NULL;
    const char *path = getenv("FAKE_NVML_FILE");
    if (unchanged(path)) return;
    FILE *file = path ? fopen(path, "r") : NULL;
    present = call_error = delay_us = 0;
    init_error = file ? 0 : NOT_LOADED;
    cuda_version = 12090;
    set_text(driver, sizeof driver, "575.51.03");
    if (!file) return;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\r\n")] = 0;
        if (!strcmp(line, "[gpu]") && present < MAX_CARDS) {
            current = &cards[present++];
            new_card(current);
        } else if (!strcmp(line, "[mig]") && present && cards[present - 1].slices < MAX_SLICES) {
            current = &slices[present - 1][cards[present - 1].slices++];
            new_card(current);
        } else {
            char *value = strchr(line, '=');
            if (!value || line[0] == '#') continue;
            *value++ = 0;
            if (current) set_field(current, line, value); else set_global(line, value);
        }
    }
    fclose(file);
}

static int row_of(void *handle) { return (int)(((char *)handle - &cells[0][0]) / (MAX_SLICES + 1)); }
static int column_of(void *handle) { return (int)(((char *)handle - &cells[0][0]) % (MAX_SLICES + 1)); }

static status find(void *handle, const char *sensor, device **found) {
    char wanted[32];
    if (!initialised) return UNINITIALIZED;
    load();
    if (delay_us) usleep((useconds_t)delay_us);
    if (call_error) return call_error;
    int row = row_of(handle), column = column_of(handle);
    if (row < 0 || row >= counted) return INVALID;
    if (row >= present || cards[row].lost) return LOST;
    if (column > cards[row].slices) return NOT_FOUND;
    *found = column ? &slices[row][column - 1] : &cards[row];
    snprintf(wanted, sizeof wanted, ",%s,", sensor);
    if (strstr((*found)->unsupported, wanted)) return NOT_SUPPORTED;
    wanted[strlen(wanted) - 1] = ':';
    const char *failure = strstr((*found)->failing, wanted);
    return failure ? atoi(failure + strlen(wanted)) : OK;
}

static status copy(char *to, u32 length, const char *from) {
    if (strlen(from) + 1 > length) return TOO_SMALL;
    strcpy(to, from);
    return OK;
}

#define GETTER(function, sensor, arguments, body) \
    API status function arguments { device *d; status s = find(handle, sensor, &d); if (s) return s; body return OK; }

API status nvmlInitWithFlags(u32 flags) {
    (void)flags;
    load();
    if (init_error) return init_error;
    if (!initialised++) counted = present;
    return OK;
}
API status nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
API status nvmlShutdown(void) { if (!initialised) return UNINITIALIZED; initialised--; return OK; }
API const char *nvmlErrorString(status s) {
    switch (s) {
    case OK: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NOT_FOUND: return "Not Found";
    case NOT_LOADED: return "Driver Not Loaded";
    case LOST: return "GPU is lost";
    default: return "Unknown Error";
    }
}
API status nvmlSystemGetDriverVersion(char *text, u32 length) {
    if (!initialised) return UNINITIALIZED;
    load();
    return call_error ? call_error : copy(text, length, driver);
}
API status nvmlSystemGetNVMLVersion(char *text, u32 length) { return copy(text, length, "12.575.51.03"); }
API status nvmlSystemGetCudaDriverVersion(int *version) {
    if (!initialised) return UNINITIALIZED;
    load();
    *version = cuda_version;
    return call_error;
}
API status nvmlSystemGetCudaDriverVersion_v2(int *version) { return nvmlSystemGetCudaDriverVersion(version); }
API status nvmlDeviceGetCount_v2(u32 *count) {
    if (!initialised) return UNINITIALIZED;
    load();
    *count = (u32)counted;
    return call_error;
}
API status nvmlDeviceGetHandleByIndex_v2(u32 index, void **handle) {
    if (!initialised) return UNINITIALIZED;
    load();
    if ((int)index >= counted) return INVALID;
    *handle = &cells[index][0];
    return (int)index >= present || cards[index].lost ? LOST : OK;
}
API status nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    load();
    for (int i = 0; i < present && i < counted; i++)
        if (!strcmp(cards[i].uuid, uuid)) { *handle = &cells[i][0]; return OK; }
    return NOT_FOUND;
}

GETTER(nvmlDeviceGetIndex, "index", (void *handle, u32 *index), *index = (u32)row_of(handle);)
GETTER(nvmlDeviceGetName, "name", (void *handle, char *text, u32 length), return copy(text, length, d->name);)
GETTER(nvmlDeviceGetUUID, "uuid", (void *handle, char *text, u32 length), return copy(text, length, d->uuid);)
GETTER(nvmlDeviceGetCudaComputeCapability, "cc", (void *handle, int *major, int *minor),
       *major = d->major; *minor = d->minor;)

typedef struct { u64 total, free, used; } memory_v1;
typedef struct { u32 version; u64 total, reserved, free, used; } memory_v2;
GETTER(nvmlDeviceGetMemoryInfo, "memory", (void *handle, memory_v1 *m),
       m->total = d->total; m->used = d->used + d->reserved; m->free = d->total - m->used;)
GETTER(nvmlDeviceGetMemoryInfo_v2, "memory", (void *handle, memory_v2 *m),
       m->total = d->total; m->used = d->used; m->reserved = d->reserved; m->free = d->total - d->used - d->reserved;)

typedef struct { u32 gpu, memory; } utilization;
GETTER(nvmlDeviceGetUtilizationRates, "util", (void *handle, utilization *u),
       if (column_of(handle)) return NOT_SUPPORTED; u->gpu = d->util; u->memory = d->util / 2;)
GETTER(nvmlDeviceGetTemperature, "temp", (void *handle, int sensor, u32 *celsius), (void)sensor; *celsius = d->temp;)
GETTER(nvmlDeviceGetPowerUsage, "power", (void *handle, u32 *milliwatts),
       if (column_of(handle)) return NOT_SUPPORTED; *milliwatts = d->power;)
GETTER(nvmlDeviceGetEnforcedPowerLimit, "limit", (void *handle, u32 *milliwatts),
       if (column_of(handle)) return NOT_SUPPORTED; *milliwatts = d->limit;)
GETTER(nvmlDeviceGetFanSpeed, "fan", (void *handle, u32 *percent),
       if (column_of(handle)) return NOT_SUPPORTED; *percent = d->fan;)
GETTER(nvmlDeviceGetClockInfo, "clock", (void *handle, u32 kind, u32 *mhz), (void)kind; *mhz = d->clock;)
GETTER(nvmlDeviceGetMaxClockInfo, "clock_limit", (void *handle, u32 kind, u32 *mhz), (void)kind; *mhz = d->clock_limit;)
GETTER(nvmlDeviceGetCurrentClocksEventReasons, "throttle", (void *handle, u64 *bits), *bits = d->throttle;)

typedef struct { u32 pid; u64 bytes; u32 gi, ci; } process_info;
static status list_processes(const device *d, const process *from, int count, u32 *capacity, process_info *to) {
    u32 room = *capacity;
    *capacity = (u32)count;
    if ((int)room < count) return TOO_SMALL;
    for (int i = 0; i < count; i++) {
        u64 bytes = from[i].bytes;
        to[i] = (process_info){from[i].pid, bytes, 0xFFFFFFFF, 0xFFFFFFFF};
    }
    return OK;
}
GETTER(nvmlDeviceGetComputeRunningProcesses_v3, "procs", (void *handle, u32 *count, process_info *list),
       return list_processes(d, d->running, d->processes, count, list);)
GETTER(nvmlDeviceGetGraphicsRunningProcesses_v3, "procs", (void *handle, u32 *count, process_info *list),
       return list_processes(d, d->graphics, d->drawing, count, list);)

typedef struct { char legacy[16]; u32 domain, bus, device, id, subsystem; char text[32]; } pci;
static void fill_pci(pci *p, u32 bus) {
    memset(p, 0, sizeof *p);
    p->bus = bus;
    snprintf(p->legacy, sizeof p->legacy, "0000:%02X:00.0", bus);
    snprintf(p->text, sizeof p->text, "00000000:%02X:00.0", bus);
}
GETTER(nvmlDeviceGetPciInfo_v3, "pci", (void *handle, pci *p), fill_pci(p, (u32)row_of(handle) + 1);)

GETTER(nvmlDeviceGetNvLinkState, "nvlink", (void *handle, u32 link, u32 *active),
       if (link >= MAX_LINKS || d->link[0] == NO_LINK) return link >= MAX_LINKS ? INVALID : NOT_SUPPORTED;
       *active = d->link[link] != NO_LINK;)
GETTER(nvmlDeviceGetNvLinkRemoteDeviceType, "nvlink", (void *handle, u32 link, u32 *kind),
       if (link >= MAX_LINKS) return INVALID; *kind = d->link[link] == SWITCH ? 2 : 0;)
GETTER(nvmlDeviceGetNvLinkRemotePciInfo_v2, "nvlink", (void *handle, u32 link, pci *p),
       if (link >= MAX_LINKS) return INVALID; fill_pci(p, d->link[link] == SWITCH ? 0xF0 : (u32)d->link[link] + 1);)
API status nvmlDeviceGetTopologyCommonAncestor(void *one, void *other, u32 *level) {
    device *a, *b, kept;
    status s = find(one, "topology", &a);
    if (s) return s;
    kept = *a;
    s = find(other, "topology", &b);
    if (s) return s;
    *level = kept.socket == b->socket ? 30 : 50;
    return OK;
}

GETTER(nvmlDeviceGetMigMode, "mig", (void *handle, u32 *now, u32 *pending),
       if (d->mig < 0 || column_of(handle)) return NOT_SUPPORTED; *now = *pending = (u32)d->mig;)
GETTER(nvmlDeviceGetMaxMigDeviceCount, "mig", (void *handle, u32 *count), *count = MAX_SLICES;)
GETTER(nvmlDeviceGetGpuInstanceId, "mig", (void *handle, u32 *id), *id = d->gi;)
GETTER(nvmlDeviceGetComputeInstanceId, "mig", (void *handle, u32 *id), *id = d->ci;)
API status nvmlDeviceGetMigDeviceHandleByIndex(void *handle, u32 index, void **slice) {
    device *d;
    status s = find(handle, "mig", &d);
    if (s) return s;
    if ((int)index >= d->slices) return NOT_FOUND;
    *slice = (char *)handle + 1 + index;
    return OK;
}
typedef struct { u32 sm, copy, decoder, encoder, jpeg, ofa, graphics_slices, compute_slices; u64 megabytes; } attributes;
GETTER(nvmlDeviceGetAttributes_v2, "attributes", (void *handle, attributes *a),
       if (!column_of(handle)) return NOT_SUPPORTED;
       memset(a, 0, sizeof *a);
       a->graphics_slices = d->graphics_slices; a->compute_slices = d->compute_slices; a->megabytes = d->total >> 20;)
