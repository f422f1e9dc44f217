"""The model card: what a stranger must know before using a model folder."""

from bertsmith.insight.report import RunStory


def card(story: RunStory, license_name: str | None = None) -> str:
    """A README.md with the front matter that model hubs read."""
    figures = "\n".join(f"| {name} | {value} |" for name, value in story.figures.items())
    data = "\n".join(f"| {name} | {value} |" for name, value in story.data.items())
    machine = ", ".join(f"{name} {value}" for name, value in story.machine.items())
    license_line = f"license: {license_name}\n" if license_name else ""
    return f"""---
library_name: transformers
pipeline_tag: fill-mask
{license_line}tags: [bertsmith, bert]
---

# {story.title}

A BERT pretrained from scratch with bertsmith.

```python
import bertsmith
bertsmith.load("this/folder").fill("The capital of France is [MASK].")
```

`transformers.AutoModelForMaskedLM` opens it, too.

## Figures

| | |
|---|---|
{figures}

## Data

| | |
|---|---|
{data}

## Recipe

```toml
{story.recipe.strip()}
```

Made on {machine}.
"""
