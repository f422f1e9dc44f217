"""Training a tokenizer: WordPiece, byte-level BPE, Unigram, T5's Unigram or whole words; one pass, bounded memory.

The `tokenizers` library counts and merges. Ours is that the same text always gives the same vocabulary, that the
corpus may be of any size, and that rare characters take no room in the vocabulary.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
from tokenizers import Tokenizer, decoders, models, normalizers, trainers
from tokenizers import pre_tokenizers as splitters

from bertsmith.errors import RecipeError, TextError, suggest
from bertsmith.text.library_errors import wrap_library_errors
from bertsmith.text.special_tokens import (
    END_OF_TEXT,
    SENTINELS,
    SPECIAL_TOKENS,
    TRAILING_SPECIALS,
    Kind,
    special_tokens,
    with_special_tokens,
)
from bertsmith.text.training_texts import TrainingTexts, is_useful, may_join

MIN_VOCABULARY: dict[Kind, int] = {
    "words": 3,
    "wordpiece": 100,
    "bpe": 5 + 256,
    "unigram": 100,
    "t5": 100 + len(SENTINELS),
}


BERT_MAX_WORD = 100  # characters between spaces; a longer word is unknown, as in BERT
MAX_PHRASE = 500  # the same in scripts such as Thai, where spaces stand between phrases
MIN_UNSPACED_SHARE = 0.1  # of the characters, from which a text is in such a script
MAX_VOCABULARY = 10_000_000
EXTRA_VOCABULARY = 8_192  # extra vocabulary while the library trains, for tokens that are dropped afterwards


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """The algorithm, size and normalisation of a tokenizer."""

    kind: Kind = "wordpiece"
    vocabulary: int = 30_522  # maximum size, with special tokens; a small text gives fewer tokens
    lowercase: bool | None = None  # by default true except for T5; byte-level BPE always keeps case and accents
    strip_accents: bool | None = None  # ä becomes a; by default where text is lowercased, as in BERT uncased
    min_frequency: int = 2  # occurrences of a word or a merge to be learnt (words, WordPiece and BPE)

    def __post_init__(self) -> None:
        if self.kind not in SPECIAL_TOKENS:
            raise RecipeError("tokenizer.kind", f"unknown kind '{self.kind}'", suggest(self.kind, SPECIAL_TOKENS))
        if self.vocabulary < MIN_VOCABULARY[self.kind]:
            fact = f"{self.vocabulary} tokens are too few for {self.kind}"
            raise RecipeError("tokenizer.vocabulary", fact, f"Ask for at least {MIN_VOCABULARY[self.kind]}")
        if self.vocabulary > MAX_VOCABULARY:
            fact = f"{self.vocabulary:,} tokens are too many"
            raise RecipeError("tokenizer.vocabulary", fact, f"Ask for at most {MAX_VOCABULARY:,}")
        if self.min_frequency < 1:
            raise RecipeError("tokenizer.min_frequency", f"{self.min_frequency} is no count", "Ask for 1 or more")

    @property
    def lowercases(self) -> bool:
        """Whether text is lowercased, by the setting or by default."""
        return self.kind != "t5" if self.lowercase is None else self.lowercase

    @property
    def strips_accents(self) -> bool:
        """Whether accents are stripped, by the setting or by default."""
        return self.lowercases if self.strip_accents is None else self.strip_accents

    @property
    def keeps_accents(self) -> bool | None:
        """Whether accents are kept; None where they follow lowercasing, as in BERT's settings."""
        return None if self.strips_accents == self.lowercases else not self.strips_accents


def train_library_tokenizer(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """A tokenizer of the library, trained on texts, with the templates of one text and two."""
    with wrap_library_errors("tokenizer", TextError, "Give it more text, or another vocabulary size"):
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
    vocabulary: dict[str, int],
    *,
    lowercase: bool,
    accents: bool | None = None,
    han: bool = True,
    max_word: int = BERT_MAX_WORD,
) -> Tokenizer:
    """BERT's tokenizer: clean, lowercase, split at white space and punctuation, then WordPiece.

    A word of more than `max_word` characters is unknown.
    """
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=max_word))
    tokenizer.normalizer = normalizers.BertNormalizer(
        lowercase=lowercase, strip_accents=None if accents is None else not accents, handle_chinese_chars=han
    )
    tokenizer.pre_tokenizer = splitters.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    return with_special_tokens(tokenizer, "wordpiece") if vocabulary else tokenizer


def _cleaner(normalizer: normalizers.Normalizer, lowercase: bool) -> Callable[[str], str]:
    """The normalizer for training, with a fast path for printable ASCII, where Python does the same."""

    def clean(text: str) -> str:
        if text.isascii() and text.isprintable():
            return text.lower() if lowercase else text
        return str(normalizer.normalize_str(text))

    return clean


