/* errors.c: what goes wrong is told by the right status, with the right problems, and does no harm.
 *
 * errors MODEL.twm OTHER.twm BOUNDED.twm: the digits for this machine, for another one, and with batches of 1 to 8 in steps of 1. */
#include "check.h"

static float pixels[PIXELS * 16];
static float scores[10 * 16];

/* A batch of images. */
static DLTensor images(int64_t *shape, int64_t n) {
  shape[0] = n;
  shape[1] = 1;
  shape[2] = shape[3] = 8;
  return tw_dense(pixels, kDLFloat, 32, 4, shape);
}

/* Runs one input every way, and expects the same of each: a status, and the first problem. */
static void expect_input(tw_model *model, size_t n, const char *const *names, const DLTensor *inputs, int32_t kind, int64_t wanted,
                         int64_t got) {
  DLManagedTensorVersioned *output = NULL;
  int64_t shape[2] = {1, 10};
  const DLTensor room = tw_dense(scores, kDLFloat, 32, 2, shape);
  tw_session *session;
  int way;
  CHECK(tw_session_new(model, &session) == TW_OK);
  for (way = 0; way < 3; way++) {
    tw_problem problem = {sizeof problem, 0, 0, 0, 0, NULL, NULL};
    const tw_status status = way == 0   ? tw_model_run(model, n, names, inputs, NULL, 1, &output)
                             : way == 1 ? tw_session_run(session, n, names, inputs, 1, &output)
                                        : tw_session_run_into(session, n, names, inputs, 1, &room);
    EXPECT(status, TW_ERROR_INPUT);
    CHECK(output == NULL);
    CHECK(tw_last_status() == TW_ERROR_INPUT && tw_problem_count() > 0);
    EXPECT(tw_problem_at(0, &problem), TW_OK);
    CHECK(problem.kind == kind && problem.expected == wanted && problem.got == got);
    CHECK(problem.text[0] != '\0' && strstr(tw_last_error(), problem.text) != NULL);
  }
  CHECK(tw_session_free(session) == TW_OK);
}

static void check_handles(const char *path) {
  tw_model *model, *copy;
  tw_session *session;
  tw_cancel *cancel;
  DLManagedTensorVersioned *output = NULL;
  size_t n;
  uint64_t bytes;
  char local[64];
  memset(local, 0x5a, sizeof local);
  EXPECT(tw_model_free(NULL), TW_ERROR_HANDLE);
  EXPECT(tw_session_free(NULL), TW_ERROR_HANDLE);
  EXPECT(tw_cancel_free(NULL), TW_ERROR_HANDLE);
  EXPECT(tw_cancel_request(NULL), TW_ERROR_HANDLE);
  EXPECT(tw_model_input_count(NULL, &n), TW_ERROR_HANDLE);
  EXPECT(tw_model_run(NULL, 0, NULL, NULL, NULL, 1, &output), TW_ERROR_HANDLE);
  EXPECT(tw_session_memory(NULL, &bytes), TW_ERROR_HANDLE);
  EXPECT(tw_session_new(NULL, &session), TW_ERROR_HANDLE);
  EXPECT(tw_model_free((tw_model *)(void *)local), TW_ERROR_HANDLE);

  EXPECT(tw_model_load(path, TW_TRUST_ORIGIN, NULL, &model), TW_OK);
  EXPECT(tw_session_new(model, &session), TW_OK);
  EXPECT(tw_cancel_new(&cancel), TW_OK);
  /* Of another kind. */
  EXPECT(tw_session_free((tw_session *)(void *)model), TW_ERROR_HANDLE);
  EXPECT(tw_model_free((tw_model *)(void *)session), TW_ERROR_HANDLE);
  EXPECT(tw_session_set_cancel(session, (tw_cancel *)(void *)model), TW_ERROR_HANDLE);
  /* Twice, also after something else has taken the place. */
  EXPECT(tw_model_free(model), TW_OK);
  EXPECT(tw_model_free(model), TW_ERROR_HANDLE);
  EXPECT(tw_model_load(path, TW_TRUST_ORIGIN, NULL, &copy), TW_OK);
  EXPECT(tw_model_free(model), TW_ERROR_HANDLE);
  EXPECT(tw_model_output_count(model, &n), TW_ERROR_HANDLE);
  EXPECT(tw_model_free(copy), TW_OK);
  /* A session outlives the handle of its model. */
  EXPECT(tw_session_memory(session, &bytes), TW_OK);
  EXPECT(tw_session_set_cancel(session, cancel), TW_OK);
  EXPECT(tw_cancel_request(cancel), TW_OK);
  EXPECT(tw_cancel_free(cancel), TW_OK);
  EXPECT(tw_cancel_free(cancel), TW_ERROR_HANDLE);
  {
    int64_t shape[4], out_shape[2] = {1, 10};
    const DLTensor input = images(shape, 1), room = tw_dense(scores, kDLFloat, 32, 2, out_shape);
    EXPECT(tw_session_run_into(session, 1, NULL, &input, 1, &room), TW_ERROR_CANCELLED);
    EXPECT(tw_session_set_cancel(session, NULL), TW_OK);
    EXPECT(tw_session_run_into(session, 1, NULL, &input, 1, &room), TW_OK);
  }
  EXPECT(tw_session_free(session), TW_OK);
  EXPECT(tw_session_free(session), TW_ERROR_HANDLE);
}

