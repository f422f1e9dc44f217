"""A server with a small model for each kind of use, shared by the tests of a module."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from inference.test_load import plain, saved
from serving.local import LocalServer, local
from tasks.small import stirred, tokenizer

from bertsmith.inference.load import load
from bertsmith.inference.model import Model
from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.family import FAMILY
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf.layouts import layout_of
from bertsmith.models.transformer import Transformer
from bertsmith.objectives.causal import CausalLM
from bertsmith.tasks.text_to_text import TextToText

SMALL: dict[str, Any] = {"width": 32, "layers": 2, "heads": 2, "feed_forward": 48, "max_length": 64}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    folder = tmp_path_factory.mktemp("models")
    paths = {"plain": plain(folder / "plain"), "reviews": saved(folder / "reviews", "class")}
    paths |= {"ner": saved(folder / "ner", "tag"), "squad": saved(folder / "squad", "answer")}
    return {name: load(path, "cpu") for name, path in paths.items()}


@pytest.fixture(scope="module")
def server(models: dict[str, Model]) -> Iterator[LocalServer]:
    with local(models) as running:
        yield running


@pytest.fixture(scope="module")
def writing_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    """A GPT and a translator."""
    folder = tmp_path_factory.mktemp("writers")
    gpt = CausalLM(Transformer(replace(FAMILY["gpt2"], vocabulary=tokenizer().vocabulary, **SMALL)), CausalLM.Config())
    folders.write(folder / "gpt", gpt.trunk.config, stirred(gpt).state_dict(), {})
    sizes = replace(FAMILY["transformer-tiny"], vocabulary=tokenizer().vocabulary, decoder_layers=2, **SMALL)
    translator = TextToText(stirred(EncoderDecoder(sizes)), TextToText.Config(translation=True, max_new_tokens=10))
    own = {"task": "write", "labels": [], "translation": True, "max_new_tokens": 10, "label_smoothing": 0.1}
    extra = {"bertsmith": own, **tokenizer().special_ids(layout_of(sizes).special_tokens)}
    folders.write(folder / "translator", sizes, translator.state_dict(), extra)
    for name in ("gpt", "translator"):
        tokenizer().save(folder / name, max_length=64)
    return {name: load(folder / name, "cpu") for name in ("gpt", "translator")}
