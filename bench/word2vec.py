"""word2vec compared with gensim's `corpus_file`, in one run, on the same words.

    python bench/word2vec.py TEXT... --judged word-similarity/ [--out bench/results/word2vec-cpu.json]

TEXT, plain or compressed, is cut to a number of characters and written once as lines of words, which both sides read,
so that both have the same words, sentences and vocabulary. Width, window, negative samples, subsampling, epochs,
initial learning rate and threads are the same. Speed is words of the text, rare ones included, times epochs, per second
of training alone; the time for reading and counting is reported separately, and so is the speed per second of processor
time, which a busy machine affects less. Rounds alternate, each with its own seed; speeds are medians, and ratios are
medians of the ratios within each round. Without gensim, only ours is measured.

The scores are Spearman's correlation on the pairs of WordSim-353 and SimLex-999 and the accuracy on Google's analogies,
among the 30,000 most frequent words, for both sides by the same code, `bertsmith.inference.word_vectors`.
"""

import argparse
import os
import statistics
import tempfile
import time
from importlib.metadata import version
from importlib.util import find_spec
from operator import truediv
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import code, record

from bertsmith.data.corpus.corpus import Corpus
from bertsmith.data.corpus.word_ids import encode_words, split_words
from bertsmith.inference.word_vectors import KeyedVectors, read_analogies, read_word_pairs
from bertsmith.models.word2vec import Word2Vec, Word2VecConfig
from bertsmith.models.word_vectors import WordVectors
from bertsmith.objectives.word2vec_blocks import NegativeSamplingConfig
from bertsmith.train import hardware
from bertsmith.train.display import Display
from bertsmith.train.word2vec import Word2VecTrainConfig, Word2VecTrainer

RATES = {"skip-gram": 0.025, "cbow": None}  # gensim's own for both; ours in CBOW divides the gradient, and is its own


def cut(texts: list[str], most: int, path: Path) -> None:
    """The words of the first characters of the text, one sentence per line."""
    taken = 0
    with path.open("w", encoding="utf-8") as file:
        for document in Corpus(texts).documents():
            for sentence in document.sentences:
                if found := split_words(sentence):
                    file.write(" ".join(found) + "\n")
                taken += len(sentence) + 1
            if taken > most:
                return


def ours(path: Path, kind: str, options: argparse.Namespace, seed: int) -> tuple[WordVectors, dict[str, float]]:
    began = time.perf_counter()
    sentences = (one for document in Corpus([str(path)], layout="lines").documents() for one in document.sentences)
    text = encode_words(sentences)
    counted, used = time.perf_counter(), time.process_time()
    device = hardware.select_device(options.device)
    model = Word2Vec.initialise(Word2VecConfig(kind=kind, width=options.width), len(text.words), seed, device)
    config = Word2VecTrainConfig(epochs=options.epochs, learning_rate=RATES[kind], seed=seed, checkpoints=0)
    neighbours = NegativeSamplingConfig(window=options.window, negatives=options.negatives)
    with tempfile.TemporaryDirectory() as folder, Display(f"ours, {kind}") as display:
        Word2VecTrainer(model, text, neighbours, config, folder=Path(folder), display=display, tensorboard=False).fit()
    found = WordVectors(text.words, model.inputs.cpu().numpy())
    took, worked = time.perf_counter() - counted, time.process_time() - used
    return found, figures(text.total_words * options.epochs, counted - began, took, worked)


def theirs(path: Path, kind: str, options: argparse.Namespace, seed: int) -> tuple[WordVectors, dict[str, float]]:
    from gensim.models import Word2Vec as Gensim

    began = time.perf_counter()
    settings = {"vector_size": options.width, "window": options.window, "negative": options.negatives}
    model = Gensim(sg=int(kind == "skip-gram"), workers=options.threads, seed=seed, epochs=options.epochs, **settings)
    model.build_vocab(corpus_file=str(path))
    counted, used = time.perf_counter(), time.process_time()
    model.train(corpus_file=str(path), total_words=model.corpus_total_words, epochs=options.epochs)
    took, worked = time.perf_counter() - counted, time.process_time() - used
    found = WordVectors(model.wv.index_to_key, np.asarray(model.wv.vectors, np.float32))
    return found, figures(model.corpus_total_words * options.epochs, counted - began, took, worked)


