//! The program as its users run it: inputs in Parquet, the real binary, the tables of the lake.

mod changes;
mod corpus;
mod damaged;
mod degraded;
mod faults;
mod inputs;
mod judge;
mod killing;
mod kills;
mod logits;
mod models;
mod nights;
mod order;
mod room;
mod slates;
// Unit tests use more of it.
#[allow(dead_code)]
#[path = "../support/stub_teacher.rs"]
mod stub_teacher;
mod support;
mod systems;
mod tenants;
mod training;
mod vectors;
mod writers;
