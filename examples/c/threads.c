/* threads.c: eight threads read digits with one model, each by runs of the model and by a session of its own. C99 with POSIX threads. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tilewright/tilewright.h>

#include "images.h"

#define THREADS 8
#ifndef ROUNDS
#define ROUNDS 5
#endif

/* What every thread reads, and what it must find. */
typedef struct {
  tw_model *model;
  float *pixels;
  size_t n_images;
  const float *expected; /* the scores of all images */
} work;

static int failed(tw_status status) {
  if (status == TW_OK) return 0;
  fprintf(stderr, "%s: %s\n", tw_status_name(status), tw_last_error());
  return 1;
}

/* Returns null where all is as expected. */
static void *read_digits(void *argument) {
  static const char *const names[] = {"image"};
  const work *shared = (const work *)argument;
  tw_session *session;
  size_t round, image;
  if (failed(tw_session_new(shared->model, &session))) return argument;
  for (round = 0; round < ROUNDS; round++) {
    for (image = 0; image < shared->n_images; image++) {
      int64_t shape[4] = {1, 1, 8, 8}, out_shape[2] = {1, 10};
      float scores[10];
      const float *expected = &shared->expected[10 * image];
      DLTensor input = tw_dense(&shared->pixels[PIXELS * image], kDLFloat, 32, 4, shape);
      DLTensor output = tw_dense(scores, kDLFloat, 32, 2, out_shape);
      DLManagedTensorVersioned *owned;
      if (failed(tw_session_run_into(session, 1, names, &input, 1, &output))) return argument;
      if (best(scores) != best(expected)) return argument;
      if (failed(tw_model_run(shared->model, 1, names, &input, NULL, 1, &owned))) return argument;
      /* The bits of a result do not depend on who runs. */
      if (memcmp(owned->dl_tensor.data, scores, sizeof scores) != 0) return argument;
      tw_tensor_free(owned);
    }
  }
  return failed(tw_session_free(session)) ? argument : NULL;
}

int main(int argc, char **argv) {
  tw_options options;
  pthread_t threads[THREADS];
  work shared;
  DLManagedTensorVersioned *scores;
  int64_t shape[4] = {0, 1, 8, 8};
  DLTensor input;
  int i, wrong = 0;
  if (argc != 3) {
    fprintf(stderr, "usage: threads MODEL.twm IMAGES.pb\n");
    return 2;
  }
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.n_threads = 1;
  options.n_sessions = THREADS;
  if (failed(tw_model_load(argv[1], TW_TRUST_ORIGIN, &options, &shared.model))) return 1;
  shared.n_images = read_images(argv[2], &shared.pixels);
  shape[0] = (int64_t)shared.n_images;
  input = tw_dense(shared.pixels, kDLFloat, 32, 4, shape);
  if (failed(tw_model_run(shared.model, 1, NULL, &input, NULL, 1, &scores))) return 1;
  shared.expected = (const float *)scores->dl_tensor.data;
  if (shared.n_images > 20) shared.n_images = 20;

  for (i = 0; i < THREADS; i++) {
    if (pthread_create(&threads[i], NULL, read_digits, &shared) != 0) return 1;
  }
  for (i = 0; i < THREADS; i++) {
    void *result;
    pthread_join(threads[i], &result);
    wrong += result != NULL;
  }
  tw_tensor_free(scores);
  free(shared.pixels);
  if (failed(tw_model_free(shared.model))) return 1;
  printf("%d threads read %d times %d digits, %d of them wrongly\n", THREADS, ROUNDS, (int)shared.n_images, wrong);
  return wrong != 0;
}
