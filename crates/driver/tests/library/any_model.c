/* any_model.c: runs a model called `model` whose library has a runtime inside, as a program may that knows only the header.
 *
 *   any_model OUTPUTS [FILE EXTENTS]...
 *
 * For each input: a file of its elements, and its extents with commas between, `-` for none. Writes the elements of output I to OUTPUTS.I and
 * prints its extents. Memory is grown until it suffices. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

static void *memory(uint64_t bytes) {
  void *start;
  if (posix_memalign(&start, MODEL_ALIGN, bytes == 0 ? MODEL_ALIGN : (size_t)bytes) != 0) exit(2);
  return start;
}

static void *contents(const char *path) {
  long bytes;
  void *start;
  FILE *file = fopen(path, "rb");
  if (file == NULL || fseek(file, 0, SEEK_END) != 0 || (bytes = ftell(file)) < 0 || fseek(file, 0, SEEK_SET) != 0) exit(2);
  start = memory((uint64_t)bytes);
  if (fread(start, 1, (size_t)bytes, file) != (size_t)bytes) exit(2);
  fclose(file);
  return start;
}

static void read_extents(const char *text, uint64_t *extents) {
  while (*text != '-' && *text != '\0') {
    char *end;
    *extents++ = strtoull(text, &end, 10);
    text = *end == ',' ? end + 1 : end;
  }
}

static void write_output(const char *prefix, int output, const model_output *written, int rank) {
  char path[4096];
  FILE *file;
  int axis;
  snprintf(path, sizeof path, "%s.%d", prefix, output);
  file = fopen(path, "wb");
  if (file == NULL || fwrite(written->data, 1, (size_t)written->bytes, file) != written->bytes || fclose(file) != 0) exit(2);
  for (axis = 0; axis < rank; axis++) printf(" %llu", (unsigned long long)written->extents[axis]);
  printf("\n");
}

static const int ranks[] = {
  MODEL_OUTPUT_0_RANK,
#if MODEL_OUTPUTS > 1
  MODEL_OUTPUT_1_RANK,
#endif
};

int main(int argc, char **argv) {
  model_input inputs[MODEL_INPUTS];
  model_output outputs[MODEL_OUTPUTS];
  void *model = memory(MODEL_MODEL_BYTES), *workspace;
  uint64_t bytes;
  int i, status;
  if (argc != 2 + 2 * MODEL_INPUTS) return 2;
  for (i = 0; i < MODEL_INPUTS; i++) {
    inputs[i].data = contents(argv[2 + 2 * i]);
    read_extents(argv[3 + 2 * i], inputs[i].extents);
  }
  status = model_open(model, MODEL_MODEL_BYTES);
  if (status == MODEL_OK) status = model_sizes(model, inputs, outputs, &bytes);
  if (status != MODEL_OK) return 10 + status;
  for (i = 0; i < MODEL_OUTPUTS; i++) {
    outputs[i].room = outputs[i].bytes == UINT64_MAX ? 0 : outputs[i].bytes;
    outputs[i].data = memory(outputs[i].room);
  }
  workspace = memory(bytes);
  while ((status = model_run(model, inputs, outputs, workspace, bytes)) != MODEL_OK) {
    if (status == MODEL_MEMORY && bytes < 1 << 30) {
      free(workspace);
      bytes = 2 * bytes + MODEL_ALIGN;
      workspace = memory(bytes);
    } else if (status == MODEL_ROOM) {
      for (i = 0; i < MODEL_OUTPUTS; i++) {
        if (outputs[i].bytes <= outputs[i].room) continue;
        free(outputs[i].data);
        outputs[i].room = outputs[i].bytes;
        outputs[i].data = memory(outputs[i].room);
      }
    } else {
      return 10 + status;
    }
  }
  for (i = 0; i < MODEL_OUTPUTS; i++) {
    write_output(argv[1], i, &outputs[i], ranks[i]);
    free(outputs[i].data);
  }
  for (i = 0; i < MODEL_INPUTS; i++) free((void *)(uintptr_t)inputs[i].data);
  free(workspace);
  free(model);
  return 0;
}