static int released;

static void release(void *ctx, const void *bytes) {
  CHECK(ctx == &released && bytes != NULL);
  released++;
}

static void check_loading(const char *path, const char *other) {
  /* Aligned, so that models use them where they lie. */
  static unsigned char bytes[1 << 21] __attribute__((aligned(64)));
  tw_model *model = NULL;
  tw_options options;
  tw_problem problem = {sizeof problem, 0, 0, 0, 0, NULL, NULL};
  size_t size, cut;
  FILE *file = fopen(path, "rb");
  CHECK(file != NULL);
  size = fread(bytes, 1, sizeof bytes, file);
  fclose(file);
  CHECK(size > 1000 && size < sizeof bytes);
  memset(&options, 0, sizeof options);

  EXPECT(tw_model_load(path, 0, NULL, &model), TW_ERROR_TRUST);
  EXPECT(tw_model_load(path, 1, NULL, &model), TW_ERROR_TRUST);
  EXPECT(tw_model_load(NULL, TW_TRUST_ORIGIN, NULL, &model), TW_ERROR_ARGUMENT);
  EXPECT(tw_model_load("\xff\xfe", TW_TRUST_ORIGIN, NULL, &model), TW_ERROR_ARGUMENT);
  EXPECT(tw_model_load(path, TW_TRUST_ORIGIN, NULL, NULL), TW_ERROR_ARGUMENT);
  EXPECT(tw_model_load("/nowhere/at/all.twm", TW_TRUST_ORIGIN, NULL, &model), TW_ERROR_FILE);
  CHECK(strstr(tw_last_error(), "/nowhere/at/all.twm") != NULL && tw_problem_count() == 0);
  EXPECT(tw_problem_at(0, &problem), TW_ERROR_ARGUMENT);
  EXPECT(tw_model_load("/", TW_TRUST_ORIGIN, NULL, &model), TW_ERROR_FILE);
  EXPECT(tw_model_load(other, TW_TRUST_ORIGIN, NULL, &model), TW_ERROR_MACHINE);
  CHECK(strstr(tw_last_error(), "another instruction set") != NULL);
  EXPECT(tw_model_load(path, TW_TRUST_ORIGIN, &options, &model), TW_ERROR_ARGUMENT); /* of no size */
  options.size = sizeof options;
  options.reserved = 1;
  EXPECT(tw_model_load(path, TW_TRUST_ORIGIN, &options, &model), TW_ERROR_ARGUMENT);

  /* Cut off anywhere it is no artifact; nor with a bit that is another. */
  for (cut = 0; cut < size; cut += cut < 256 ? 1 : size / 40) {
    EXPECT(tw_model_load_bytes(bytes, cut, NULL, NULL, TW_TRUST_ORIGIN, NULL, &model), TW_ERROR_ARTIFACT);
  }
  for (cut = 0; cut < 4096; cut += 64) {
    tw_status status;
    bytes[cut] ^= 4;
    status = tw_model_load_bytes(bytes, size, NULL, NULL, TW_TRUST_ORIGIN, NULL, &model);
    bytes[cut] ^= 4;
    if (status == TW_OK) {
      EXPECT(tw_model_free(model), TW_OK); /* between sections */
    } else {
      EXPECT(status, TW_ERROR_ARTIFACT);
    }
  }
  CHECK(tw_model_load_bytes(NULL, 10, NULL, NULL, TW_TRUST_ORIGIN, NULL, &model) == TW_ERROR_ARGUMENT);

  /* What is lent is released once: also where it is no artifact, and where nobody is trusted. */
  EXPECT(tw_model_load_bytes(bytes, 100, release, &released, TW_TRUST_ORIGIN, NULL, &model), TW_ERROR_ARTIFACT);
  EXPECT(tw_model_load_bytes(bytes, size, release, &released, 7, NULL, &model), TW_ERROR_TRUST);
  EXPECT(released, 2);
  EXPECT(tw_model_load_bytes(bytes, size, release, &released, TW_TRUST_ORIGIN, NULL, &model), TW_OK);
  EXPECT(released, 2);
  EXPECT(tw_model_free(model), TW_OK);
  EXPECT(released, 3);
}

