//! memslate.

pub mod cli;
pub mod config;
pub mod error;
pub mod schema;
pub mod system;

pub mod lake;
pub mod model;
pub mod text;

pub mod device;
pub mod ranker;

pub mod features;
pub mod import;
pub mod rank;
pub mod recall;
pub mod score;
pub mod slate;

pub mod engine;
pub mod run;

pub mod evaluate;
pub mod publish;
