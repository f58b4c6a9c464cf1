// What programs for other machines have in place of larger parts of the C library.

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
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

// The C library sorts the addresses of a name, 48 at most, and nothing else.
void qsort(void *base, size_t n, size_t size, int (*compare)(const void *, const void *)) {
    for (char *sorted = base, *next = sorted + size; n > 1; n--, next += size) {
        for (char *at = next; at > sorted && compare(at - size, at) > 0; at -= size) {
            for (size_t i = 0; i < size; i++) {
                char byte = at[i];
                at[i] = at[i - size];
                at[i - size] = byte;
            }
        }
    }
}

// The C library asks whether the name of a host is text. What it is of besides is looked at byte by byte.
size_t mbstowcs(wchar_t *wide, const char *text, size_t n) {
    return wide ? (size_t)-1 : strlen(text);
}
