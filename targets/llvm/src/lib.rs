//! Code generator on LLVM 22: kernels to relocatable objects.
