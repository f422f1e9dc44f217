"""Small random models of every kind to look into, each also as a model of transformers with eager attention."""

import base64
import zlib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from tasks.small import WORDS, stirred

from bertsmith.insight.inspection.inputs import Token
from bertsmith.models import family
from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.hf import convert
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf.layouts import layout_of
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.objectives.causal import CausalLM
from bertsmith.objectives.masked import MaskedLM
from bertsmith.objectives.spans import SpanCorruption
from bertsmith.text.special_tokens import Kind
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train

TEXT = "the old dog likes the unlikely catgarden, in 1984."
LETTERS = "a b c d e f g h i j k l m n o p q r s t u v w x y z , . ? ' - ( ) 1 9 8 4"
SIZES: dict[str, Any] = {"width": 32, "layers": 3, "heads": 4, "feed_forward": 48, "max_length": 64}
ENCODERS: dict[str, tuple[TransformerConfig, Kind, dict[str, Any]]] = {
    "bert": (family.BERT, "wordpiece", {}),
    "roberta": (family.ROBERTA, "bpe", {}),
    "albert": (family.ALBERT, "unigram", {"embedding_width": 12}),
    "electra": (family.ELECTRA, "wordpiece", {"embedding_width": 12}),
    "distilbert": (family.DISTILBERT, "wordpiece", {}),
    "mpnet": (family.MPNET, "wordpiece", {}),
    "modernbert": (family.MODERN_BERT, "wordpiece", {"window": 3, "global_every": 2}),
}


@cache
def tokenizer(kind: Kind = "wordpiece") -> Tokenizer:
    size = 300 if kind in ("bpe", "t5") else 110
    return train([" ".join(WORDS)] * 3 + [LETTERS], TokenizerConfig(kind=kind, vocabulary=size, min_frequency=1))


def masked_lm(name: str, folder: Path) -> tuple[MaskedLM, Tokenizer, Any]:
    """An encoder with its masked LM head, here and in transformers."""
    standard, kind, changes = ENCODERS[name]
    config = replace(standard, **SIZES, vocabulary=tokenizer(kind).vocabulary, **changes)
    reference = _reference(config, "masked_lm", ("mlm_head",), folder)
    ours = MaskedLM(Transformer(config), MaskedLM.Config(pairs="none")).eval()
    ours.load_state_dict(folders.read(folder).state_dict)
    return ours, tokenizer(kind), reference


def causal_lm(folder: Path) -> tuple[CausalLM, Tokenizer, Any]:
    """GPT-2, here and in transformers."""
    config = replace(family.GPT2, **SIZES | {"feed_forward": 128}, vocabulary=tokenizer("bpe").vocabulary)
    words = convert.to_config_json(config, ())
    reference = stirred(transformers.GPT2LMHeadModel(transformers.GPT2Config(**words, attn_implementation="eager")))
    reference.save_pretrained(folder)
    ours = CausalLM(Transformer(config), CausalLM.Config()).eval()
    ours.load_state_dict(folders.read(folder).state_dict)
    return ours, tokenizer("bpe"), reference


def t5(folder: Path) -> tuple[SpanCorruption, Tokenizer, Any]:
    """T5, here and in transformers."""
    sizes = SIZES | {"vocabulary": tokenizer("t5").vocabulary, "decoder_layers": 2, "buckets": 8, "max_distance": 20}
    config = replace(family.T5, **sizes)
    words = convert.to_config_json(config, ())
    reference = stirred(
        transformers.T5ForConditionalGeneration(transformers.T5Config(**words, attn_implementation="eager"))
    )
    reference.save_pretrained(folder)
    ours = SpanCorruption(EncoderDecoder(config), SpanCorruption.Config()).eval()
    ours.load_state_dict(folders.read(folder).state_dict)
    return ours, tokenizer("t5"), reference


def _reference(config: TransformerConfig, architecture: str, parts: tuple[str, ...], folder: Path) -> Any:
    words = convert.to_config_json(config, parts)
    model = getattr(transformers, layout_of(config).architectures[architecture])
    settings = transformers.CONFIG_MAPPING[words["model_type"]](**words, attn_implementation="eager")
    reference = stirred(model(settings))
    reference.save_pretrained(folder)
    return reference


@torch.no_grad()
def answer(reference: Any, **inputs: Any) -> Any:
    """What transformers computes, with hidden states and attention weights."""
    inputs = {name: torch.tensor([row]) if isinstance(row, list) else row for name, row in inputs.items()}
    return reference.eval()(**inputs, output_hidden_states=True, output_attentions=True)


def stored(text: str, *shape: int) -> NDArray[np.uint8]:
    """Bytes of a page, read as its script does: base64, inflate."""
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8).reshape(shape)


def stored_weights(maps: Mapping[str, Any]) -> NDArray[np.float32]:
    """All weights of one kind of attention, from its JSON."""
    rows, columns = maps["size"]
    layers = [stored(layer, maps["heads"], rows, columns) for layer in maps["weights"]]
    return np.stack(layers).astype(np.float32) / 255


def token(number: int, word: int = 0, special: bool = False) -> Token:
    """A token that is nothing but its numbers."""
    return Token(number, f"w{number}", f"w{number}", -1 if special else word, special)
