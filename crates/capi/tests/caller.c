/* caller.c: memory and threads of the caller's, the table of functions, tensors of both forms, and frees beside runs.
 *
 * caller MODEL.twm */
#include <pthread.h>

#include "check.h"

/* ---- An allocator that counts ---- */

typedef struct {
  pthread_mutex_t lock;
  size_t n_alive, n_bytes, n_calls, most; /* `most`: calls after which there is no memory */
} counts;

static void *allocate(void *ctx, size_t bytes, size_t align) {
  counts *own = (counts *)ctx;
  void *start = NULL;
  pthread_mutex_lock(&own->lock);
  if (own->n_calls++ < own->most && posix_memalign(&start, align, bytes) == 0) {
    memset(start, 0xa5, bytes);
    own->n_alive++;
    own->n_bytes += bytes;
  }
  pthread_mutex_unlock(&own->lock);
  return start;
}

static void give_back(void *ctx, void *start, size_t bytes, size_t align) {
  counts *own = (counts *)ctx;
  pthread_mutex_lock(&own->lock);
  CHECK(start != NULL && align == 64 && (uintptr_t)start % align == 0);
  own->n_alive--;
  own->n_bytes -= bytes;
  pthread_mutex_unlock(&own->lock);
  free(start);
}

/* ---- Threads that are made for each job ---- */

typedef struct {
  tw_task task;
  void *ctx;
  size_t first, step, n;
} part;

static size_t n_jobs;

static void *work(void *argument) {
  const part *own = (const part *)argument;
  size_t i;
  for (i = own->first; i < own->n; i += own->step) own->task(own->ctx, i);
  return NULL;
}

