"""Models of several languages: `make` on a text of each, and how well they fill blanks of held-out text.

    python bench/languages.py TEXT... [--budget 5m] [--runs runs/languages] [--out bench/results/languages.json]
        [--page docs/guides/languages.md]

A TEXT is what `make` reads, a file or a folder, and is called after its language: `tr`, `ja.txt.xz`. A file of results
(.json) stands for the languages in it, so that runs on several machines are gathered. What --out has of other texts is
kept. --page writes the table into a page, between two comments.

Bits per byte count whole words (in scripts without spaces, characters): 15 % are masked, the same by any vocabulary,
and so does the unigram baseline, which predicts every token by its frequency in the training text.
"""

import argparse
import json
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from record import record

import bertsmith
from bertsmith.commands.make import make
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.data.shards.shards import Shards
from bertsmith.inference import masked_words
from bertsmith.inference.cloze import cloze_sentences
from bertsmith.objectives.masked import MaskedLM
from bertsmith.text import language
from bertsmith.text.fertility import measure_fertility
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.train import hardware

PASSAGES, BLANKS, PREDICTIONS = 400, 6, 3
FERTILITY_CHARACTERS = 1_000_000
BEGIN, END = "<!-- table of bench/languages.py -->", "<!-- end of the table -->"


def sentences(shards: Shards, tokenizer: Tokenizer) -> list[str]:
    """The sentences of a prepared text."""
    ends = shards.sentence_ends
    lengths = np.diff(ends, prepend=0)
    tokens = shards.gather(ends - lengths, lengths)
    return [tokenizer.decode(part.tolist()) for part in np.split(tokens, np.cumsum(lengths)[:-1])]


def unigram_bits(tokenizer: Tokenizer, train: Shards, texts: Sequence[str]) -> float:
    """Bits per byte of the masked words of texts by the frequencies of the training text."""
    counts = train.frequencies() + 1.0
    bits = -np.log2(counts / counts.sum())
    return masked_words.bits_per_byte(
        [(float(bits[text.targets].sum()), text.bytes) for text in masked_words.mask_words(tokenizer, texts)]
    )


def judged(text: Path, run: Path, budget: str) -> dict[str, Any]:
    """A model of a text, made within a budget, and its figures on held-out text."""
    metrics = make([str(text)], run, budget=budget)
    model, corpus = bertsmith.load(run / "model"), Corpus([str(text)])
    writing = language.detect_writing(corpus.sample(language.LANGUAGE_CHARACTERS))
    train, valid, tokenizer = Shards(run / "data" / "train"), Shards(run / "data" / "valid"), model.tokenizer
    assert isinstance(model.objective, MaskedLM)
    held_out = sentences(valid, tokenizer)
    fertility = measure_fertility(tokenizer, corpus.lines(), FERTILITY_CHARACTERS)
    passages = masked_words.cut_passages(held_out, tokenizer, model.objective.trunk.config.max_length - 2, PASSAGES)
    clozes = cloze_sentences(valid, tokenizer, BLANKS)
    filled = model.fill([cloze.text for cloze in clozes], top_k=PREDICTIONS)
    return {
        "command": shlex.join(["python", *sys.argv]),
        "budget": budget,
        "script": writing.script,
        "language": writing.language,
        "normalisation": language.describe(bool(tokenizer.lowercase), bool(tokenizer.strips_accents), writing.reason),
        "units": writing.units,
        "words": train.words + valid.words,
        "bytes": train.bytes + valid.bytes,
        "vocabulary": tokenizer.vocabulary,
        "tokens_per_word": fertility.tokens_per_word,
        "unknown_rate": fertility.unknown_rate,
        "parameters": sum(parameter.numel() for parameter in model.objective.parameters()),
        "bits_per_byte": masked_words.bits_per_byte(masked_words.bits_and_bytes(model.objective, tokenizer, passages)),
        "unigram_bits_per_byte": unigram_bits(tokenizer, train, passages),
        "masked_accuracy": metrics["masked_accuracy"],
        "sentence_pairs": "nsp_accuracy" in metrics or "sop_accuracy" in metrics,
        "blanks": [
            {"text": cloze.text, "truth": cloze.truth, "predicted": [word.word for word in one.blanks[0]]}
            for cloze, one in zip(clozes, filled, strict=True)
        ],
        "machine": hardware.describe(hardware.select_device("auto")),
    }


def table(rows: dict[str, dict[str, Any]]) -> str:
    """The figures as a table of Markdown, and the blanks of each language after it."""
    lines = [
        "| text | script | length | vocabulary | tokens per word | bits per byte | by word frequency | correct |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, row in rows.items():
        cells = [
            name,
            f"{row['script']}, {row['language']}" if row["language"] else str(row["script"]),
            f"{row['words']:,} {row['units']}",
            f"{row['vocabulary']:,}",
            f"{row['tokens_per_word']:.2f}{'' if row['units'] == 'words' else ' per character'}",
            f"{row['bits_per_byte']:.2f}",
            f"{row['unigram_bits_per_byte']:.2f}",
            f"{row['masked_accuracy']:.0%}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "| text | blank | truth | predicted |", "|---|---|---|---|"]
    for name, row in rows.items():
        for blank in row["blanks"]:
            cells = [name, blank["text"], blank["truth"], " · ".join(blank["predicted"])]
            lines.append(f"| {' | '.join(cell.replace('|', '&#124;').replace('<', '&lt;') for cell in cells)} |")
    return "\n".join(lines)


def write_table(page: Path, rows: dict[str, dict[str, Any]]) -> None:
    """Replace the table of a page."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise SystemExit(f"{page}: has no '{BEGIN}' and '{END}'. Write them where the table shall stand.")
    page.write_text(f"{before}{BEGIN}\n\n{table(rows)}\n\n{END}{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="+", type=Path, help="a text of one language each, or a file of results")
    parser.add_argument("--budget", default="5m", help="wall-clock time of each")
    parser.add_argument("--runs", type=Path, help="where the models are kept; by default they are not")
    parser.add_argument("--out", type=Path, default=Path("bench/results/languages.json"))
    parser.add_argument("--page", type=Path, help="a page of Markdown whose table is written anew")
    options = parser.parse_args()
    rows: dict[str, dict[str, Any]] = {}
    if options.out.exists():
        rows = json.loads(options.out.read_text(encoding="utf-8"))["languages"]
    for text in options.texts:
        if text.suffix == ".json":
            rows |= json.loads(text.read_text(encoding="utf-8"))["languages"]
        else:
            name = text.name.partition(".")[0]
            with tempfile.TemporaryDirectory() as temporary:
                rows[name] = judged(text, (options.runs or Path(temporary)) / name, options.budget)
        record(options.out, {"languages": rows}, next(iter(rows.values()))["machine"])
    print(table(rows))
    if options.page is not None:
        write_table(options.page, rows)


if __name__ == "__main__":
    main()
