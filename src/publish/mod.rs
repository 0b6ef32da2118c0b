//! The place of publication: generations of slates into a cache that servers read.
//!
//! Nothing publishes yet; slates are read from the lake's `slates` table, or with `memslate show`.
