"""Generation: prompts are gone on with, or answered, token after token."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bertsmith.errors import TextError
from bertsmith.models.decoder import Decoder, continued
from bertsmith.models.search import SearchConfig
from bertsmith.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Continued:
    """A prompt, and the texts that begin with it, or answer it."""

    prompt: str
    texts: list[str]
    unread: int = 0  # tokens of the prompt, which is longer than the model reads

    def plain(self) -> dict[str, Any]:
        """The same as JSON values."""
        return asdict(self)


def generate(
    decoder: Decoder, tokenizer: Tokenizer, prompts: Sequence[str], config: SearchConfig, stop: Sequence[str] = ()
) -> list[Continued]:
    """Each prompt gone on with or answered, in order; up to what ends a text, or to one of those to `stop` at."""
    if isinstance(prompts, str):
        raise TextError("prompts", "is one text, not several", "Put it into a list")
    stops = [tokenizer.stop] if "stop" in tokenizer.roles else []
    for piece in stop:
        if piece not in tokenizer.numbered:
            raise TextError(f"'{piece}'", "is no piece of the vocabulary", "Stop at a single piece")
        stops.append(tokenizer.numbered[piece])
    whole = tokenizer.encode(prompts)
    if decoder.answers:
        read = [row[: decoder.config.length - 1] for row in whole]
        written = continued(decoder, [[*row, tokenizer.stop] for row in read], config, stops)
        texts = [[tokenizer.decode(new, keep_special=True) for new in found] for found in written]
        lost = [len(full) - len(row) for full, row in zip(whole, read, strict=True)]
        return [Continued(*one) for one in zip(prompts, texts, lost, strict=True)]
    # As transformers frames a prompt: with what the tokenizer sets before a text, and with nothing after it.
    before = list(tokenizer.frame.before)
    begins = before or ([tokenizer.start] if "start" in tokenizer.roles else [])  # an empty prompt: a new document
    if not begins and (empty := [number for number, row in enumerate(whole, 1) if not row]):
        raise TextError(f"prompt {empty[0]}", "is empty", "Begin with a word")
    read = [_end(row, decoder.config.length - len(before), config.most) for row in whole]
    written = continued(decoder, [before + row if row else begins for row in read], config, stops)
    return [
        Continued(prompt, [prompt + _behind(tokenizer, row, new) for new in found], len(full) - len(row))
        for prompt, full, row, found in zip(prompts, whole, read, written, strict=True)
    ]


def _end(row: list[int], length: int, most: int) -> list[int]:
    """A prompt, or, where it fills all that the model reads, its end, with space for what is to come."""
    return row if len(row) < length else row[min(most, length // 2) - length :]


def _behind(tokenizer: Tokenizer, row: list[int], new: list[int]) -> str:
    """What the new pieces say behind the others: whether a blank comes first, only both together tell."""
    before, whole = tokenizer.decode(row), tokenizer.decode(row + new)
    return whole[len(before) :] if whole.startswith(before) else tokenizer.decode(new)
