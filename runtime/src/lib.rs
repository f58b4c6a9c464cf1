//! The deployable runtime: artifact format, loader, executor, thread pool.