static void parallel_for(void *ctx, size_t n, tw_task task, void *task_ctx) {
  pthread_t threads[2];
  part parts[3];
  size_t i;
  CHECK(ctx == &n_jobs);
  n_jobs++;
  for (i = 0; i < 3; i++) {
    parts[i].task = task;
    parts[i].ctx = task_ctx;
    parts[i].first = i;
    parts[i].step = 3;
    parts[i].n = n;
    if (i > 0) CHECK(pthread_create(&threads[i - 1], NULL, work, &parts[i]) == 0);
  }
  work(&parts[0]);
  for (i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}

/* ---- */

static float pixels[PIXELS * 32];

static DLTensor images(int64_t *shape, int64_t n) {
  shape[0] = n;
  shape[1] = 1;
  shape[2] = shape[3] = 8;
  return tw_dense(pixels, kDLFloat, 32, 4, shape);
}

static void check_callers(const char *path) {
  int64_t shape[4];
  const DLTensor input = images(shape, 32);
  counts own = {PTHREAD_MUTEX_INITIALIZER, 0, 0, 0, SIZE_MAX};
  tw_allocator allocator;
  tw_threads threads;
  tw_options options;
  tw_model *model, *plain;
  tw_session *session;
  DLManagedTensorVersioned *outputs[3], *expected;
  uint64_t bytes;
  size_t i;
  memset(&allocator, 0, sizeof allocator);
  memset(&threads, 0, sizeof threads);
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.allocator = &allocator;
  options.threads = &threads;
  allocator.ctx = &own;
  allocator.allocate = allocate;
  threads.ctx = &n_jobs;
  threads.parallel_for = parallel_for;

  EXPECT(tw_model_load(path, TW_TRUST_ORIGIN, &options, &model), TW_ERROR_ARGUMENT); /* of no size */
  allocator.size = sizeof allocator;
  threads.size = sizeof threads;
  EXPECT(tw_model_load(path, TW_TRUST_ORIGIN, &options, &model), TW_ERROR_ARGUMENT); /* no free, no thread */
  allocator.free = give_back;
  EXPECT(tw_model_load(path, TW_TRUST_ORIGIN, &options, &model), TW_ERROR_ARGUMENT);
  threads.count = 3;
  EXPECT(tw_model_load(path, TW_TRUST_ORIGIN, &options, &model), TW_OK);
  EXPECT(tw_model_load(path, TW_TRUST_ORIGIN, NULL, &plain), TW_OK);
  EXPECT(tw_session_new(model, &session), TW_OK);
  EXPECT(tw_model_run(plain, 1, NULL, &input, NULL, 1, &expected), TW_OK);
  EXPECT(tw_model_run(model, 1, NULL, &input, NULL, 1, &outputs[0]), TW_OK);
  EXPECT(tw_session_run(session, 1, NULL, &input, 1, &outputs[1]), TW_OK);
  EXPECT(tw_session_run(session, 1, NULL, &input, 1, &outputs[2]), TW_OK);
  CHECK(n_jobs > 0 && own.n_alive >= 3);
  EXPECT(tw_session_memory(session, &bytes), TW_OK);
  CHECK(bytes > 0 && bytes <= own.n_bytes);

  /* What runs again asks for nothing. */
  {
    int64_t out_shape[2] = {32, 10};
    static float scores[10 * 32];
    const DLTensor room = tw_dense(scores, kDLFloat, 32, 2, out_shape);
    size_t n_calls;
    EXPECT(tw_session_run_into(session, 1, NULL, &input, 1, &room), TW_OK);
    n_calls = own.n_calls;
    for (i = 0; i < 10; i++) EXPECT(tw_session_run_into(session, 1, NULL, &input, 1, &room), TW_OK);
    CHECK(own.n_calls == n_calls);
    CHECK(memcmp(scores, expected->dl_tensor.data, sizeof scores) == 0);
  }
  /* Without memory it is told, and all is well when there is some again. */
  own.most = own.n_calls;
  {
    int64_t more[4];
    DLManagedTensorVersioned *none = expected;
    DLTensor larger = images(more, 16);
    EXPECT(tw_session_run(session, 1, NULL, &larger, 1, &none), TW_ERROR_MEMORY);
    CHECK(none == NULL);
    own.most = SIZE_MAX;
    EXPECT(tw_session_run(session, 1, NULL, &larger, 1, &none), TW_OK);
    tw_tensor_free(none);
  }
  /* Outputs outlive everything. */
  EXPECT(tw_session_free(session), TW_OK);
  EXPECT(tw_model_free(model), TW_OK);
  CHECK(own.n_alive == 3);
  for (i = 0; i < 3; i++) {
    CHECK(memcmp(outputs[i]->dl_tensor.data, expected->dl_tensor.data, sizeof(float) * 320) == 0);
    tw_tensor_free(outputs[i]);
  }
  CHECK(own.n_alive == 0 && own.n_bytes == 0);

  /* The form before DLPack 1.0. */
  {
    DLManagedTensor *before;
    DLManagedTensorVersioned stranger = *expected;
    stranger.deleter = NULL;
    EXPECT(tw_tensor_unversioned(&stranger, &before), TW_ERROR_ARGUMENT);
    EXPECT(tw_tensor_unversioned(NULL, &before), TW_ERROR_ARGUMENT);
    EXPECT(tw_tensor_unversioned(expected, NULL), TW_ERROR_ARGUMENT);
    EXPECT(tw_tensor_unversioned(expected, &before), TW_OK);
    CHECK(before->dl_tensor.ndim == 2 && before->dl_tensor.shape[1] == 10 && before->dl_tensor.strides[0] == 10);
    before->deleter(before);
  }
  EXPECT(tw_model_free(plain), TW_OK);
}

/* ---- A model that is freed, and a session that is used by many, at once ---- */

/* Runs of each thread, unless all is freed before. */
#define RUNS 300

typedef struct {
  tw_model *model;
  tw_session *session;
  size_t n_ok, n_busy;
} shared;

static pthread_mutex_t tally = PTHREAD_MUTEX_INITIALIZER;

static void *run_until_gone(void *argument) {
  shared *all = (shared *)argument;
  size_t i, n_ok = 0, n_busy = 0;
  for (i = 0; i < RUNS; i++) {
    int64_t shape[4], out_shape[2] = {1, 10};
    float scores[10];
    DLManagedTensorVersioned *output;
    const DLTensor input = images(shape, 1), room = tw_dense(scores, kDLFloat, 32, 2, out_shape);
    tw_status status = tw_model_run(all->model, 1, NULL, &input, NULL, 1, &output);
    if (status == TW_OK) tw_tensor_free(output);
    if (status != TW_OK && status != TW_ERROR_HANDLE) n_ok = SIZE_MAX / 2;
    status = tw_session_run_into(all->session, 1, NULL, &input, 1, &room);
    if (status == TW_OK) n_ok++;
    if (status == TW_ERROR_BUSY) n_busy++;
    if (status == TW_ERROR_HANDLE) break;
    if (i == RUNS / 3) tw_model_free(all->model);
    if (i == RUNS / 3 * 2) tw_session_free(all->session);
  }
  pthread_mutex_lock(&tally);
  all->n_ok += n_ok;
  all->n_busy += n_busy;
  pthread_mutex_unlock(&tally);
  return NULL;
}

static void check_frees(const char *path) {
  pthread_t threads[8];
  tw_options options;
  shared all;
  int i;
  memset(&all, 0, sizeof all);
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.n_threads = 1;
  EXPECT(tw_model_load(path, TW_TRUST_ORIGIN, &options, &all.model), TW_OK);
  EXPECT(tw_session_new(all.model, &all.session), TW_OK);
  for (i = 0; i < 8; i++) CHECK(pthread_create(&threads[i], NULL, run_until_gone, &all) == 0);
  for (i = 0; i < 8; i++) pthread_join(threads[i], NULL);
  /* How many found the session free is chance; a status of another kind would be a number far too large. */
  CHECK(all.n_ok > 0 && all.n_ok + all.n_busy <= 8 * RUNS);
  EXPECT(tw_model_free(all.model), TW_ERROR_HANDLE);
  EXPECT(tw_session_free(all.session), TW_ERROR_HANDLE);
}

static void check_table(void) {
  const tw_api_1 *api = (const tw_api_1 *)tw_api(TW_ABI_VERSION);
  CHECK(api != NULL && api->size == sizeof *api && api->abi_version == 1);
  CHECK(tw_api(0) == NULL && tw_api(TW_ABI_VERSION + 1) == NULL);
  CHECK(api->last_status == tw_last_status && api->last_error == tw_last_error);
  CHECK(api->problem_count == tw_problem_count && api->problem_at == tw_problem_at);
  CHECK(api->status_name == tw_status_name && api->version == tw_version);
  CHECK(api->cancel_new == tw_cancel_new && api->cancel_request == tw_cancel_request);
  CHECK(api->cancel_free == tw_cancel_free && api->model_load == tw_model_load);
  CHECK(api->model_load_bytes == tw_model_load_bytes && api->model_free == tw_model_free);
  CHECK(api->model_input_count == tw_model_input_count && api->model_output_count == tw_model_output_count);
  CHECK(api->model_input == tw_model_input && api->model_output == tw_model_output);
  CHECK(api->model_run == tw_model_run && api->session_new == tw_session_new);
  CHECK(api->session_free == tw_session_free && api->session_set_seed == tw_session_set_seed);
  CHECK(api->session_set_cancel == tw_session_set_cancel && api->session_memory == tw_session_memory);
  CHECK(api->session_run == tw_session_run && api->session_run_into == tw_session_run_into);
  CHECK(api->tensor_free == tw_tensor_free && api->tensor_unversioned == tw_tensor_unversioned);
  CHECK(strcmp(tw_version(), api->version()) == 0);
}

int main(int argc, char **argv) {
  size_t i;
  CHECK(argc == 2);
  for (i = 0; i < sizeof pixels / sizeof *pixels; i++) pixels[i] = (float)(i % 17) / 16;
  check_table();
  check_callers(argv[1]);
  check_frees(argv[1]);
  printf("%d checks\n", checks);
  return 0;
}
