"""The selection path without the encoder in Python, as one would write it with bm25s, numpy, tiktoken and LightGBM.

    reference.py FOLDER RANKER

FOLDER holds store.json, turns.f16 and questions.f16; RANKER is the model of jobs/systems/lite.toml. Prints a JSON
object: seconds of CPU time with one request and with all, each the median of several rounds, and, where FOLDER holds
slates.json, the shares of pools and slates that are the same as there.

What is computed once a store: token counts, the BM25 index, unit vectors of each turn with its neighbours. For all
requests at once: their tokens, the dense product and the ranker's prediction.
"""

import json
import statistics
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

import bm25s
import lightgbm
import numpy as np
import Stemmer
import tiktoken

POOL, RRF_K, BUDGET = 128, 60, 2_700
K1, B = 0.9, 0.4
DAY = 86_400_000_000
# Words as ours are: an apostrophe, a dot or a colon between two letters, and a separator between two digits, stay in.
WORD = r"\w+(?:(?:(?<=[^\W\d])['.:](?=[^\W\d])|(?<=\d)[.,;'](?=\d))\w+)*"


def tokenize(texts, stemmer, return_ids):
    texts = [text.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'") for text in texts]
    options = {"token_pattern": WORD, "stopwords": None, "stemmer": stemmer, "show_progress": False}
    return bm25s.tokenize(texts, return_ids=return_ids, **options)


class Store:
    def __init__(self, turns, vectors, encoding):
        self.encoding = encoding
        self.texts = [turn["content"] for turn in turns]
        self.session = [turn["session"] for turn in turns]
        self.roles = [turn["role"] for turn in turns]
        self.spoken_at = np.array([turn["spoken_at"] for turn in turns], np.int64)
        self.columns = np.column_stack([
            np.array([turn["role"] == "assistant" for turn in turns], np.float64),
            np.array([turn["position"] for turn in turns], np.float64),
            np.zeros(len(turns)),
            np.array([self.count(text) for text in self.texts], np.float64),
        ])
        # Turns of equal text are one: each knows the first.
        first = {}
        self.same = np.array([first.setdefault(text, i) for i, text in enumerate(self.texts)])
        self.headers = {}
        for turn in turns:
            session = turn["session"]
            if session not in self.headers:
                started = datetime.fromtimestamp(turn["spoken_at"] // 1_000_000, timezone.utc)
                header = f"### Session {session + 1} ({started:%Y-%m-%d %H:%M})\n"
                self.headers[session] = (header, self.count(header))
        self.lines = {}

        self.stemmer = Stemmer.Stemmer("english")
        tokens = tokenize(self.texts, self.stemmer, True)
        self.bm25 = bm25s.BM25(method="lucene", k1=K1, b=B)
        self.bm25.index(tokens, show_progress=False)

        self.vectors = vectors.astype(np.float32)
        context = self.vectors.copy()
        together = np.equal(self.session[1:], self.session[:-1])[:, None]
        context[1:] += self.vectors[:-1] * together
        context[:-1] += self.vectors[1:] * together
        self.context = context / np.linalg.norm(context, axis=1, keepdims=True)

    def count(self, text):
        return len(self.encoding.encode_ordinary(text))

    def line(self, turn):
        """A turn's line and its tokens, counted once."""
        if turn not in self.lines:
            line = f"{self.roles[turn].strip()}: {self.texts[turn].strip()}\n"
            self.lines[turn] = (line, self.count(line))
        return self.lines[turn]


def ranks(scores, listed):
    """Ranks from 1 by falling score, ties by turn; NaN where a turn is not in the list."""
    rank = np.full(len(scores), np.nan)
    order = np.argsort(-scores, kind="stable")
    order = order[listed[order]]
    rank[order] = np.arange(1, len(order) + 1)
    return rank


def recall(store, tokens, dense_scores):
    """The pool of a request, best first, and its six features of relevance but for the cosine."""
    known = [token for token in tokens if token in store.bm25.vocab_dict]
    size = len(store.texts)
    bm25_scores = store.bm25.get_scores(known) if known else np.zeros(size, np.float32)
    bm25_rank = ranks(bm25_scores, bm25_scores > 0)
    dense_rank = ranks(dense_scores, np.ones(size, bool))
    fused = np.nan_to_num(1 / (RRF_K + bm25_rank)) + np.nan_to_num(1 / (RRF_K + dense_rank))
    best = np.argsort(-fused, kind="stable")[: 2 * POOL]
    _, first = np.unique(store.same[best], return_index=True)
    pool = best[np.sort(first)][:POOL]
    listed = ~np.isnan(bm25_rank[pool])
    features = np.column_stack([
        np.where(listed, bm25_scores[pool], np.nan),
        bm25_rank[pool],
        dense_scores[pool],
        dense_rank[pool],
        np.arange(1, len(pool) + 1),
    ])
    return pool, features


def fill(store, ranking):
    chosen, tokens, sessions = [], 0, set()
    for turn in ranking:
        session, cost = store.session[turn], store.line(turn)[1]
        if session not in sessions:
            cost += store.headers[session][1]
        if tokens + cost <= BUDGET:
            tokens += cost
            sessions.add(session)
            chosen.append(turn)
    pieces, last = [], None
    for turn in sorted(chosen):
        if store.session[turn] != last:
            last = store.session[turn]
            pieces.append(store.headers[last][0])
        pieces.append(store.line(turn)[0])
    return {"turns": chosen, "tokens": tokens, "text": "".join(pieces)}


def select(data, turns, questions, encoding, ranker):
    """Slates for the questions, each with its pool."""
    store = Store(data["turns"], turns, encoding)
    queries = questions.astype(np.float32)
    unit = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    dense = queries @ store.vectors.T
    tokens = tokenize(data["questions"], store.stemmer, False)
    pools, rows = [], []
    for of_one, scores, query in zip(tokens, dense, unit):
        pool, features = recall(store, of_one, scores)
        context = store.columns[pool]
        context[:, 2] = (data["asked_at"] - store.spoken_at[pool]) / DAY
        pools.append(pool)
        rows.append(np.column_stack([features, store.context[pool] @ query, context]))
    scores = ranker.predict(np.concatenate(rows), num_threads=1)
    slates, at = [], 0
    for pool in pools:
        of_pool = scores[at : at + len(pool)]
        at += len(pool)
        ranking = pool[np.lexsort((pool, -of_pool))]
        slates.append({"pool": pool.tolist(), **fill(store, ranking.tolist())})
    return slates


def same(ours, theirs):
    """Shares of requests, and the mean overlap of pools and of slates."""
    pairs = list(zip(ours, theirs, strict=True))
    share = lambda of: sum(of(a, b) for a, b in pairs) / len(pairs)
    overlap = lambda a, b: len(set(a) & set(b)) / max(len(set(a) | set(b)), 1)
    return {
        "pools equal": share(lambda a, b: set(a["pool"]) == set(b["pool"])),
        "pools in the same order": share(lambda a, b: a["pool"] == b["pool"]),
        "pools overlap": share(lambda a, b: overlap(a["pool"], b["pool"])),
        "slates equal": share(lambda a, b: a["text"] == b["text"]),
        "slates overlap": share(lambda a, b: overlap(a["turns"], b["turns"])),
    }


def main(folder, ranker_path):
    data = json.loads((folder / "store.json").read_text())
    read = lambda name, rows: np.fromfile(folder / name, np.float16).reshape(rows, -1)
    turns, questions = read("turns.f16", len(data["turns"])), read("questions.f16", len(data["questions"]))
    encoding, ranker = tiktoken.get_encoding("o200k_base"), lightgbm.Booster(model_file=ranker_path)
    encoding.encode_ordinary("hello")
    result = {}
    for count in (1, len(data["questions"])):
        asked = {**data, "questions": data["questions"][:count]}
        times = []
        for _ in range(3):
            start = time.process_time()
            slates = select(asked, turns, questions[:count], encoding, ranker)
            times.append(time.process_time() - start)
        result[f"requests_{count}"] = statistics.median(times)
    if (folder / "slates.json").exists():
        result["same"] = same(slates, json.loads((folder / "slates.json").read_text()))
    print(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
