/* contract.c: what digits_run promises beside its results. Prints nothing where all holds. Between two calls of getppid the model runs, so
 * that a trace shows the system calls of runs. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "digits.h"

#define ALIGNED(bytes) __attribute__((aligned(bytes)))
#define GUARD 64

static ALIGNED(64) float image[DIGITS_INPUT_0_BYTES / sizeof(float) + GUARD];
static ALIGNED(64) unsigned char scores[DIGITS_OUTPUT_0_BYTES + GUARD];
static ALIGNED(64) unsigned char workspace[DIGITS_WORKSPACE_BYTES + GUARD];

static int n_failures = 0;

static void expect(int holds, const char *what) {
  if (holds) return;
  printf("not so: %s\n", what);
  n_failures++;
}

/* The bytes behind what a run may write are as they were. */
static int guarded(const unsigned char *bytes, size_t size) {
  size_t i;
  for (i = 0; i < GUARD; i++) {
    if (bytes[size + i] != 0xa5) return 0;
  }
  return 1;
}

static int run(const void *input, void *output, void *memory) {
  const void *const inputs[1] = {input};
  void *const outputs[1] = {output};
  return digits_run(inputs, outputs, memory);
}

int main(void) {
  unsigned char first[DIGITS_OUTPUT_0_BYTES];
  size_t i;
  for (i = 0; i < DIGITS_INPUT_0_BYTES / sizeof(float); i++) image[i] = (float)(i % 7) / 7;
  memset(scores, 0xa5, sizeof scores);
  memset(workspace, 0xa5, sizeof workspace);

  expect(run(NULL, scores, workspace) == 1, "an input that is null is refused");
  expect(run(image, NULL, workspace) == 1, "an output that is null is refused");
  expect(run(image, scores, NULL) == 1, "a workspace that is null is refused");
  if (DIGITS_INPUT_0_ALIGN > 4) expect(run(image + 1, scores, workspace) == 1, "an odd input is refused");
  if (DIGITS_OUTPUT_0_ALIGN > 4) expect(run(image, scores + 4, workspace) == 1, "an odd output is refused");
  if (DIGITS_WORKSPACE_ALIGN > 4) expect(run(image, scores, workspace + 4) == 1, "an odd workspace is refused");
  for (i = 0; i < sizeof scores; i++) expect(scores[i] == 0xa5, "what is refused writes nothing");

  expect(run(image, scores, workspace) == 0, "a run succeeds");
  memcpy(first, scores, sizeof first);
  memset(workspace, 0xff, DIGITS_WORKSPACE_BYTES);
  (void)getppid();
  for (i = 0; i < 10; i++) expect(run(image, scores, workspace) == 0, "a run succeeds again");
  (void)getppid();
  expect(memcmp(first, scores, sizeof first) == 0, "results do not depend on what the workspace held");
  expect(guarded(scores, DIGITS_OUTPUT_0_BYTES), "nothing is written behind the output");
  expect(guarded(workspace, DIGITS_WORKSPACE_BYTES), "nothing is written behind the workspace");
  return n_failures != 0;
}
