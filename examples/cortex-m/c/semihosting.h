/* semihosting.h: files and text of the machine that plays the board, or debugs it. Arm, "Semihosting for AArch32 and AArch64". */
#ifndef SEMIHOSTING_H
#define SEMIHOSTING_H

#include <stddef.h>
#include <stdint.h>

enum {
  SYS_OPEN = 0x01,
  SYS_WRITE0 = 0x04,
  SYS_READ = 0x06,
  SYS_FLEN = 0x0c,
  SYS_EXIT_EXTENDED = 0x20,
};

static inline intptr_t semihosting(uintptr_t operation, const void *arguments) {
  register uintptr_t r0 __asm__("r0") = operation;
  register const void *r1 __asm__("r1") = arguments;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
  return (intptr_t)r0;
}

static inline void print(const char *text) { semihosting(SYS_WRITE0, text); }

/* Prints a number that is not negative. */
static inline void print_number(uint32_t number) {
  char digits[11];
  char *at = &digits[sizeof digits - 1];
  *at = 0;
  do {
    *--at = (char)('0' + number % 10);
    number /= 10;
  } while (number != 0);
  print(at);
}

/* Reads a whole file; the number of its bytes, or 0 where it cannot be read or does not fit. */
static inline size_t read_file(const char *path, size_t length, void *to, size_t room) {
  const uintptr_t open[3] = {(uintptr_t)path, 1 /* "rb" */, length};
  const intptr_t file = semihosting(SYS_OPEN, open);
  const uintptr_t of_file[1] = {(uintptr_t)file};
  intptr_t bytes;
  if (file < 0) return 0;
  bytes = semihosting(SYS_FLEN, of_file);
  if (bytes <= 0 || (size_t)bytes > room) return 0;
  {
    const uintptr_t read[3] = {(uintptr_t)file, (uintptr_t)to, (uintptr_t)bytes};
    return semihosting(SYS_READ, read) == 0 ? (size_t)bytes : 0;
  }
}

__attribute__((noreturn)) static inline void end(int status) {
  const uintptr_t arguments[2] = {0x20026 /* the application ended */, (uintptr_t)status};
  semihosting(SYS_EXIT_EXTENDED, arguments);
  for (;;) {
  }
}

#endif
