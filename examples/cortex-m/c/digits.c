/* digits.c: firmware that reads handwritten digits. No heap, no library of Tilewright's; all memory of the model is static.
 *
 * It reads the images and labels that IMAGES and LABELS name from the machine that plays the board, and says how many it reads right and what a run
 * takes. */
#include <stddef.h>
#include <stdint.h>

#include "digits.h"
#include "semihosting.h"

#define PIXELS 64

static __attribute__((aligned(DIGITS_INPUT_0_ALIGN))) float image[DIGITS_INPUT_0_BYTES / sizeof(float)];
static __attribute__((aligned(DIGITS_OUTPUT_0_ALIGN))) float scores[DIGITS_OUTPUT_0_BYTES / sizeof(float)];
static __attribute__((aligned(DIGITS_WORKSPACE_ALIGN))) unsigned char workspace[DIGITS_WORKSPACE_BYTES];

static unsigned char images[120 * 1024];
static char labels[2048];

/* The counter of the core, which counts down. */
#define SYST_CSR (*(volatile uint32_t *)0xe000e010u)
#define SYST_RVR (*(volatile uint32_t *)0xe000e014u)
#define SYST_CVR (*(volatile uint32_t *)0xe000e018u)
#define SYST_MOST 0xffffffu

static int best(void) {
  int i, found = 0;
  for (i = 1; i < 10; i++) {
    if (scores[i] > scores[found]) found = i;
  }
  return found;
}

int main(void) {
  const void *const inputs[DIGITS_INPUTS] = {image};
  void *const outputs[DIGITS_OUTPUTS] = {scores};
  const size_t bytes = read_file(IMAGES, sizeof IMAGES - 1, images, sizeof images);
  const size_t n_labels = read_file(LABELS, sizeof LABELS - 1, labels, sizeof labels);
  const size_t size = PIXELS * sizeof(float);
  /* The pixels are the last field of the file. */
  const size_t n = bytes / size;
  const unsigned char *pixels = &images[bytes - n * size];
  size_t each, byte, label = 0, right = 0;
  uint32_t most = 0;
  if (n == 0 || n_labels == 0) {
    print("no images\n");
    return 1;
  }
  SYST_RVR = SYST_MOST;
  SYST_CVR = 0;
  SYST_CSR = 5; /* on, by the clock of the core */
  for (each = 0; each < n; each++) {
    uint32_t ticks;
    for (byte = 0; byte < size; byte++) ((unsigned char *)image)[byte] = pixels[each * size + byte];
    ticks = SYST_CVR;
    if (digits_run(inputs, outputs, workspace) != 0) {
      print("the memory is not aligned\n");
      return 1;
    }
    ticks = (ticks - SYST_CVR) & SYST_MOST;
    if (ticks > most) most = ticks;
    while (label < n_labels && (labels[label] < '0' || labels[label] > '9')) label++;
    if (label < n_labels && labels[label] - '0' == best()) right++;
    label++;
  }
  print_number((uint32_t)right);
  print(" of ");
  print_number((uint32_t)n);
  print(" right, ");
  print_number(most);
  print(" ticks a run\n");
  return right == n ? 0 : 1;
}
