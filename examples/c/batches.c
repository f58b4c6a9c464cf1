/* batches.c: reads handwritten digits, up to eight at once, by a model of open batch that is part of the program, with a runtime inside.
 * C99; no library of Tilewright's, no allocation in a run.
 *
 *   cargo xtask cross --embedded                         # once: the runtime for this machine
 *   target/release/tilewright compile examples/digits/digits.onnx --dim batch=1..8 --emit static -o libdigits.a
 *   cc -I. examples/c/batches.c libdigits.a -o batches
 *   ./batches examples/digits/held-out/input_0.pb
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "digits.h"
#include "images.h"

/* What _Alignas says in C11. */
#if defined(_MSC_VER)
#define ALIGNED(bytes) __declspec(align(bytes))
#else
#define ALIGNED(bytes) __attribute__((aligned(bytes)))
#endif

#define BATCH 8

/* All the memory of the model but the workspace, whose bytes follow from the batch. */
static ALIGNED(DIGITS_ALIGN) unsigned char model[DIGITS_MODEL_BYTES];
static ALIGNED(DIGITS_ALIGN) float images[BATCH * PIXELS];
static float scores[BATCH * 10];

/* A workspace for the largest batch. */
static void *workspace_of(uint64_t *bytes) {
  digits_input input = {images, {BATCH, 1, 8, 8}};
  digits_output output = {scores, sizeof scores, 0, {0}};
  unsigned char *start;
  if (digits_sizes(model, &input, &output, bytes) != DIGITS_OK) return NULL;
  start = (unsigned char *)malloc((size_t)*bytes + DIGITS_ALIGN);
  return start == NULL ? NULL : start + (DIGITS_ALIGN - (uintptr_t)start % DIGITS_ALIGN) % DIGITS_ALIGN;
}

int main(int argc, char **argv) {
  uint64_t bytes = 0;
  void *workspace;
  float *pixels;
  size_t n, done, each;
  if (argc != 2 || (n = read_images(argv[1], &pixels)) == 0) {
    fprintf(stderr, "one file of images\n");
    return 1;
  }
  if (digits_open(model, sizeof model) != DIGITS_OK || (workspace = workspace_of(&bytes)) == NULL) {
    fprintf(stderr, "no memory for the model\n");
    return 1;
  }
  for (done = 0; done < n; done += BATCH) {
    const size_t batch = n - done < BATCH ? n - done : BATCH;
    digits_input input = {images, {0, 1, 8, 8}};
    digits_output output = {scores, sizeof scores, 0, {0}};
    int status;
    input.extents[0] = batch;
    memcpy(images, &pixels[PIXELS * done], batch * PIXELS * sizeof(float));
    status = digits_run(model, &input, &output, workspace, bytes);
    if (status != DIGITS_OK) {
      fprintf(stderr, "the run returns %d, which digits.h explains\n", status);
      return 1;
    }
    for (each = 0; each < batch; each++) printf("%d\n", best(&scores[10 * each]));
  }
  free(pixels);
  return 0;
}
