"""Training a tokenizer: WordPiece, byte-level BPE, Unigram, T5's Unigram or whole words; one pass, bounded memory.

The counting and merging is the `tokenizers` library's. What is ours: the same text always gives the same
vocabulary, the corpus may be of any size, and characters too rare to be learnt take no room.
"""

import json
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors, trainers
from tokenizers import pre_tokenizers as splitters

from bertsmith.errors import RecipeError, TextError, suggest
from bertsmith.text.library_errors import wrap_library_errors

Kind = Literal["words", "wordpiece", "bpe", "unigram", "t5"]

END = "<|endoftext|>"  # the one special piece of GPT-2, which parts its texts

# A special piece's id is its place in the row. The names are BERT's, RoBERTa's, ALBERT's and T5's; of whole words
# those of GPT-2 and of the corpora in which rare words are <unk> already.
SPECIALS: dict[Kind, tuple[str, ...]] = {
    "words": ("<unk>", END),
    "wordpiece": ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    "bpe": ("<s>", "<pad>", "</s>", "<unk>", "<mask>"),
    "unigram": ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"),
    "t5": ("<pad>", "</s>", "<unk>"),
}
# Each stands for a span that was taken out; the first one ends the vocabulary. Raffel et al. 2020, section 3.1.4.
SENTINELS = tuple(f"<extra_id_{number}>" for number in reversed(range(100)))
TRAILING_SPECIALS: dict[Kind, tuple[str, ...]] = {kind: SENTINELS if kind == "t5" else () for kind in SPECIALS}
MIN_VOCABULARY: dict[Kind, int] = {
    "words": 3,
    "wordpiece": 100,
    "bpe": 5 + 256,
    "unigram": 100,
    "t5": 100 + len(SENTINELS),
}

# How special pieces are set round one text, and round two. RoBERTa's parts two texts twice.
TEMPLATES: dict[Kind, tuple[str, str]] = {
    "words": (f"{END}:0 $A:0", f"{END}:0 $A:0 {END}:0 $B:1"),
    "wordpiece": ("[CLS]:0 $A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1"),
    "bpe": ("<s>:0 $A:0 </s>:0", "<s>:0 $A:0 </s>:0 </s>:0 $B:1 </s>:1"),
    "unigram": ("[CLS]:0 $A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1"),
    "t5": ("$A:0 </s>:0", "$A:0 </s>:0 $B:1 </s>:1"),
}

CHARACTER_COVERAGE = 0.9999  # the alphabet is made of the commonest characters, until they are so much of the text
RARE = 8_192  # room for the characters that will not be in the alphabet, while the library learns
LONGEST_WORD = 128  # characters: what is longer is no word, and would swell the table of words
BATCH = 1 << 20  # characters handed to the library at a time
WHOLE = 1 << 26  # characters read in full; then, for as many again, every second text, every fourth, ...


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """What kind of pieces, and how many."""

    kind: Kind = "wordpiece"
    vocabulary: int = 30_522  # at most so many pieces, special ones included; a small text has fewer
    lowercase: bool | None = None  # if not said, yes but in T5; byte-level BPE keeps capitals and accents always
    strip_accents: bool | None = None  # ä becomes a; if not said, where capitals are made small, as in BERT uncased
    min_frequency: int = 2  # a word or a merged piece was seen at least so often (words, WordPiece and BPE)

    def __post_init__(self) -> None:
        if self.kind not in SPECIALS:
            raise RecipeError("tokenizer.kind", f"unknown kind '{self.kind}'", suggest(self.kind, SPECIALS))
        if self.vocabulary < MIN_VOCABULARY[self.kind]:
            fact = f"{self.vocabulary} pieces are too few for {self.kind}"
            raise RecipeError("tokenizer.vocabulary", fact, f"Ask for at least {MIN_VOCABULARY[self.kind]}")
        if self.min_frequency < 1:
            raise RecipeError("tokenizer.min_frequency", f"{self.min_frequency} is no count", "Ask for 1 or more")

    @property
    def lowercases(self) -> bool:
        """Whether capitals are made small, also where nobody has said it."""
        return self.kind != "t5" if self.lowercase is None else self.lowercase

    @property
    def strips_accents(self) -> bool:
        """Whether accents are taken off, also where nobody has said it."""
        return self.lowercases if self.strip_accents is None else self.strip_accents

    @property
    def keeps_accents(self) -> bool | None:
        """Whether accents are kept; None where that follows the capitals, which is how BERT's settings have it."""
        return None if self.strips_accents == self.lowercases else not self.strips_accents


