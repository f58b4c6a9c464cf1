/* check.h: what the tests in C have in common. A check that fails ends the program. */
#ifndef CHECK_H
#define CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tilewright/tilewright.h>

/* Pixels of an image of a digit. */
#define PIXELS 64

/* Checks that held. */
static int checks;

static inline void check(int holds, const char *what, int line) {
  if (!holds) {
    fprintf(stderr, "line %d: not so: %s\n  the last error: %s: %s\n", line, what, tw_status_name(tw_last_status()), tw_last_error());
    exit(1);
  }
  checks++;
}

static inline void expect(int32_t got, int32_t wanted, const char *what, int line) {
  if (got != wanted) {
    fprintf(stderr, "line %d: %s gives %d and not %d\n", line, what, (int)got, (int)wanted);
  }
  check(got == wanted, what, line);
}

#define CHECK(condition) check((condition) ? 1 : 0, #condition, __LINE__)
#define EXPECT(got, wanted) expect((got), (wanted), #got, __LINE__)

#endif
