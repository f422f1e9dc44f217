"""The next commands after a model is made, with the paths of its run: fine-tune it, try it, open it elsewhere."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from bertsmith.insight.model_card import Use

UNSAFE = frozenset("'\"\\$`!\n")  # characters that a shell or Python may take for its own
PLAIN_TEXTS: dict[Use, str] = {"text_to_text": "<extra_id_0>.", "fill_mask": "[MASK].", "discriminator": "[MASK]."}


def next_commands(out: Path, use: Use, examples: Sequence[str]) -> list[tuple[str, str]]:
    """What each command does, and the command. `examples`: texts with a mask, or prompts; the plainest is taken."""
    plain = [text for text in examples if text.strip() and not UNSAFE & set(text)]
    text = min(plain, key=_oddness, default=PLAIN_TEXTS.get(use, "A"))
    folder, tuned = str(out / "model"), _quoted(out.with_name(f"{out.name}-tuned"))
    finetune, model = f"bertsmith finetune {_quoted(out / 'model')}", _quoted(out / "model")
    labels = ("fine-tune it on your labels", f"{finetune} labels.csv --out {tuned}")
    generate = ("generate text", f'bertsmith generate {model} "{text}"')
    score = ("score lines of text", f"bertsmith score {model} lines.txt")
    match use:
        case "fill_mask":
            return [labels, ("fill masks", f'bertsmith fill {model} "{text}"'), _pipeline("fill-mask", folder, text)]
        case "discriminator":
            generator = f'bertsmith fill {_quoted(out / "generator")} "{text}"'
            return [labels, ("fill masks with its generator", generator), _opened("AutoModel", folder)]
        case "causal_lm":
            # Short: transformers would write 256 tokens by default, and fail after the last position of a small model.
            return [generate, score, _pipeline("text-generation", folder, text, ", max_new_tokens=16")]
        case "text_to_text":
            pairs = ("fine-tune it on your pairs", f"{finetune} pairs.csv --task text-to-text --out {tuned}")
            return [pairs, generate, _opened("AutoModelForSeq2SeqLM", folder)]
        case "recurrent_lm":
            page = _quoted(out / "cells.html")
            return [generate, score, ("draw its cells", f"bertsmith inspect {model} --file lines.txt --out {page}")]
        case "masked_autoencoder":
            tune = ("fine-tune it on a folder of images by class", f"{finetune} IMAGES --out {tuned}")
            return [tune, _opened("ViTMAEForPreTraining", folder)]
        case "features":
            return [
                ("tag with its vectors", f"{finetune} tags.conll --task features --out {tuned}"),
                ("classify with its vectors", f"{finetune} labels.csv --task classify_features --out {tuned}"),
            ]


def _oddness(text: str) -> tuple[int, int]:
    """How many characters are neither letters nor spaces, then the length: a formula is no good example."""
    return sum(not (one.isalpha() or one.isspace()) for one in text), len(text)


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def _pipeline(task: str, folder: str, text: str, settings: str = "") -> tuple[str, str]:
    given = json.dumps(text, ensure_ascii=False) + settings
    return _transformers("pipeline", f'pipeline("{task}", {json.dumps(folder)})({given})')


def _opened(name: str, folder: str) -> tuple[str, str]:
    return _transformers(name, f"{name}.from_pretrained({json.dumps(folder)})")


def _transformers(name: str, call: str) -> tuple[str, str]:
    return "use it in transformers", f"python -c {shlex.quote(f'from transformers import {name}; print({call})')}"
