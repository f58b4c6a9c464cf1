// A driver without a device, for tests: memory is the processor's, copies are done at once, and kernels are known by name.
//
// It checks what a real driver checks or is spoilt by (a current context, a zero byte after PTX), fails as the environment
// says (FAKE_CUDA_...), and writes what it is asked for to the file FAKE_CUDA_LOG, a line each.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_DEVICE = 101, INVALID_IMAGE = 200, INVALID_CONTEXT = 201,
    NO_BINARY = 209, INVALID_PTX = 218, NOT_FOUND = 500, ILLEGAL_ADDRESS = 700, LAUNCH_FAILED = 719,
    CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901,
};

typedef unsigned int result;
typedef struct { int retained; result pending; result fault; } context;
typedef struct { char *text; } module;
typedef struct { char name[64]; int dynamic_shared; } function;

// A launch or a copy that is recorded: it is done when its graph is launched.
typedef struct {
    function *kernel; // none for a copy
    uint64_t address, to;
    size_t bytes;
    int64_t extent, first;
    unsigned grid;
} node;

typedef struct { int count; node nodes[64]; } graph;

// The stream that records, of which there is one at most, and the thread that began it.
static struct { int is_on, is_spoilt; void *stream; pthread_t thread; graph *into; } recording;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static context contexts[8];
static size_t used;
static __thread context *current;

static long setting(const char *name, long otherwise) {
    const char *value = getenv(name);
    return value ? atol(value) : otherwise;
}

#define LOG(...)                                         \
    do {                                                 \
        pthread_mutex_lock(&lock);                       \
        FILE *file = fopen(getenv("FAKE_CUDA_LOG"), "a"); \
        fprintf(file, __VA_ARGS__);                      \
        fclose(file);                                    \
        pthread_mutex_unlock(&lock);                     \
    } while (0)

// FAKE_CUDA_REFUSES names a step of recording that fails.
static int refuses(const char *step) {
    const char *value = getenv("FAKE_CUDA_REFUSES");
    return value && strcmp(value, step) == 0;
}

static int records(void *stream) { return recording.is_on && recording.stream == stream; }

// What a recording thread may not call: it spoils the recording.
#define NOT_RECORDING                                                             \
    if (recording.is_on && pthread_equal(recording.thread, pthread_self())) {     \
        recording.is_spoilt = 1;                                                  \
        return CAPTURE_UNSUPPORTED;                                               \
    }

static void keep(node what) { recording.into->nodes[recording.into->count++] = what; }

// What a call in a context begins with.
#define ENTER                                                     \
    if (!current || !current->retained) return INVALID_CONTEXT;   \
    if (current->fault) return current->fault

result cuDriverGetVersion(int *version) {
    *version = (int)setting("FAKE_CUDA_VERSION", 12040);
    return OK;
}

result cuInit(unsigned flags) { return flags ? INVALID_VALUE : (result)setting("FAKE_CUDA_INIT", OK); }

result cuGetErrorName(result code, const char **name) {
    switch (code) {
    case OUT_OF_MEMORY: *name = "CUDA_ERROR_OUT_OF_MEMORY"; return OK;
    case INVALID_IMAGE: *name = "CUDA_ERROR_INVALID_IMAGE"; return OK;
    case INVALID_CONTEXT: *name = "CUDA_ERROR_INVALID_CONTEXT"; return OK;
    case INVALID_PTX: *name = "CUDA_ERROR_INVALID_PTX"; return OK;
    case NOT_FOUND: *name = "CUDA_ERROR_NOT_FOUND"; return OK;
    case ILLEGAL_ADDRESS: *name = "CUDA_ERROR_ILLEGAL_ADDRESS"; return OK;
    case CAPTURE_UNSUPPORTED: *name = "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"; return OK;
    case CAPTURE_INVALIDATED: *name = "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"; return OK;
    case LAUNCH_FAILED: *name = "CUDA_ERROR_LAUNCH_FAILED"; return OK;
    default: *name = NULL; return INVALID_VALUE;
    }
}

