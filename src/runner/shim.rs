//! The shim below which engines run, as `matrix __shim` and `matrix __exec` call it.

pub(crate) use crate::engine::{exec, supervise};
