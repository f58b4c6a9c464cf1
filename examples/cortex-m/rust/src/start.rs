//! What a Cortex-M does before main: vectors, floats on, memory as Rust wants it.

use core::arch::global_asm;
use core::panic::PanicInfo;

use crate::semihosting::end;

// Memory is set up by code that Rust's compiler does not see: its own functions may use what they set up.
global_asm!(
    ".pushsection .vectors, \"a\"",
    ".word stack_top",
    ".word reset",
    ".rept 14",
    ".word fault",
    ".endr",
    ".popsection",
    ".pushsection .text.reset, \"ax\"",
    ".thumb_func",
    ".global reset",
    "reset:",
    // Coprocessor Access Control Register: coprocessors 10 and 11 are the FPU.
    "ldr r0, =0xe000ed88",
    "ldr r1, [r0]",
    "orr r1, r1, #(0xf << 20)",
    "str r1, [r0]",
    "dsb",
    "isb",
    "ldr r0, =data_from",
    "ldr r1, =data_begin",
    "ldr r2, =data_end",
    "1: cmp r1, r2",
    "bhs 2f",
    "ldr r3, [r0], #4",
    "str r3, [r1], #4",
    "b 1b",
    "2: ldr r1, =bss_begin",
    "ldr r2, =bss_end",
    "movs r3, #0",
    "3: cmp r1, r2",
    "bhs 4f",
    "str r3, [r1], #4",
    "b 3b",
    "4: bl main",
    ".popsection",
);

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    end(usize::from(!crate::reads_all_digits()))
}

#[unsafe(no_mangle)]
extern "C" fn fault() -> ! {
    end(3)
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    end(2)
}
