//! Compiles libraries for the tests.
