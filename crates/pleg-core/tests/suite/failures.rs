//! The failure catalogue on the reconciler: one test per entry, named after it. Each comment says what upstream
//! Kubernetes does; `docs/failures.md` also says what happens here.
//!
//! Entries about the driver, the stream reader or the CRI client are tests of `pleg`, `pleg-evented` and `pleg-cri`.

mod a;
mod b;
mod c;
mod e;
mod life;
mod out_of_order;
mod table;
