"""The tokenizer: text into token ids and back, with the special tokens that a model's inputs begin and end with."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count, groupby, islice, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import decoders, models, normalizers

from bertsmith.errors import FolderError, TextError
from bertsmith.text import folder as folders
from bertsmith.text.folder import BOS_EOS_KEYS, ROLES
from bertsmith.text.library_errors import wrap_library_errors
from bertsmith.text.train import END, Kind, TokenizerConfig, set_template, train_library_tokenizer

__all__ = ["END", "Tokenizer", "TokenizerConfig", "train"]

# How a piece shows that it begins a word, or that it does not.
BEGINS = {models.BPE: "Ġ", models.Unigram: "▁"}
CONTINUES = {models.WordPiece: "##"}

MAX_PIECES = 10_000_000  # pieces; a file of a few bytes may claim any number
LONGEST = 16_384  # characters the library gets in one text: it takes 280 bytes for each of them
TOGETHER = 16  # parts of a longer text that it gets at once
LIKELIER = 0.001  # than its parts is a new piece, as a logarithm, for each piece that it saves


class Template(NamedTuple):
    """The special pieces before a text, between two texts, and after the last."""

    before: tuple[int, ...] = ()
    between: tuple[int, ...] = ()
    after: tuple[int, ...] = ()


class Tokenizer:
    """A vocabulary and the rules that cut text by it; a thin hull round the `tokenizers` library."""

    def __init__(
        self, inner: tokenizers.Tokenizer, names: dict[str, str] | None = None, location: object = "tokenizer"
    ) -> None:
        inner.no_padding()
        inner.no_truncation()
        self._inner, self.location = inner, location
        self._pieces = {number: piece for piece, number in inner.get_vocab().items()}
        if not self._pieces or max(self._pieces) >= MAX_PIECES:
            raise FolderError(location, f"its pieces are not numbered from 0 to at most {MAX_PIECES:,}")
        self._roles = {role: self._find(role, (names or {}).get(role)) for role in ROLES}

    @classmethod
    def load(cls, folder: str | Path) -> "Tokenizer":
        """Open a folder with tokenizer.json, or with pieces as they were first published. No code in it is ever run."""
        file = folders.find_file(Path(folder))
        settings = folders.read_settings(file.parent)
        with wrap_library_errors(file, FolderError):
            return cls(folders.read(file, settings), folders.special_names(settings), file)

    def save(self, folder: str | Path, *, max_length: int | None = None, segments: bool = True) -> None:
        """Write tokenizer.json and tokenizer_config.json, as transformers' AutoTokenizer opens them.

        `length` is the most pieces that the model beside it takes; `segments` whether it is told the second text.
        """
        keys = {role: key for role, (key, *_) in ROLES.items()} | (BOS_EOS_KEYS if self.sentinels else {})
        settings: dict[str, Any] = {keys[role]: self.piece(number) for role, number in self.roles.items()}
        if self.sentinels:
            settings["extra_ids"] = len(self.sentinels)
            settings["additional_special_tokens"] = [self.piece(number) for number in self.sentinels]
        if isinstance(self._inner.model, models.BPE | models.WordLevel):
            known = BOS_EOS_KEYS.items()
            settings |= {key: self.piece(self.roles[role]) for role, key in known if role in self.roles}
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
        told_apart = ["token_type_ids"] if segments and not self.sentinels else []  # T5 never tells two texts apart
        settings["model_input_names"] = ["input_ids", *told_apart, "attention_mask"]
        normalizer = self._inner.normalizer
        if self.lowercase is not None:
            settings |= {
                "tokenizer_class": "BertTokenizer",
                "do_lower_case": self.lowercase,
                "strip_accents": normalizer.strip_accents,
                "tokenize_chinese_chars": normalizer.handle_chinese_chars,
            }
        if max_length is not None:
            settings["model_max_length"] = max_length
        folders.write(Path(folder), self._inner.to_str(pretty=True), settings)

    @property
    def vocabulary(self) -> int:
        """How many pieces there are."""
        return max(self._pieces) + 1

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

    @cached_property
    def template(self) -> Template:
        """What the tokenizer itself sets round texts: [CLS] and [SEP] in BERT, a last piece in T5, nothing in GPT-2.

        transformers' tokenizers do the same with the same file, so that a model reads the same here and there.
        """
        with wrap_library_errors("text", TextError):
            whole, sides = (lambda found: (found.ids, found.sequence_ids))(self._inner.encode("a", "a"))
            if not {0, 1} <= set(sides):  # a vocabulary that has no piece for "a", and none for what it does not know
                return Template()
            first, last = sides.index(0), len(sides) - 1 - sides[::-1].index(1)
            middle = [number for number, side in zip(whole[first:last], sides[first:last], strict=True) if side is None]
            alone, owners = (lambda found: (found.ids, found.sequence_ids))(self._inner.encode("a"))
        return Template(
            tuple(alone[: owners.index(0)]), tuple(middle), tuple(alone[len(owners) - owners[::-1].index(0) :])
        )

    @property
    def separator_count(self) -> int:
        """How many pieces part two texts: one in BERT, two in RoBERTa."""
        return len(self.template.between)

    @property
    def ends_with_special(self) -> bool:
        """Whether a special piece ends a text."""
        return len(self.template.after) > 0

    def for_tasks(self) -> "Tokenizer":
        """The same with special pieces round texts, for a model that learns a task: GPT's add nothing by themselves.

        GPT-2 has but one, which stands before a text and between two, as texts were parted when it was pretrained.
        None ends a text: it pads, too, and a classifier that reads the last piece but padding would look past it.
        """
        if self.ends_with_special or not {"start", "stop"} <= self.roles.keys():
            return self
        start, stop = self.piece(self.start_id), self.piece(self.stop_id)
        if start == stop:
            framed = Template((self.start_id,), (self.start_id,)) == self.template
            return self if framed else self._with_template(f"{start}:0 $A:0", f"{start}:0 $A:0 {start}:0 $B:1")
        parted = f"{stop}:0 {stop}:0" if stop == "</s>" else f"{stop}:0"  # RoBERTa's vocabulary parts two texts twice
        return self._with_template(f"{start}:0 $A:0 {stop}:0", f"{start}:0 $A:0 {parted} $B:1 {stop}:1")

    def for_prompts(self) -> "Tokenizer":
        """The same without special pieces after a text, for a model that goes on with it."""
        if not self.ends_with_special:
            return self
        if "start" not in self.roles:
            return self._with_template("$A:0", "$A:0 $B:1")
        start, stop = self.piece(self.start_id), self.piece(self.stop_id)
        return self._with_template(f"{start}:0 $A:0", f"{start}:0 $A:0 {stop}:0 $B:1")

    def _with_template(self, single: str, pair: str) -> "Tokenizer":
        inner = tokenizers.Tokenizer.from_str(self._inner.to_str())
        set_template(inner, single, pair, [self.piece(number) for number in self.roles.values()])
        return Tokenizer(inner, {role: self.piece(number) for role, number in self.roles.items()}, self.location)

    @property
    def roles(self) -> dict[str, int]:
        """The numbers of the special pieces that there are, by what they are for."""
        return {role: number for role, number in self._roles.items() if number is not None}

    @cached_property
    def sentinels(self) -> tuple[int, ...]:
        """The numbers of the pieces that stand for spans, the first span's first; none but in T5 and its like."""
        names = map("<extra_id_{}>".format, count())
        return tuple(self.piece_ids[name] for name in takewhile(self.piece_ids.__contains__, names))

    def special_ids(self, roles: Mapping[str, str]) -> dict[str, int]:
        """The numbers of special pieces, each under the name that its role is given."""
        return {name: self._role(role) for name, role in roles.items()}

    @cached_property
    def special_mask(self) -> NDArray[np.bool_]:
        """Of each piece, whether it is no text: padding, start, stop, mask and their like."""
        marked = {number for number, token in self._inner.get_added_tokens_decoder().items() if token.special}
        marked.update(self.roles.values(), self.sentinels)
        return np.isin(np.arange(self.vocabulary), sorted(marked))

    @cached_property
    def continuation_mask(self) -> NDArray[np.bool_]:
        """Of each piece, whether it goes on with the word before it."""
        kind = type(self._inner.model)
        if kind is models.BPE and self._inner.model.end_of_word_suffix:
            return np.zeros(self.vocabulary, np.bool_)  # as of GPT: pieces tell where words end, not where they begin
        pieces = [self.piece(number) for number in range(self.vocabulary)]
        if kind in BEGINS:
            return np.array([not piece.startswith(BEGINS[kind]) for piece in pieces]) & ~self.special_mask
        mark = CONTINUES.get(kind)
        return np.array([mark is not None and piece.startswith(mark) for piece in pieces]) & ~self.special_mask

    @cached_property
    def fingerprint(self) -> str:
        """A hash that two tokenizers share only if they are the same."""
        text = json.dumps(json.loads(self._inner.to_str()), ensure_ascii=False, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The pieces of each text, without special ones round it."""
        with wrap_library_errors("text", TextError):
            if max(map(len, texts), default=0) <= LONGEST:
                found = self._inner.encode_batch_fast(list(texts), add_special_tokens=False)
                return [encoding.ids for encoding in found]
            return [self._encode_long(text) for text in texts]

    def encode_pair(self, first: str, second: str | None = None) -> tuple[list[int], list[int]]:
        """One text or two, framed by special pieces; and for each piece whether it belongs to the second."""
        with wrap_library_errors("text", TextError):
            found = self._inner.encode(first, second)
        return found.ids, found.type_ids

    def encode_words(self, sentences: Sequence[Sequence[str]]) -> list[tuple[list[int], list[int]]]:
        """The pieces of each sentence whose words are known, and for each piece the number of its word."""
        with wrap_library_errors("words", TextError):
            found = self._inner.encode_batch(
                [list(words) for words in sentences], is_pretokenized=True, add_special_tokens=False
            )
            return [(encoding.ids, [word for word in encoding.word_ids if word is not None]) for encoding in found]

    def encode_each_word(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """The pieces of each word of the texts; what a word is, the tokenizer says."""
        parts = (part for text in texts for part in _parts(text))
        with wrap_library_errors("text", TextError):
            while some := list(islice(parts, TOGETHER)):
                for found in self._inner.encode_batch(some, add_special_tokens=False):
                    pieces = iter(found.ids)
                    yield from (list(islice(pieces, len(list(word)))) for _, word in groupby(found.word_ids))

    def encode_with_offsets(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """The pieces of each text, and for each piece the characters that it stands for."""
        with wrap_library_errors("text", TextError):
            found = self._inner.encode_batch(list(texts), add_special_tokens=False)
            return [(encoding.ids, encoding.offsets) for encoding in found]

    def normalise(self, text: str) -> str:
        """The text as it is before it is cut: without capitals, say, where the vocabulary has none."""
        with wrap_library_errors("text", TextError):
            return text if self._inner.normalizer is None else str(self._inner.normalizer.normalize_str(text))

    def decode(self, ids: Sequence[int], *, keep_special: bool = False) -> str:
        """Text again, as near as the pieces allow."""
        with wrap_library_errors("ids", TextError):
            return str(self._inner.decode(list(ids), skip_special_tokens=not keep_special))

    def piece(self, number: int) -> str:
        """How the piece is spelt; empty where the vocabulary has a hole."""
        return self._pieces.get(number, "")

    def readable(self, number: int) -> str:
        """The piece as a person reads it: byte-level BPE spells a blank as Ġ and letters as bytes; ## is kept."""
        piece = self.piece(number)
        return piece if piece.startswith("##") else self.decode([number], keep_special=True).strip() or piece

    @cached_property
    def piece_ids(self) -> dict[str, int]:
        """The number of every piece."""
        return {piece: number for number, piece in self._pieces.items()}

    def split_piece(self, piece: str) -> list[int]:
        """The pieces here that make up one of another vocabulary of this kind, as text is cut; none if they cannot."""
        if piece in self.piece_ids:
            return [self.piece_ids[piece]]
        if self.kind in ("bpe", "unigram"):
            with wrap_library_errors("piece", TextError):
                tokens = self._inner.model.tokenize(piece)
            numbers = [token.id for token in tokens]
            whole = "".join(token.value for token in tokens) == piece and self._roles["unknown"] not in numbers
            return numbers if whole else []
        mark, found = CONTINUES.get(type(self._inner.model), ""), []
        while piece not in ("", mark):
            size = next((size for size in range(len(piece), 0, -1) if piece[:size] in self.piece_ids), 0)
            if size == 0 or piece[:size] == mark:
                return []
            found.append(self.piece_ids[piece[:size]])
            piece = mark + piece[size:]
        return found

    @property
    def lowercase(self) -> bool | None:
        """Whether capitals are made small, where pieces are cut as BERT cuts them; None where they are not."""
        model, normalizer = self._inner.model, self._inner.normalizer
        if isinstance(model, models.WordPiece) and isinstance(normalizer, normalizers.BertNormalizer):
            return bool(normalizer.lowercase)
        return None

    @property
    def strips_accents(self) -> bool | None:
        """Whether accents are taken off, where pieces are cut as BERT cuts them; None where they are not."""
        if self.lowercase is None:
            return None
        said = self._inner.normalizer.strip_accents
        return self.lowercase if said is None else bool(said)

    @property
    def kind(self) -> Kind | None:
        """How text is cut, of the ways that can be learnt, wherever it was learnt; T5's is Unigram. None: another."""
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

    def with_pieces(self, pieces: Sequence[str], merges: Sequence[tuple[str, str]] = ()) -> "Tokenizer":
        """The same with more pieces behind those there are; for BPE also with the merges that make them.

        The library counts on from where the model's own pieces end, so that special ones behind those would move: all
        that have a number are put among them. In Unigram a new piece is a little likelier than its parts one after the
        other, the more so the more they are: text is cut as before, and then joined as far as new pieces reach.
        """
        written = json.loads(self._inner.to_str())
        model = written["model"]
        if isinstance(model["vocab"], list):
            scores = [score for _, score in model["vocab"]]
            model["vocab"] += [[self.piece(number), min(scores)] for number in range(len(scores), self.vocabulary)]
            for piece in pieces:
                parts = self.split_piece(piece)
                model["vocab"].append([piece, sum(scores[part] for part in parts) + LIKELIER * (len(parts) - 1)])
        else:
            new = {piece: number for number, piece in enumerate(pieces, self.vocabulary)}
            model["vocab"] |= self.piece_ids | new
        if merges:
            model["merges"] += merges
        names = {role: self.piece(number) for role, number in self.roles.items()}
        return Tokenizer(tokenizers.Tokenizer.from_str(json.dumps(written)), names, self.location)

    def _encode_long(self, text: str) -> list[int]:
        """In parts cut before a space, where cutting changes nothing, so that time and memory stay small."""
        ids: list[int] = []
        parts = _parts(text)
        while some := list(islice(parts, TOGETHER)):
            for found in self._inner.encode_batch_fast(some, add_special_tokens=False):
                ids += found.ids
        return ids

    def _find(self, role: str, name: str | None) -> int | None:
        candidates = [name or "", *ROLES[role][1:]]
        numbers = (self._inner.token_to_id(candidate) for candidate in candidates)
        return next((number for number in numbers if number is not None), None)

    def _role(self, role: str) -> int:
        number = self._roles[role]
        if number is None:
            remedy = "Use the tokenizer of a masked model" if role == "mask" else "Use a tokenizer that has one"
            raise FolderError(self.location, f"has no piece for {role}", remedy)
        return number


def train(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """A tokenizer learnt from texts, which may be far more than fits in memory."""
    return Tokenizer(train_library_tokenizer(texts, config))


def _parts(text: str) -> Iterator[str]:
    start = 0
    while len(text) - start > LONGEST:
        stop = start + LONGEST
        space = text.rfind(" ", start + 1, stop)
        while space > start and (text[space - 1].isspace() or text[space + 1].isspace()):
            space = text.rfind(" ", start + 1, space)
        stop = space if space > start else stop
        yield text[start:stop]
        start = stop
    yield text[start:]
