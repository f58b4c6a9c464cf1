/* tilewright.h: runs compiled models (.twm files) from C99 and newer, and from C++11 and newer.
 *
 * Every function that can fail returns a tw_status and, on failure, leaves a text and a list of problems for the calling thread
 * (tw_last_error). Functions may be called from any thread. What a handle allows is said where it is declared.
 *
 * Handles are no addresses: they are looked up at each call. One that is null, freed, or of another kind is TW_ERROR_HANDLE,
 * never undefined behaviour. Handles may be freed in any order: a session keeps what it needs of its model.
 *
 * Strings are UTF-8 and end in a zero byte. docs/c-library.md has the rules in full, and examples/c programs to start from.
 */
#ifndef TILEWRIGHT_TILEWRIGHT_H
#define TILEWRIGHT_TILEWRIGHT_H

#include <stddef.h>
#include <stdint.h>

/* ---- DLPack 1.0: tensors that libraries of a process give one another. Where dlpack.h was included before, it is used. ---- */

#ifdef DLPACK_DLPACK_H_
#ifndef DLPACK_MAJOR_VERSION
#error "tilewright.h needs the dlpack.h of DLPack 1.0 or newer"
#endif
#else
#define DLPACK_DLPACK_H_
#define DLPACK_MAJOR_VERSION 1
#define DLPACK_MINOR_VERSION 0
#define DLPACK_FLAG_BITMASK_READ_ONLY (1UL << 0UL)
#define DLPACK_FLAG_BITMASK_IS_COPIED (1UL << 1UL)
#define DLPACK_DLL

#ifdef __cplusplus
extern "C" {
#endif

typedef struct DLPackVersion {
  uint32_t major;
  uint32_t minor;
} DLPackVersion;

#ifdef __cplusplus
typedef enum : int32_t {
#else
typedef enum {
#endif
  kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3, kDLOpenCL = 4, kDLVulkan = 7, kDLMetal = 8, kDLVPI = 9, kDLROCM = 10,
  kDLROCMHost = 11, kDLExtDev = 12, kDLCUDAManaged = 13, kDLOneAPI = 14, kDLWebGPU = 15, kDLHexagon = 16, kDLMAIA = 17
} DLDeviceType;

typedef struct DLDevice {
  DLDeviceType device_type;
  int32_t device_id;
} DLDevice;

typedef enum {
  kDLInt = 0U, kDLUInt = 1U, kDLFloat = 2U, kDLOpaqueHandle = 3U, kDLBfloat = 4U, kDLComplex = 5U, kDLBool = 6U
} DLDataTypeCode;

typedef struct DLDataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} DLDataType;

typedef struct DLTensor {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape;
  int64_t *strides; /* in elements; null for row-major order */
  uint64_t byte_offset;
} DLTensor;

typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;

typedef struct DLManagedTensorVersioned {
  DLPackVersion version;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned *self);
  uint64_t flags;
  DLTensor dl_tensor;
} DLManagedTensorVersioned;

#ifdef __cplusplus
}
#endif
#endif /* DLPACK_DLPACK_H_ */

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Versions ---- */

/* The version of this interface. A program built with it works with every library that knows it (tw_api). */
#define TW_ABI_VERSION 1

/* ---- Outcomes ---- */

typedef int32_t tw_status;

enum {
  TW_OK = 0,
  TW_ERROR_HANDLE = 1,       /* a handle that is null, freed, or of another kind */
  TW_ERROR_ARGUMENT = 2,     /* a null pointer, an index out of range, a struct of unknown size, a text that is not UTF-8 */
  TW_ERROR_BUSY = 3,         /* the session is at a run on another thread */
  TW_ERROR_TRUST = 4,        /* loading without TW_TRUST_ORIGIN */
  TW_ERROR_FILE = 5,         /* a file that cannot be read or written */
  TW_ERROR_ARTIFACT = 6,     /* no artifact, or a damaged one */
  TW_ERROR_MACHINE = 7,      /* an artifact without code for this machine */
  TW_ERROR_INPUT = 8,        /* tensors that do not fit the model: tw_problem_at has each */
  TW_ERROR_UNSUPPORTED = 9,  /* strings, sequences and devices, which this library does not pass on */
  TW_ERROR_MEMORY = 10,      /* the machine, or the caller's allocator, has no such memory */
  TW_ERROR_LIMIT = 11,       /* the memory limit of the options */
  TW_ERROR_DATA = 12,        /* values of inputs that the model does not take */
  TW_ERROR_CANCELLED = 13,   /* somebody asked it to stop */
  TW_ERROR_INTERNAL = 14,    /* a defect of the library */
  TW_ERROR_MODEL = 15,       /* compiler: the model is not valid */
  TW_ERROR_GAPS = 16,        /* compiler: the model asks for what is not supported; tw_problem_at has each gap */
  TW_ERROR_OPTION = 17       /* compiler: an option that is unknown, or contradicts the model or this build */
};

