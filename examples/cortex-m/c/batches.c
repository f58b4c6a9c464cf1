/* batches.c: firmware that reads handwritten digits, seven at once, by a model of open batch with a runtime inside. No heap, no other library; all
 * memory is static.
 *
 * It reads the images and labels that IMAGES and LABELS name from the machine that plays the board, and says how many it reads right. */
#include <stddef.h>
#include <stdint.h>

#include "digits.h"
#include "semihosting.h"

#define PIXELS 64
#define SCORES 10
#define BATCH 7

static __attribute__((aligned(DIGITS_ALIGN))) float batch[BATCH * PIXELS];
static __attribute__((aligned(DIGITS_ALIGN))) unsigned char model[DIGITS_MODEL_BYTES];
static __attribute__((aligned(DIGITS_ALIGN))) unsigned char workspace[160 * 1024];
static float scores[BATCH * SCORES];

static unsigned char images[120 * 1024];
static char labels[2048];

static int best(const float *of) {
  int i, found = 0;
  for (i = 1; i < SCORES; i++) {
    if (of[i] > of[found]) found = i;
  }
  return found;
}

int main(void) {
  const size_t bytes = read_file(IMAGES, sizeof IMAGES - 1, images, sizeof images);
  const size_t n_labels = read_file(LABELS, sizeof LABELS - 1, labels, sizeof labels);
  const size_t size = PIXELS * sizeof(float);
  /* The pixels are the last field of the file. */
  const size_t n = bytes / size;
  const unsigned char *pixels = &images[bytes - n * size];
  size_t done, each, label = 0, right = 0;
  uint64_t most = 0;
  if (n == 0 || n_labels == 0) {
    print("no images\n");
    return 1;
  }
  if (digits_open(model, sizeof model) != DIGITS_OK) {
    print("the model does not open\n");
    return 1;
  }
  for (done = 0; done < n; done += BATCH) {
    const size_t count = n - done < BATCH ? n - done : BATCH;
    const digits_input input = {batch, {count, 1, 8, 8}};
    digits_output output = {scores, sizeof scores, 0, {0}};
    uint64_t needed;
    for (each = 0; each < count * size; each++) ((unsigned char *)batch)[each] = pixels[done * size + each];
    if (digits_sizes(model, &input, &output, &needed) != DIGITS_OK || needed > sizeof workspace) {
      print("the workspace is too small\n");
      return 1;
    }
    if (needed > most) most = needed;
    if (digits_run(model, &input, &output, workspace, needed - DIGITS_ALIGN) != DIGITS_MEMORY) {
      print("a smaller workspace does\n");
      return 1;
    }
    if (digits_run(model, &input, &output, workspace, needed) != DIGITS_OK) {
      print("the model does not run\n");
      return 1;
    }
    for (each = 0; each < count; each++) {
      while (label < n_labels && (labels[label] < '0' || labels[label] > '9')) label++;
      if (label < n_labels && labels[label] - '0' == best(&scores[SCORES * each])) right++;
      label++;
    }
  }
  print_number((uint32_t)right);
  print(" of ");
  print_number((uint32_t)n);
  print(" right, model ");
  print_number(DIGITS_MODEL_BYTES);
  print(" bytes, workspace ");
  print_number((uint32_t)most);
  print(" bytes\n");
  return right == n ? 0 : 1;
}
