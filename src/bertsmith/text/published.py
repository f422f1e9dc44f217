"""Tokenizers as first published: vocab.txt, vocab.json with merges.txt, or a model of SentencePiece.

Such files hold a vocabulary only. The normalisation and the special tokens around texts were in the code of each model;
here they are chosen by the folder's model_type.
"""

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers as splitters

from bertsmith.errors import FolderError
from bertsmith.text import sentencepiece
from bertsmith.text.sentencepiece import NEVER_CHOSEN_SCORE, Piece, SentencePiece
from bertsmith.text.special_tokens import BERT_TEMPLATES as BERT
from bertsmith.text.special_tokens import END_OF_TEXT, SENTINELS, SPECIAL_TOKENS, set_template
from bertsmith.text.special_tokens import PUBLISHED_ROBERTA_TEMPLATES as ROBERTA
from bertsmith.text.train import bert_tokenizer

MODELS = ("spiece.model", "sentencepiece.bpe.model", "tokenizer.model")  # names of SentencePiece's files
MPNET = ("<s>", "<pad>", "</s>", "[UNK]", "<mask>")
T5 = ("$A:0 </s>:0", "$A:0 </s>:0 $B:0 </s>:0")
MAX_SENTINELS = 10_000


def load_wordpiece(file: Path, text: str, settings: dict[str, Any]) -> Tokenizer:
    """BERT's and MPNet's vocab.txt: one token per line, in the order of their ids."""
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    vocabulary = {piece: number for number, piece in enumerate(lines)}
    strip = settings.get("strip_accents")
    rules: dict[str, Any] = {
        "lowercase": bool(settings.get("do_lower_case", True)),
        "accents": None if strip is None else not strip,
        "han": bool(settings.get("tokenize_chinese_chars", True)),
    }
    if "[CLS]" not in vocabulary and vocabulary.keys() >= set(MPNET):
        tokenizer = bert_tokenizer({}, **rules)
        tokenizer.model = models.WordPiece(vocabulary, unk_token="[UNK]")
        return _with_special_tokens(tokenizer, MPNET, *ROBERTA)
    if missing := [name for name in SPECIAL_TOKENS["wordpiece"] if name not in vocabulary]:
        raise FolderError(file, f"has no line {missing[0]}", "BERT's vocabulary has one token per line")
    return bert_tokenizer(vocabulary, **rules)


def load_bpe(file: Path, text: str, merges_text: str, settings: dict[str, Any], member: str) -> Tokenizer:
    """GPT's, GPT-2's and RoBERTa's: vocab.json with the ids of tokens, and merges.txt with the merges in order."""
    try:
        vocabulary = json.loads(text)
    except (ValueError, RecursionError):
        raise FolderError(file, "is not JSON") from None
    if not isinstance(vocabulary, dict) or not all(type(number) is int for number in vocabulary.values()):
        raise FolderError(file, "does not hold the ids of tokens")
    lines = [line.split(" ") for line in merges_text.split("\n") if line and not line.startswith("#version")]
    if bad := next((line for line in lines if len(line) != 2), None):
        fact = f"has the line {' '.join(bad)[:40]!r}"
        raise FolderError(file.with_name("merges.txt"), fact, "A merge has two tokens")
    merges = [(first, second) for first, second in lines]
    if member == "openai-gpt" or (not member and "the</w>" in vocabulary):
        unknown = "<unk>" if "<unk>" in vocabulary else None
        model = models.BPE(vocabulary, merges, unk_token=unknown, end_of_word_suffix="</w>", fuse_unk=False)
        tokenizer = Tokenizer(model)
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
        tokenizer.pre_tokenizer = splitters.BertPreTokenizer()
        tokenizer.decoder = decoders.BPEDecoder(suffix="</w>")
        return _with_special_tokens(tokenizer, ("<unk>",))
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = splitters.ByteLevel(add_prefix_space=settings.get("add_prefix_space") is True)
    tokenizer.decoder = decoders.ByteLevel()
    if END_OF_TEXT in vocabulary and member in ("", "gpt2"):
        return _with_special_tokens(tokenizer, (END_OF_TEXT,))
    if missing := [name for name in SPECIAL_TOKENS["bpe"] if name not in vocabulary]:
        raise FolderError(file, f"has no token {missing[0]}", "GPT-2's and RoBERTa's vocabularies are known")
    return _with_special_tokens(tokenizer, SPECIAL_TOKENS["bpe"], *ROBERTA)


