"""Tokenizers as they were first published: vocab.txt, vocab.json with merges.txt, or a model of SentencePiece.

Such files hold pieces and no rules: how text is normalised and framed, the code of each member knew. It is kept here,
by the name of the member that a folder gives.
"""

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers as splitters

from bertsmith.errors import FolderError
from bertsmith.text import sentencepiece
from bertsmith.text.sentencepiece import NEVER, Piece, SentencePiece
from bertsmith.text.train import END, SENTINELS, SPECIALS, bert_tokenizer, set_template

MODELS = ("spiece.model", "sentencepiece.bpe.model", "tokenizer.model")  # what SentencePiece's files are called
MPNET = ("<s>", "<pad>", "</s>", "[UNK]", "<mask>")
ROBERTA = ("<s>:0 $A:0 </s>:0", "<s>:0 $A:0 </s>:0 </s>:0 $B:1 </s>:1")
BERT = ("[CLS]:0 $A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1")
T5 = ("$A:0 </s>:0", "$A:0 </s>:0 $B:0 </s>:0")
MOST_SENTINELS = 10_000


def load_wordpiece(file: Path, text: str, settings: dict[str, Any]) -> Tokenizer:
    """BERT's and MPNet's: one piece a line, in the order of their ids."""
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    vocabulary = {piece: number for number, piece in enumerate(lines)}
    strip = settings.get("strip_accents")
    rules: dict[str, Any] = {
        "lowercase": bool(settings.get("do_lower_case", True)),
        "accents": None if strip is None else not strip,
        "han": bool(settings.get("tokenize_chinese_chars", True)),
    }
    if "[CLS]" not in vocabulary and vocabulary.keys() >= set(MPNET):
        made = bert_tokenizer({}, **rules)
        made.model = models.WordPiece(vocabulary, unk_token="[UNK]")
        return _with_special_tokens(made, MPNET, *ROBERTA)
    if missing := [name for name in SPECIALS["wordpiece"] if name not in vocabulary]:
        raise FolderError(file, f"has no line {missing[0]}", "BERT's vocabulary has one piece a line")
    return bert_tokenizer(vocabulary, **rules)


def load_bpe(file: Path, text: str, merged: str, settings: dict[str, Any], member: str) -> Tokenizer:
    """GPT's, GPT-2's and RoBERTa's: the numbers of pieces, and beside them which pairs are joined, the first first."""
    try:
        vocabulary = json.loads(text)
    except (ValueError, RecursionError):
        raise FolderError(file, "is not JSON") from None
    if not isinstance(vocabulary, dict) or not all(type(number) is int for number in vocabulary.values()):
        raise FolderError(file, "does not hold the numbers of pieces")
    lines = [line.split(" ") for line in merged.split("\n") if line and not line.startswith("#version")]
    if odd := next((line for line in lines if len(line) != 2), None):
        raise FolderError(file.with_name("merges.txt"), f"has the line {' '.join(odd)[:40]!r}", "A pair has two pieces")
    merges = [(first, second) for first, second in lines]
    if member == "openai-gpt" or (not member and "the</w>" in vocabulary):
        unknown = "<unk>" if "<unk>" in vocabulary else None
        made = Tokenizer(models.BPE(vocabulary, merges, unk_token=unknown, end_of_word_suffix="</w>", fuse_unk=False))
        made.normalizer = normalizers.BertNormalizer(lowercase=True)
        made.pre_tokenizer = splitters.BertPreTokenizer()
        made.decoder = decoders.BPEDecoder(suffix="</w>")
        return _with_special_tokens(made, ("<unk>",))
    made = Tokenizer(models.BPE(vocabulary, merges))
    made.pre_tokenizer = splitters.ByteLevel(add_prefix_space=settings.get("add_prefix_space") is True)
    made.decoder = decoders.ByteLevel()
    if END in vocabulary and member in ("", "gpt2"):
        return _with_special_tokens(made, (END,))
    if missing := [name for name in SPECIALS["bpe"] if name not in vocabulary]:
        raise FolderError(file, f"has no piece {missing[0]}", "GPT-2's and RoBERTa's vocabularies are known")
    return _with_special_tokens(made, SPECIALS["bpe"], *ROBERTA)


