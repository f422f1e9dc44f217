"""`predict`: the predictions of a fine-tuned model, one JSON line per text."""

import json
from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path

from bertsmith import terminal
from bertsmith.commands import images
from bertsmith.data.labelled import unlabelled
from bertsmith.data.output import Output
from bertsmith.errors import FolderError, TextError
from bertsmith.inference.load import load_text_model
from bertsmith.inference.model import Model
from bertsmith.models.hf.folder import finetune_command
from bertsmith.runs.inference_output import checked_inputs, notice, notice_once, output_settings, remaining_inputs
from bertsmith.tasks.base import Task

BATCH_LINES = 1024  # lines predicted at once: the first prediction need not wait for the last line


def predict(
    model: Path, inputs: Sequence[str], *, out: Path | None, texts: Sequence[str] = (), size: str = "model"
) -> None:
    """A JSON line for each text of the inputs, in order, as soon as it is known. An output file is resumed."""
    if images.is_of_images(model, size, text=texts):
        images.predict(model, inputs, out=out, size=size)
        return
    names = checked_inputs(model, inputs, texts)
    loaded = load_text_model(model)
    if not isinstance(loaded.objective, Task):
        if loaded.embeds_sentences:
            remedy = f"Use: bertsmith embed {model} FILE --out vectors.npy"
            raise FolderError(model, "makes sentence embeddings, and predicts no labels", remedy)
        raise FolderError(model, "was not fine-tuned", f"Fine-tune it first: {finetune_command(model)}")
    columns = loaded.input_format()
    squad = out is not None and out.suffix == ".json"
    if squad and columns.kind != "answer":
        raise TextError(out, "SQuAD's format is for question answering only", "Use .jsonl")
    read, truncated = partial(unlabelled.examples, names, columns, notice_once()), 0
    if out is None:
        for prediction in loaded.predict_stream(read(), BATCH_LINES):
            print(terminal.json_line(prediction), flush=True)
            truncated += "truncated_tokens" in prediction
        _report_truncated(truncated, loaded)
        return
    with Output(out, partial(output_settings, loaded, "predict", {})) as output:
        remaining = remaining_inputs(output, read, repr, names)
        with terminal.ProgressCounter("predictions", output.rows) as counter:
            while batch := list(islice(remaining, BATCH_LINES)):
                predictions = loaded.predict(batch)
                rows = (json.dumps(prediction, ensure_ascii=False) + "\n" for prediction in predictions)
                output.add(map(repr, batch), "".join(rows).encode())
                counter.update(output.rows)
                truncated += sum("truncated_tokens" in prediction for prediction in predictions)
        output.finish(_to_squad if squad else None)
    _report_truncated(truncated, loaded)


def _report_truncated(count: int, model: Model) -> None:
    if count:
        longer = "1 text is" if count == 1 else f"{count:,} texts are"
        limit = f"{model.prediction_length:,} tokens that the model was fine-tuned to read"
        notice(f"{longer} longer than the {limit}, and truncated; finetune with data.max_length reads more")


def _to_squad(part: Path, target: Path) -> None:
    """Answers by the ids of their questions, the format of SQuAD's official script."""
    with part.open(encoding="utf-8") as lines, target.open("w", encoding="utf-8") as file:
        for number, prediction in enumerate(map(json.loads, lines)):
            name, text = (json.dumps(prediction[key], ensure_ascii=False) for key in ("id", "answer"))
            file.write(f"{',' if number else '{'}\n{name}: {text}")
        file.write("\n}\n" if part.stat().st_size else "{}\n")
