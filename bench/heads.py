"""What the attention heads of a model have found: positions, separators, verbs and objects, pronouns and antecedents.

    python bench/heads.py MODEL [--out bench/results/heads.json]

The questions of Clark et al. 2019, "What Does BERT Look At?", on forty lines of the text in the package and on short
sentences that a person wrote. For every question the heads with the highest mean attention weight are listed, as
layer-head, both counted from one; of a sentence, how much one word looks at another.
"""

import argparse
import lzma
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from record import record

import bertsmith
from bertsmith.train import hardware

PATTERNS = ("previous", "next", "itself", "separator", "first", "same word")
OBJECTS = [  # a sentence, its verb and its direct object
    ("the boy ate the apple .", "ate", "apple"),
    ("she opened the door .", "opened", "door"),
    ("the men built a house .", "built", "house"),
    ("the dog saw the cat .", "saw", "cat"),
    ("he wrote a long letter .", "wrote", "letter"),
    ("the teacher asked a question .", "asked", "question"),
    ("they crossed the river .", "crossed", "river"),
]
PRONOUNS = [  # a sentence, a pronoun and the words that it may stand for
    ("the king told his son that he would leave the city .", "he", ["king", "son"]),
    ("the girl lost her book and she looked for it in the garden .", "she", ["girl"]),
    ("the girl lost her book and she looked for it in the garden .", "it", ["book"]),
    ("mary gave the dog a bone and she watched it eat .", "she", ["mary"]),
    ("the old man opened his letter and he read it slowly .", "he", ["man"]),
    ("the old man opened his letter and he read it slowly .", "it", ["letter"]),
    ("the queen said that she had seen the ship .", "she", ["queen"]),
]
BEST = 4  # heads listed of each question


def lines() -> list[str]:
    """Forty lines from all over the text in the package."""
    with (
        resources.as_file(resources.files("bertsmith.text") / "sample" / "sample.txt.xz") as path,
        lzma.open(path, "rt", encoding="utf-8") as file,
    ):
        found = [line.strip() for line in file if 60 < len(line) < 220]
    return found[:: len(found) // 40][:40]


def looks(model: bertsmith.Model, text: str, one: str, others: list[str]) -> np.ndarray:
    """For every layer and head, the weight from one word of a text to others."""
    [reading] = model.inspect(text, attribute=False).readings
    tokens = [token.text for token in reading.tokens]
    row, columns = tokens.index(one), [tokens.index(other) for other in others]
    return np.array([np.asarray(layer)[:, row, columns].sum(-1) for layer in reading.attentions[0].weights])


def best(weights: list[np.ndarray]) -> list[dict[str, Any]]:
    """The heads with the highest means, with the least and the greatest weight among the sentences."""
    stacked = np.stack(weights)
    mean = stacked.mean(0)
    order = np.argsort(-mean, axis=None)[:BEST]
    heads = zip(*np.unravel_index(order, mean.shape), strict=True)
    return [
        {
            "head": f"{layer + 1}-{head + 1}",
            "mean": round(float(mean[layer, head]), 3),
            "least": round(float(stacked[:, layer, head].min()), 3),
            "greatest": round(float(stacked[:, layer, head].max()), 3),
        }
        for layer, head in heads
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--out", type=Path, default=Path("bench/results/heads.json"))
    asked = parser.parse_args()
    model = bertsmith.load(asked.model, device="cpu")
    by_pattern: dict[str, list[np.ndarray]] = {name: [] for name in (*PATTERNS, "entropy", "special")}
    for text in lines():
        figures = model.inspect(text, attribute=False).figures()
        heads = figures["readings"][0]["attentions"][0]["heads_by"]
        for name in PATTERNS:
            by_pattern[name].append(np.array([[one["shares"].get(name, 0.0) for one in row] for row in heads]))
        for name in ("entropy", "special"):
            by_pattern[name].append(np.array([[one[name] for one in row] for row in heads]))
    found: dict[str, Any] = {name: best(by_pattern[name]) for name in PATTERNS}
    found["a direct object looks at its verb"] = best(
        [looks(model, text, noun, [verb]) for text, verb, noun in OBJECTS]
    )
    found["a verb looks at its direct object"] = best(
        [looks(model, text, verb, [noun]) for text, verb, noun in OBJECTS]
    )
    for question, persons in (("he or she looks at a person", True), ("it looks at a thing", False)):
        asked_of = [one for one in PRONOUNS if (one[1] != "it") is persons]
        found[question] = best([looks(model, *one) for one in asked_of])
    for question, heads in found.items():
        print(f"{question:36s}", "  ".join(f"{one['head']} {one['mean']:.2f}" for one in heads))
    by_layer = {name: np.mean(by_pattern[name], (0, 2)).round(2).tolist() for name in ("entropy", "special")}
    print("entropy by layer", by_layer["entropy"])
    print("on special tokens by layer", by_layer["special"])
    record(asked.out, {"model": repr(model), "heads": found, "by_layer": by_layer}, hardware.describe(model.device))


if __name__ == "__main__":
    main()