result cuGetErrorString(result code, const char **text) {
    result known = cuGetErrorName(code, text);
    if (known == OK) *text = "what the driver says of it";
    return known;
}

result cuDeviceGetCount(int *count) {
    *count = (int)setting("FAKE_CUDA_DEVICES", 2);
    return OK;
}

result cuDeviceGet(int *device, int ordinal) {
    if (ordinal < 0 || ordinal >= setting("FAKE_CUDA_DEVICES", 2)) return INVALID_DEVICE;
    *device = ordinal;
    return OK;
}

result cuDeviceGetName(char *name, int len, int device) {
    snprintf(name, (size_t)len, "Fake GPU");
    return device < 0 ? INVALID_DEVICE : OK;
}

result cuDeviceGetAttribute(int *value, int which, int device) {
    int sm = (int)setting("FAKE_CUDA_SM", 86);
    switch (which) {
    case 1: *value = 1024; return OK;
    case 75: *value = sm / 10; return OK;
    case 76: *value = sm % 10; return OK;
    case 97: *value = 101376; return OK;
    default: return device < 0 ? INVALID_DEVICE : INVALID_VALUE;
    }
}

result cuDevicePrimaryCtxRetain(context **made, int device) {
    pthread_mutex_lock(&lock);
    contexts[device].retained++;
    pthread_mutex_unlock(&lock);
    *made = &contexts[device];
    LOG("+context %d\n", device);
    return OK;
}

// What a fault has left goes with the context, and so does its memory.
static void begin_anew(context *gone) {
    if (gone->fault || gone->pending) used = 0;
    gone->fault = gone->pending = OK;
}

result cuDevicePrimaryCtxReset_v2(int device) {
    pthread_mutex_lock(&lock);
    begin_anew(&contexts[device]);
    pthread_mutex_unlock(&lock);
    return OK;
}

result cuDevicePrimaryCtxRelease_v2(int device) {
    pthread_mutex_lock(&lock);
    if (--contexts[device].retained == 0) begin_anew(&contexts[device]);
    pthread_mutex_unlock(&lock);
    LOG("-context %d\n", device);
    return OK;
}

result cuCtxGetCurrent(context **found) {
    *found = current;
    return OK;
}

result cuCtxSetCurrent(context *wanted) {
    current = wanted;
    return OK;
}

// PTX is text with a version; machine code is a header of 64 bytes, then a text of ours. Both have `.entry NAME(`.
result cuModuleLoadDataEx(module **loaded, const void *image, unsigned count, int *options, void **values) {
    ENTER;
    const char *text = image;
    if (memcmp(text, "\x7f" "ELF", 4) == 0) {
        text += 64;
        if (strncmp(text, "other driver", 12) == 0) return NO_BINARY;
        if (strncmp(text, "fake cubin", 10) != 0) return INVALID_IMAGE;
        LOG("cubin\n");
    } else {
        if (strstr(text, "nonsense")) {
            if (count == 2 && options[0] == 5 && options[1] == 6)
                snprintf(values[0], (size_t)values[1], "ptxas application ptx input, line 3; fatal   : nonsense\n\nptxas fatal\n");
            return INVALID_PTX;
        }
        LOG("ptx of %zu bytes\n", strlen(text));
    }
    *loaded = calloc(1, sizeof **loaded);
    (*loaded)->text = strdup(text);
    LOG("+module\n");
    return OK;
}

result cuModuleUnload(module *gone) {
    ENTER;
    free(gone->text);
    free(gone);
    LOG("-module\n");
    return OK;
}

result cuModuleGetFunction(function **found, module *of, const char *name) {
    ENTER;
    char entry[128];
    snprintf(entry, sizeof entry, ".entry %s(", name);
    if (!strstr(of->text, entry)) return NOT_FOUND;
    *found = calloc(1, sizeof **found);
    snprintf((*found)->name, sizeof (*found)->name, "%s", name);
    return OK;
}

