"""`generate`: text from a prompt; `translate`: a text for each text, with BLEU and alignment."""

import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from rich.markup import escape

from bertsmith import terminal
from bertsmith.data.labelled import unlabelled
from bertsmith.errors import TextError
from bertsmith.inference.load import load_text_model
from bertsmith.insight import alignment
from bertsmith.insight.alignment import Alignment
from bertsmith.metrics.bleu import SIGNATURE, bleu
from bertsmith.runs.inference_output import notice

CONSOLE = terminal.console()
MAX_ALIGNMENTS = {".html": 40, ".png": 4}  # alignments drawn in one file: more would be too large
BATCH_LINES = 1024  # lines translated at once: the first translation need not wait for the last line


def generate(model: Path, prompts: Sequence[str], *, as_json: bool, **options: Any) -> None:
    """Each prompt, or each line of standard input, with its continuation."""
    loaded = load_text_model(model)
    for one in loaded.generate(list(prompts) or unlabelled.texts(["-"], notice), full=True, **options):
        if one.truncated_tokens:
            fact = f"{one.truncated_tokens:,} of its tokens exceed the maximum length of the model"
            notice(f"'{one.prompt[:40]}...': {fact}. They were left out.")
        if one.missing_tokens:
            fact = f"ends at the maximum length of the model, which has no place for {one.missing_tokens:,} new tokens"
            notice(f"'{one.prompt[:40]}': the text {fact}.")
        if as_json:
            print(terminal.json_line(one.to_dict()), flush=True)
            continue
        for text in one.texts:
            # A causal model continues its prompt; a text-to-text model answers it.
            rest = text[len(one.prompt) :] if text.startswith(one.prompt) else f"\n{text}"
            CONSOLE.print(f"[bold]{escape(one.prompt)}[/]{escape(rest)}\n", markup=True)


def translate(
    model: Path,
    inputs: Sequence[str],
    *,
    reference: Path | None,
    as_json: bool,
    picture: Path | None = None,
    **options: Any,
) -> None:
    """A line for each line of the inputs, in order, as soon as it is known; and BLEU against the reference.

    The picture shows the attention from the words of the first translations to the words of their sources.
    """
    if picture is not None:
        alignment.check_path(picture)
    loaded, translations, alignments = load_text_model(model), list[str](), list[Alignment]()
    shown = terminal.escape_control if sys.stdout.isatty() else str  # a file gets every character unchanged
    references = [] if reference is None else list(unlabelled.every_line(str(reference)))
    lines = (line for name in inputs or ["-"] for line in unlabelled.every_line(name))
    while batch := list(islice(lines, BATCH_LINES)):
        for number, one in enumerate(loaded.translate(batch, full=True, **options), len(translations) + 1):
            if one.truncated_tokens:
                fact = f"{one.truncated_tokens:,} tokens exceed the maximum length of the model"
                notice(f"line {number}: {fact}. They were left out.")
            print(terminal.json_line(one.to_dict()) if as_json else shown(one.translation), flush=True)
            translations.append(one.translation)
            if picture is not None and one.text.strip() and len(alignments) < MAX_ALIGNMENTS[picture.suffix]:
                alignments.append(Alignment(f"{one.text.strip()} → {one.translation}", **vars(loaded.align(one))))
    if picture is not None:
        alignment.write(picture, "Alignment of words by attention", alignments)
    if reference is None:
        return
    if len(references) != len(translations):
        fact = f"has {len(references):,} lines, and {len(translations):,} were translated"
        raise TextError(reference, fact, "Give one reference per line, in the same order")
    print(f"BLEU {bleu(translations, references):.2f} of {len(translations):,} lines, {SIGNATURE}", file=sys.stderr)