/* What is wrong with one tensor or, from the compiler, with one operator. */
enum {
  TW_PROBLEM_MISSING = 1,   /* an input or output that was not given */
  TW_PROBLEM_TOO_MANY = 2,  /* more tensors than the model has */
  TW_PROBLEM_UNKNOWN = 3,   /* a name that the model does not have */
  TW_PROBLEM_DUPLICATE = 4, /* a name given twice */
  TW_PROBLEM_DTYPE = 5,     /* another element type */
  TW_PROBLEM_RANK = 6,      /* another number of axes */
  TW_PROBLEM_EXTENT = 7,    /* another extent */
  TW_PROBLEM_BOUNDS = 8,    /* an extent that the model was not compiled for */
  TW_PROBLEM_VALUE = 9,     /* the model takes no tensor here */
  TW_PROBLEM_DEVICE = 10,   /* a tensor that does not lie in the processor's memory */
  TW_PROBLEM_STRIDES = 11,  /* a tensor that is not dense and row-major */
  TW_PROBLEM_ADDRESS = 12,  /* null data, or memory that an output shares with another tensor */
  TW_PROBLEM_GAP = 13       /* an operator that the compiler does not support */
};

typedef struct tw_problem {
  size_t size;      /* set by the caller: sizeof(tw_problem) */
  int32_t kind;     /* TW_PROBLEM_... */
  int32_t axis;     /* of TW_PROBLEM_EXTENT and TW_PROBLEM_BOUNDS; else -1 */
  int64_t expected; /* where it is a number; else -1 */
  int64_t got;      /* where it is a number; else -1 */
  const char *name; /* of the input, output or node; may be empty */
  const char *text; /* all that is to be said */
} tw_problem;

/* Of the last call of this thread that failed: the status, a text, and its problems. Texts are valid until the next that fails. */
tw_status tw_last_status(void);
const char *tw_last_error(void);
size_t tw_problem_count(void);
tw_status tw_problem_at(size_t index, tw_problem *problem);

/* The name of a status, as "TW_ERROR_INPUT". */
const char *tw_status_name(tw_status status);

/* The version of the library, as "0.1.0". */
const char *tw_version(void);

/* ---- What a caller may bring. The structs are copied; what their ctx points to must outlive models, sessions and tensors. ---- */

/* Memory for sessions and outputs. Both functions are called from any thread. */
typedef struct tw_allocator {
  size_t size; /* sizeof(tw_allocator) */
  void *ctx;
  /* `bytes` bytes, never 0, at a multiple of `align`; null where there is no such memory. */
  void *(*allocate)(void *ctx, size_t bytes, size_t align);
  void (*free)(void *ctx, void *start, size_t bytes, size_t align);
} tw_allocator;

typedef void (*tw_task)(void *task_ctx, size_t index);

/* Threads that kernels run on. */
typedef struct tw_threads {
  size_t size; /* sizeof(tw_threads) */
  void *ctx;
  size_t count; /* threads that work on a job, the caller included; at least 1 */
  /* Calls task(task_ctx, i) once for each i from 0 to n_tasks - 1, on any threads, and returns when all calls have returned. May be
   * called by several threads at once. */
  void (*parallel_for)(void *ctx, size_t n_tasks, tw_task task, void *task_ctx);
} tw_threads;

/* How a model is loaded and run. Null in its place means zero in every field. */
typedef struct tw_options {
  size_t size;                   /* sizeof(tw_options) */
  uint64_t memory_limit;         /* most bytes that one session may hold; 0: no limit */
  uint64_t seed;                 /* what nodes without a seed of their own draw random numbers by */
  uint32_t n_threads;            /* threads of the model's own; 0: the pool that the process shares, with all processors */
  uint32_t n_sessions;           /* most runs of tw_model_run at once, further ones wait; 0: no limit,
                                    on a device as many as processors */
  uint32_t verify_weights;       /* 1: read all weights and check them against their checksum */
  uint32_t reserved;             /* 0 */
  const tw_allocator *allocator; /* null: the library's */
  const tw_threads *threads;     /* null: the library's; n_threads is not used otherwise */
} tw_options;

