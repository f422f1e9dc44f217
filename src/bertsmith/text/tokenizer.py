"""The tokenizer: text into token ids and back, with the special tokens around a model's inputs."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count, groupby, islice, takewhile
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import decoders, models, normalizers

from bertsmith.errors import FolderError, TextError
from bertsmith.text import folder as folders
from bertsmith.text import language, long_texts, special_tokens, word_marks
from bertsmith.text.library_errors import wrap_library_errors
from bertsmith.text.special_tokens import END_OF_TEXT, ROLES, Kind, Template, pair_segments
from bertsmith.text.train import TokenizerConfig, train_library_tokenizer

__all__ = ["END_OF_TEXT", "Template", "Tokenizer", "TokenizerConfig", "train"]

MAX_PIECES = 10_000_000  # a file of a few bytes may claim any number


class Tokenizer:
    """A vocabulary and the rules that split text into its tokens; a thin wrapper around the `tokenizers` library.

    >>> [len(ids) for ids in bertsmith.Tokenizer.load("runs/mine/model").encode(["the cat", "the"])]
    [2, 1]
    """

    def __init__(
        self,
        inner: tokenizers.Tokenizer,
        names: dict[str, str] | None = None,
        location: object = "tokenizer",
        second_segment: int | None = None,
    ) -> None:
        inner.no_padding()
        inner.no_truncation()
        self._inner, self.location = inner, location
        self._second_segment = second_segment  # of the second text of a pair; None: as the template says
        self._pieces: dict[int, str] = {number: piece for piece, number in inner.get_vocab().items()}
        if not self._pieces or max(self._pieces) >= MAX_PIECES:
            raise FolderError(location, f"its tokens are not numbered from 0 to at most {MAX_PIECES:,}")
        self._roles = {role: special_tokens.find_role(inner, role, (names or {}).get(role)) for role in ROLES}

    def __repr__(self) -> str:
        return f"Tokenizer({self.kind or 'of another kind'}, {self.vocabulary:,} tokens)"

    @classmethod
    def load(cls, folder: str | Path) -> "Tokenizer":
        """Open a folder with tokenizer.json, or with a vocabulary as first published. No code in it is run."""
        file = folders.find_file(Path(folder))
        settings = folders.read_settings(file.parent)
        with wrap_library_errors(file, FolderError):
            segment = None if folders.marks_pairs(settings) else 0
            return cls(folders.read(file, settings), folders.special_names(settings), file, segment)

    def save(self, folder: str | Path, *, max_length: int | None = None, segments: bool = True) -> None:
        """Write tokenizer.json and tokenizer_config.json, as transformers' AutoTokenizer opens them.

        `max_length` is the maximum length of the model, and `segments` whether it has segment embeddings.
        """
        sentinels = [self.piece(number) for number in self.sentinels]
        settings = folders.settings_of(self._inner, self.role_names, sentinels, max_length, segments)
        folders.write(Path(folder), self._inner.to_str(pretty=True), settings)

    @property
    def vocabulary(self) -> int:
        """The size of the vocabulary."""
        return max(self._pieces) + 1

    @cached_property
    def piece_ids(self) -> dict[str, int]:
        """The id of every token, by its spelling."""
        return {piece: number for number, piece in self._pieces.items()}

    def piece(self, number: int) -> str:
        """The spelling of a token; empty where the vocabulary has no such id."""
        return self._pieces.get(number, "")

    def readable(self, number: int) -> str:
        """A token as people read it: byte-level BPE spells a space as Ġ and letters as bytes; ## is kept."""
        piece = self.piece(number)
        return piece if piece.startswith("##") else self.decode([number], keep_special=True).strip() or piece

    @cached_property
    def continuation_mask(self) -> NDArray[np.bool_]:
        """Which tokens continue the word before them."""
        pieces = [self.piece(number) for number in range(self.vocabulary)]
        return word_marks.continuation_mask(self._inner, pieces) & ~self.special_mask

    def split_piece(self, piece: str) -> list[int]:
        """The tokens here that spell a token of another vocabulary of this kind; empty if they cannot."""
        if piece in self.piece_ids:
            return [self.piece_ids[piece]]
        if self.kind in ("bpe", "unigram"):
            with wrap_library_errors("piece", TextError):
                tokens = self._inner.model.tokenize(piece)
            ids = [token.id for token in tokens]
            complete = "".join(token.value for token in tokens) == piece and self._roles["unknown"] not in ids
            return ids if complete else []
        mark = word_marks.CONTINUATION if isinstance(self._inner.model, models.WordPiece) else ""
        return word_marks.greedy_split(piece, self.piece_ids, mark)

    @property
    def kind(self) -> Kind | None:
        """The algorithm, of those that can be trained here (T5's is Unigram); None: another one."""
        match self._inner.model:
            case models.WordLevel():
                return "words"
            case models.WordPiece(continuing_subword_prefix="##"):
                return "wordpiece"
            case models.BPE() if isinstance(self._inner.decoder, decoders.ByteLevel):
                return "bpe"
            case models.Unigram():
                return "unigram"
        return None

    @property
    def lowercase(self) -> bool | None:
        """Whether text is lowercased, of a tokenizer like BERT's; None of others."""
        model, normalizer = self._inner.model, self._inner.normalizer
        if isinstance(model, models.WordPiece) and isinstance(normalizer, normalizers.BertNormalizer):
            return bool(normalizer.lowercase)
        return None

    @property
    def strips_accents(self) -> bool | None:
        """Whether accents are stripped, of a tokenizer like BERT's; None of others."""
        strip = None if self.lowercase is None else self._inner.normalizer.strip_accents
        return self.lowercase if strip is None else bool(strip)

    @cached_property
    def fingerprint(self) -> str:
        """A hash that two tokenizers share only if they are the same."""
        return hashlib.sha256(json.dumps(self.to_json(), ensure_ascii=False, sort_keys=True).encode()).hexdigest()

    @property
    def padding_id(self) -> int:
        return self._role("padding")

    @property
    def unknown_id(self) -> int:
        return self._role("unknown")

    @property
    def start_id(self) -> int:
        return self._role("start")

    @property
    def stop_id(self) -> int:
        return self._role("stop")

    @property
    def mask_id(self) -> int:
        return self._role("mask")

    @property
    def roles(self) -> dict[str, int]:
        """The ids of the special tokens that the vocabulary has, by role."""
        return {role: number for role, number in self._roles.items() if number is not None}

    @cached_property
    def sentinels(self) -> tuple[int, ...]:
        """The ids of the sentinels, that of the first span first; empty except in T5 and its like."""
        names = map("<extra_id_{}>".format, count())
        return tuple(self.piece_ids[name] for name in takewhile(self.piece_ids.__contains__, names))

    @property
    def role_names(self) -> dict[str, str]:
        """The special tokens that the vocabulary has, by role."""
        return {role: self.piece(number) for role, number in self.roles.items()}

    def special_ids(self, roles: Mapping[str, str]) -> dict[str, int]:
        """The ids of special tokens, by the name that is given to each role."""
        return {name: self._role(role) for name, role in roles.items()}

    @cached_property
    def special_mask(self) -> NDArray[np.bool_]:
        """Which tokens are special, and no text: padding, start, stop, mask and so on."""
        special = {number for number, token in self._inner.get_added_tokens_decoder().items() if token.special}
        special.update(self.roles.values(), self.sentinels)
        return np.isin(np.arange(self.vocabulary), sorted(special))

    @cached_property
    def template(self) -> Template:
        """The special tokens around texts: [CLS] and [SEP] in BERT, a last one in T5, none in GPT-2."""
        with wrap_library_errors("text", TextError):
            found = Template.of(self._inner)
        return found if self._second_segment is None else found._replace(segment=self._second_segment)

    @property
    def marks_pairs(self) -> bool:
        """Whether the second text of a pair has a segment of its own: in BERT it has, in RoBERTa it has not."""
        return self.template.segment > 0

    @property
    def separator_count(self) -> int:
        """The number of special tokens between two texts: one in BERT, two in RoBERTa."""
        return len(self.template.between)

    @property
    def ends_with_special(self) -> bool:
        """Whether a special token ends a text."""
        return len(self.template.after) > 0

    def for_tasks(self) -> "Tokenizer":
        """The same with special tokens around texts, for fine-tuning: GPT's have none by default.

        GPT-2's only one stands before texts, as in its pretraining: at the end it would be taken for padding.
        """
        if self.ends_with_special or not {"start", "stop"} <= self.roles.keys():
            return self
        start, stop = self.piece(self.start_id), self.piece(self.stop_id)
        if start == stop:
            done = Template((self.start_id,), (self.start_id,)) == self.template
            return self if done else self._with_template(f"{start}:0 $A:0", f"{start}:0 $A:0 {start}:0 $B:1")
        return self._with_template(*special_tokens.task_templates(start, stop, self._inner))

    def with_second_segment(self, segment: int) -> "Tokenizer":
        """The same that gives this segment to the second text of a pair, whatever its template says."""
        return Tokenizer(self._inner, self.role_names, self.location, segment)

    def for_prompts(self) -> "Tokenizer":
        """The same without special tokens after a text, for a model that continues it."""
        if not self.ends_with_special:
            return self
        if "start" not in self.roles:
            return self._with_template("$A:0", "$A:0 $B:1")
        start, stop = self.piece(self.start_id), self.piece(self.stop_id)
        return self._with_template(*special_tokens.prompt_templates(start, stop, self._inner))

    def _with_template(self, single: str, pair: str) -> "Tokenizer":
        inner = tokenizers.Tokenizer.from_str(self._inner.to_str())
        special_tokens.set_template(inner, single, pair, list(self.role_names.values()))
        return Tokenizer(inner, self.role_names, self.location, self._second_segment)

    def _role(self, role: str) -> int:
        number = self._roles[role]
        if number is None:
            remedy = "Use the tokenizer of a masked model" if role == "mask" else "Use a tokenizer that has one"
            raise FolderError(self.location, f"has no special token for {role}", remedy)
        return number

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of each text, without special tokens around it."""
        with wrap_library_errors("text", TextError):
            if max(map(len, texts), default=0) > long_texts.MAX_TEXT_CHARACTERS:
                return [long_texts.encode(self._inner, text) for text in texts]
            return [found.ids for found in self._inner.encode_batch_fast(list(texts), add_special_tokens=False)]

    def encode_pair(self, first: str, second: str | None = None) -> tuple[list[int], list[int]]:
        """One text or two with special tokens, and the segment of each token."""
        with wrap_library_errors("text", TextError):
            found = self._inner.encode(first, second)
        return found.ids, pair_segments(found, None if second is None else self._second_segment)

    def encode_words(self, sentences: Sequence[Sequence[str]]) -> list[tuple[list[int], list[int]]]:
        """The token ids of each sentence that is split into words, and the number of each token's word."""
        with wrap_library_errors("words", TextError):
            found = self._inner.encode_batch([*map(list, sentences)], is_pretokenized=True, add_special_tokens=False)
            return [(encoding.ids, [word for word in encoding.word_ids if word is not None]) for encoding in found]

    def encode_each_word(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """The token ids of each word of the texts, which the tokenizer's rules split into words."""
        with wrap_library_errors("text", TextError):
            for batch in long_texts.batches(texts):
                for found in self._inner.encode_batch(batch, add_special_tokens=False):
                    ids = iter(found.ids)
                    yield from (list(islice(ids, len(list(word)))) for _, word in groupby(found.word_ids))

    def encode_with_offsets(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """The token ids of each text, and the start and end of each token in characters."""
        with wrap_library_errors("text", TextError):
            return long_texts.encode_with_offsets(self._inner, texts)

    def to_json(self) -> dict[str, Any]:
        """The contents of tokenizer.json."""
        return dict(json.loads(self._inner.to_str()))

    def normalise(self, text: str) -> str:
        """The text as it is before it is split, lowercased for instance."""
        with wrap_library_errors("text", TextError):
            return text if self._inner.normalizer is None else str(self._inner.normalizer.normalize_str(text))

    def decode(self, ids: Sequence[int], *, keep_special: bool = False) -> str:
        """The text of token ids, as exactly as the tokens allow."""
        with wrap_library_errors("ids", TextError):
            text = str(self._inner.decode(list(ids), skip_special_tokens=not keep_special))
        return language.close_up(text) if self.kind in ("wordpiece", "words") else text


def train(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """A tokenizer trained on texts, which may be far more than fits in memory."""
    return Tokenizer(train_library_tokenizer(texts, config))
