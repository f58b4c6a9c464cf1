/* layout.c: structs of the header are laid out as the library has them on 64-bit machines (src/options.rs). Built, not run. C11. */
#include <tilewright/tilewright.h>

_Static_assert(sizeof(tw_allocator) == 32, "tw_allocator");
_Static_assert(sizeof(tw_threads) == 32 && offsetof(tw_threads, count) == 16, "tw_threads");
_Static_assert(offsetof(tw_threads, parallel_for) == 24, "tw_threads");
_Static_assert(sizeof(tw_options) == 56 && offsetof(tw_options, n_sessions) == 28, "tw_options");
_Static_assert(offsetof(tw_options, allocator) == 40, "tw_options");
_Static_assert(sizeof(tw_problem) == 48 && sizeof(tw_extent) == 40 && sizeof(tw_spec) == 48, "what is told");
_Static_assert(sizeof(tw_api_1) == 224, "tw_api_1");
_Static_assert(sizeof(DLTensor) == 48 && offsetof(DLTensor, byte_offset) == 40, "DLTensor");
_Static_assert(sizeof(DLManagedTensorVersioned) == 80 && sizeof(DLManagedTensor) == 64, "given away");

int main(void) { return 0; }
