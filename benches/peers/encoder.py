"""MiniLM in PyTorch (f32) and ONNX Runtime (int8), one thread, on the batches of benches/encoder.rs.

Prints CPU seconds a batch as JSON, the median of several rounds after one to warm up, as Criterion's is. Both get the
unpadded form that is fastest for them: equal lengths as one batch; mixed lengths in PyTorch packed (linear layers over all
tokens at once, attention sequence by sequence) or one by one, in ONNX Runtime one by one or, padded, in batches of like
lengths (only real tokens count).
"""

import json
import os
import pathlib
import statistics
import tempfile
import time

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import numpy as np
import torch
import torch.nn.functional as F
from transformers import BertModel

torch.set_num_threads(1)
ROUNDS = 10
MODEL = pathlib.Path(os.environ.get("MEMSLATE_MODELS") or pathlib.Path.home() / ".cache/memslate/models") / "minilm"

# The same rule as in benches/encoder.rs.
SHAPES = {"32": [32] * 64, "128": [128] * 16, "256": [256] * 8, "mixed": [8 + i * 37 % 249 for i in range(16)]}


def ids(lengths):
    state, rows = 12345, []
    for length in lengths:
        row = []
        for _ in range(length):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            row.append(1000 + (state >> 33) % 28000)
        rows.append(row)
    return rows


def median(run):
    run()
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return statistics.median(times)


def mean(hidden):
    return F.normalize(hidden.mean(-2), dim=-1)


class Packed:
    """The model's own layers on tokens laid end to end."""

    def __init__(self, model):
        self.model, self.heads = model, model.config.num_attention_heads

    def __call__(self, rows):
        lengths = [len(r) for r in rows]
        positions = torch.cat([torch.arange(n) for n in lengths])[None]
        x = self.model.embeddings(input_ids=torch.tensor([sum(rows, [])]), position_ids=positions)[0]
        for layer in self.model.encoder.layer:
            part = layer.attention.self
            heads = [f(x).view(len(x), self.heads, -1).transpose(0, 1).split(lengths, 1) for f in (part.query, part.key, part.value)]
            context = [F.scaled_dot_product_attention(q[None], k[None], v[None])[0] for q, k, v in zip(*heads)]
            context = torch.cat([c.transpose(0, 1).flatten(1) for c in context])
            x = layer.output(layer.intermediate(a := layer.attention.output(context, x)), a)
        return torch.stack([mean(part) for part in x.split(lengths)])


def torch_f32(model):
    times = {}
    packed = Packed(model)
    with torch.inference_mode():
        rows = ids(SHAPES["mixed"])
        alone = torch.cat([mean(model(input_ids=torch.tensor([r])).last_hidden_state) for r in rows])
        assert torch.allclose(packed(rows), alone, atol=1e-5)
        for name, lengths in SHAPES.items():
            rows = ids(lengths)
            forms = [lambda: packed(rows)]
            if name == "mixed":
                forms.append(lambda: [mean(model(input_ids=torch.tensor([r])).last_hidden_state) for r in rows])
            else:
                forms.append(lambda: mean(model(input_ids=torch.tensor(rows)).last_hidden_state))
            times[f"f32_{name}"] = min(map(median, forms))
    return times


class Hidden(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


def quantised(model):
    """ONNX Runtime's dynamic quantisation, weights per channel. On AVX2 without VNNI it advises 7-bit weights
    (reduce_range), for its kernel saturates otherwise."""
    import onnx
    import onnxruntime
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.transformers import optimizer

    vnni = "vnni" in pathlib.Path("/proc/cpuinfo").read_text()
    with tempfile.TemporaryDirectory() as folder:
        plain, fused, small = (os.path.join(folder, f"{n}.onnx") for n in ("plain", "fused", "small"))
        one = torch.ones(1, 8, dtype=torch.long)
        axes = {n: {0: "batch", 1: "tokens"} for n in ("input_ids", "attention_mask", "hidden")}
        torch.onnx.export(
            Hidden(model), (one, one), plain, dynamo=False, opset_version=17,
            input_names=["input_ids", "attention_mask"], output_names=["hidden"], dynamic_axes=axes,
        )
        # Attention, GELU and layer norms as single operators, as its own tool for transformers makes them.
        optimizer.optimize_model(plain, model_type="bert", num_heads=12, hidden_size=384).save_model_to_file(fused)
        quantize_dynamic(fused, small, weight_type=QuantType.QInt8, per_channel=True, reduce_range=not vnni,
                         extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT})
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        return onnxruntime.InferenceSession(small, options, providers=["CPUExecutionProvider"])


def onnx_int8(model):
    session, times = quantised(model), {}

    def run(rows):
        width = max(map(len, rows))
        tokens = np.zeros((len(rows), width), np.int64)
        mask = np.zeros((len(rows), width), np.int64)
        for i, row in enumerate(rows):
            tokens[i, : len(row)], mask[i, : len(row)] = row, 1
        session.run(None, {"input_ids": tokens, "attention_mask": mask})

    for name, lengths in SHAPES.items():
        rows = sorted(ids(lengths), key=len)
        forms = [lambda: [run(rows[i : i + 4]) for i in range(0, len(rows), 4)], lambda: [run([r]) for r in rows]]
        if name != "mixed":
            forms.append(lambda: run(rows))
        times[f"int8_{name}"] = min(map(median, forms))
    return times


if __name__ == "__main__":
    model = BertModel.from_pretrained(MODEL, add_pooling_layer=False).eval()
    print(json.dumps(torch_f32(model) | onnx_int8(model)))
