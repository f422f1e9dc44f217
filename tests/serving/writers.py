"""Folders of models that write text: a small GPT and a small translator."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tasks.small import stirred, tokenizer

from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.family import FAMILY
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf.layouts import layout_of
from bertsmith.models.transformer import Transformer
from bertsmith.objectives.causal import CausalLM
from bertsmith.tasks.text_to_text import TextToText

SMALL: dict[str, Any] = {"width": 32, "layers": 2, "heads": 2, "feed_forward": 48, "max_length": 64}


def save_writers(folder: Path) -> dict[str, Path]:
    """Write both; the folders by name."""
    gpt = CausalLM(Transformer(replace(FAMILY["gpt2"], vocabulary=tokenizer().vocabulary, **SMALL)), CausalLM.Config())
    folders.write(folder / "gpt", gpt.trunk.config, stirred(gpt).state_dict(), {})
    sizes = replace(FAMILY["transformer-tiny"], vocabulary=tokenizer().vocabulary, decoder_layers=2, **SMALL)
    translator = TextToText(stirred(EncoderDecoder(sizes)), TextToText.Config(translation=True, max_new_tokens=10))
    own = {"task": "write", "labels": [], "translation": True, "max_new_tokens": 10, "label_smoothing": 0.1}
    extra = {"bertsmith": own, **tokenizer().special_ids(layout_of(sizes).special_tokens)}
    folders.write(folder / "translator", sizes, translator.state_dict(), extra)
    for name in ("gpt", "translator"):
        tokenizer().save(folder / name, max_length=64)
    return {name: folder / name for name in ("gpt", "translator")}