def train_library_tokenizer(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """A vocabulary learnt from texts, as the library's own object, with its frame for one text and two."""
    with wrap_library_errors("tokenizer", TextError, "Give it more text, or another number of pieces"):
        match config.kind:
            case "words":
                return _train_word_level(texts, config)
            case "wordpiece":
                return _train_wordpiece(texts, config)
            case "bpe":
                return _train_bpe(texts, config)
            case "unigram" | "t5":
                return _train_unigram(texts, config)


def bert_tokenizer(
    vocabulary: dict[str, int], *, lowercase: bool, accents: bool | None = None, han: bool = True
) -> Tokenizer:
    """BERT's own: clean, lowercase, part at white space and punctuation, take the longest pieces that fit."""
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(
        lowercase=lowercase, strip_accents=None if accents is None else not accents, handle_chinese_chars=han
    )
    tokenizer.pre_tokenizer = splitters.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    return with_special_tokens(tokenizer, "wordpiece") if vocabulary else tokenizer


def with_special_tokens(tokenizer: Tokenizer, kind: Kind) -> Tokenizer:
    """The tokenizer with its special pieces marked, and set round one text or two."""
    tokenizer.add_special_tokens(_special_tokens(kind))
    set_template(tokenizer, *TEMPLATES[kind], SPECIALS[kind])
    return tokenizer


def set_template(tokenizer: Tokenizer, single: str, pair: str, names: Sequence[str]) -> None:
    """Set special pieces round one text and round two, by templates in the library's words."""
    used = {word.rpartition(":")[0] for word in pair.split()}
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single,
        pair=pair,
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in dict.fromkeys(names) if name in used],
    )


