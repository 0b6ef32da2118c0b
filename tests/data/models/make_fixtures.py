"""Makes the small seeded models in this folder and what transformers says of them.

    python -m venv v && v/bin/pip install torch transformers safetensors numpy
    v/bin/python make_fixtures.py

Weights are random, with a spread that makes every part of the network count (attention is far from uniform, GELU far
from linear). Half-precision files hold rounded weights, and the expected values are computed in f32 from the rounded
ones. `expected.json` of a folder holds, for each sequence, the token ids (and segment ids) and the output.
"""

import json
import pathlib

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    XLMRobertaConfig,
    XLMRobertaForSequenceClassification,
    XLMRobertaModel,
)

HERE = pathlib.Path(__file__).parent
MAX_TOKENS = 64
WORDS = (
    "the a i you we my your to of in on at and or not is was were have had will what when where who how did do "
    "dog cat book train bread garden yesterday today monday may march park river tea shop violin sister brother "
    "red green old new first last walked read bought lost found met wrote played 20 23 7 . , ? !"
).split()

TEXTS = [
    "What did I buy at the shop?",
    "dog",
    "Yesterday we walked to the river, and my sister found a red book.",
    "I lost my violin on the train on Monday. Did you find it?",
    "unknownword qqq 2023!",
    "The old dog was at the park. " * 12,
]
PAIRS = [
    ("What did I buy?", "I bought bread at the old shop."),
    ("When was the train?", "The train was on Monday, the first of May. I had tea, and I read my book."),
    ("who", "dog"),
    ("Where did my sister play the violin?", "My sister played in the park. " * 20),
]


