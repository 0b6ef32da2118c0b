//! The program as its users run it: inputs in Parquet, the real binary, the tables of the lake.

mod faults;
mod inputs;
mod nights;
mod slates;
mod support;
mod systems;
mod training;
