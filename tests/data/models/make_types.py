"""Makes xlmr_types: one small cross-encoder in safetensors and as a PyTorch checkpoint, in f32, f16 and bf16.

    v/bin/python make_types.py        (after make_fixtures.py, in the same environment)

`expected.json` holds, by type, what transformers computes in f32 from the rounded weights: for each sequence its first
token's unit vector (`vector`) and its `logit`. Lengths are odd, and up to the last position.
"""

import json
import pathlib

import torch
from make_fixtures import MAX_TOKENS, rounded, spread, xlmr_tokenizer
from safetensors.torch import save_file
from transformers import XLMRobertaConfig, XLMRobertaForSequenceClassification

HERE = pathlib.Path(__file__).parent / "xlmr_types"
LENGTHS = (1, 2, 3, 5, 17, 31, 33, 63, 64)


def main():
    HERE.mkdir(exist_ok=True)
    tokenizer, size = xlmr_tokenizer()
    tokenizer.save(str(HERE / "tokenizer.json"), pretty=False)
    config = XLMRobertaConfig(
        vocab_size=size, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        hidden_act="gelu", max_position_embeddings=MAX_TOKENS + 2, type_vocab_size=1, layer_norm_eps=1e-5,
        pad_token_id=1, num_labels=1,
    )
    keep = (
        "model_type hidden_size num_hidden_layers num_attention_heads intermediate_size hidden_act "
        "max_position_embeddings type_vocab_size vocab_size layer_norm_eps pad_token_id"
    ).split()
    fields = config.to_dict()
    (HERE / "config.json").write_text(json.dumps({k: fields[k] for k in keep}, indent=1) + "\n")
    generator = torch.Generator().manual_seed(11)
    sequences = [torch.randint(4, size, (n,), generator=generator).tolist() for n in LENGTHS]
    expected = {}
    for name, dtype in ("f32", torch.float32), ("f16", torch.float16), ("bf16", torch.bfloat16):
        model = XLMRobertaForSequenceClassification(config).eval()
        spread(model, torch.Generator().manual_seed(12))
        state = rounded(model, dtype)
        save_file(state, str(HERE / f"{name}.safetensors"), metadata={"format": "pt"})
        torch.save(state, HERE / f"{name}.bin")
        rows = []
        for ids in sequences:
            with torch.no_grad():
                batch = dict(input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long))
                logit = model(**batch).logits[0, 0].item()
                first = model.roberta(**batch).last_hidden_state[0, 0]
            vector = torch.nn.functional.normalize(first, dim=0).tolist()
            rows.append({"tokens": ids, "vector": [round(v, 7) for v in vector], "logit": round(logit, 7)})
        expected[name] = rows
    (HERE / "expected.json").write_text(json.dumps(expected) + "\n")


if __name__ == "__main__":
    main()
