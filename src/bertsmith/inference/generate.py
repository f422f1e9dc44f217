"""Generation: prompts are gone on with, or answered, token after token."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bertsmith.errors import TextError
from bertsmith.models.generation.engine import GenerationEngine, generate_ids
from bertsmith.models.generation.search import GenerationConfig
from bertsmith.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class GeneratedText:
    """A prompt, and the texts that begin with it, or answer it."""

    prompt: str
    texts: list[str]
    truncated_tokens: int = 0  # tokens of the prompt, which is longer than the model reads

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON values."""
        return asdict(self)


def generate(
    decoder: GenerationEngine,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    config: GenerationConfig,
    stop: Sequence[str] = (),
) -> list[GeneratedText]:
    """Each prompt gone on with or answered, in order; up to what ends a text, or to one of those to `stop` at."""
    if isinstance(prompts, str):
        raise TextError("prompts", "is one text, not several", "Put it into a list")
    stops = [tokenizer.stop_id] if "stop" in tokenizer.roles else []
    for piece in stop:
        if piece not in tokenizer.piece_ids:
            raise TextError(f"'{piece}'", "is no piece of the vocabulary", "Stop at a single piece")
        stops.append(tokenizer.piece_ids[piece])
    whole = tokenizer.encode(prompts)
    if decoder.is_encoder_decoder:
        read = [row[: decoder.config.max_length - 1] for row in whole]
        written = generate_ids(decoder, [[*row, tokenizer.stop_id] for row in read], config, stops)
        texts = [[tokenizer.decode(new, keep_special=True) for new in found] for found in written]
        lost = [len(full) - len(row) for full, row in zip(whole, read, strict=True)]
        return [GeneratedText(*one) for one in zip(prompts, texts, lost, strict=True)]
    # As transformers frames a prompt: with what the tokenizer sets before a text, and with nothing after it.
    before = list(tokenizer.template.before)
    begins = before or ([tokenizer.start_id] if "start" in tokenizer.roles else [])  # an empty prompt: a new document
    if not begins and (empty := [number for number, row in enumerate(whole, 1) if not row]):
        raise TextError(f"prompt {empty[0]}", "is empty", "Begin with a word")
    read = [_truncate_left(row, decoder.config.max_length - len(before), config.max_new_tokens) for row in whole]
    written = generate_ids(decoder, [before + row if row else begins for row in read], config, stops)
    return [
        GeneratedText(prompt, [prompt + _continuation(tokenizer, row, new) for new in found], len(full) - len(row))
        for prompt, full, row, found in zip(prompts, whole, read, written, strict=True)
    ]


def _truncate_left(row: list[int], length: int, max_new_tokens: int) -> list[int]:
    """A prompt, or, where it fills all that the model reads, its end, with space for what is to come."""
    return row if len(row) < length else row[min(max_new_tokens, length // 2) - length :]


def _continuation(tokenizer: Tokenizer, row: list[int], new: list[int]) -> str:
    """What the new pieces say behind the others: whether a blank comes first, only both together tell."""
    before, whole = tokenizer.decode(row), tokenizer.decode(row + new)
    return whole[len(before) :] if whole.startswith(before) else tokenizer.decode(new)