def bert_tokenizer():
    chars = sorted(set("abcdefghijklmnopqrstuvwxyz0123456789.,?!"))
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + WORDS
    vocab += [c for c in chars if c not in vocab] + ["##" + c for c in "abcdefghijklmnopqrstuvwxyz"]
    t = Tokenizer(models.WordPiece({w: i for i, w in enumerate(vocab)}, unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=True)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return t, len(vocab)


def xlmr_tokenizer():
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    pieces += [("\u2581" + w, -3.0 - 0.01 * i) for i, w in enumerate(WORDS)]
    pieces += [("\u2581", -6.0)] + [(c, -7.0) for c in "abcdefghijklmnopqrstuvwxyz0123456789.,?!"]
    pieces += [("<mask>", 0.0)]
    t = Tokenizer(models.Unigram(pieces, unk_id=3))
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.decoder = decoders.Metaspace()
    t.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return t, len(pieces)


def spread(model, generator):
    """Random weights with a spread that trained models have."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            if "LayerNorm.weight" in name:
                p.copy_(1.0 + 0.2 * noise)
            elif "LayerNorm.bias" in name or name.endswith("bias"):
                p.copy_(0.1 * noise)
            elif "embeddings" in name:
                p.copy_(0.5 * noise)
            else:
                p.copy_(0.35 * noise)


def rounded(model, dtype):
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.to(dtype).float())
    return {k: v.to(dtype).contiguous().clone() for k, v in model.state_dict().items() if v.is_floating_point()}


def run(model, ids, types, pooling):
    with torch.no_grad():
        out = model(
            input_ids=torch.tensor([ids]),
            token_type_ids=torch.tensor([types]),
            attention_mask=torch.ones(1, len(ids), dtype=torch.long),
        )
    if pooling is None:
        return out.logits[0].tolist()
    hidden = out.last_hidden_state[0]
    vector = hidden.mean(0) if pooling == "mean" else hidden[0]
    return torch.nn.functional.normalize(vector, dim=0).tolist()


def make(folder, config, cls, tokenizer, dtype, pooling, seed, bin_file=False):
    path = HERE / folder
    path.mkdir(exist_ok=True)
    generator = torch.Generator().manual_seed(seed)
    model = cls(config).eval()
    spread(model, generator)
    state = rounded(model, dtype)
    if bin_file:
        torch.save(state, path / "pytorch_model.bin")
    else:
        save_file(state, str(path / "model.safetensors"), metadata={"format": "pt"})
    keep = (
        "model_type architectures hidden_size num_hidden_layers num_attention_heads intermediate_size hidden_act "
        "max_position_embeddings type_vocab_size vocab_size layer_norm_eps pad_token_id"
    ).split()
    fields = config.to_dict() | {"architectures": [cls.__name__]}
    (path / "config.json").write_text(json.dumps({k: fields[k] for k in keep}, indent=1) + "\n")
    tokenizer.save(str(path / "tokenizer.json"), pretty=False)
    if pooling:
        (path / "1_Pooling").mkdir(exist_ok=True)
        modes = {"pooling_mode_cls_token": pooling == "cls", "pooling_mode_mean_tokens": pooling == "mean"}
        (path / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32} | modes) + "\n")

    rows = []

    def add(ids, types, **more):
        if config.type_vocab_size == 1:
            types = [0] * len(ids)
        output = [round(v, 7) for v in run(model, ids, types, pooling)]
        rows.append(more | {"tokens": ids, "types": types, "output": output})

    for length in (1, 2, 3, 5, 7, 16, 17, 33, 47, 63, 64):
        ids = torch.randint(4, config.vocab_size, (length,), generator=generator).tolist()
        types = [0] * length
        if pooling is None:
            types = [int(i * 2 >= length) for i in range(length)]
        add(ids, types)
    cls_id, sep_id = (2, 3) if config.model_type == "bert" else (0, 2)
    if pooling:
        for text in TEXTS:
            body = tokenizer.encode(text, add_special_tokens=False).ids[: MAX_TOKENS - 2]
            ids = [cls_id] + body + [sep_id]
            add(ids, [0] * len(ids), text=text)
    else:
        for question, content in PAIRS:
            whole = tokenizer.encode(question, content)
            a = tokenizer.encode(question, add_special_tokens=False).ids
            b = tokenizer.encode(content, add_special_tokens=False).ids
            specials = 3 if config.model_type == "bert" else 4
            b = b[: MAX_TOKENS - specials - len(a)]
            middle = [sep_id] if config.model_type == "bert" else [sep_id, sep_id]
            ids = [cls_id] + a + middle + b + [sep_id]
            types = [0] * (len(a) + 2) + [1] * (len(ids) - len(a) - 2)
            if len(whole.ids) <= MAX_TOKENS:
                assert ids == whole.ids, (ids, whole.ids)
            add(ids, types, question=question, content=content)
    (path / "expected.json").write_text(json.dumps(rows) + "\n")
    print(folder, [round(r["output"][0], 4) for r in rows])


def main():
    shape = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, hidden_act="gelu")
    tokenizer, size = bert_tokenizer()
    bert = shape | dict(vocab_size=size, max_position_embeddings=MAX_TOKENS, type_vocab_size=2, layer_norm_eps=1e-12)
    make("bert_encoder", BertConfig(**bert), BertModel, tokenizer, torch.float32, "mean", 1)
    one = dict(num_labels=1)
    make("bert_scorer", BertConfig(**bert, **one), BertForSequenceClassification, tokenizer, torch.float16, None, 2)
    tokenizer, size = xlmr_tokenizer()
    xlmr = shape | dict(
        vocab_size=size, max_position_embeddings=MAX_TOKENS + 2, type_vocab_size=1, layer_norm_eps=1e-5, pad_token_id=1
    )
    make("xlmr_encoder", XLMRobertaConfig(**xlmr), XLMRobertaModel, tokenizer, torch.float16, "cls", 3, bin_file=True)
    scorer = XLMRobertaForSequenceClassification
    make("xlmr_scorer", XLMRobertaConfig(**xlmr, **one), scorer, tokenizer, torch.bfloat16, None, 4)


if __name__ == "__main__":
    main()