result cuFuncSetAttribute(function *of, int which, int value) {
    ENTER;
    if (which != 8 || value > 101376) return INVALID_VALUE;
    of->dynamic_shared = value;
    LOG("attribute of %s: %d\n", of->name, value);
    return OK;
}

result cuMemGetInfo_v2(size_t *available, size_t *total) {
    ENTER;
    *total = (size_t)setting("FAKE_CUDA_MEMORY", 1 << 20);
    *available = *total - used;
    return OK;
}

static void perform(const node *what) {
    if (!what->kernel) {
        memmove((void *)(uintptr_t)what->to, (void *)(uintptr_t)what->address, what->bytes);
    } else if (strcmp(what->kernel->name, "add_one") == 0) {
        float *numbers = (float *)(uintptr_t)what->address;
        for (int64_t task = what->first; task < what->first + what->grid && task < what->extent; task++) numbers[task] += 1.0f;
    } else if (strcmp(what->kernel->name, "bad") == 0) {
        current->pending = (result)setting("FAKE_CUDA_FAULT", ILLEGAL_ADDRESS);
    }
}

// The bytes of an allocation are kept in front of it.
result cuMemAlloc_v2(uint64_t *address, size_t bytes) {
    ENTER;
    NOT_RECORDING;
    size_t available, total;
    cuMemGetInfo_v2(&available, &total);
    if (bytes == 0) return INVALID_VALUE;
    if (bytes > available) return OUT_OF_MEMORY;
    char *start = aligned_alloc(256, 256 + (bytes + 255) / 256 * 256);
    memset(start, 0x7f, 256 + bytes);
    memcpy(start, &bytes, sizeof bytes);
    pthread_mutex_lock(&lock);
    used += bytes;
    pthread_mutex_unlock(&lock);
    *address = (uint64_t)(uintptr_t)(start + 256);
    LOG("+memory\n");
    return OK;
}

result cuMemFree_v2(uint64_t address) {
    ENTER;
    NOT_RECORDING;
    char *start = (char *)(uintptr_t)address - 256;
    size_t bytes;
    memcpy(&bytes, start, sizeof bytes);
    pthread_mutex_lock(&lock);
    used -= bytes;
    pthread_mutex_unlock(&lock);
    free(start);
    LOG("-memory\n");
    return OK;
}

result cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream) {
    ENTER;
    if (records(stream)) NOT_RECORDING;
    LOG("upload\n");
    memcpy((void *)(uintptr_t)to, from, bytes);
    return OK;
}

result cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
    ENTER;
    if (records(stream)) NOT_RECORDING;
    LOG("download\n");
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return OK;
}

result cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream) {
    ENTER;
    node what = {.address = from, .to = to, .bytes = bytes};
    if (records(stream)) {
        LOG("record copy\n");
        keep(what);
        return OK;
    }
    LOG("copy\n");
    perform(&what);
    return OK;
}

// Kernels take a buffer, its extent, and the first task.
result cuLaunchKernel(function *of, unsigned grid, unsigned grid_y, unsigned grid_z, unsigned x, unsigned y, unsigned z,
                      unsigned shared, void *stream, void **arguments, void **extra) {
    ENTER;
    if (extra || grid == 0 || grid > INT32_MAX || grid_y != 1 || grid_z != 1 || z != 1) return INVALID_VALUE;
    if (shared > (unsigned)(of->dynamic_shared ? of->dynamic_shared : 49152)) return INVALID_VALUE;
    uint64_t address = *(uint64_t *)arguments[0];
    int64_t extent = *(int64_t *)arguments[1], first = *(int64_t *)arguments[2];
    node what = {.kernel = of, .address = address, .extent = extent, .first = first, .grid = grid};
    if (records(stream)) {
        if (refuses("launch")) {
            recording.is_spoilt = 1;
            return CAPTURE_UNSUPPORTED;
        }
        LOG("record %s\n", of->name);
        keep(what);
        return OK;
    }
    LOG("launch %s: grid %u, block %u %u, shared %u, extent %lld, first %lld, stream %llx\n", of->name, grid, x, y, shared,
        (long long)extent, (long long)first, (unsigned long long)(uintptr_t)stream);
    perform(&what);
    return OK;
}

