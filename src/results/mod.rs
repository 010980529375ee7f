//! What was measured: the types that reach the disk (`record`, pure) and the only code that knows file names (`store`).

pub mod record;
pub mod store;
