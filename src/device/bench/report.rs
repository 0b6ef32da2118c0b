//! What was measured, for a person and as JSON.

use std::fmt;

use serde::Serialize;

use super::super::{DeviceInfo, Head};
use super::stages::Step;
use super::{Options, Tuning};
use crate::model::weights::Weights;

/// Everything of one run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub device: String,
    pub detail: String,
    /// Names the arithmetic.
    pub kernel_plan: String,
    pub weights: String,
    pub layers: usize,
    pub hidden: usize,
    pub ceilings: Ceilings,
    pub passes: Vec<Pass>,
    /// Of the first pass; empty on a CPU.
    pub stages: Vec<Stage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tuning: Option<Tuning>,
}

/// What the device did at best, in the same run.
#[derive(Debug, Clone, Serialize)]
pub struct Ceilings {
    pub product_tflops: f64,
    /// Which product.
    pub product: String,
    /// Bytes read and written.
    pub copy_tbs: f64,
    pub copy_bytes: usize,
}

/// A set of sequences, from the queue to their rows.
#[derive(Debug, Clone, Serialize)]
pub struct Pass {
    /// `score` or `embed`.
    pub head: &'static str,
    pub lengths: String,
    pub sequences: usize,
    pub tokens: usize,
    /// The median.
    pub milliseconds: f64,
    pub tokens_per_second: f64,
    /// Pairs where they are scored, texts where they are embedded.
    pub sequences_per_second: f64,
    pub milliseconds_per_128: f64,
    /// Products and attention, as far as they are done.
    pub tflop: f64,
    pub tflops: f64,
    pub percent_of_ceiling: f64,
}

/// All launches of one kind in a pass.
#[derive(Debug, Clone, Serialize)]
pub struct Stage {
    pub stage: &'static str,
    pub launches: usize,
    pub milliseconds: f64,
    pub percent_of_pass: f64,
    #[serde(skip)]
    operations: f64,
    #[serde(skip)]
    bytes: f64,
    /// Where operations bind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tflops: Option<f64>,
    /// Where memory binds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tbs: Option<f64>,
    /// Of the product or of the copy, whichever binds.
    pub percent_of_ceiling: f64,
}

impl Report {
    pub(super) fn new(
        info: DeviceInfo,
        weights: &Weights,
        options: &Options,
        ceilings: Ceilings,
        passes: Vec<Pass>,
        stages: Vec<Stage>,
        tuning: Option<Tuning>,
    ) -> Self {
        let random = format!("random, {}", options.shape.name);
        Report {
            device: info.name,
            detail: info.detail,
            kernel_plan: info.kernel_plan,
            weights: options.model.as_ref().map_or(random, |folder| folder.name.clone()),
            layers: weights.config.layers,
            hidden: weights.config.hidden,
            ceilings,
            passes,
            stages,
            tuning,
        }
    }
}

impl Pass {
    pub(super) fn new(
        head: Head,
        name: &str,
        lengths: &[usize],
        seconds: f64,
        operations: f64,
        ceilings: &Ceilings,
    ) -> Self {
        let (tokens, tflops) = (lengths.iter().sum::<usize>(), operations / seconds / 1e12);
        Pass {
            head: if head == Head::Score { "score" } else { "embed" },
            lengths: name.into(),
            sequences: lengths.len(),
            tokens,
            milliseconds: seconds * 1e3,
            tokens_per_second: tokens as f64 / seconds,
            sequences_per_second: lengths.len() as f64 / seconds,
            milliseconds_per_128: seconds * 1e3 * 128.0 / lengths.len() as f64,
            tflop: operations / 1e12,
            tflops,
            percent_of_ceiling: 100.0 * tflops / ceilings.product_tflops,
        }
    }
}

impl Stage {
    pub(super) fn new(step: Step, launches: usize, seconds: f64) -> Self {
        let mut stage = Stage {
            stage: step.stage,
            launches: 0,
            milliseconds: 0.0,
            percent_of_pass: 0.0,
            operations: 0.0,
            bytes: 0.0,
            tflops: None,
            tbs: None,
            percent_of_ceiling: 0.0,
        };
        stage.add(step, launches, seconds);
        stage
    }

    pub(super) fn add(&mut self, step: Step, launches: usize, seconds: f64) {
        self.launches += launches;
        self.milliseconds += seconds * 1e3;
        self.operations += step.operations;
        self.bytes += step.bytes;
    }

    /// Fills in what depends on all of it.
    pub(super) fn close(&mut self, pass_milliseconds: f64, ceilings: &Ceilings) {
        let seconds = self.milliseconds / 1e3;
        self.percent_of_pass = 100.0 * self.milliseconds / pass_milliseconds;
        let (tflops, tbs) = (self.operations / seconds / 1e12, self.bytes / seconds / 1e12);
        if self.operations > 0.0 {
            self.tflops = Some(tflops);
            self.percent_of_ceiling = 100.0 * tflops / ceilings.product_tflops;
        } else {
            self.tbs = Some(tbs);
            self.percent_of_ceiling = 100.0 * tbs / ceilings.copy_tbs;
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({}), {}", self.device, self.detail, self.kernel_plan)?;
        writeln!(f, "weights: {}, {} layers, {} wide", self.weights, self.layers, self.hidden)?;
        let Ceilings { product_tflops, product, copy_tbs, copy_bytes } = &self.ceilings;
        writeln!(
            f,
            "ceilings: {product_tflops:.2} TFLOP/s ({product}), {copy_tbs:.3} TB/s (copy of {} MiB)",
            copy_bytes >> 20
        )?;
        writeln!(f)?;
        let head = ["head", "lengths", "rows", "tokens", "ms", "tokens/s", "rows/s", "ms/128", "TFLOP/s", "%"];
        let [a, b, c, d, e, g, h, i, j, k] = head;
        writeln!(f, "{a:<6} {b:<10} {c:>7} {d:>8} {e:>10} {g:>10} {h:>9} {i:>9} {j:>9} {k:>6}")?;
        for p in &self.passes {
            let (ms, tokens, rows) = (p.milliseconds, p.tokens_per_second, p.sequences_per_second);
            write!(
                f,
                "{:<6} {:<10} {:>7} {:>8} {ms:>10.2} {tokens:>10.0} {rows:>9.1}",
                p.head, p.lengths, p.sequences, p.tokens
            )?;
            writeln!(f, " {:>9.2} {:>9.3} {:>6.1}", p.milliseconds_per_128, p.tflops, p.percent_of_ceiling)?;
        }
        if !self.stages.is_empty() {
            let [a, b, c, d, e] = ["stage", "launches", "ms", "% of pass", "rate, % of ceiling"];
            writeln!(f, "\n{a:<26} {b:>8} {c:>10} {d:>10}   {e}")?;
        }
        for s in &self.stages {
            let rate = match (s.tflops, s.tbs) {
                (Some(tflops), _) => format!("{tflops:.3} TFLOP/s"),
                (None, tbs) => format!("{:.3} TB/s", tbs.unwrap_or_default()),
            };
            let (ms, part, ceiling) = (s.milliseconds, s.percent_of_pass, s.percent_of_ceiling);
            writeln!(f, "{:<26} {:>8} {ms:>10.3} {part:>10.1}   {rate}, {ceiling:.1}", s.stage, s.launches)?;
        }
        if let Some(tuning) = &self.tuning {
            write!(f, "\n{tuning}")?;
        }
        write!(f, "\n%: of the measured ceiling")
    }
}
