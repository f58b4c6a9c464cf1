/* inside.c: what the functions of a library with a runtime inside promise beside their results, by digits with --dim batch=1..8, and by the same
 * model in a second library of the program, `other` with batch=1..16. Prints nothing where all holds. Between two calls of getppid the model
 * runs, so that a trace shows the system calls of runs. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "digits.h"
#include "other.h"

#define ALIGNED __attribute__((aligned(DIGITS_ALIGN)))
#define GUARD 64
#define PIXELS 64
#define SCORES 10
#define BATCH 7
#define WORKSPACE 262144
/* Runs of each thread. */
#ifndef ROUNDS
#define ROUNDS 50
#endif

static ALIGNED float images[16 * PIXELS];
static ALIGNED unsigned char model[DIGITS_MODEL_BYTES + GUARD];
static ALIGNED unsigned char workspace[WORKSPACE];
static ALIGNED unsigned char other[OTHER_MODEL_BYTES];
static float scores[16 * SCORES + GUARD];

static int n_failures = 0;

static void expect(int holds, const char *what) {
  if (holds) return;
  printf("not so: %s\n", what);
  n_failures++;
}

static digits_input input_of(const void *data, uint64_t batch) {
  digits_input input = {NULL, {0, 1, 8, 8}};
  input.data = data;
  input.extents[0] = batch;
  return input;
}

static int sizes_of(uint64_t batch, uint64_t height, uint64_t *bytes, digits_output *output) {
  digits_input input = input_of(NULL, batch);
  input.extents[2] = height;
  return digits_sizes(model, &input, output, bytes);
}

static int run_in(void *memory, const void *data, uint64_t batch, void *to, uint64_t room, void *work, uint64_t bytes) {
  digits_input input = input_of(data, batch);
  digits_output output = {NULL, 0, 0, {0}};
  int status;
  output.data = to;
  output.room = room;
  status = digits_run(memory, &input, &output, work, bytes);
  if (status == DIGITS_OK || status == DIGITS_ROOM) {
    expect(output.extents[0] == batch && output.extents[1] == SCORES, "a run tells the output's extents");
    expect(output.bytes == batch * SCORES * sizeof(float), "a run tells the output's bytes");
  }
  return status;
}

static int run(uint64_t batch, void *to, uint64_t bytes) {
  return run_in(model, images, batch, to, sizeof scores, workspace, bytes);
}

static void opening(void) {
  memset(model, 0, sizeof model);
  expect(run(1, scores, WORKSPACE) == DIGITS_CLOSED, "memory of zeros is no model");
  memset(model, 0xa5, sizeof model);
  expect(run(1, scores, WORKSPACE) == DIGITS_CLOSED, "memory that was not opened is no model");
  expect(digits_open(NULL, DIGITS_MODEL_BYTES) == DIGITS_NULL, "null is no memory");
  expect(digits_open(model + 8, DIGITS_MODEL_BYTES) == DIGITS_MISALIGNED, "odd memory is refused");
  expect(digits_open(model, DIGITS_MODEL_BYTES - 1) == DIGITS_MEMORY, "too little memory is refused");
  expect(digits_open(model, 0) == DIGITS_MEMORY, "no memory is refused");
  expect(run(1, scores, WORKSPACE) == DIGITS_CLOSED, "a model that was refused is not open");
  expect(digits_open(model, DIGITS_MODEL_BYTES) == DIGITS_OK, "the model opens");
  expect(digits_open(model, DIGITS_MODEL_BYTES) == DIGITS_OK, "the model opens again in the same memory");
}

static void sizes(void) {
  digits_output output = {NULL, 0, 0, {0}};
  digits_input input = input_of(NULL, 1);
  uint64_t bytes = 0, more = 0;
  expect(sizes_of(3, 8, &bytes, &output) == DIGITS_OK, "sizes are told");
  expect(output.extents[0] == 3 && output.extents[1] == SCORES && output.bytes == 120, "those of the output");
  expect(sizes_of(8, 8, &more, &output) == DIGITS_OK && more > bytes, "a larger batch needs more memory");
  expect(sizes_of(0, 8, &bytes, &output) == DIGITS_EXTENTS, "fewer than the bounds are refused");
  expect(sizes_of(9, 8, &bytes, &output) == DIGITS_EXTENTS, "more than the bounds are refused");
  expect(sizes_of(UINT64_MAX, 8, &bytes, &output) == DIGITS_EXTENTS, "extents that no memory has are refused");
  expect(sizes_of(1, 9, &bytes, &output) == DIGITS_EXTENTS, "other extents than the model's are refused");
  expect(digits_sizes(NULL, &input, &output, &bytes) == DIGITS_NULL, "a null model is refused");
  expect(digits_sizes(model, NULL, &output, &bytes) == DIGITS_NULL, "null inputs are refused");
  expect(digits_sizes(model, &input, NULL, &bytes) == DIGITS_NULL, "null outputs are refused");
  expect(digits_sizes(model, &input, &output, NULL) == DIGITS_NULL, "null for the bytes is refused");
}