/* An artifact is a program: loading it puts its machine code into this process, and running it executes that with all the rights that the
 * process has. Checksums find damage, not malice. Whoever loads states that its origin is trusted as that of a program is. */
typedef uint32_t tw_trust;
#define TW_TRUST_ORIGIN 0x54525553u

/* ---- Requests to stop: any thread may make one, any number of runs may heed it, and it cannot be taken back. ---- */

typedef struct tw_cancel tw_cancel;

tw_status tw_cancel_new(tw_cancel **cancel);
tw_status tw_cancel_request(tw_cancel *cancel);
tw_status tw_cancel_free(tw_cancel *cancel);

/* ---- Models: any number of threads may use one at once ---- */

typedef struct tw_model tw_model;

/* Loads a file, which stays mapped while the model or a session of it lives, and must not be changed meanwhile. */
tw_status tw_model_load(const char *path, tw_trust trust, const tw_options *options, tw_model **model);

/* Loads from memory. With a null `release` the bytes are copied. Else they are used in place, must not change, and release(ctx, bytes) is
 * called once when nothing uses them any more: also, before this returns, where loading fails. At a multiple of 64 bytes weights are not
 * copied. */
tw_status tw_model_load_bytes(const void *bytes, size_t n_bytes, void (*release)(void *ctx, const void *bytes), void *ctx,
                              tw_trust trust, const tw_options *options, tw_model **model);

/* Waits until calls of other threads with this model have returned. Not to be called from a callback of such a call. */
tw_status tw_model_free(tw_model *model);

typedef struct tw_extent {
  int64_t extent;   /* -1 where it is open */
  const char *name; /* of an open extent, where it has one; else empty */
  int64_t least;    /* the values that an open extent of an input may have: from here, */
  int64_t most;     /* to here, -1 for no bound, */
  int64_t step;     /* in steps of this */
} tw_extent;

enum { TW_KIND_TENSOR = 0, TW_KIND_STRINGS = 1, TW_KIND_SEQUENCE = 2, TW_KIND_OPTIONAL = 3 };

/* An input or output of a model. Pointers are valid until the model is freed. */
typedef struct tw_spec {
  size_t size; /* set by the caller: sizeof(tw_spec) */
  const char *name;
  const char *type;         /* the type as text: "f32[batch, 3]" */
  const tw_extent *extents; /* as many as axes */
  int32_t kind;             /* TW_KIND_...: C passes on tensors alone */
  int32_t rank;             /* number of axes; -1 where it is known only in a run */
  DLDataType dtype;         /* all 0 where DLPack has no such type */
} tw_spec;

tw_status tw_model_input_count(tw_model *model, size_t *count);
tw_status tw_model_output_count(tw_model *model, size_t *count);
tw_status tw_model_input(tw_model *model, size_t index, tw_spec *spec);
tw_status tw_model_output(tw_model *model, size_t index, tw_spec *spec);

/* Runs the model on inputs that stay the caller's. `names` has their names, in any order; null: they are in the model's order. `cancel` may
 * be null. `outputs` has room for as many as the model has, in its order; each is the caller's, who calls tw_tensor_free, or its deleter,
 * once. On failure all of them are null.
 * Inputs are dense, row-major and on the processor (kDLCPU); at a multiple of 64 bytes they are not copied. */
tw_status tw_model_run(tw_model *model, size_t n_inputs, const char *const *names, const DLTensor *inputs, tw_cancel *cancel,
                       size_t n_outputs, DLManagedTensorVersioned **outputs);

/* ---- Sessions: one thread at a time; a second one at once gets TW_ERROR_BUSY ---- */

typedef struct tw_session tw_session;

