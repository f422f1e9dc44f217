"""Text generation: continuations of prompts by a causal model, answers to them by an encoder-decoder."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bertsmith.errors import TextError
from bertsmith.models.generation.engine import GenerationEngine, generate
from bertsmith.models.generation.search import GenerationConfig
from bertsmith.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class GeneratedText:
    """A prompt and its generated texts: continuations that begin with the prompt, or answers of an encoder-decoder.

    >>> [result] = bertsmith.load("runs/gpt").generate(["the cat"], full=True, samples=2, max_new_tokens=3)
    >>> [text.startswith("the cat") for text in result.texts]
    [True, True]
    """

    prompt: str
    texts: list[str]
    truncated_tokens: int = 0  # tokens of the prompt beyond the model's maximum length
    missing_tokens: int = 0  # new tokens that were asked for and had no place in it, where a text ends for that reason

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values; without `missing_tokens` where none is missing.

        >>> sorted(bertsmith.load("runs/gpt").generate("the", full=True, max_new_tokens=1).to_dict())
        ['prompt', 'texts', 'truncated_tokens']
        """
        return {name: value for name, value in asdict(self).items() if value or name != "missing_tokens"}


def generate_texts(
    engine: GenerationEngine,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    config: GenerationConfig,
    stop: str | Sequence[str] = (),
) -> list[GeneratedText]:
    """Generate from each prompt, in order, until the end of the text or one of the tokens in `stop`."""
    stop_ids = [tokenizer.stop_id] if "stop" in tokenizer.roles else []
    for piece in [stop] if isinstance(stop, str) else stop:
        if not isinstance(piece, str) or piece not in tokenizer.piece_ids:
            raise TextError(f"'{piece}'", "is no token of the vocabulary", "Stop at a single token")
        stop_ids.append(tokenizer.piece_ids[piece])
    whole = tokenizer.encode(prompts)
    if engine.is_encoder_decoder:
        read = [row[: engine.config.max_length - 1] for row in whole]
        generated = generate(engine, [[*row, tokenizer.stop_id] for row in read], config, stop_ids)
        texts = [[tokenizer.decode(new, keep_special=True) for new in samples] for samples in generated]
        truncated = [len(full) - len(row) for full, row in zip(whole, read, strict=True)]
        missing = [_missing(engine, row, samples, config) for row, samples in zip(read, generated, strict=True)]
        return [GeneratedText(*one) for one in zip(prompts, texts, truncated, missing, strict=True)]
    # As in transformers, a prompt has the tokenizer's special tokens before it and none after it; an empty one starts a
    # new document.
    before = list(tokenizer.template.before)
    begins = before or ([tokenizer.start_id] if "start" in tokenizer.roles else [])
    if not begins and (empty := [number for number, row in enumerate(whole, 1) if not row]):
        raise TextError(f"prompt {empty[0]}", "is empty", "Begin with a word")
    read = [_truncate_left(row, engine.config.max_length - len(before), config.max_new_tokens) for row in whole]
    asked = [before + row if row else begins for row in read]
    generated = generate(engine, asked, config, stop_ids)
    missing = [_missing(engine, row, samples, config) for row, samples in zip(asked, generated, strict=True)]
    texts = [
        [prompt + _continuation(tokenizer, row, new) for new in samples]
        for prompt, row, samples in zip(prompts, read, generated, strict=True)
    ]
    truncated = [len(full) - len(row) for full, row in zip(whole, read, strict=True)]
    return [GeneratedText(*one) for one in zip(prompts, texts, truncated, missing, strict=True)]


def _missing(engine: GenerationEngine, row: list[int], samples: list[list[int]], config: GenerationConfig) -> int:
    """The new tokens that a text lacks since it ends at the model's maximum length, and not by itself."""
    room = engine.remaining(row)
    full = any(len(new) >= room for new in samples)
    return max(0, config.max_new_tokens - room) if full else 0


def _truncate_left(row: list[int], length: int, max_new_tokens: int) -> list[int]:
    """A prompt; if it fills the model's maximum length, its end, with space for the new tokens."""
    return row if len(row) < length else row[min(max_new_tokens, length // 2) - length :]


def _continuation(tokenizer: Tokenizer, row: list[int], new: list[int]) -> str:
    """The text of the new tokens after the prompt; decoded together, since white space between depends on both."""
    before, whole = tokenizer.decode(row), tokenizer.decode(row + new)
    return whole[len(before) :] if whole.startswith(before) else tokenizer.decode(new)
