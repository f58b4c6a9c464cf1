//! Code generator on Cranelift: kernels to relocatable objects, no system dependency.
