//! The library face: Compiler, Target, Options, Artifact and the driver function.
