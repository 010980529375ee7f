//! Measured results: the types on disk (`record`, pure) and the only code that knows file names (`store`).

pub mod record;
pub mod store;