def _train_word_level(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """Whole words: the most frequent ones, and <unk> for all others. Mikolov et al. 2010, section 2.

    Text is split into words and punctuation as in BERT. Of equally frequent words the library takes the first in
    Unicode's order.
    """
    tokenizer = bert_tokenizer({}, lowercase=config.lowercases, accents=config.keeps_accents)
    normalizer, splitter, decoder = tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer, tokenizer.decoder = splitter, decoder
    trainer = trainers.WordLevelTrainer(
        vocab_size=config.vocabulary,
        min_frequency=config.min_frequency,
        special_tokens=special_tokens("words"),
        show_progress=False,
    )
    feed = TrainingTexts(texts, _cleaner(normalizer, config.lowercases))
    tokenizer.train_from_iterator(feed.batches(), trainer)
    tokenizer.normalizer = normalizer
    return with_special_tokens(tokenizer, "words")


def _train_wordpiece(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """WordPiece: merge the most frequent pairs until the vocabulary is full. Schuster and Nakajima 2012.

    The library gives ids to the characters inside of words in a random order, and ids break ties. So every character
    that can stand inside of a word gets its id beforehand, and those not needed are dropped afterwards. Of a text that
    is one batch the characters are known, and the 74,000 others, which take half a second, are left out at once.
    """
    names = SPECIAL_TOKENS["wordpiece"]
    tokenizer = bert_tokenizer({}, lowercase=config.lowercases, accents=config.keeps_accents)
    feed = TrainingTexts(texts, _cleaner(tokenizer.normalizer, config.lowercases))
    tokenizer.normalizer = None
    batches = feed.batches()
    beginning = list(islice(batches, 2))
    # Such a character takes two tokens: at the beginning of a word, and inside.
    joins = may_join() if len(beginning) > 1 else may_join() & feed.occurring()
    inner = [f"##{chr(code)}" for code in np.flatnonzero(joins)]
    trainer = trainers.WordPieceTrainer(
        vocab_size=config.vocabulary + len(inner) + EXTRA_VOCABULARY,
        min_frequency=config.min_frequency,
        special_tokens=[*names, *inner],
        show_progress=False,
    )
    tokenizer.train_from_iterator(chain(beginning, batches), trainer)
    ids = tokenizer.get_vocab()
    learnt = sorted(ids, key=ids.__getitem__)[len(names) + len(inner) :]
    alphabet = feed.alphabet(config.vocabulary // 2, 1 + joins)
    letters = set(alphabet)
    plain = {piece: piece.removeprefix("##") for piece in learnt if len(piece) > 1}
    merged = [piece for piece, text in plain.items() if letters.issuperset(text) and is_useful(text)]
    split = tokenizer.pre_tokenizer.pre_tokenize_str
    joining = [letter for letter in alphabet if joins[ord(letter)]]
    continuing = [f"##{letter}" for letter in joining if len(split(f"a{letter}")) == 1]  # no punctuation
    pieces = [*names, *alphabet, *continuing, *merged][: config.vocabulary]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    max_word = MAX_PHRASE if feed.unspaced_share() > MIN_UNSPACED_SHARE else BERT_MAX_WORD
    return bert_tokenizer(vocabulary, lowercase=config.lowercases, accents=config.keeps_accents, max_word=max_word)


def _train_bpe(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """Byte-level BPE: merges over bytes, so that no text is unknown. Radford et al. 2019, section 2.2."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = splitters.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocabulary,
        min_frequency=config.min_frequency,
        special_tokens=special_tokens("bpe"),
        initial_alphabet=splitters.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TrainingTexts(texts, str).batches(), trainer)
    return with_special_tokens(tokenizer, "bpe")


def _train_unigram(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """Unigram: start from too many tokens, and drop those that the likelihood needs least. Kudo 2018, section 3.2."""
    names, trailing = SPECIAL_TOKENS[config.kind], TRAILING_SPECIALS[config.kind]
    tokenizer = Tokenizer(models.Unigram())
    plain = [normalizers.NFKD(), normalizers.StripAccents()] if config.strips_accents else [normalizers.NFKC()]
    normalizer = normalizers.Sequence([*plain, *([normalizers.Lowercase()] if config.lowercases else [])])
    feed = TrainingTexts(texts, _cleaner(normalizer, config.lowercases))
    tokenizer.pre_tokenizer = splitters.Sequence([splitters.WhitespaceSplit(), splitters.Metaspace()])
    tokenizer.decoder = decoders.Metaspace()
    # Every character of the text is a token at first; the rare ones are dropped below.
    room = config.vocabulary + max(config.vocabulary // 4, 1_024)
    trainer = trainers.UnigramTrainer(vocab_size=room, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(feed.batches(), trainer)
    letters = {"▁", *feed.alphabet((config.vocabulary - len(trailing)) // 2)}
    learnt = _without_ties(dict(json.loads(tokenizer.to_str())["model"]["vocab"]))
    # A text may contain names of special tokens: as learnt tokens they would be taken for them.
    reserved = {END_OF_TEXT, *trailing}.union(*SPECIAL_TOKENS.values())
    candidates = [piece for piece in learnt if letters.issuperset(piece) and piece not in reserved]
    # Single letters first: other words are spelled with them.
    best = sorted(candidates, key=lambda piece: (len(piece) > 1, -learnt[piece], piece))
    pieces = best[: config.vocabulary - len(names) - len(trailing)]
    scores = dict.fromkeys(names, 0.0) | {piece: learnt[piece] for piece in pieces} | dict.fromkeys(trailing, 0.0)
    model = models.Unigram(list(scores.items()), unk_id=names.index("<unk>"))
    tokenizer.model, tokenizer.normalizer = model, normalizer
    return with_special_tokens(tokenizer, config.kind)


def _without_ties(vocabulary: dict[str, float]) -> dict[str, float]:
    """The scores of Unigram made reproducible.

    The library gives characters that training dropped the lowest score plus 0.0001, 0.0002, ... in the random order of
    its hash tables; we assign these scores in the order of Unicode. And sums differ in their last digits: round them.
    """
    scores = {piece: round(score, 6) for piece, score in vocabulary.items()}
    single = sorted(piece for piece in scores if len(piece) == 1)
    limit = min(scores.values()) + 0.0001 * len(single)
    reordered = [piece for piece in single if scores[piece] <= limit]
    return scores | dict(zip(reordered, sorted(scores[piece] for piece in reordered), strict=True))
