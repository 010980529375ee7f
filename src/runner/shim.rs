//! The shim above a process engine, called as `matrix __shim` and `matrix __exec`.

pub(crate) use crate::engine::{exec, supervise};
