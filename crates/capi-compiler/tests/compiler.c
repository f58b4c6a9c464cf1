/* compiler.c: what the compiler's functions do, and what goes wrong in them.
 *
 * compiler MODEL.onnx TO.twm: the digits, and where to write them. */
#include "../../capi/tests/check.h"

#include <tilewright/tilewright_compiler.h>

#ifdef __x86_64__
#define TARGET "x86-64-v3"
#else
#define TARGET "cpu"
#endif

/* A model of one node, by the fields of protobuf: y = OPERATOR(x) of a float, with opset 17. */
static size_t one_node(unsigned char *to, const char *op) {
  static const unsigned char head[] = {0x08, 8, 0x42, 2, 0x10, 17};           /* ir_version, opset_import */
  static const unsigned char x[] = {0x5a, 11, 0x0a, 1, 'x', 0x12, 6, 0x0a, 4, 0x08, 1, 0x12, 0};
  static const unsigned char y[] = {0x62, 11, 0x0a, 1, 'y', 0x12, 6, 0x0a, 4, 0x08, 1, 0x12, 0};
  const size_t n_op = strlen(op), n_node = 6 + 2 + n_op, n_graph = 2 + n_node + 3 + sizeof x + sizeof y;
  size_t at = sizeof head;
  memcpy(to, head, sizeof head);
  to[at++] = 0x3a; /* graph */
  to[at++] = (unsigned char)n_graph;
  to[at++] = 0x0a; /* node */
  to[at++] = (unsigned char)n_node;
  memcpy(to + at, "\x0a\x01x\x12\x01y\x22", 7); /* input, output, op_type */
  at += 7;
  to[at++] = (unsigned char)n_op;
  memcpy(to + at, op, n_op);
  at += n_op;
  memcpy(to + at, "\x12\x01g", 3); /* name */
  at += 3;
  memcpy(to + at, x, sizeof x);
  at += sizeof x;
  memcpy(to + at, y, sizeof y);
  return at + sizeof y;
}

static void check_options(tw_compiler *compiler, tw_cancel *cancel) {
  EXPECT(tw_compiler_target(compiler, "toaster"), TW_ERROR_OPTION);
  EXPECT(tw_compiler_target(compiler, NULL), TW_ERROR_ARGUMENT);
  EXPECT(tw_compiler_target(NULL, "cpu"), TW_ERROR_HANDLE);
  EXPECT(tw_compiler_target((tw_compiler *)(void *)cancel, "cpu"), TW_ERROR_HANDLE);
  EXPECT(tw_compiler_target(compiler, TARGET), TW_OK);
  EXPECT(tw_compiler_mode(compiler, "fast", 0), TW_ERROR_OPTION);
  EXPECT(tw_compiler_mode(compiler, "reduce-overhead", 0), TW_OK);
  EXPECT(tw_compiler_mode(compiler, "default", 0), TW_OK);
  EXPECT(tw_compiler_numerics(compiler, "loose"), TW_ERROR_OPTION);
  EXPECT(tw_compiler_numerics(compiler, "strict"), TW_OK);
  EXPECT(tw_compiler_codegen(compiler, "gcc"), TW_ERROR_OPTION);
  EXPECT(tw_compiler_codegen(compiler, "cranelift"), TW_OK);
  EXPECT(tw_compiler_cache(compiler, NULL, 0), TW_ERROR_ARGUMENT);
  EXPECT(tw_compiler_records(compiler, NULL), TW_OK);
  EXPECT(tw_compiler_records(compiler, "/"), TW_ERROR_FILE);
  EXPECT(tw_compiler_passes(compiler, NULL), TW_ERROR_ARGUMENT);
  EXPECT(tw_compiler_threads(compiler, 1), TW_OK);
  EXPECT(tw_compiler_threads(compiler, 0), TW_OK);
}

