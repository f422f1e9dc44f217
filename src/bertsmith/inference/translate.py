"""Translation: a text for each text, by a model that has learnt to write, the likeliest wholes by beam search."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from bertsmith.data.batch import Tokens
from bertsmith.data.labelled.examples import Example
from bertsmith.data.rows import batch_by_length
from bertsmith.errors import TextError
from bertsmith.models.generation.engine import GenerationEngine, generate_ids
from bertsmith.models.generation.search import GenerationConfig
from bertsmith.tasks.text_to_text import TextToText
from bertsmith.text.tokenizer import Tokenizer

BATCH_TOKENS = {"cpu": 1_024, "cuda": 32_768}  # tokens that are read at once, of texts of nearly one length


@dataclass(frozen=True)
class TranslatedText:
    """A text, and what it was made into."""

    text: str
    translation: str
    truncated_tokens: int = 0  # tokens of the text, which is longer than the model reads
    token_ids: tuple[int, ...] = ()  # the translation as it was written, token by token

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON values."""
        return {"text": self.text, "translation": self.translation, "truncated_tokens": self.truncated_tokens}


@dataclass(frozen=True)
class TokenAlignment:
    """A text and its translation in pieces, the ones that end them included, and what was taken from where."""

    source: list[str]
    target: list[str]
    weights: Float[np.ndarray, "L M"]  # for each piece written, over those that were read: they sum to one


def translate(
    task: TextToText, decoder: GenerationEngine, tokenizer: Tokenizer, texts: Sequence[str], config: GenerationConfig
) -> list[TranslatedText]:
    """What is written about each text, in order. Nothing is written about nothing.

    How long a translation may be depends on no other text, and so neighbours do not change it.
    """
    if isinstance(texts, str):
        raise TextError("texts", "is one text, not several", "Put it into a list")
    spoken = [number for number, text in enumerate(texts) if text.strip()]
    examples = [Example(location=f"text {number + 1}", texts=(texts[number].strip(),)) for number in spoken]
    items = task.preprocess(examples, tokenizer, task.trunk.config.max_length)
    rows = [item.rows[0].ids.tolist() for item in items]
    found = [TranslatedText(text, "") for text in texts]
    for some in batch_by_length([len(row) for row in rows], BATCH_TOKENS[decoder.device.type]):
        written = generate_ids(decoder, [rows[place] for place in some], config, [tokenizer.stop_id])
        for place, (best, *_) in zip(some, written, strict=True):
            number = spoken[place]
            said = tokenizer.decode(best).strip()
            found[number] = TranslatedText(texts[number], said, items[place].truncated, tuple(best))
    return found


def align(task: TextToText, tokenizer: Tokenizer, translation: TranslatedText) -> TokenAlignment | None:
    """What each piece of a translation was taken from; None of a network that does not look at what it has read."""
    device = task.trunk.embedding.weight.device
    example = Example(location="text", texts=(translation.text.strip(),))
    [item] = task.preprocess([example], tokenizer, task.trunk.config.max_length)
    read, said = item.rows[0].ids.tolist(), [*translation.token_ids, tokenizer.stop_id]
    given = Tokens.from_rows([[tokenizer.padding_id, *translation.token_ids]])
    looks = task.trunk.alignment(Tokens.from_rows([read]).to(device), given.to(device))
    if looks is None:
        return None
    before, behind = ([_readable(tokenizer, number) for number in row] for row in (read, said))
    return TokenAlignment(before, behind, looks[0].float().cpu().numpy())


def _readable(tokenizer: Tokenizer, number: int) -> str:
    """A piece as a person reads it; a dot says that it goes on with the word before."""
    piece = tokenizer.piece(number)
    return f"·{piece.removeprefix('##')}" if tokenizer.continuation_mask[number] else piece.lstrip("▁Ġ") or piece
