"""A T5 thirty-two wide, a tokenizer with sentinels, and a task that writes."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from tasks.small import WORDS, stirred

from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.family import T5
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf.layouts import layout_of
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.init import initialise
from bertsmith.objectives.spans import SpanCorruption
from bertsmith.tasks.text_to_text import TextToText
from bertsmith.text.extend import with_pieces
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train

LENGTH = 32
ALPHABET = "a b c d e f g h i j k l m n o p q r s t u v w x y z _ : , . ? ' - 0 1 2 3 4 5 6 7 8 9"
SAID = ["purr", "bark", "positive", "negative", "sentence1", "sentence2", "question", "context", "sst2", "sentence"]


@cache
def tokenizer() -> Tokenizer:
    """Words that are used often are pieces of their own."""
    letters = train([*WORDS, ALPHABET], TokenizerConfig(kind="t5", vocabulary=230, min_frequency=1))
    return with_pieces(letters, [f"▁{word}" for word in (*WORDS, *SAID) if f"▁{word}" not in letters.piece_ids])


def shape(**changes: Any) -> TransformerConfig:
    sizes = {
        "width": 32,
        "layers": 2,
        "decoder_layers": 2,
        "heads": 4,
        "feed_forward": 48,
        "max_length": 64,
        "buckets": 8,
    }
    still = {"dropout": 0.0, "attention_dropout": 0.0, "max_distance": 20}
    return replace(T5, vocabulary=tokenizer().vocabulary, **{**sizes, **still, **changes})


def task(labels: tuple[str, ...] = (), **config: Any) -> TextToText:
    made: TextToText = stirred(TextToText(EncoderDecoder(shape()), TextToText.Config(**config), labels))
    return made


def saved(folder: Path, shape: TransformerConfig) -> Path:
    """A model folder that knows nothing yet."""
    objective = SpanCorruption(EncoderDecoder(shape), SpanCorruption.Config())
    initialise(objective, 0)
    folders.write(folder, shape, objective.state_dict(), tokenizer().special_ids(layout_of(shape).special_tokens))
    tokenizer().save(folder, max_length=shape.max_length)
    return folder
