/* compile.c: compiles a model and runs it at once. C99; link tilewright_compiler. */
#include <stdio.h>
#include <stdlib.h>

#include <tilewright/tilewright_compiler.h>

#include "images.h"

static void check(tw_status status) {
  size_t i;
  if (status == TW_OK) return;
  fprintf(stderr, "%s: %s\n", tw_status_name(status), tw_last_error());
  for (i = 0; status == TW_ERROR_GAPS && i < tw_problem_count(); i++) {
    tw_gap gap = {sizeof gap, NULL, NULL, NULL, NULL, NULL, NULL, 0};
    if (tw_gap_at(i, &gap) == TW_OK) fprintf(stderr, "  %s, refused by %s: %s\n", gap.operator_name, gap.stage, gap.reason);
  }
  exit(1);
}

int main(int argc, char **argv) {
  tw_compiler *compiler;
  tw_artifact *artifact;
  tw_model *model;
  float *pixels;
  int64_t shape[4] = {1, 1, 8, 8};
  DLTensor input;
  DLManagedTensorVersioned *output;
  if (argc != 3 || read_images(argv[2], &pixels) != 1) {
    fprintf(stderr, "usage: compile MODEL.onnx IMAGE.pb\n");
    return 2;
  }
  check(tw_compiler_new(&compiler));
  /* Any processor of x86 that is not too old, and this one elsewhere. */
#ifdef __x86_64__
  check(tw_compiler_target(compiler, "x86-64-v3"));
#endif
  check(tw_compiler_dim(compiler, "batch", 1, 1, 0));
  check(tw_compile(compiler, argv[1], &artifact));
  check(tw_artifact_load(artifact, NULL, &model));
  input = tw_dense(pixels, kDLFloat, 32, 4, shape);
  check(tw_model_run(model, 1, NULL, &input, NULL, 1, &output));
  printf("This is a %d.\n", best((const float *)output->dl_tensor.data));
  tw_tensor_free(output);
  free(pixels);
  check(tw_model_free(model));
  check(tw_artifact_free(artifact));
  check(tw_compiler_free(compiler));
  return 0;
}
