/* tilewright_compiler.h: compiles ONNX models from C99 and newer, and from C++11 and newer.
 *
 * Link tilewright_compiler in place of tilewright: it has the functions of both. Handles, outcomes, and threads are as in tilewright.h.
 * A compiler is options: it stays as it is while it compiles, any number of threads may compile with one at once.
 */
#ifndef TILEWRIGHT_TILEWRIGHT_COMPILER_H
#define TILEWRIGHT_TILEWRIGHT_COMPILER_H

#include <tilewright/tilewright.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Compilers ---- */

typedef struct tw_compiler tw_compiler;

/* Compiles for this machine's processor, by the best code generator of this build, unless it is told otherwise. */
tw_status tw_compiler_new(tw_compiler **compiler);
tw_status tw_compiler_free(tw_compiler *compiler);

/* What to compile for: "cpu", "cuda", or a name that `tilewright targets` lists; several with commas between. */
tw_status tw_compiler_target(tw_compiler *compiler, const char *names);
/* The extents that an open dimension may have: from `least` to `most`, one where these are equal. `step`: programs are specialised for its
 * multiples; 0: for none. "INPUT[AXIS]" is the name of a dimension without one. */
tw_status tw_compiler_dim(tw_compiler *compiler, const char *name, int64_t least, int64_t most, int64_t step);
/* "default", "reduce-overhead" or "max-autotune", which searches for `seconds`; 0: as long as the command line does. */
tw_status tw_compiler_mode(tw_compiler *compiler, const char *name, uint32_t seconds);
/* "default" or "strict". */
tw_status tw_compiler_numerics(tw_compiler *compiler, const char *name);
/* "llvm" or "cranelift". */
tw_status tw_compiler_codegen(tw_compiler *compiler, const char *name);
/* A folder where compiled functions are kept and looked for, of about `limit` bytes at most; 0: 1 GiB. It is as trusted as the program. A
 * new compiler has none. */
tw_status tw_compiler_cache(tw_compiler *compiler, const char *folder, uint64_t limit);
/* A file of records of tuning, as `tilewright tune` writes it. Null: no records, not those of the library either. */
tw_status tw_compiler_records(tw_compiler *compiler, const char *path);
/* Switches graph passes off and on: "-sink,+raise". */
tw_status tw_compiler_passes(tw_compiler *compiler, const char *selection);
/* Threads that compile; 0: as many as processors. */
tw_status tw_compiler_threads(tw_compiler *compiler, uint32_t n_threads);
/* What stops compilations from now on. */
tw_status tw_compiler_cancel(tw_compiler *compiler, tw_cancel *cancel);

/* ---- Artifacts: compiled models, which any number of threads may write and load ---- */

typedef struct tw_artifact tw_artifact;

/* Compiles an ONNX file, with its external data beside it. TW_ERROR_GAPS has a problem for each thing that is not supported (tw_gap_at). */
tw_status tw_compile(tw_compiler *compiler, const char *path, tw_artifact **artifact);
/* Compiles the bytes of an ONNX model, which are copied. */
tw_status tw_compile_bytes(tw_compiler *compiler, const void *bytes, size_t n_bytes, tw_artifact **artifact);
tw_status tw_artifact_free(tw_artifact *artifact);

/* Writes the file, whole or not at all. */
tw_status tw_artifact_write(tw_artifact *artifact, const char *path);
/* The file's bytes, which tw_bytes_free gives back. */
tw_status tw_artifact_bytes(tw_artifact *artifact, const void **bytes, size_t *n_bytes);
tw_status tw_bytes_free(const void *bytes, size_t n_bytes);
/* Loads it into this process, which has made its code. `options` may be null. */
tw_status tw_artifact_load(tw_artifact *artifact, const tw_options *options, tw_model **model);

/* ---- What a model asks for that is not supported ---- */

/* Of the last call of this thread that failed with TW_ERROR_GAPS. Texts are valid until the next that fails, and empty where there are none. */
typedef struct tw_gap {
  size_t size;          /* set by the caller: sizeof(tw_gap) */
  const char *stage;    /* what refuses it: "import", "lower", "codegen", "plan" */
  const char *operator_name;
  const char *domain;   /* of the operator's set; empty for that of ONNX */
  const char *node;     /* its name */
  const char *reason;
  const char *hint;     /* what to try */
  int64_t opset;        /* the version of the set that the model imports; 0 where none is known */
} tw_gap;

/* `index` is below tw_problem_count(). */
tw_status tw_gap_at(size_t index, tw_gap *gap);

#ifdef __cplusplus
}
#endif
#endif /* TILEWRIGHT_TILEWRIGHT_COMPILER_H */
