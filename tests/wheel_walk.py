"""From text to predictions with an installed bertsmith, in an empty folder: the verbs, then the Python calls."""

import json
import sys
from importlib import resources
from pathlib import Path

import bertsmith
from bertsmith.cli import app

SMALL = [
    "model.width=32",
    "model.heads=2",
    "model.feed_forward=64",
    "model.max_length=32",
    "data.validation_tokens=512",
]
SMALL += ["data.max_length=32", "data.batch_tokens=512", "train.steps=4"]
OTHERS = ("bird", "fish", "king", "queen", "tree", "river")


def bert(*arguments: str) -> None:
    print("$ bertsmith", *arguments, flush=True)
    app(list(arguments), standalone_mode=False)


assert bertsmith.__file__.startswith(sys.argv[1]), bertsmith.__file__
with resources.as_file(resources.files("bertsmith.text") / "sample" / "sample.txt.xz") as sample:
    assert sample.stat().st_size > 100_000  # what `bertsmith demo` reads
bert("--version")
bert("list")
bert("check", "bert-tiny")
bert("tokenizer", "text.txt", "--vocabulary", "100", "--out", "words")
bert("prepare", "text.txt", "--tokenizer", "words", "--validation-share", "0.1", "--workers", "0", "--out", "data")
bert("pretrain", "tiny/bert", "--data", "data", "--out", "run", *SMALL)
bert("fill", "run", "the cat sees the [MASK] .")
rows = [f"the {noun} sees the {other} .,{noun == 'cat'}" for noun in ("cat", "dog") for other in OTHERS]
Path("labels.csv").write_text("\n".join(["text,label", *rows * 2]) + "\n")
bert("finetune", "run", "labels.csv", "--out", "taught", "data.max_length=16", "train.epochs=1")
bert("evaluate", "taught", "labels.csv", "--out", "measured")
assert "accuracy" in json.loads(Path("measured/result.json").read_text())["summary"]
bert("predict", "taught", "labels.csv", "--out", "said.jsonl")
assert len(Path("said.jsonl").read_text().splitlines()) == len(rows) * 2

run = bertsmith.pretrain("tiny/bert", data="data", out="again", steps=2, overrides=SMALL[:-1])
assert run.model.fill("the cat sees the [MASK] .").best
tuned = bertsmith.finetune(run, "labels.csv", out="tuned", epochs=1, max_length=16)
assert bertsmith.evaluate(tuned, "labels.csv").scores.keys() >= {"accuracy"}
assert tuned.model.predict("the cat sees the fish .").label in tuned.model.labels
assert bertsmith.load(tuned.model.save("copy")).predict(["the cat ."])
assert "tiny/bert" in bertsmith.models("tiny/*")
print("the whole way")
