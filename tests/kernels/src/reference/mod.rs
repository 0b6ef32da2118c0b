//! What each kernel must compute, in f64 and in the plainest loops. Inputs are the rounded values that the kernel sees.

mod attention;
mod embed;
mod gather;
mod gemm;
mod layer_norm;
mod pool;
mod score_head;
mod top_k;

pub use attention::{Attention, Heads, attention};
pub use embed::{Embedding, embed};
pub use gather::gather;
pub use gemm::{Epilogue, Product, gemm};
pub use layer_norm::{Norm, layer_norm};
pub use pool::pool;
pub use score_head::{ScoreHead, score_head};
pub use top_k::{MISSING, top_k};
