//! The engine of a server.