static void check_inputs(tw_model *model) {
  static const char *const image[] = {"image"};
  static const char *const strangers[] = {"picture", "label"};
  static const char *const twice[] = {"image", "image"};
  static const char *const broken[] = {"\xff"};
  static const char *const nameless[] = {NULL};
  int64_t shape[4], other[4], strides[4] = {64, 64, 1, 8};
  const DLTensor good = images(shape, 1);
  DLTensor inputs[2], bad = good;
  DLManagedTensorVersioned *outputs[2] = {NULL, NULL};
  tw_problem problem = {sizeof problem, 0, 0, 0, 0, NULL, NULL};
  inputs[0] = inputs[1] = good;

  expect_input(model, 0, NULL, NULL, TW_PROBLEM_MISSING, -1, -1);
  expect_input(model, 2, NULL, inputs, TW_PROBLEM_TOO_MANY, 1, 2);
  expect_input(model, 2, twice, inputs, TW_PROBLEM_DUPLICATE, -1, -1);
  /* Missing and unknown ones at once. */
  expect_input(model, 2, strangers, inputs, TW_PROBLEM_UNKNOWN, -1, -1);
  CHECK(tw_problem_count() == 3);
  EXPECT(tw_problem_at(1, &problem), TW_OK);
  CHECK(problem.kind == TW_PROBLEM_UNKNOWN && strcmp(problem.name, "label") == 0);
  EXPECT(tw_problem_at(2, &problem), TW_OK);
  CHECK(problem.kind == TW_PROBLEM_MISSING && strcmp(problem.name, "image") == 0);
  EXPECT(tw_problem_at(3, &problem), TW_ERROR_ARGUMENT);
  problem.size = 3;
  EXPECT(tw_problem_at(0, &problem), TW_ERROR_ARGUMENT);
  EXPECT(tw_problem_at(0, NULL), TW_ERROR_ARGUMENT);

  bad.dtype.bits = 64;
  expect_input(model, 1, image, &bad, TW_PROBLEM_DTYPE, -1, -1);
  bad.dtype.code = kDLComplex;
  expect_input(model, 1, image, &bad, TW_PROBLEM_DTYPE, -1, -1);
  bad = good;
  bad.dtype.lanes = 2;
  expect_input(model, 1, image, &bad, TW_PROBLEM_DTYPE, -1, -1);
  bad = good;
  bad.ndim = 3;
  expect_input(model, 1, image, &bad, TW_PROBLEM_RANK, 4, 3);
  bad.ndim = -1;
  expect_input(model, 1, image, &bad, TW_PROBLEM_RANK, -1, -1);
  bad.ndim = 4;
  bad.shape = NULL;
  expect_input(model, 1, image, &bad, TW_PROBLEM_RANK, -1, -1);
  bad.shape = other;
  memcpy(other, shape, sizeof other);
  other[3] = 7;
  expect_input(model, 1, image, &bad, TW_PROBLEM_EXTENT, 8, 7);
  other[3] = -8;
  expect_input(model, 1, image, &bad, TW_PROBLEM_EXTENT, -1, -1);
  other[3] = INT64_MAX / 8;
  expect_input(model, 1, image, &bad, TW_PROBLEM_EXTENT, -1, -1);
  bad = good;
  bad.device.device_type = kDLCUDA;
  expect_input(model, 1, NULL, &bad, TW_PROBLEM_DEVICE, -1, -1);
  bad = good;
  bad.strides = strides;
  expect_input(model, 1, NULL, &bad, TW_PROBLEM_STRIDES, -1, -1);
  bad = good;
  bad.data = NULL;
  expect_input(model, 1, NULL, &bad, TW_PROBLEM_ADDRESS, -1, -1);

  EXPECT(tw_model_run(model, 1, broken, &good, NULL, 1, outputs), TW_ERROR_ARGUMENT);
  EXPECT(tw_model_run(model, 1, nameless, &good, NULL, 1, outputs), TW_ERROR_ARGUMENT);
  EXPECT(tw_model_run(model, 1, NULL, NULL, NULL, 1, outputs), TW_ERROR_ARGUMENT);
  EXPECT(tw_model_run(model, 1, NULL, &good, NULL, 1, NULL), TW_ERROR_ARGUMENT);
  EXPECT(tw_model_run(model, 1, NULL, &good, NULL, 2, outputs), TW_ERROR_ARGUMENT);
  EXPECT(tw_model_run(model, 1, NULL, &good, (tw_cancel *)(void *)model, 1, outputs), TW_ERROR_HANDLE);
}

