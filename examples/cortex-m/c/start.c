/* start.c: what a Cortex-M does before main: vectors, floats on, memory as C wants it. */
#include <stdint.h>

#include "semihosting.h"

extern uint32_t data_from[], data_begin[], data_end[], bss_begin[], bss_end[], stack_top[];

int main(void);

/* Coprocessor Access Control Register: coprocessors 10 and 11 are the FPU. */
#define CPACR (*(volatile uint32_t *)0xe000ed88u)

void reset(void);
void reset(void) {
  uint32_t *from = data_from;
  uint32_t *to;
  CPACR |= 0xfu << 20;
  __asm__ volatile("dsb\n isb" ::: "memory");
  for (to = data_begin; to < data_end; to++) *to = *from++;
  for (to = bss_begin; to < bss_end; to++) *to = 0;
  end(main());
}

static void fault(void) {
  print("fault\n");
  end(3);
}

typedef void (*vector)(void);

__attribute__((section(".vectors"), used)) static const vector vectors[16] = {
    (vector)(uintptr_t)stack_top, reset, fault, fault, fault, fault, fault, 0, 0, 0, 0, fault, fault, 0, fault, fault,
};