/* Memory and random numbers of its own. What runs the same extents again allocates nothing. */
tw_status tw_session_new(tw_model *model, tw_session **session);
/* As tw_model_free. */
tw_status tw_session_free(tw_session *session);
/* Begins the streams of random numbers anew. */
tw_status tw_session_set_seed(tw_session *session, uint64_t seed);
/* What stops runs from now on; null: nothing does. */
tw_status tw_session_set_cancel(tw_session *session, tw_cancel *cancel);
/* Bytes that the session holds. */
tw_status tw_session_memory(tw_session *session, uint64_t *bytes);
/* As tw_model_run. */
tw_status tw_session_run(tw_session *session, size_t n_inputs, const char *const *names, const DLTensor *inputs,
                         size_t n_outputs, DLManagedTensorVersioned **outputs);
/* Writes outputs, in the model's order, into tensors of the caller's, of their types and extents: without a copy at a multiple of 64
 * bytes, where extents follow from those of the inputs. */
tw_status tw_session_run_into(tw_session *session, size_t n_inputs, const char *const *names, const DLTensor *inputs,
                              size_t n_outputs, const DLTensor *outputs);

/* ---- Tensors ---- */

/* Gives an output back, by its deleter; null is none. */
void tw_tensor_free(DLManagedTensorVersioned *tensor);

/* Makes an output of this library one of the form before DLPack 1.0, which takes it over. On failure it stays as it is. */
tw_status tw_tensor_unversioned(DLManagedTensorVersioned *tensor, DLManagedTensor **unversioned);

/* A dense tensor in memory of the caller's, which it points to. It is not written where it is an input. */
static inline DLTensor tw_dense(void *data, uint8_t code, uint8_t bits, int32_t rank, int64_t *shape) {
  DLTensor tensor;
  tensor.data = data;
  tensor.device.device_type = kDLCPU;
  tensor.device.device_id = 0;
  tensor.ndim = rank;
  tensor.dtype.code = code;
  tensor.dtype.bits = bits;
  tensor.dtype.lanes = 1;
  tensor.shape = shape;
#ifdef __cplusplus
  tensor.strides = nullptr;
#else
  tensor.strides = NULL;
#endif
  tensor.byte_offset = 0;
  return tensor;
}

/* ---- The functions as a table, for programs that open the library themselves (dlopen): they look up tw_api alone ---- */

typedef struct tw_api_1 {
  size_t size; /* of the table: newer libraries add to its end */
  uint32_t abi_version;
  tw_status (*last_status)(void);
  const char *(*last_error)(void);
  size_t (*problem_count)(void);
  tw_status (*problem_at)(size_t, tw_problem *);
  const char *(*status_name)(tw_status);
  const char *(*version)(void);
  tw_status (*cancel_new)(tw_cancel **);
  tw_status (*cancel_request)(tw_cancel *);
  tw_status (*cancel_free)(tw_cancel *);
  tw_status (*model_load)(const char *, tw_trust, const tw_options *, tw_model **);
  tw_status (*model_load_bytes)(const void *, size_t, void (*)(void *, const void *), void *, tw_trust, const tw_options *,
                                tw_model **);
  tw_status (*model_free)(tw_model *);
  tw_status (*model_input_count)(tw_model *, size_t *);
  tw_status (*model_output_count)(tw_model *, size_t *);
  tw_status (*model_input)(tw_model *, size_t, tw_spec *);
  tw_status (*model_output)(tw_model *, size_t, tw_spec *);
  tw_status (*model_run)(tw_model *, size_t, const char *const *, const DLTensor *, tw_cancel *, size_t,
                         DLManagedTensorVersioned **);
  tw_status (*session_new)(tw_model *, tw_session **);
  tw_status (*session_free)(tw_session *);
  tw_status (*session_set_seed)(tw_session *, uint64_t);
  tw_status (*session_set_cancel)(tw_session *, tw_cancel *);
  tw_status (*session_memory)(tw_session *, uint64_t *);
  tw_status (*session_run)(tw_session *, size_t, const char *const *, const DLTensor *, size_t, DLManagedTensorVersioned **);
  tw_status (*session_run_into)(tw_session *, size_t, const char *const *, const DLTensor *, size_t, const DLTensor *);
  void (*tensor_free)(DLManagedTensorVersioned *);
  tw_status (*tensor_unversioned)(DLManagedTensorVersioned *, DLManagedTensor **);
} tw_api_1;

/* The table of an interface version, as tw_api_1 for 1; null for a version that this library does not know. It is never freed. */
const void *tw_api(uint32_t abi_version);

#ifdef __cplusplus
}
#endif
#endif /* TILEWRIGHT_TILEWRIGHT_H */
