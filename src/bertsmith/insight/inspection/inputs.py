"""A text as a network reads it: its tokens with their words and characters, between the special tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Int16

from bertsmith.data.batch import Tokens
from bertsmith.errors import TextError
from bertsmith.models.elmo import Elmo
from bertsmith.models.networks import EncoderDecoderNetwork
from bertsmith.objectives.base import LanguageModel, Objective
from bertsmith.tasks.base import truncate
from bertsmith.tasks.text_to_text import TextToText
from bertsmith.text.characters import boundary_characters, encode_characters
from bertsmith.text.special_tokens import Template
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.text.word_numbers import encode_with_words


@dataclass(frozen=True)
class Token:
    """One token of a text, or a special token around it. [MASK] stands for a word, and is not special here."""

    id: int
    text: str  # as in the vocabulary
    shown: str  # for people, without the mark of a continuation or of a space
    word: int  # the number of its word in the text; -1 for special tokens
    special: bool
    start: int = 0  # characters of the text; the second text of a pair follows the first and a newline
    end: int = 0

    def figures(self) -> dict[str, Any]:
        """The fields as JSON values, without the id."""
        names = ("text", "shown", "word", "special", "start", "end")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Inputs:
    """The tokens of a text or a pair of texts with what else the network reads."""

    tokens: tuple[Token, ...]
    segments: tuple[int, ...]
    notes: tuple[str, ...] = ()  # what was cut
    character_ids: Int16[np.ndarray, "T C"] | None = None  # for ELMo

    @property
    def ids(self) -> list[int]:
        return [token.id for token in self.tokens]

    def batch(self, device: torch.device, rows: Sequence[Sequence[int]] | None = None) -> Tokens:
        """The tokens as a batch of one sequence; or several `rows` of as many ids, in the place of its own."""
        rows = [self.ids] if rows is None else rows
        tokens = Tokens.from_rows(rows, [self.segments] * len(rows))
        if self.character_ids is not None:
            tokens = replace(tokens, character_ids=torch.from_numpy(self.character_ids).repeat(len(rows), 1))
        return tokens.to(device)


def read_text(
    objective: Objective, tokenizer: Tokenizer, text: str, pair: str | None = None, max_length: int | None = None
) -> Inputs:
    """A text, or a pair of texts, with the special tokens that the network was trained with; cut to its length.

    A causal language model reads a start token first, by which it predicts the first word. A task of text-to-text has
    its prefix.
    """
    texts = [text] if pair is None else [text, pair]
    for number, one in enumerate(texts):
        if not one.strip():
            raise TextError("text" if len(texts) == 1 else f"text {number + 1}", "is empty", "Write at least one word")
    template, prefixes = _template(objective, tokenizer, len(texts)), _prefixes(objective, tokenizer, len(texts))
    limit = min(max_length or objective.trunk.config.max_length, objective.trunk.config.max_length)
    room = text_room(objective, tokenizer, len(texts), limit)
    if room < len(texts):
        raise TextError("max_length", f"{limit} tokens leave no room for a text", f"Give at least {limit - room + 1}")
    read = [_tokens(tokenizer, one) for one in texts]
    if not all(any(not token.special for token in tokens) for tokens in read):
        raise TextError("text", "has no token that the model knows, besides special ones", "Write at least one word")
    first, second, cut = truncate(list(range(len(read[0]))), list(range(len(read[1]))) if len(read) > 1 else None, room)
    read = [tokens[: len(kept)] for tokens, kept in zip(read, (first, second), strict=False) if kept is not None]
    notes = (f"The text has {cut + limit} tokens with special ones, and the first {limit} are shown.",) if cut else ()
    pieces, shift = list[list[Token]](), 0
    for number, (tokens, prefix) in enumerate(zip(read, prefixes, strict=True)):
        words = 1 + max((token.word for piece in pieces for token in piece), default=-1)
        named = [_token(tokenizer, piece_id, words) for piece_id in prefix]  # the prefix is one word, and of no text
        words += bool(prefix)
        moved = (replace(one, word=one.word + words, start=one.start + shift, end=one.end + shift) for one in tokens)
        pieces.append([*named, *moved])
        shift += len(texts[number]) + 1
    before, between, after = ([_token(tokenizer, piece_id, -1) for piece_id in part] for part in template[:3])
    start = [*before, *pieces[0], *(between if len(pieces) > 1 else [])]
    rest = [*(pieces[1] if len(pieces) > 1 else []), *after]
    segments = (0,) * len(start) + (template.segment if len(pieces) > 1 else 0,) * len(rest)
    inputs = Inputs((*start, *rest), segments, notes)
    return _with_characters(inputs, objective, tokenizer, texts[0])


def text_room(objective: Objective, tokenizer: Tokenizer, texts: int = 1, max_length: int | None = None) -> int:
    """The tokens of texts that fit beside the special tokens and the prefixes of a task."""
    template, prefixes = _template(objective, tokenizer, texts), _prefixes(objective, tokenizer, texts)
    specials = len(template.before) + len(template.after) + len(template.between) * (texts - 1)
    return (max_length or objective.trunk.config.max_length) - specials - sum(map(len, prefixes))


def read_target(tokenizer: Tokenizer, target: str | Sequence[int], max_length: int) -> Inputs:
    """What a decoder reads: its start token, then the target, which is a text, or the ids that it generated."""
    if isinstance(target, str):
        tokens = _tokens(tokenizer, target)
    else:
        continues = tokenizer.continuation_mask[np.asarray(target, np.int64)]
        words = np.cumsum(~continues) - 1 if len(continues) else np.zeros(0, np.int64)
        tokens = [_token(tokenizer, piece_id, max(0, int(word))) for piece_id, word in zip(target, words, strict=True)]
    fits = max_length - 1
    fact = f"The target has {len(tokens)} tokens, and the first {fits} are shown."
    notes = (fact,) if len(tokens) > fits else ()
    start = _token(tokenizer, tokenizer.padding_id, -1)
    read = (start, *tokens[:fits])
    return Inputs(read, (0,) * len(read), notes)


def _tokens(tokenizer: Tokenizer, text: str) -> list[Token]:
    """The tokens of a text without special tokens around it."""
    ids, spans, words = encode_with_words(tokenizer, text)
    return [_token(tokenizer, piece_id, word, *span) for piece_id, span, word in zip(ids, spans, words, strict=True)]


def _token(tokenizer: Tokenizer, number: int, word: int, start: int = 0, end: int = 0) -> Token:
    piece, shown = tokenizer.piece(number), tokenizer.readable(number)
    special = bool(tokenizer.special_mask[number]) and not _stands_for_text(tokenizer, number)
    word, start, end = (-1, 0, 0) if special else (word, start, end)
    return Token(number, piece, shown.removeprefix("##") or shown, word, special, start, end)


def _stands_for_text(tokenizer: Tokenizer, number: int) -> bool:
    """Whether a special token stands for words: [MASK], [UNK], and the sentinels of T5."""
    roles = tokenizer.roles
    around = {roles.get(role) for role in ("start", "stop", "padding")}  # GPT-2 has one token for all roles
    return number in (roles.get("mask"), roles.get("unknown"), *tokenizer.sentinels) and number not in around


def _template(objective: Objective, tokenizer: Tokenizer, texts: int) -> Template:
    """The special tokens before, between and after texts, as in training or in scoring."""
    if isinstance(objective.trunk, EncoderDecoderNetwork):
        return Template(after=(tokenizer.stop_id,))
    if isinstance(objective.trunk, Elmo):
        if texts > 1:
            raise TextError("text", "is a pair, and the network reads one text", "Give one text")
        return Template(before=(tokenizer.start_id,), after=(tokenizer.stop_id,))
    if isinstance(objective, LanguageModel) and objective.trunk.config.causal:
        start = tokenizer.roles.get("start")
        between = tokenizer.template.between
        return Template(before=() if start is None else (start,), between=between)
    return tokenizer.template


def _prefixes(objective: Objective, tokenizer: Tokenizer, texts: int) -> list[list[int]]:
    """The tokens before each text: of a text-to-text task its prefix, else none."""
    if isinstance(objective, TextToText):
        return tokenizer.encode(objective._prefixes(texts))
    return [[]] * texts


def _with_characters(inputs: Inputs, objective: Objective, tokenizer: Tokenizer, text: str) -> Inputs:
    """The same with the characters of every word, for a network that reads them, even of unknown words."""
    if not isinstance(objective.trunk, Elmo):
        return inputs
    most = objective.trunk.config.max_characters
    words = [tokenizer.normalise(text[token.start : token.end]) for token in inputs.tokens[1:-1]]
    begin, end = boundary_characters(most)
    table = np.concatenate([[begin], encode_characters(words, most), [end]])
    return replace(inputs, character_ids=table)