def figures(words: int, counting: float, training: float, processor: float) -> dict[str, float]:
    return {
        "words_per_second": words / training,
        "words_per_processor_second": words / processor,
        "whole_words_per_second": words / (counting + training),
        "counting_seconds": counting,
        "training_seconds": training,
    }


def scores(vectors: WordVectors, judged: Path) -> dict[str, Any]:
    opened = KeyedVectors(vectors)
    found: dict[str, Any] = {"vocabulary": len(vectors.words)}
    for name in ("wordsim353.tsv.xz", "simlex999.txt.xz"):
        agreement = opened.evaluate_pairs(read_word_pairs(judged / name))
        found[name.partition(".")[0]] = agreement.correlation
        found[f"{name.partition('.')[0]}_pairs"] = agreement.found
    asked = read_analogies(judged / "questions-words.txt.xz")
    for method in ("add", "multiply"):
        answered = opened.evaluate_analogies(asked, method)
        found[f"analogies_{method}"] = answered.accuracy
    return found | {"analogies_asked": answered.found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="+")
    parser.add_argument("--judged", type=Path, required=True, help="a folder with the three files of judgements")
    parser.add_argument("--characters", type=int, default=40_000_000)
    parser.add_argument("--kinds", nargs="+", default=["skip-gram", "cbow"])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--width", type=int, default=100)
    parser.add_argument("--window", type=int, default=5)
    parser.add_argument("--negatives", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--note", default="", help="what a reader should know of how it was measured")
    parser.add_argument("--out", type=Path, default=Path("bench/results/word2vec-cpu.json"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.zeros((), device=hardware.select_device(options.device))  # a GPU is woken before the clock runs
    sides = {"bertsmith": ours}
    if find_spec("gensim"):
        sides["gensim"] = theirs
    else:
        print("gensim is not installed: ours is measured alone", flush=True)
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "words.txt"
        cut(options.text, options.characters, path)
        for kind in options.kinds:
            rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
            for seed in range(1, options.rounds + 1):
                for name, side in sides.items():
                    vectors, speed = side(path, kind, options, seed)
                    rounds[name].append(speed | scores(vectors, options.judged))
                    print(kind, name, {key: round(value, 4) for key, value in rounds[name][-1].items()}, flush=True)
            results[kind] = {"rounds": rounds} | compared(rounds)
            if "ratios" in results[kind]:
                print(kind, {key: round(value, 3) for key, value in results[kind]["ratios"].items()}, flush=True)
    settings = {key: getattr(options, key) for key in ("characters", "epochs", "width", "window", "negatives")}
    settings |= {"threads": options.threads, "rounds_each": options.rounds, "note": options.note, "code": code()}
    versions = {name: version(name) for name in ("gensim", "numpy") if find_spec(name)}
    record(options.out, settings | results, hardware.describe(hardware.select_device(options.device)) | versions)


def compared(rounds: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Medians of both sides, and ours by theirs: of speeds the ratio, of scores the difference."""
    median = {
        name: {key: statistics.median(one[key] for one in each) for key in each[0]} for name, each in rounds.items()
    }
    if "gensim" not in rounds:
        return {"median": median}
    both = {
        key: ([one[key] for one in rounds["bertsmith"]], [one[key] for one in rounds["gensim"]])
        for key in median["gensim"]
    }
    speeds = ("words_per_second", "words_per_processor_second", "whole_words_per_second")
    marks = ("wordsim353", "simlex999", "analogies_add", "analogies_multiply")
    return {
        "median": median,
        "ratios": {key: statistics.median(map(truediv, *both[key])) for key in speeds},
        "differences": {key: median["bertsmith"][key] - median["gensim"][key] for key in marks},
    }


if __name__ == "__main__":
    main()
