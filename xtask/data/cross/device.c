// What programs for other machines have in place of larger parts of the C library.

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/prctl.h>

// A defect ends a program, and there are no tables for unwinding: where Rust's library would walk the stack, the walk ends at once.
int _Unwind_Backtrace(void *visit, void *state) {
    enum { END_OF_STACK = 5 };
    return END_OF_STACK;
}

// Named by what nothing calls: with these the unwinder is not linked, nor `printf`, by which it tells what it does not find.
#define NEVER(name)                                                                                                                        \
    void name(void) {                                                                                                                      \
        abort();                                                                                                                           \
    }
NEVER(_Unwind_GetDataRelBase)
NEVER(_Unwind_GetIP)
NEVER(_Unwind_GetIPInfo)
NEVER(_Unwind_GetLanguageSpecificData)
NEVER(_Unwind_GetRegionStart)
NEVER(_Unwind_GetTextRelBase)
NEVER(_Unwind_SetGR)
NEVER(_Unwind_SetIP)

// Rust's library names the thread that asks. For others the C library formats the name of a file, by all of `printf`.
int pthread_setname_np(pthread_t thread, const char *name) {
    if (thread != pthread_self()) {
        return ENOSYS;
    }
    return prctl(PR_SET_NAME, name) == 0 ? 0 : errno;
}
