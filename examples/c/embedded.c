/* embedded.c: reads handwritten digits by a model that is part of the program. C99; no library of Tilewright's, no allocation in a run.
 *
 *   target/release/tilewright compile examples/digits/digits.onnx --dim batch=1 --emit static -o libdigits.a
 *   cc -I. examples/c/embedded.c libdigits.a -o embedded
 *   ./embedded examples/digits/images/?/input_0.pb
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

/* All the memory that the model needs. */
static ALIGNED(DIGITS_INPUT_0_ALIGN) float image[DIGITS_INPUT_0_BYTES / sizeof(float)];
static ALIGNED(DIGITS_OUTPUT_0_ALIGN) float scores[DIGITS_OUTPUT_0_BYTES / sizeof(float)];
static ALIGNED(DIGITS_WORKSPACE_ALIGN) unsigned char workspace[DIGITS_WORKSPACE_BYTES];

int main(int argc, char **argv) {
  const void *const inputs[DIGITS_INPUTS] = {image};
  void *const outputs[DIGITS_OUTPUTS] = {scores};
  int i;
  for (i = 1; i < argc; i++) {
    float *pixels;
    size_t n, each;
    int score;
    n = read_images(argv[i], &pixels);
    if (n == 0) {
      fprintf(stderr, "%s: no images\n", argv[i]);
      return 1;
    }
    for (each = 0; each < n; each++) {
      memcpy(image, &pixels[PIXELS * each], sizeof image);
      if (digits_run(inputs, outputs, workspace) != 0) {
        fprintf(stderr, "the memory is not aligned\n");
        return 1;
      }
      printf("%d:", best(scores));
      for (score = 0; score < 10; score++) printf(" %.9g", (double)scores[score]);
      printf("\n");
    }
    free(pixels);
  }
  return 0;
}
