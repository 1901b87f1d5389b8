//! Fuzz targets for the input that X-ray reads from apps: any bytes result in a report or an error,
//! never in a panic, an endless loop, or numbers that contradict each other. `devtools/fuzz.sh`
//! runs them.

mod core_file;
mod input_file;
mod made_up_app;
mod maps;
mod memory;
mod patches;

pub use core_file::core;
pub use maps::maps;
pub use memory::memory;
