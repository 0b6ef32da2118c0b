//! The whole measurement, small, on the CPU and on the emulation.

use std::sync::Arc;

use super::super::cuda::runtime::Runtime;
use super::*;
use crate::device::cuda::emulated_tests::emulation;
use crate::error::Class;
use crate::model::registry::{Architecture, Pooling};
use crate::model::weights::ModelConfig;

fn options(pooling: Pooling, tune: bool) -> Options {
    let config = ModelConfig {
        architecture: Architecture::XlmRoberta,
        vocab: 50,
        hidden: 64,
        layers: 2,
        heads: 2,
        intermediate: 128,
        positions: 66,
        types: 1,
        layer_norm_eps: 1e-5,
        pad_token_id: 1,
    };
    let shape = Shape { name: "tiny".into(), config, pooling };
    Options { device: "cpu".into(), model: None, shape, length_tokens: 20, pass_tokens: 100, seconds: 0.0, tune }
}

#[test]
fn a_gpu_is_measured_pass_by_pass_and_stage_by_stage() {
    let runtime: Arc<dyn Runtime> = Arc::new(emulation((9, 0)));
    let device: Arc<dyn Device> = Arc::new(CudaDevice::new("emulated", Arc::clone(&runtime)));
    for (pooling, last) in [(Pooling::Cls, "score head"), (Pooling::Mean, "pool")] {
        let report = measure(&options(pooling, true), &device, Some(&runtime)).unwrap();
        let passes: Vec<_> = report.passes.iter().map(|p| (p.head, p.lengths.as_str(), p.tokens)).collect();
        let mixed = report.passes[1].tokens;
        let named = [
            ("score", "20 each", 100),
            ("score", "mixed", mixed),
            ("embed", "20 each", 100),
            ("embed", "mixed", mixed),
        ];
        assert_eq!(passes, named);
        for pass in &report.passes {
            let of_rates = pass.tflop / (pass.milliseconds / 1e3);
            assert!((of_rates / pass.tflops - 1.0).abs() < 1e-9 && pass.percent_of_ceiling > 0.0);
            assert!((pass.tokens as f64 / pass.tokens_per_second - pass.milliseconds / 1e3).abs() < 1e-9);
        }
        assert_eq!((report.stages[0].stage, report.stages.last().unwrap().stage), ("embedding", last));
        assert!((report.stages.iter().map(|s| s.percent_of_pass).sum::<f64>() - 100.0).abs() < 1e-6);
        let tuning = report.tuning.as_ref().unwrap();
        // Four shapes by all five kernels.
        assert_eq!(tuning.candidates.len(), 4 * 5);
        let json = serde_json::to_value(&report).unwrap();
        assert!(json["passes"][0]["milliseconds_per_128"].is_f64() && json["ceilings"]["copy_tbs"].is_f64());
        assert!(report.to_string().contains("queries, keys, values"));
    }
}

#[test]
fn a_cpu_is_measured_by_passes_and_has_nothing_to_tune() {
    let report = run(&options(Pooling::Mean, false)).unwrap();
    assert!(report.stages.is_empty() && report.passes.len() == 4 && report.ceilings.product_tflops > 0.0);
    let e = run(&options(Pooling::Mean, true)).unwrap_err();
    assert!(e.class == Class::Usage && e.to_string().contains("--device cuda"), "{e}");
    let mut nowhere = options(Pooling::Mean, false);
    nowhere.device = "tpu".into();
    assert_eq!(run(&nowhere).unwrap_err().class, Class::Usage);
}