class TrainingTexts:
    """Texts on their way to the library: clean, in batches, no word too long, thinned when there are very many."""

    def __init__(self, texts: Iterable[str], clean: Callable[[str], str]) -> None:
        self.characters = 0  # characters
        self._texts, self._clean = texts, clean
        self._character_counts = np.zeros(sys.maxunicode + 1, np.int64)  # how often each character was there
        self._unassigned = _categories() == "Cn"

    def batches(self) -> Iterator[list[str]]:
        batch: list[str] = []
        size = 0
        for text in self._chosen():
            batch.append(self._clean(text))
            size += len(text)
            if size >= BATCH:
                yield self._counted(batch)
                batch, size = [], 0
        if batch:
            yield self._counted(batch)
        if not self.characters:
            raise TextError("tokenizer", "there is no text to learn a vocabulary from")

    def alphabet(self, max_size: int) -> list[str]:
        """The commonest characters, in their order in Unicode; no white space, no controls."""
        seen = np.where(np.isin(_categories(), ["Cn", "Cc", "Zs", "Zl", "Zp"]), 0, self._character_counts)
        common = np.argsort(-seen, kind="stable")
        before = np.cumsum(seen[common]) - seen[common]
        enough = int(np.searchsorted(before, CHARACTER_COVERAGE * seen.sum()))
        return [chr(code) for code in sorted(common[: min(enough, max_size)])]

    def _chosen(self) -> Iterator[str]:
        """So thinned, ten times the text takes little more time and memory: its words are few."""
        for place, text in enumerate(self._texts):
            if place % (1 << self.characters // WHOLE) == 0 and not text.isspace():
                self.characters += len(text)
                yield from (text[start : start + BATCH] for start in range(0, len(text), BATCH))

    def _counted(self, batch: list[str]) -> list[str]:
        joined = "\n".join(batch)
        codes = np.frombuffer(joined.encode("utf-32-le"), np.uint32)
        if self._unassigned[codes].any():
            blanks = dict.fromkeys(codes[self._unassigned[codes]].tolist(), " ")
            batch = [text.translate(blanks) for text in batch]
        if max(map(len, joined.split()), default=0) > LONGEST_WORD:
            batch = [re.sub(rf"(\S{{{LONGEST_WORD}}})(?=\S)", r"\1 ", text) for text in batch]
        self._character_counts += np.bincount(codes, minlength=len(self._character_counts))
        return batch


def _cleaner(normalizer: normalizers.Normalizer, lowercase: bool) -> Callable[[str], str]:
    """The normalizer for training: for plain English Python does the same, and sooner."""

    def clean(text: str) -> str:
        if text.isascii() and text.isprintable():
            return text.lower() if lowercase else text
        return str(normalizer.normalize_str(text))

    return clean


def _train_word_level(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """The commonest words, each whole, and one piece for all the others. Mikolov et al. 2010, section 2.

    Text is parted into words and marks as BERT parts it. Of two words that are equally common the first in Unicode's
    order is taken: so the library has it.
    """
    tokenizer = bert_tokenizer({}, lowercase=config.lowercases, accents=config.keeps_accents)
    normalizer, splitter, decoder = tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer, tokenizer.decoder = splitter, decoder
    trainer = trainers.WordLevelTrainer(
        vocab_size=config.vocabulary,
        min_frequency=config.min_frequency,
        special_tokens=_special_tokens("words"),
        show_progress=False,
    )
    feed = TrainingTexts(texts, _cleaner(normalizer, config.lowercases))
    tokenizer.train_from_iterator(feed.batches(), trainer)
    tokenizer.normalizer = normalizer
    return with_special_tokens(tokenizer, "words")


def _train_wordpiece(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """Merge the commonest neighbours until the vocabulary is full. Schuster and Nakajima 2012.

    The library numbers inner characters as chance brings them, and numbers break ties. So every character
    that can stand inside a word is numbered beforehand, and those not needed are dropped afterwards.
    """
    names = SPECIALS["wordpiece"]
    inner = [f"##{chr(code)}" for code in np.flatnonzero(_may_join())]
    tokenizer = bert_tokenizer({}, lowercase=config.lowercases, accents=config.keeps_accents)
    feed = TrainingTexts(texts, _cleaner(tokenizer.normalizer, config.lowercases))
    tokenizer.normalizer = None
    trainer = trainers.WordPieceTrainer(
        vocab_size=config.vocabulary + len(inner) + RARE,
        min_frequency=config.min_frequency,
        special_tokens=[*names, *inner],
        show_progress=False,
    )
    tokenizer.train_from_iterator(feed.batches(), trainer)
    found = tokenizer.get_vocab()
    learnt = sorted(found, key=found.__getitem__)[len(names) + len(inner) :]
    alphabet = feed.alphabet(config.vocabulary // 4)
    letters = set(alphabet)
    merged = [piece for piece in learnt if len(piece) > 1 and letters.issuperset(piece.removeprefix("##"))]
    cut = tokenizer.pre_tokenizer.pre_tokenize_str
    inside = [f"##{letter}" for letter in alphabet if len(cut(f"a{letter}")) == 1]  # no punctuation
    pieces = [*names, *alphabet, *inside, *merged][: config.vocabulary]
    numbered = {piece: number for number, piece in enumerate(pieces)}
    return bert_tokenizer(numbered, lowercase=config.lowercases, accents=config.keeps_accents)


def _may_join() -> np.ndarray:
    """False for characters that never stand inside a word: white space, controls, most Chinese ones."""
    allowed: np.ndarray = np.isin(_categories().astype("U1"), list("LMNSP")) | (_categories() == "Cf")
    for first, last in (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0x20000, 0x2A6DF):
        allowed[first : last + 1] = False
    return allowed


@cache
def _categories() -> np.ndarray:
    """Of every character there is, what kind it is: "Ll" for a small letter, "Cn" for none yet."""
    return np.array([unicodedata.category(chr(code)) for code in range(sys.maxunicode + 1)])


def _train_bpe(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """The same merging over bytes, so that nothing is unknown. Radford et al. 2019, section 2.2."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = splitters.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocabulary,
        min_frequency=config.min_frequency,
        special_tokens=_special_tokens("bpe"),
        initial_alphabet=splitters.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TrainingTexts(texts, str).batches(), trainer)
    return with_special_tokens(tokenizer, "bpe")


def _train_unigram(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """Begin with far too many pieces and drop those whose loss hurts least. Kudo 2018, section 3.2."""
    names, behind = SPECIALS[config.kind], TRAILING_SPECIALS[config.kind]
    tokenizer = Tokenizer(models.Unigram())
    plain = [normalizers.NFKD(), normalizers.StripAccents()] if config.strips_accents else [normalizers.NFKC()]
    normalizer = normalizers.Sequence([*plain, *([normalizers.Lowercase()] if config.lowercases else [])])
    feed = TrainingTexts(texts, _cleaner(normalizer, config.lowercases))
    tokenizer.pre_tokenizer = splitters.Sequence([splitters.WhitespaceSplit(), splitters.Metaspace()])
    tokenizer.decoder = decoders.Metaspace()
    # Every character seen is a piece at first; the rare ones are dropped below.
    room = config.vocabulary + max(config.vocabulary // 4, 1_024)
    trainer = trainers.UnigramTrainer(vocab_size=room, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(feed.batches(), trainer)
    letters = {"▁", *feed.alphabet((config.vocabulary - len(behind)) // 2)}
    learnt = _without_ties(dict(json.loads(tokenizer.to_str())["model"]["vocab"]))
    taken = {END, *behind}.union(*SPECIALS.values())  # a text may hold these names; learnt, they would pass for roles
    spelt = [piece for piece in learnt if letters.issuperset(piece) and piece not in taken]
    # Letters first, for without them nothing can be spelt.
    best = sorted(spelt, key=lambda piece: (len(piece) > 1, -learnt[piece], piece))
    kept = best[: config.vocabulary - len(names) - len(behind)]
    scores = dict.fromkeys(names, 0.0) | {piece: learnt[piece] for piece in kept} | dict.fromkeys(behind, 0.0)
    model = models.Unigram(list(scores.items()), unk_id=names.index("<unk>"))
    tokenizer.model, tokenizer.normalizer = model, normalizer
    return with_special_tokens(tokenizer, config.kind)


def _without_ties(vocabulary: dict[str, float]) -> dict[str, float]:
    """The same scores without what is chance in them.

    Characters that training dropped come back with the lowest score plus 0.0001, 0.0002, ... dealt out as
    the library's tables happen to lie; we deal them out by Unicode. And sums differ in their last digits.
    """
    scores = {piece: round(score, 6) for piece, score in vocabulary.items()}
    single = sorted(piece for piece in scores if len(piece) == 1)
    reach = min(scores.values()) + 0.0001 * len(single)
    dealt = [piece for piece in single if scores[piece] <= reach]
    return scores | dict(zip(dealt, sorted(scores[piece] for piece in dealt), strict=True))


def _special_tokens(kind: Kind) -> list[AddedToken]:
    # Before RoBERTa's mask the space is part of it, since there a word begins with its space.
    return [
        AddedToken(name, lstrip=name == "<mask>", special=True) for name in SPECIALS[kind] + TRAILING_SPECIALS[kind]
    ]
