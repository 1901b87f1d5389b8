//! Terminal views over the telemetry model.
