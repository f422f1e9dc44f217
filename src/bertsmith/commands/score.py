"""`score`: the (pseudo-)log-likelihood of each text, and the perplexity of all."""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from bertsmith import terminal
from bertsmith.data.labelled import unlabelled
from bertsmith.data.output import Output
from bertsmith.inference.likelihood import LikelihoodTotals
from bertsmith.inference.load import load_text_model
from bertsmith.inference.model import Model
from bertsmith.runs.inference_output import checked_inputs, notice_once, output_settings, remaining_inputs

CONSOLE = terminal.console()
BATCH_LINES = 4096  # lines scored at once: the more lines, the more alike the lengths in a pass


def score(model: Path, inputs: Sequence[str], *, pll_form: Any, as_json: bool, out: Path | None = None) -> None:
    """The score of each line, as soon as it is known, and the perplexity at the end. An output file is resumed."""
    names = checked_inputs(model, inputs)
    loaded = load_text_model(model)
    read = partial(unlabelled.texts, names, notice_once())
    if out is None:
        totals = _print_scores(loaded, read(), pll_form, as_json)
    else:
        with Output(out, partial(output_settings, loaded, "score", {"pll_form": pll_form})) as output:
            remaining = remaining_inputs(output, read, str, names)
            totals = LikelihoodTotals(**output.state)
            with terminal.ProgressCounter("texts", output.rows) as counter:
                while batch := list(islice(remaining, BATCH_LINES)):
                    scores = loaded.score(batch, pll_form)
                    totals = totals.plus(scores)
                    rows = (json.dumps(one.to_dict(), ensure_ascii=False) + "\n" for one in scores)
                    output.add(batch, "".join(rows).encode(), vars(totals))
                    counter.update(output.rows)
            output.finish()
    if as_json and out is None:
        return
    name = "perplexity" if loaded.trunk.config.causal else "pseudo-perplexity"
    texts = terminal.count_of(totals.texts, "text")
    line = f"{name} {totals.perplexity:.2f}, {totals.bits_per_byte:.3f} bits per byte of {texts}"
    CONSOLE.print(line + (f", each in {out}" if out else ""))


def _print_scores(loaded: Model, texts: Iterator[str], pll_form: Any, as_json: bool) -> LikelihoodTotals:
    """Print a line for each text, and return their totals."""
    totals, header = LikelihoodTotals(), not as_json
    while batch := list(islice(texts, BATCH_LINES)):
        scores = loaded.score(batch, pll_form)
        if header:  # only now: a model without a language model head has been refused by `score`
            CONSOLE.print(f"{'score':>10}  {'a token':>8}  text", style="bold")
            header = False
        totals = totals.plus(scores)
        for one in scores:
            if as_json:
                print(terminal.json_line(one.to_dict()), flush=True)
            else:
                CONSOLE.print(f"{one.log_likelihood:10.2f}  {one.log_likelihood / max(one.tokens, 1):8.2f}  {one.text}")
    return totals
