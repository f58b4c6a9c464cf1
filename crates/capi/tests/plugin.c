/* plugin.c: opens the library itself and knows it by its table alone, twice. plugin LIBRARY.so MODEL.twm */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <tilewright/tilewright.h>

/* POSIX has functions found as void *, which C cannot convert. */
typedef const void *(*api_of)(uint32_t);

static int use(const char *library, const char *path) {
  void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  void *found = handle == NULL ? NULL : dlsym(handle, "tw_api");
  static float pixels[64];
  int64_t shape[4] = {1, 1, 8, 8};
  const DLTensor input = tw_dense(pixels, kDLFloat, 32, 4, shape);
  DLManagedTensorVersioned *output;
  const tw_api_1 *api;
  tw_model *model;
  api_of tw;
  if (found == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  memcpy(&tw, &found, sizeof tw);
  api = (const tw_api_1 *)tw(TW_ABI_VERSION);
  if (api == NULL || api->size < sizeof *api) return 1;
  if (api->model_load(path, TW_TRUST_ORIGIN, NULL, &model) != TW_OK ||
      api->model_run(model, 1, NULL, &input, NULL, 1, &output) != TW_OK) {
    fprintf(stderr, "%s\n", api->last_error());
    return 1;
  }
  api->tensor_free(output);
  if (api->model_free(model) != TW_OK || api->model_free(model) != TW_ERROR_HANDLE) return 1;
  return dlclose(handle);
}

int main(int argc, char **argv) {
  int i;
  if (argc != 3) return 2;
  /* Threads of the library may still be about when it is closed. */
  for (i = 0; i < 2; i++) {
    if (use(argv[1], argv[2]) != 0) return 1;
  }
  return 0;
}