def load_sentencepiece(file: Path, settings: dict[str, Any], member: str) -> Tokenizer:
    """T5's, ALBERT's, XLM-RoBERTa's and CamemBERT's, each with special tokens at the ids of that model."""
    found = sentencepiece.read(file)
    own, names = found.pieces, [piece.text for piece in found.pieces]
    match member or _guess_member(file, names):
        case "albert":
            _require_pieces(file, names, ("[CLS]", "[SEP]", "[MASK]", "<pad>"))
            names = ["<pad>", "[CLS]", "[SEP]", "[MASK]"]
            tokenizer = found.to_tokenizer([_without_comma(piece) for piece in own], found.unknown_id)
            tokenizer = _with_special_tokens(_normalised(tokenizer, found, _albert(settings)), tuple(names), *BERT)
        case "xlm-roberta":
            _require_pieces(file, names, ("<unk>", "<s>", "</s>"))
            first = [Piece(name) for name in ("<s>", "<pad>", "</s>", "<unk>")]
            tokenizer = found.to_tokenizer([*first, *own[3:], Piece("<mask>")], 3)
            tokenizer = _with_special_tokens(_normalised(tokenizer, found), SPECIAL_TOKENS["bpe"], *ROBERTA)
        case "camembert":
            _require_pieces(file, names, ("<unk>", "<s>", "</s>"))
            first = [Piece(name) for name in ("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>")]
            tokenizer = found.to_tokenizer(
                [*first, Piece("<unk>NOTUSED", NEVER_CHOSEN_SCORE), *own[1:], Piece("<mask>")], 3
            )
            tokenizer = _with_special_tokens(_normalised(tokenizer, found), SPECIAL_TOKENS["bpe"], *ROBERTA)
        case "t5":
            _require_pieces(file, names, ("<pad>", "</s>", "<unk>"))
            count = settings.get("extra_ids", len(SENTINELS))
            if not isinstance(count, int) or not 0 <= count <= MAX_SENTINELS:
                raise FolderError(file.with_name("tokenizer_config.json"), f"extra_ids is {str(count)[:40]!r}")
            sentinels = [f"<extra_id_{number}>" for number in reversed(range(count))]
            added = [Piece(name) for name in sentinels if name not in names]
            tokenizer = found.to_tokenizer([*own, *added], found.unknown_id)
            tokenizer = _with_special_tokens(_normalised(tokenizer, found), ("<pad>", "</s>", "<unk>", *sentinels), *T5)
        case other:
            fact = f"is a model of SentencePiece, and the special tokens of '{other}' are not known"
            raise FolderError(file, fact, "Save the tokenizer again with transformers, which writes tokenizer.json")
    return tokenizer


def _guess_member(file: Path, names: list[str]) -> str:
    """The model_type of a SentencePiece model in a folder that does not give it."""
    if "[CLS]" in names:
        return "albert"
    return "t5" if "<pad>" in names[:2] else "xlm-roberta" if file.name == MODELS[1] else "unknown"


def _require_pieces(file: Path, names: list[str], wanted: tuple[str, ...]) -> None:
    if missing := [name for name in wanted if name not in names]:
        raise FolderError(file, f"has no token {missing[0]}", "It is not the tokenizer of this folder's network")


def _without_comma(piece: Piece) -> Piece:
    """ALBERT splits a comma from the number before it: a piece with both gets a score that is hardly ever chosen."""
    both = len(piece.text) > 1 and piece.text[-1] == "," and piece.text[-2].isdigit()
    return Piece(piece.text, piece.score - 100, piece.kind) if both else piece


def _albert(settings: dict[str, Any]) -> list[normalizers.Normalizer]:
    rules: list[normalizers.Normalizer] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if not settings.get("keep_accents", False):
        rules += [normalizers.NFKD(), normalizers.StripAccents()]
    return [*rules, *([normalizers.Lowercase()] if settings.get("do_lower_case", True) else [])]


def _normalised(
    tokenizer: Tokenizer, found: SentencePiece, before: list[normalizers.Normalizer] | None = None
) -> Tokenizer:
    """SentencePiece's normalisation: its character map, single spaces shown as ▁, one before the first word."""
    rules = [*(before or []), *([normalizers.Precompiled(found.charsmap)] if found.charsmap else [])]
    if found.remove_extra_whitespaces:
        rules += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    tokenizer.normalizer = normalizers.Sequence(rules)
    scheme = "always" if found.add_dummy_prefix else "never"
    tokenizer.pre_tokenizer = splitters.Metaspace(prepend_scheme=scheme)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)
    if found.byte_fallback:
        tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme=scheme)])
    return tokenizer


def _with_special_tokens(tokenizer: Tokenizer, names: tuple[str, ...], single: str = "", pair: str = "") -> Tokenizer:
    """Special tokens marked as such, and put around texts."""
    present = [name for name in names if tokenizer.token_to_id(name) is not None]
    # The space before the mask is part of it, since in these vocabularies a word's token begins with its space.
    tokenizer.add_special_tokens(
        [AddedToken(name, lstrip=name in ("<mask>", "[MASK]"), special=True) for name in present]
    )
    if single:
        set_template(tokenizer, single, pair, present)
    return tokenizer
