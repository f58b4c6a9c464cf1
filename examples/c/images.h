/* images.h: what the examples read images with: the numbers of a tensor file of ONNX (.pb), as examples/digits has them. */
#ifndef IMAGES_H
#define IMAGES_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Pixels of an image of a digit: 8 by 8. */
#define PIXELS 64

/* A number of protobuf at *at, which moves on; 0 at the end. */
static inline uint64_t read_varint(const unsigned char *bytes, size_t size, size_t *at) {
  uint64_t value = 0;
  unsigned shift = 0;
  while (*at < size && shift < 64) {
    const unsigned char byte = bytes[(*at)++];
    value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) break;
    shift += 7;
  }
  return value;
}

/* The images of a file: 64 floats each. Returns how many there are, 0 where the file cannot be read; the caller frees *pixels. */
static inline size_t read_images(const char *path, float **pixels) {
  static unsigned char bytes[1 << 20];
  size_t size, at = 0;
  FILE *file = fopen(path, "rb");
  *pixels = NULL;
  if (file == NULL) return 0;
  size = fread(bytes, 1, sizeof bytes, file);
  fclose(file);
  while (at < size) {
    const uint64_t tag = read_varint(bytes, size, &at);
    const uint64_t number = read_varint(bytes, size, &at);
    if ((tag & 7) != 2) continue; /* Not a field with a length: that was its value. */
    if (number > size - at) return 0;
    if (tag >> 3 == 9) { /* raw_data: little-endian floats, as every processor that this runs on has them. */
      size_t i;
      const size_t n = (size_t)number / sizeof(float);
      *pixels = (float *)malloc(n * sizeof(float));
      if (*pixels == NULL) return 0;
      for (i = 0; i < n * sizeof(float); i++) ((unsigned char *)*pixels)[i] = bytes[at + i];
      return n / PIXELS;
    }
    at += (size_t)number;
  }
  return 0;
}

/* The index of the highest of ten scores. */
static inline int best(const float *scores) {
  int i, found = 0;
  for (i = 1; i < 10; i++) {
    if (scores[i] > scores[found]) found = i;
  }
  return found;
}

#endif
