"""The model card: what a stranger must know before using a model folder."""

import html
import json
import re
from collections.abc import Mapping
from typing import Any, Literal

from bertsmith.insight.report import RunSummary
from bertsmith.tasks.findings import name_of
from bertsmith.terminal import count_of

Use = Literal[
    "fill_mask", "causal_lm", "text_to_text", "discriminator", "features", "recurrent_lm", "masked_autoencoder"
]

PIPELINES = {  # what model hubs call a task, and how our own Python asks for it
    "classify": ("text-classification", 'classify(["A text of yours."])'),
    "tag": ("token-classification", 'tag(["A text of yours."])'),
    "answer": ("question-answering", 'answer("Who wrote it?", "Ann wrote the novel.")'),
    "choose": ("multiple-choice", 'choose("It began to rain,", ["so we stayed in.", "so we were a cat."])'),
    "embed": ("sentence-similarity", 'embed(["A text of yours."])'),
    "write": ("text2text-generation", 'predict(["A text of yours."])'),
}


MASKED_LM = """```python
import bertsmith
bertsmith.load("this/folder").fill("The capital of France is [MASK].")
```

`transformers.AutoModelForMaskedLM` opens it, too."""
DISCRIMINATOR = """It has learnt to find words that another network had put in, and is there to be fine-tuned:

```
bertsmith finetune this/folder DATA --out runs/tuned
```

Blanks are filled by that other network, in the folder `generator` beside it. `transformers.AutoModel` opens it, too."""


CAUSAL_LM = """```python
import bertsmith
bertsmith.load("this/folder").generate(["Once upon a time"])
bertsmith.load("this/folder").score(["How likely is this?"])
```

`transformers.AutoModelForCausalLM` opens it, too."""
SPAN_CORRUPTION = """```python
import bertsmith
bertsmith.load("this/folder").generate(["Thank you <extra_id_0> me to your party <extra_id_1> week."])
```

`transformers.AutoModelForSeq2SeqLM` opens it, too."""
FEATURES = """Its vectors are features: a tagger or a classifier learns to mix its layers, while it stays as it is.

```
bertsmith finetune this/folder CONLL --task features --out runs/tuned
bertsmith finetune this/folder SST-2 --task classify_features --out runs/tuned
```

Words that it has never met are read by their letters. transformers has no class for it."""
RECURRENT_LM = """```python
import bertsmith
bertsmith.load("this/folder").generate(["Once upon a time"])
bertsmith.load("this/folder").score(["How likely is this?"])
```

`bertsmith inspect` draws what its cells know. transformers has no class for it."""
MASKED_AUTOENCODER = """It has learnt to complete images, and is there to be fine-tuned on a folder of images by class:

```
bertsmith finetune this/folder IMAGES --out runs/tuned
```

`transformers.ViTMAEForPreTraining` opens it, too."""
USES: dict[Use, tuple[str, str, str]] = {  # what model hubs call it, what it is, and how it is used
    "fill_mask": ("fill-mask", "BERT", MASKED_LM),
    "causal_lm": ("text-generation", "GPT", CAUSAL_LM),
    "text_to_text": ("text2text-generation", "T5", SPAN_CORRUPTION),
    "discriminator": ("feature-extraction", "BERT", DISCRIMINATOR),
    "features": ("feature-extraction", "ELMo", FEATURES),
    "recurrent_lm": ("text-generation", "recurrent network", RECURRENT_LM),
    "masked_autoencoder": ("image-feature-extraction", "MAE", MASKED_AUTOENCODER),
}


def pretrained_card(run: RunSummary, license_name: str | None = None, *, use: Use = "fill_mask") -> str:
    """A README.md with the front matter that model hubs read; `use`: what the model is for as it is."""
    pipeline, kind, example = USES[use]
    figures = _rows(run.figures)
    data = _rows(run.data)
    machine = _escape_markdown(", ".join(f"{name} {value}" for name, value in run.machine.items()))
    origin = f"continued from {_escape_markdown(run.start)}" if run.start else "pretrained from scratch"
    license_line = f"license: {json.dumps(license_name)}\n" if license_name else ""
    return f"""---
library_name: {"bertsmith" if use in ("features", "recurrent_lm") else "transformers"}
pipeline_tag: {pipeline}
{license_line}tags: [bertsmith, {json.dumps(kind.lower())}]
---

# {_escape_markdown(run.title)}

A {kind} {origin} with bertsmith.{f" {run.verdict}" if run.verdict else ""}

{example}

## Figures

| | |
|---|---|
{figures}

## Data

| | |
|---|---|
{data}

## Recipe

{_code(run.recipe, "toml")}

Made on {machine}.
"""


def finetuned_card(kind: str, result: Mapping[str, Any], network: str | None = None) -> str:
    """The same for a model that was fine-tuned: its scores with their protocol."""
    pipeline, call = PIPELINES[kind]
    network = network or ("T5" if kind == "write" else "BERT")
    library = "sentence-transformers" if kind == "embed" else "transformers"
    title = f"A {_escape_markdown(network)} fine-tuned to {kind}"
    return _scored_card(library, pipeline, network, title, call, result, "example")


def image_card(network: str, result: Mapping[str, Any]) -> str:
    """The same for a network that was trained on images."""
    library = "bertsmith" if network.startswith("convnet") else "transformers"
    title = f"{_escape_markdown(network)}, trained to tell images apart"
    return _scored_card(library, "image-classification", network, title, 'predict("photo.jpg")', result, "image")


def _scored_card(
    library: str, pipeline: str, network: str, title: str, call: str, result: Mapping[str, Any], noun: str
) -> str:
    """A card with the scores of a task, measured on many of `noun`."""
    details = result.get("details")
    rows = _rows({name_of(name, details): _format_metric(found) for name, found in result["summary"].items()})
    protocol = result["protocol"]
    machine = _escape_markdown(", ".join(f"{name} {value}" for name, value in protocol["machine"].items()))
    examples = protocol["examples"]
    return f"""---
library_name: {library}
pipeline_tag: {pipeline}
tags: [bertsmith, {json.dumps(network.lower())}]
---

# {title}

```python
import bertsmith
bertsmith.load("this/folder").{call}
```

## Figures

Measured on {count_of(examples["dev"], noun)} after training on {examples["train"]:,},
{count_of(len(result["runs"]), "seed")};
weights: {protocol["selection"]}.

| | |
|---|---|
{rows}

Data SHA-256 (training, dev): {protocol["data_sha256"]}

## Recipe

{_code(protocol["recipe"], "toml")}

Made on {machine}.
"""


def _rows(values: Mapping[str, Any]) -> str:
    """The rows of a table of names and values."""
    return "\n".join(f"| {_escape_markdown(name)} | {_escape_markdown(value)} |" for name, value in values.items())


def _escape_markdown(value: object) -> str:
    """A value as Markdown shows it letter by letter: no HTML, no link, no end of a cell or of a line."""
    text = " ".join(html.escape(str(value), quote=False).split())
    return re.sub(r"([\\`*\[\]|])", r"\\\1", text)


def _code(text: str, language: str) -> str:
    """A block of code, fenced by more backticks than stand in it."""
    longest = max((len(found) for found in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.strip()}\n{fence}"


def _format_metric(found: Mapping[str, Any]) -> str:
    """A figure with its deviation and interval, where several seeds tell them."""
    if found["low"] is None:
        return f"{found['mean']:.4f}"
    interval = f"95 % interval {found['low']:.4f} to {found['high']:.4f}"
    return f"{found['mean']:.4f}, deviation {found['deviation']:.4f}, {interval}"