def load_sentencepiece(file: Path, settings: dict[str, Any], member: str) -> Tokenizer:
    """T5's, ALBERT's, XLM-RoBERTa's and CamemBERT's, each with special pieces where that member has them."""
    found = sentencepiece.read(file)
    own, names = found.pieces, [piece.text for piece in found.pieces]
    match member or _guess_member(file, names):
        case "albert":
            _require_pieces(file, names, ("[CLS]", "[SEP]", "[MASK]", "<pad>"))
            made = found.to_tokenizer([_number_apart(piece) for piece in own], found.unknown_id)
            made = _with_special_tokens(
                _normalised(made, found, _albert(settings)), ("<pad>", "[CLS]", "[SEP]", "[MASK]"), *BERT
            )
        case "xlm-roberta":
            _require_pieces(file, names, ("<unk>", "<s>", "</s>"))
            first = [Piece(name) for name in ("<s>", "<pad>", "</s>", "<unk>")]
            made = found.to_tokenizer([*first, *own[3:], Piece("<mask>")], 3)
            made = _with_special_tokens(_normalised(made, found), SPECIALS["bpe"], *ROBERTA)
        case "camembert":
            _require_pieces(file, names, ("<unk>", "<s>", "</s>"))
            first = [Piece(name) for name in ("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>")]
            made = found.to_tokenizer([*first, Piece("<unk>NOTUSED", NEVER), *own[1:], Piece("<mask>")], 3)
            made = _with_special_tokens(_normalised(made, found), SPECIALS["bpe"], *ROBERTA)
        case "t5":
            _require_pieces(file, names, ("<pad>", "</s>", "<unk>"))
            count = settings.get("extra_ids", len(SENTINELS))
            if not isinstance(count, int) or not 0 <= count <= MOST_SENTINELS:
                raise FolderError(file.with_name("tokenizer_config.json"), f"extra_ids is {str(count)[:40]!r}")
            sentinels = [f"<extra_id_{number}>" for number in reversed(range(count))]
            added = [Piece(name) for name in sentinels if name not in names]
            made = found.to_tokenizer([*own, *added], found.unknown_id)
            made = _with_special_tokens(_normalised(made, found), ("<pad>", "</s>", "<unk>", *sentinels), *T5)
        case other:
            fact = f"is a model of SentencePiece, and nothing is known of its special pieces in '{other}'"
            raise FolderError(file, fact, "Save the tokenizer again with transformers, which writes tokenizer.json")
    return made


def _guess_member(file: Path, names: list[str]) -> str:
    """Whose a model of SentencePiece is, where nothing beside it tells."""
    if "[CLS]" in names:
        return "albert"
    return "t5" if "<pad>" in names[:2] else "xlm-roberta" if file.name == MODELS[1] else "unknown"


def _require_pieces(file: Path, names: list[str], wanted: tuple[str, ...]) -> None:
    if missing := [name for name in wanted if name not in names]:
        raise FolderError(file, f"has no piece {missing[0]}", "It is not the model of this folder's network")


def _number_apart(piece: Piece) -> Piece:
    """ALBERT cuts a comma off the number before it: such a piece is taken only where nothing else fits."""
    joined = len(piece.text) > 1 and piece.text[-1] == "," and piece.text[-2].isdigit()
    return Piece(piece.text, piece.score - 100, piece.kind) if joined else piece


def _albert(settings: dict[str, Any]) -> list[normalizers.Normalizer]:
    rules: list[normalizers.Normalizer] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if not settings.get("keep_accents", False):
        rules += [normalizers.NFKD(), normalizers.StripAccents()]
    return [*rules, *([normalizers.Lowercase()] if settings.get("do_lower_case", True) else [])]


def _normalised(
    tokenizer: Tokenizer, found: SentencePiece, before: list[normalizers.Normalizer] | None = None
) -> Tokenizer:
    """Text as SentencePiece has it: characters by its table, blanks single and shown, one before the first word."""
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
    """Special pieces marked as such, and set round texts."""
    there = [name for name in names if tokenizer.token_to_id(name) is not None]
    # Before the mask the blank is part of it, since in these vocabularies a word begins with its blank.
    tokenizer.add_special_tokens(
        [AddedToken(name, lstrip=name in ("<mask>", "[MASK]"), special=True) for name in there]
    )
    if single:
        set_template(tokenizer, single, pair, there)
    return tokenizer
