//! The engine of a worker.