static void check_failures(tw_compiler *compiler, const char *path, tw_artifact **artifact) {
  unsigned char bytes[200];
  size_t n = one_node(bytes, "Wobble");
  tw_gap gap = {sizeof gap, NULL, NULL, NULL, NULL, NULL, NULL, 0};
  tw_problem problem = {sizeof problem, 0, 0, 0, 0, NULL, NULL};
  EXPECT(tw_compile_bytes(compiler, bytes, n, artifact), TW_ERROR_GAPS);
  CHECK(tw_problem_count() == 1);
  EXPECT(tw_problem_at(0, &problem), TW_OK);
  CHECK(problem.kind == TW_PROBLEM_GAP && strstr(problem.text, "Wobble") != NULL);
  EXPECT(tw_gap_at(0, &gap), TW_OK);
  CHECK(strcmp(gap.operator_name, "Wobble") == 0 && strcmp(gap.stage, "import") == 0 && gap.opset == 17);
  EXPECT(tw_gap_at(1, &gap), TW_ERROR_ARGUMENT);
  EXPECT(tw_compile_bytes(compiler, "nonsense", 8, artifact), TW_ERROR_MODEL);
  EXPECT(tw_gap_at(0, &gap), TW_ERROR_ARGUMENT);
  EXPECT(tw_compile_bytes(compiler, NULL, 8, artifact), TW_ERROR_ARGUMENT);
  EXPECT(tw_compile(compiler, "/nowhere.onnx", artifact), TW_ERROR_FILE);
  EXPECT(tw_compile(compiler, NULL, artifact), TW_ERROR_ARGUMENT);
  EXPECT(tw_compile(NULL, path, artifact), TW_ERROR_HANDLE);
  EXPECT(tw_compiler_dim(compiler, "batch", 4, 2, 0), TW_OK);
  EXPECT(tw_compile(compiler, path, artifact), TW_ERROR_OPTION);
  EXPECT(tw_compiler_dim(compiler, "batch", 1, 4, 0), TW_OK);
  n = one_node(bytes, "Relu");
  EXPECT(tw_compile_bytes(compiler, bytes, n, artifact), TW_ERROR_OPTION); /* it has no such dimension */
}

int main(int argc, char **argv) {
  tw_compiler *compiler;
  tw_artifact *artifact = NULL;
  tw_cancel *cancel;
  tw_model *model;
  const void *bytes;
  size_t n, i;
  static float pixels[PIXELS];
  DLManagedTensorVersioned *outputs[3];
  int64_t shape[4] = {1, 1, 8, 8};
  const DLTensor input = tw_dense(pixels, kDLFloat, 32, 4, shape);
  CHECK(argc == 3);
  EXPECT(tw_compiler_new(NULL), TW_ERROR_ARGUMENT);
  EXPECT(tw_compiler_new(&compiler), TW_OK);
  EXPECT(tw_cancel_new(&cancel), TW_OK);
  check_options(compiler, cancel);
  check_failures(compiler, argv[1], &artifact);
  CHECK(artifact == NULL);

  EXPECT(tw_compile(compiler, argv[1], NULL), TW_ERROR_ARGUMENT);
  EXPECT(tw_compile(compiler, argv[1], &artifact), TW_OK);
  /* From memory, from the file, and at once: the same scores. */
  EXPECT(tw_artifact_write(artifact, "/nowhere/at/all.twm"), TW_ERROR_FILE);
  EXPECT(tw_artifact_write(artifact, argv[2]), TW_OK);
  EXPECT(tw_artifact_bytes(artifact, &bytes, NULL), TW_ERROR_ARGUMENT);
  EXPECT(tw_artifact_bytes(artifact, &bytes, &n), TW_OK);
  for (i = 0; i < 3; i++) {
    const tw_status status = i == 0   ? tw_artifact_load(artifact, NULL, &model)
                             : i == 1 ? tw_model_load(argv[2], TW_TRUST_ORIGIN, NULL, &model)
                                      : tw_model_load_bytes(bytes, n, NULL, NULL, TW_TRUST_ORIGIN, NULL, &model);
    EXPECT(status, TW_OK);
    EXPECT(tw_model_run(model, 1, NULL, &input, NULL, 1, &outputs[i]), TW_OK);
    EXPECT(tw_model_free(model), TW_OK);
    CHECK(memcmp(outputs[i]->dl_tensor.data, outputs[0]->dl_tensor.data, 10 * sizeof(float)) == 0);
  }
  for (i = 0; i < 3; i++) tw_tensor_free(outputs[i]);
  EXPECT(tw_bytes_free(bytes, n), TW_OK);
  EXPECT(tw_bytes_free(NULL, 0), TW_ERROR_ARGUMENT);
  EXPECT(tw_artifact_free(artifact), TW_OK);
  EXPECT(tw_artifact_free(artifact), TW_ERROR_HANDLE);

  EXPECT(tw_compiler_cancel(compiler, cancel), TW_OK);
  EXPECT(tw_cancel_request(cancel), TW_OK);
  EXPECT(tw_compile(compiler, argv[1], &artifact), TW_ERROR_CANCELLED);
  EXPECT(tw_compiler_cancel(compiler, NULL), TW_OK);
  EXPECT(tw_cancel_free(cancel), TW_OK);
  EXPECT(tw_compiler_free(compiler), TW_OK);
  EXPECT(tw_compiler_free(compiler), TW_ERROR_HANDLE);
  printf("%d checks\n", checks);
  return 0;
}
