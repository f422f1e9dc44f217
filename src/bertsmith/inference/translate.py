"""Translation by an encoder-decoder with beam search, and the alignment of a translation with its source."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from bertsmith.data.batch import Tokens
from bertsmith.data.labelled.examples import Example
from bertsmith.data.rows import batch_by_length
from bertsmith.models.generation.engine import GenerationEngine, generate
from bertsmith.models.generation.search import GenerationConfig
from bertsmith.tasks.text_to_text import TextToText
from bertsmith.text.tokenizer import Tokenizer

BATCH_TOKENS = {"cpu": 1_024, "cuda": 32_768}  # tokens of sources in a batch, of texts of similar length


@dataclass(frozen=True)
class TranslatedText:
    """A text and its translation.

    >>> result = bertsmith.load("runs/translation").translate("a b", full=True)
    >>> result.text
    'a b'
    """

    text: str
    translation: str
    truncated_tokens: int = 0  # tokens of the text beyond the model's maximum length
    token_ids: tuple[int, ...] = ()  # of the translation

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values, without the token ids.

        >>> sorted(bertsmith.load("runs/translation").translate("a b", full=True).to_dict())
        ['text', 'translation', 'truncated_tokens']
        """
        return {"text": self.text, "translation": self.translation, "truncated_tokens": self.truncated_tokens}


@dataclass(frozen=True)
class TokenAlignment:
    """The tokens of a text and of its translation, with the attention weights between them.

    >>> translator = bertsmith.load("runs/translation")
    >>> translator.align(translator.translate("a b", full=True)).source[-1]
    '...'
    """

    source: list[str]
    target: list[str]
    weights: Float[np.ndarray, "L M"]  # a row for each target token, which sums to one over the source tokens


def translate_texts(
    task: TextToText, engine: GenerationEngine, tokenizer: Tokenizer, texts: Sequence[str], config: GenerationConfig
) -> list[TranslatedText]:
    """The translation of each text, in order; an empty text has an empty translation.

    The maximum length of a translation depends on no other text, so neighbours in a batch do not change it.
    """
    not_empty = [number for number, text in enumerate(texts) if text.strip()]
    examples = [Example(location=f"text {number + 1}", texts=(texts[number].strip(),)) for number in not_empty]
    items = task.preprocess(examples, tokenizer, task.trunk.config.max_length)
    rows = [item.rows[0].ids.tolist() for item in items]
    translated = [TranslatedText(text, "") for text in texts]
    for some in batch_by_length([len(row) for row in rows], BATCH_TOKENS[engine.device.type]):
        generated = generate(engine, [rows[row] for row in some], config, [tokenizer.stop_id])
        for row, (best, *_) in zip(some, generated, strict=True):
            number = not_empty[row]
            text = tokenizer.decode(best).strip()
            translated[number] = TranslatedText(texts[number], text, items[row].truncated, tuple(best))
    return translated


def align(task: TextToText, tokenizer: Tokenizer, translation: TranslatedText) -> TokenAlignment | None:
    """The attention weights of each token of a translation; None for a network without attention to its source."""
    device = task.trunk.embedding.weight.device
    example = Example(location="text", texts=(translation.text.strip(),))
    [item] = task.preprocess([example], tokenizer, task.trunk.config.max_length)
    source, target = item.rows[0].ids.tolist(), [*translation.token_ids, tokenizer.stop_id]
    decoder_input = Tokens.from_rows([[tokenizer.padding_id, *translation.token_ids]])
    weights = task.trunk.alignment(Tokens.from_rows([source]).to(device), decoder_input.to(device))
    if weights is None:
        return None
    source_tokens, target_tokens = ([_readable(tokenizer, number) for number in row] for row in (source, target))
    return TokenAlignment(source_tokens, target_tokens, weights[0].float().cpu().numpy())


def _readable(tokenizer: Tokenizer, number: int) -> str:
    """A token without its marks; a dot marks one that continues the word before."""
    piece = tokenizer.piece(number)
    return f"·{piece.removeprefix('##')}" if tokenizer.continuation_mask[number] else piece.lstrip("▁Ġ") or piece
