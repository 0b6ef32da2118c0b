"""Makes xlmr_wide and bert_wide: two layers with heads of 64 and of 32 values, in bf16, for devices that compute in bf16.

    v/bin/python make_wide.py        (after make_fixtures.py, in the same environment)

`expected.json` holds what transformers computes in f32 from the same weights: for each sequence its unit `vector` (first
token, or mean) and, of xlmr_wide, its `logit`. `error` is how far transformers itself is off when it runs in bf16: the
largest over the sequences of the distance of the vectors, and of the logits in units of their standard deviation.
"""

import json
import pathlib

import torch
from make_fixtures import MAX_TOKENS, bert_tokenizer, rounded, spread, xlmr_tokenizer
from safetensors.torch import save_file
from transformers import BertConfig, BertModel, XLMRobertaConfig, XLMRobertaForSequenceClassification

HERE = pathlib.Path(__file__).parent
LENGTHS = (1, 2, 7, 31, 33, 63, 64)
KEEP = (
    "model_type hidden_size num_hidden_layers num_attention_heads intermediate_size hidden_act "
    "max_position_embeddings type_vocab_size vocab_size layer_norm_eps pad_token_id"
).split()


def sequences(size, generator):
    return [torch.randint(4, size, (n,), generator=generator).tolist() for n in LENGTHS]


def inputs(ids):
    return dict(input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long))


def alive(model, generator):
    """As the smaller fixtures, with matrices scaled to the width: attention neither even nor one-hot."""
    spread(model, generator)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() == 2 and "embeddings" not in name:
                p.mul_((32 / p.shape[1]) ** 0.5)


def write(folder, tokenizer, config, state, rows, error):
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    fields = config.to_dict()
    (folder / "config.json").write_text(json.dumps({k: fields[k] for k in KEEP}, indent=1) + "\n")
    save_file(state, str(folder / "model.safetensors"), metadata={"format": "pt"})
    (folder / "expected.json").write_text(json.dumps({"rows": rows, "error": error}) + "\n")


def run(model, ids, read):
    with torch.no_grad():
        return [read(model, inputs(row)) for row in ids]


def distance(a, b):
    return max((x.float() - y.float()).norm().item() for x, y in zip(a, b))


def xlmr():
    tokenizer, size = xlmr_tokenizer()
    config = XLMRobertaConfig(
        vocab_size=size, hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=256,
        hidden_act="gelu", max_position_embeddings=MAX_TOKENS + 2, type_vocab_size=1, layer_norm_eps=1e-5,
        pad_token_id=1, num_labels=1,
    )
    model = XLMRobertaForSequenceClassification(config).eval()
    alive(model, torch.Generator().manual_seed(21))
    state = rounded(model, torch.bfloat16)
    ids = sequences(size, torch.Generator().manual_seed(22))

    def vector(model, batch):
        return torch.nn.functional.normalize(model.roberta(**batch).last_hidden_state[0, 0].float(), dim=0)

    def logit(model, batch):
        return model(**batch).logits[0, 0].float()

    vectors, logits = run(model, ids, vector), run(model, ids, logit)
    model = model.to(torch.bfloat16)
    logits_bf16 = run(model, ids, logit)
    spread_of_logits = torch.stack(logits).std().item()
    error = {
        "vector": distance(vectors, run(model, ids, vector)),
        "logit": max(abs(a - b).item() for a, b in zip(logits, logits_bf16)) / spread_of_logits,
    }
    rows = [
        {"tokens": t, "vector": [round(x, 7) for x in v.tolist()], "logit": round(l.item(), 7)}
        for t, v, l in zip(ids, vectors, logits)
    ]
    print("xlmr_wide", error, [r["logit"] for r in rows])
    write(HERE / "xlmr_wide", tokenizer, config, state, rows, error)


def bert():
    tokenizer, size = bert_tokenizer()
    config = BertConfig(
        vocab_size=size, hidden_size=96, num_hidden_layers=2, num_attention_heads=3, intermediate_size=160,
        hidden_act="gelu", max_position_embeddings=MAX_TOKENS, type_vocab_size=2, layer_norm_eps=1e-12, pad_token_id=0,
    )
    model = BertModel(config, add_pooling_layer=False).eval()
    alive(model, torch.Generator().manual_seed(23))
    state = rounded(model, torch.bfloat16)
    ids = sequences(size, torch.Generator().manual_seed(24))

    def vector(model, batch):
        return torch.nn.functional.normalize(model(**batch).last_hidden_state[0].float().mean(0), dim=0)

    vectors = run(model, ids, vector)
    error = {"vector": distance(vectors, run(model.to(torch.bfloat16), ids, vector)), "logit": 0.0}
    rows = [{"tokens": t, "vector": [round(x, 7) for x in v.tolist()], "logit": 0.0} for t, v in zip(ids, vectors)]
    print("bert_wide", error)
    write(HERE / "bert_wide", tokenizer, config, state, rows, error)
    (HERE / "bert_wide/1_Pooling").mkdir(exist_ok=True)
    pooling = {"word_embedding_dimension": 96, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
    (HERE / "bert_wide/1_Pooling/config.json").write_text(json.dumps(pooling) + "\n")


if __name__ == "__main__":
    xlmr()
    bert()