static void check_outputs(tw_model *model) {
  int64_t shape[4], out_shape[2] = {1, 10}, wrong_shape[2] = {1, 9};
  const DLTensor input = images(shape, 1);
  DLTensor room = tw_dense(scores, kDLFloat, 32, 2, out_shape), rooms[2];
  tw_session *session;
  tw_problem problem = {sizeof problem, 0, 0, 0, 0, NULL, NULL};
  EXPECT(tw_session_new(model, &session), TW_OK);
  EXPECT(tw_session_run_into(session, 1, NULL, &input, 1, &room), TW_OK);
  rooms[0] = rooms[1] = room;
  rooms[1].data = &scores[10];
  EXPECT(tw_session_run_into(session, 1, NULL, &input, 2, rooms), TW_ERROR_INPUT);
  EXPECT(tw_session_run_into(session, 1, NULL, &input, 0, NULL), TW_ERROR_INPUT);
  EXPECT(tw_session_run_into(session, 1, NULL, &input, 1, NULL), TW_ERROR_ARGUMENT);
  room.shape = wrong_shape;
  EXPECT(tw_session_run_into(session, 1, NULL, &input, 1, &room), TW_ERROR_INPUT);
  EXPECT(tw_problem_at(0, &problem), TW_OK);
  CHECK(problem.kind == TW_PROBLEM_EXTENT && problem.axis == 1 && problem.expected == 10 && problem.got == 9);
  CHECK(strcmp(problem.name, "scores") == 0);
  room.shape = out_shape;
  /* An output over an input, and over another output. */
  room.data = &pixels[PIXELS - 1];
  EXPECT(tw_session_run_into(session, 1, NULL, &input, 1, &room), TW_ERROR_INPUT);
  EXPECT(tw_problem_at(0, &problem), TW_OK);
  CHECK(problem.kind == TW_PROBLEM_ADDRESS);
  rooms[1].data = &scores[9];
  EXPECT(tw_session_run_into(session, 1, NULL, &input, 2, rooms), TW_ERROR_INPUT);
  EXPECT(tw_problem_at(0, &problem), TW_OK);
  CHECK(problem.kind == TW_PROBLEM_ADDRESS);
  /* After all that it runs, also at addresses that are aligned to nothing. */
  {
    static char odd[sizeof(float) * (PIXELS + 10) + 2];
    DLTensor odd_input = input, odd_room = room;
    float expected[10];
    memcpy(odd + 1, pixels, sizeof(float) * PIXELS);
    odd_input.data = odd;
    odd_input.byte_offset = 1;
    odd_room.data = odd + 1 + sizeof(float) * PIXELS;
    room.data = expected;
    EXPECT(tw_session_run_into(session, 1, NULL, &input, 1, &room), TW_OK);
    EXPECT(tw_session_run_into(session, 1, NULL, &odd_input, 1, &odd_room), TW_OK);
    CHECK(memcmp(expected, odd_room.data, sizeof expected) == 0);
  }
  EXPECT(tw_session_free(session), TW_OK);
}