static void refusals(uint64_t bytes) {
  size_t i;
  memset(scores, 0xa5, sizeof scores);
  expect(run_in(NULL, images, 3, scores, sizeof scores, workspace, bytes) == DIGITS_NULL, "a null model is refused");
  expect(run_in(model, NULL, 3, scores, sizeof scores, workspace, bytes) == DIGITS_NULL, "a null input is refused");
  expect(run_in(model, images, 3, NULL, sizeof scores, workspace, bytes) == DIGITS_NULL, "a null output is refused");
  expect(run_in(model, images, 3, scores, sizeof scores, NULL, bytes) == DIGITS_NULL, "a null workspace is refused");
  expect(run_in(model + 8, images, 3, scores, sizeof scores, workspace, bytes) == DIGITS_MISALIGNED, "an odd model is refused");
  expect(run_in(model, images + 1, 3, scores, sizeof scores, workspace, bytes) == DIGITS_MISALIGNED, "an odd input is refused");
  expect(run_in(model, images, 3, scores, sizeof scores, workspace + 8, bytes) == DIGITS_MISALIGNED, "an odd workspace is refused");
  expect(run_in(model, images, 9, scores, sizeof scores, workspace, WORKSPACE) == DIGITS_EXTENTS, "extents out of bounds are refused");
  expect(run_in(model, images, UINT64_MAX / 2, scores, sizeof scores, workspace, WORKSPACE) == DIGITS_EXTENTS, "endless extents are refused");
  expect(run_in(model, images, 3, scores, sizeof scores, workspace, bytes - DIGITS_ALIGN) == DIGITS_MEMORY, "a small workspace is refused");
  expect(run_in(model, images, 3, scores, sizeof scores, workspace, 0) == DIGITS_MEMORY, "an empty workspace is refused");
  expect(run_in(model, images, 3, scores, 119, workspace, bytes) == DIGITS_ROOM, "a small output is refused");
  for (i = 0; i < sizeof scores; i++) expect(((unsigned char *)scores)[i] == 0xa5, "what is refused writes nothing");
}

static void results(void) {
  float first[BATCH * SCORES], again[16 * SCORES];
  digits_output output = {NULL, 0, 0, {0}};
  other_input input = {images, {BATCH, 1, 8, 8}};
  other_output of_other = {again, sizeof again, 0, {0}};
  uint64_t bytes = 0;
  int i;
  expect(sizes_of(BATCH, 8, &bytes, &output) == DIGITS_OK && bytes <= WORKSPACE - GUARD, "the workspace is large enough");
  memset(workspace, 0xa5, sizeof workspace);
  expect(run(BATCH, scores, bytes) == DIGITS_OK, "a run succeeds");
  for (i = 0; i < GUARD; i++) expect(workspace[bytes + (uint64_t)i] == 0xa5, "nothing is written behind the workspace");
  for (i = 0; i < GUARD; i++) expect(((unsigned char *)scores)[output.bytes + (uint64_t)i] == 0xa5, "nothing is written behind the output");
  for (i = 0; i < GUARD; i++) expect(model[DIGITS_MODEL_BYTES + i] == 0xa5, "nothing is written behind the model");
  memcpy(first, scores, sizeof first);
  memset(workspace, 0xff, sizeof workspace);
  (void)getppid();
  for (i = 0; i < 10; i++) {
    expect(run(1 + (uint64_t)i % 8, scores, WORKSPACE) == DIGITS_OK, "runs with other extents succeed");
    expect(run(9, scores, WORKSPACE) == DIGITS_EXTENTS, "and between them some are refused");
  }
  expect(run(BATCH, scores, WORKSPACE) == DIGITS_OK, "a run succeeds again");
  (void)getppid();
  expect(memcmp(first, scores, sizeof first) == 0, "results depend on the inputs alone");
  expect(other_open(other, OTHER_MODEL_BYTES) == OTHER_OK, "the other library's model opens");
  expect(other_run(other, &input, &of_other, workspace, WORKSPACE) == OTHER_OK, "and runs");
  expect(memcmp(first, again, sizeof first) == 0, "two libraries of a program do not disturb one another");
}

static void *thread(void *unused) {
  void *own, *work;
  float found[BATCH * SCORES];
  int i;
  (void)unused;
  if (posix_memalign(&own, DIGITS_ALIGN, DIGITS_MODEL_BYTES) != 0 || posix_memalign(&work, DIGITS_ALIGN, WORKSPACE) != 0) exit(2);
  if (digits_open(own, DIGITS_MODEL_BYTES) != DIGITS_OK) return (void *)"a thread's model opens";
  for (i = 0; i < ROUNDS; i++) {
    if (run_in(own, images, BATCH, found, sizeof found, work, WORKSPACE) != DIGITS_OK) return (void *)"a thread's run succeeds";
    if (memcmp(found, scores, sizeof found) != 0) return (void *)"a thread's run has the results";
  }
  free(own);
  free(work);
  return NULL;
}

static void threads(void) {
  pthread_t all[4];
  int i;
  for (i = 0; i < 4; i++) expect(pthread_create(&all[i], NULL, thread, NULL) == 0, "a thread begins");
  for (i = 0; i < 4; i++) {
    void *failure = NULL;
    expect(pthread_join(all[i], &failure) == 0, "a thread ends");
    if (failure != NULL) expect(0, (const char *)failure);
  }
}

int main(void) {
  digits_output output = {NULL, 0, 0, {0}};
  uint64_t bytes = 0;
  int i;
  for (i = 0; i < 16 * PIXELS; i++) images[i] = (float)(i % 7) / 7;
  opening();
  sizes();
  expect(sizes_of(3, 8, &bytes, &output) == DIGITS_OK, "sizes are told");
  refusals(bytes);
  results();
  threads();
  return n_failures != 0;
}
