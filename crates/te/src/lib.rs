//! Tensor expressions: definitions, loop nests, schedule primitives, simplifier, interpreter, kernel form.
