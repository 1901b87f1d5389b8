//! Talks to one telemetry socket.
