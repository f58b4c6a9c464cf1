/* digits.c: reads handwritten digits. C99.
 *
 *   cargo xtask c-library --prefix /tmp/tilewright
 *   target/release/tilewright compile examples/digits/digits.onnx -o digits.twm
 *   cc examples/c/digits.c $(PKG_CONFIG_PATH=/tmp/tilewright/lib/pkgconfig pkg-config --cflags --libs tilewright) -o digits
 *   LD_LIBRARY_PATH=/tmp/tilewright/lib ./digits digits.twm examples/digits/images/?/input_0.pb
 */
#include <stdio.h>
#include <stdlib.h>

#include <tilewright/tilewright.h>

#include "images.h"

/* Ends the program where a call has failed. */
static void check(tw_status status) {
  if (status == TW_OK) return;
  fprintf(stderr, "%s: %s\n", tw_status_name(status), tw_last_error());
  exit(1);
}

/* What the model takes or gives. */
static void print_spec(const char *what, const tw_spec *spec) {
  int32_t axis;
  printf("%s %s: %s", what, spec->name, spec->type);
  for (axis = 0; axis < spec->rank; axis++) {
    const tw_extent *extent = &spec->extents[axis];
    if (extent->extent < 0) printf(", %s is at least %lld", extent->name, (long long)extent->least);
  }
  printf("\n");
}

int main(int argc, char **argv) {
  tw_model *model;
  tw_spec spec = {sizeof spec, NULL, NULL, NULL, 0, 0, {0, 0, 0}};
  int i;
  if (argc < 3) {
    fprintf(stderr, "usage: digits MODEL.twm IMAGE.pb...\n");
    return 2;
  }
  /* The model is of our own compiler: we trust it as we do a program that we build. */
  check(tw_model_load(argv[1], TW_TRUST_ORIGIN, NULL, &model));
  check(tw_model_input(model, 0, &spec));
  print_spec("input", &spec);
  check(tw_model_output(model, 0, &spec));
  print_spec("output", &spec);

  for (i = 2; i < argc; i++) {
    float *pixels;
    size_t image;
    const size_t n = read_images(argv[i], &pixels);
    int64_t shape[4];
    DLTensor input;
    DLManagedTensorVersioned *output;
    const float *scores;
    if (n == 0) {
      fprintf(stderr, "%s: no images\n", argv[i]);
      return 1;
    }
    shape[0] = (int64_t)n;
    shape[1] = 1;
    shape[2] = shape[3] = 8;
    input = tw_dense(pixels, kDLFloat, 32, 4, shape);
    check(tw_model_run(model, 1, NULL, &input, NULL, 1, &output));
    scores = (const float *)output->dl_tensor.data;
    printf("%s:", argv[i]);
    for (image = 0; image < n; image++) printf(" %d", best(&scores[10 * image]));
    printf("\n");
    tw_tensor_free(output);
    free(pixels);
  }
  check(tw_model_free(model));
  return 0;
}