/* Open extents: any batch of a model for all, and those of the bounds where it was compiled for some. */
static void check_extents(tw_model *model, const char *bounded) {
  int64_t shape[4];
  DLTensor input;
  DLManagedTensorVersioned *output;
  tw_spec spec = {sizeof spec, NULL, NULL, NULL, 0, 0, {0, 0, 0}};
  tw_model *narrow;
  int64_t n;
  EXPECT(tw_model_input(model, 0, &spec), TW_OK);
  CHECK(spec.rank == 4 && spec.kind == TW_KIND_TENSOR && spec.dtype.code == kDLFloat && spec.dtype.bits == 32);
  CHECK(spec.extents[0].extent == -1 && strcmp(spec.extents[0].name, "batch") == 0 && spec.extents[0].most == -1);
  CHECK(spec.extents[3].extent == 8 && spec.extents[3].name[0] == '\0');
  EXPECT(tw_model_input(model, 1, &spec), TW_ERROR_ARGUMENT);
  spec.size = 8;
  EXPECT(tw_model_input(model, 0, &spec), TW_ERROR_ARGUMENT);
  EXPECT(tw_model_input(model, 0, NULL), TW_ERROR_ARGUMENT);
  for (n = 0; n <= 16; n++) {
    input = images(shape, n);
    EXPECT(tw_model_run(model, 1, NULL, &input, NULL, 1, &output), TW_OK);
    CHECK(output->dl_tensor.shape[0] == n && output->dl_tensor.shape[1] == 10);
    tw_tensor_free(output);
  }
  EXPECT(tw_model_load(bounded, TW_TRUST_ORIGIN, NULL, &narrow), TW_OK);
  spec.size = sizeof spec;
  EXPECT(tw_model_input(narrow, 0, &spec), TW_OK);
  CHECK(spec.extents[0].extent == -1 && spec.extents[0].least == 1 && spec.extents[0].most == 8);
  input = images(shape, 9);
  expect_input(narrow, 1, NULL, &input, TW_PROBLEM_BOUNDS, -1, 9);
  input = images(shape, 8);
  EXPECT(tw_model_run(narrow, 1, NULL, &input, NULL, 1, &output), TW_OK);
  tw_tensor_free(output);
  EXPECT(tw_model_free(narrow), TW_OK);
}

int main(int argc, char **argv) {
  tw_model *model;
  tw_cancel *cancel;
  tw_options options;
  DLManagedTensorVersioned *output;
  int64_t shape[4];
  const DLTensor input = images(shape, 1);
  CHECK(argc == 4);
  CHECK(tw_problem_count() == 0 && tw_last_error()[0] == '\0' && tw_last_status() == TW_OK);
  check_handles(argv[1]);
  check_loading(argv[1], argv[2]);
  EXPECT(tw_model_load(argv[1], TW_TRUST_ORIGIN, NULL, &model), TW_OK);
  check_inputs(model);
  check_outputs(model);
  check_extents(model, argv[3]);
  EXPECT(tw_cancel_new(&cancel), TW_OK);
  EXPECT(tw_model_run(model, 1, NULL, &input, cancel, 1, &output), TW_OK);
  tw_tensor_free(output);
  EXPECT(tw_cancel_request(cancel), TW_OK);
  EXPECT(tw_model_run(model, 1, NULL, &input, cancel, 1, &output), TW_ERROR_CANCELLED);
  EXPECT(tw_cancel_free(cancel), TW_OK);
  EXPECT(tw_model_free(model), TW_OK);
  tw_tensor_free(NULL);

  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.memory_limit = 1;
  EXPECT(tw_model_load(argv[1], TW_TRUST_ORIGIN, &options, &model), TW_OK);
  EXPECT(tw_model_run(model, 1, NULL, &input, NULL, 1, &output), TW_ERROR_LIMIT);
  EXPECT(tw_model_free(model), TW_OK);

  CHECK(strcmp(tw_status_name(TW_ERROR_GAPS), "TW_ERROR_GAPS") == 0 && strcmp(tw_status_name(99), "unknown") == 0);
  printf("%d checks\n", checks);
  return 0;
}
