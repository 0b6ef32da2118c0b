"""The peers of benches/recall.rs: bm25s for the index and the best 128 by words, numpy for the best 128 by vectors.

    recall.py FOLDER

FOLDER holds store.json, turns.f16 and questions.f16. Prints a JSON object of seconds of CPU time, each the median of
several rounds.
"""

import json
import statistics
import sys
import time
from pathlib import Path

import bm25s
import numpy as np
import Stemmer

DEPTH = 128


def median(rounds, work):
    times = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return statistics.median(times)


def main(folder):
    store = json.loads((folder / "store.json").read_text())
    texts, questions = [turn["content"] for turn in store["turns"]], store["questions"]
    stemmer = Stemmer.Stemmer("english")

    def index():
        tokens = bm25s.tokenize(texts, stemmer=stemmer, stopwords=None, show_progress=False)
        made = bm25s.BM25(method="lucene", k1=0.9, b=0.4, backend="numba")
        made.index(tokens, show_progress=False)
        return made

    # All questions at once, as tokens: what is fastest with numba.
    retriever = index()
    tokens = bm25s.tokenize(questions, stemmer=stemmer, stopwords=None, show_progress=False, return_ids=False)
    ids = [retriever.get_tokens_ids(of_one) for of_one in tokens]

    def bm25():
        retriever.retrieve(ids, k=DEPTH, n_threads=1, show_progress=False)

    bm25()  # compiles

    read = lambda name, rows: np.fromfile(folder / name, np.float16).reshape(rows, -1).astype(np.float32)
    items, queries = read("turns.f16", len(texts)), read("questions.f16", len(questions))

    def dense():
        scores = queries @ items.T
        best = np.argpartition(scores, len(texts) - DEPTH, axis=1)[:, -DEPTH:]
        found = np.take_along_axis(scores, best, axis=1)
        return np.take_along_axis(best, np.argsort(-found, axis=1), axis=1)

    print(json.dumps({"index": median(5, index), "bm25_128": median(15, bm25), "dense_128": median(15, dense)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
