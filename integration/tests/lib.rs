//! Starts, watches and always ends the processes of end-to-end tests.