result cuStreamCreate(void **stream, unsigned flags) {
    ENTER;
    if (flags != 1) return INVALID_VALUE;
    *stream = malloc(1);
    LOG("+stream\n");
    return OK;
}

result cuStreamDestroy_v2(void *stream) {
    ENTER;
    free(stream);
    LOG("-stream\n");
    return OK;
}

// Errors of kernels are told here, and from then on by every call.
result cuStreamSynchronize(void *stream) {
    ENTER;
    if (records(stream)) NOT_RECORDING;
    LOG("wait %llx\n", (unsigned long long)(uintptr_t)stream);
    current->fault = current->pending;
    return current->fault;
}

// Events tell times by how many were recorded before: a millisecond each.
typedef struct { int at; } event;
static int recorded;

result cuEventCreate(event **made, unsigned flags) {
    ENTER;
    if (flags != 0) return INVALID_VALUE;
    *made = malloc(sizeof **made);
    (*made)->at = -1;
    LOG("+event\n");
    return OK;
}

result cuEventRecord(event *of, void *stream) {
    ENTER;
    (void)stream;
    of->at = recorded++;
    return OK;
}

result cuEventElapsedTime(float *ms, event *from, event *to) {
    ENTER;
    if (from->at < 0 || to->at < 0) return INVALID_VALUE;
    *ms = (float)(to->at - from->at);
    return OK;
}

result cuEventDestroy_v2(event *gone) {
    ENTER;
    free(gone);
    LOG("-event\n");
    return OK;
}

// A driver of before CUDA 11.4 is made without what follows.
#ifndef WITHOUT_GRAPHS

// The default stream cannot record; and the driver of ours has room for one that does.
result cuStreamBeginCapture_v2(void *stream, unsigned mode) {
    ENTER;
    if (mode != 1) return INVALID_VALUE;
    if (!stream || recording.is_on || refuses("begin")) return CAPTURE_UNSUPPORTED;
    recording.is_on = 1;
    recording.is_spoilt = 0;
    recording.stream = stream;
    recording.thread = pthread_self();
    recording.into = calloc(1, sizeof *recording.into);
    return OK;
}

result cuStreamEndCapture(void *stream, graph **made) {
    ENTER;
    if (!records(stream) || !pthread_equal(recording.thread, pthread_self())) return INVALID_VALUE;
    recording.is_on = 0;
    *made = NULL;
    if (recording.is_spoilt || refuses("end")) {
        free(recording.into);
        return CAPTURE_INVALIDATED;
    }
    *made = recording.into;
    LOG("+graph of %d\n", (*made)->count);
    return OK;
}

result cuGraphInstantiateWithFlags(graph **exec, graph *from, unsigned long long flags) {
    ENTER;
    if (flags) return INVALID_VALUE;
    if (refuses("instantiate")) return OUT_OF_MEMORY;
    *exec = malloc(sizeof **exec);
    memcpy(*exec, from, sizeof **exec);
    LOG("+exec\n");
    return OK;
}

result cuGraphLaunch(graph *exec, void *stream) {
    ENTER;
    if (refuses("replay")) return OUT_OF_MEMORY;
    LOG("replay of %d, stream %llx\n", exec->count, (unsigned long long)(uintptr_t)stream);
    for (int i = 0; i < exec->count; i++) perform(&exec->nodes[i]);
    return OK;
}

result cuGraphDestroy(graph *gone) {
    ENTER;
    free(gone);
    LOG("-graph\n");
    return OK;
}

result cuGraphExecDestroy(graph *gone) {
    ENTER;
    free(gone);
    LOG("-exec\n");
    return OK;
}

#endif
