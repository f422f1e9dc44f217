"""Folders with a vocabulary only, as first published, are read as transformers and SentencePiece read them."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from text.syllables import lines
from tokenizers import models, normalizers, pre_tokenizers, trainers

from bertsmith.errors import FolderError
from bertsmith.text import sentencepiece
from bertsmith.text.tokenizer import END_OF_TEXT, Template, Tokenizer
from bertsmith.text.word_numbers import encode_with_words

TEXTS = ["Ka lo mi.", "", "  two  spaces ", "élan 漢字 ﬁ", "ka Ka, 12, 3,4", "lo\tmi\n", "zzz☃"]

GAP = "Added tokens follow the vocabulary without a gap."
AGAIN = "Save the tokenizer again with transformers, which writes tokenizer.json."


def refused(folder: Path) -> str:
    with pytest.raises(FolderError) as caught:
        Tokenizer.load(folder)
    line = str(caught.value)
    assert "\n" not in line
    return line.replace(str(folder), "F")


# ------------------------------------------------------------------------------------------------ added tokens


def vocabulary(folder: Path, *more: str) -> Path:
    folder.mkdir(exist_ok=True)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "ka", "lo", "##mi", ".", *more]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
    return folder


def test_added_tokens_next_to_a_vocabulary_are_read(tmp_path: Path) -> None:
    folder = vocabulary(tmp_path)
    (folder / "added_tokens.json").write_text(json.dumps({"NEWS": 10, "<user>": 9}))
    found = Tokenizer.load(folder)
    assert found.vocabulary == 11
    assert found.encode(["ka NEWS lomi <user>."]) == [[5, 10, 6, 7, 9, 8]]
    (folder / "added_tokens.json").unlink()
    decoder = {"9": {"content": "<user>", "special": True}, "10": {"content": "NEWS", "lstrip": True}}
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": decoder}))
    again = Tokenizer.load(folder)
    assert again.encode(["ka NEWS <user>"]) == [[5, 10, 9]]
    assert (bool(again.special_mask[9]), bool(again.special_mask[10])) == (True, False)
    theirs = pytest.importorskip("transformers").AutoTokenizer
    again.save(tmp_path / "saved")
    assert theirs.from_pretrained(tmp_path / "saved")("ka NEWS <user>")["input_ids"] == [2, 5, 10, 9, 3]


def test_names_in_special_tokens_map_are_read(tmp_path: Path) -> None:
    folder = vocabulary(tmp_path, "<end>")
    (folder / "special_tokens_map.json").write_text(json.dumps({"sep_token": {"content": "<end>"}}))
    assert Tokenizer.load(folder).piece(Tokenizer.load(folder).stop_id) == "<end>"
    (folder / "tokenizer_config.json").write_text(json.dumps({"sep_token": "[SEP]"}))
    assert Tokenizer.load(folder).piece(Tokenizer.load(folder).stop_id) == "[SEP]"


@pytest.mark.parametrize(
    ("name", "contents", "line"),
    [
        (
            "added_tokens.json",
            {"NEWS": 12},
            "F/vocab.txt: the added token 'NEWS' cannot have the id 12. " + GAP,
        ),
        ("added_tokens.json", {"NEWS": "x"}, "F/added_tokens.json: does not hold the ids of tokens."),
        ("added_tokens.json", [], "F/added_tokens.json: does not hold a JSON object."),
        (
            "tokenizer_config.json",
            {"added_tokens_decoder": {"x": 1}},
            "F/tokenizer_config.json: 'x' of added_tokens_decoder is no token.",
        ),
    ],
)
def test_invalid_added_tokens_are_refused(name: str, contents: Any, line: str, tmp_path: Path) -> None:
    folder = vocabulary(tmp_path)
    (folder / name).write_text(json.dumps(contents))
    assert refused(folder) == line


def test_mpnets_vocabulary_has_its_own_special_tokens(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(["<s>", "<pad>", "</s>", "[UNK]", "ka", "##lo", "<mask>"]))
    found = Tokenizer.load(tmp_path)
    assert found.encode_pair("Kalo", "ka")[0] == [0, 4, 5, 2, 2, 4, 2]
    assert (found.padding_id, found.mask_id, found.unknown_id) == (1, 6, 3)
    assert found.encode(["ka <mask>"]) == [[4, 6]]


# ------------------------------------------------------------------------------------------------ byte-level BPE


def byte_pairs(folder: Path, specials: list[str], **settings: Any) -> Path:
    """vocab.json and merges.txt, without tokenizer.json."""
    inner = tokenizers.Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=320, initial_alphabet=alphabet, special_tokens=specials)
    inner.train_from_iterator(lines(300), trainer)
    folder.mkdir()
    inner.model.save(str(folder))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


@pytest.mark.parametrize(("member", "specials"), [("GPT2", [END_OF_TEXT]), ("Roberta", ROBERTA)])
def test_byte_level_bpe_is_read_as_transformers_reads_it(member: str, specials: list[str], tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    folder = byte_pairs(tmp_path / "model", specials, tokenizer_class=f"{member}Tokenizer")
    theirs = getattr(transformers, f"{member}Tokenizer").from_pretrained(folder)
    ours = Tokenizer.load(folder)
    for text in TEXTS:
        assert ours.encode_pair(text)[0] == theirs(text)["input_ids"]
    assert ours.encode_pair("ka", "lo")[0] == theirs("ka", "lo")["input_ids"]
    assert ours.decode(ours.encode(["Ka lo élan"])[0]) == "Ka lo élan"
    assert ours.template == (Template() if member == "GPT2" else Template((0,), (2, 2), (2,), segment=0))
    if member == "Roberta":  # the space before it belongs to it, as in the file published later
        assert ours.encode(["ka <mask>"])[0] == [*ours.encode(["ka"])[0], ours.mask_id]


def test_the_bpe_of_the_first_gpt_marks_the_ends_of_words(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text(json.dumps({"<unk>": 0, "k": 1, "a</w>": 2, "ka</w>": 3, ".</w>": 4}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\nk a</w>\n")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "openai-gpt"}))
    assert Tokenizer.load(tmp_path).encode(["Ka a."]) == [[3, 2, 4]]


@pytest.mark.parametrize(
    ("vocab", "merges", "line"),
    [
        ("{", "", "F/vocab.json: is not JSON."),
        ("[]", "", "F/vocab.json: does not hold the ids of tokens."),
        ('{"a": 0}', "", "F/vocab.json: has no token <s>. GPT-2's and RoBERTa's vocabularies are known."),
        ('{"a": 0}', "a\n", "F/merges.txt: has the line 'a'. A merge has two tokens."),
    ],
)
def test_invalid_vocabularies_and_merges_are_refused(vocab: str, merges: str, line: str, tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text(vocab)
    (tmp_path / "merges.txt").write_text(merges)
    assert refused(tmp_path) == line


# ------------------------------------------------------------------------------------------------- SentencePiece


def trained(folder: Path, **settings: Any) -> Path:
    """A small model, trained by SentencePiece."""
    spm = pytest.importorskip("sentencepiece")
    text = [*lines(300), "12, 34 élan ﬁne", "Ka, lo."] * 2
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(text), model_prefix=str(folder / "m"), vocab_size=110, minloglevel=9, **settings
    )  # fmt: skip
    return folder / "m.model"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return trained(tmp_path_factory.mktemp("plain")).read_bytes()


def test_t5s_model_is_read_as_by_sentencepiece(tmp_path: Path) -> None:
    spm = pytest.importorskip("sentencepiece")
    made = trained(tmp_path, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    theirs = spm.SentencePieceProcessor(model_file=str(made))
    made.rename(tmp_path / "spiece.model")
    ours = Tokenizer.load(tmp_path)
    assert ours.vocabulary == 110 + 100
    for text in [*TEXTS, *lines(40)]:
        assert ours.encode([text])[0] == theirs.encode(text), text
        assert ours.encode_pair(text)[0] == [*theirs.encode(text), 1]
    assert ours.decode(theirs.encode("Ka lo mi.")) == theirs.decode(theirs.encode("Ka lo mi."))
    assert [ours.piece(number) for number in ours.sentinels[:2]] == ["<extra_id_0>", "<extra_id_1>"]
    assert ours.sentinels[0] == ours.vocabulary - 1


@pytest.mark.parametrize(("member", "shift"), [("xlm-roberta", 1), ("camembert", 4)])
def test_xlm_roberta_and_camembert_have_the_ids_of_transformers(
    member: str, shift: int, plain: bytes, tmp_path: Path
) -> None:
    spm = pytest.importorskip("sentencepiece")
    (tmp_path / "sentencepiece.bpe.model").write_bytes(plain)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": member}))
    theirs = spm.SentencePieceProcessor(model_file=str(tmp_path / "sentencepiece.bpe.model"))
    ours = Tokenizer.load(tmp_path)
    start, stop = (0, 2) if member == "xlm-roberta" else (5, 6)
    assert (ours.start_id, ours.padding_id, ours.stop_id, ours.unknown_id, ours.mask_id) == (
        start,
        1,
        stop,
        3,
        ours.vocabulary - 1,
    )
    for text in [*TEXTS, *lines(20)]:
        wanted = [3 if number == 0 else number + shift for number in theirs.encode(text)]
        assert ours.encode([text])[0] == wanted, text
    assert ours.template == Template((start,), (stop, stop), (stop,), segment=0)


def test_alberts_model_lowercases_and_splits_commas_from_numbers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    special = ["[CLS]", "[SEP]", "[MASK]"]
    made = trained(tmp_path, pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, control_symbols=special)
    made.rename(tmp_path / "spiece.model")
    ours = Tokenizer.load(tmp_path)
    theirs = transformers.AlbertTokenizer.from_pretrained(tmp_path)
    for text in ["Ka lo mi.", "élan", "ka 12, 34", *lines(20)]:
        assert ours.encode_pair(text)[0] == theirs(text)["input_ids"], text
    assert ours.encode_pair("ka", "lo")[0] == theirs("ka", "lo")["input_ids"]


def test_a_bpe_model_merges_as_sentencepiece_does(tmp_path: Path) -> None:
    spm = pytest.importorskip("sentencepiece")
    made = trained(tmp_path, model_type="bpe", pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    theirs = spm.SentencePieceProcessor(model_file=str(made))
    made.rename(tmp_path / "spiece.model")
    ours = Tokenizer.load(tmp_path)
    for text in ["Ka lo mi.", *lines(40)]:
        assert ours.encode([text])[0] == theirs.encode(text), text


def test_a_bpe_model_of_sentencepiece_marks_where_words_begin() -> None:
    pieces = ["▁", "k", "a", "l", "o", "▁k", "▁ka", "▁l", "▁lo", "lo"]
    merges = [("▁", "k"), ("▁k", "a"), ("▁", "l"), ("▁l", "o"), ("l", "o")]
    inner = tokenizers.Tokenizer(models.BPE({piece: number for number, piece in enumerate(pieces)}, merges))
    # As in tokenizers that replace spaces and do not split at them.
    inner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    found = Tokenizer(inner)
    assert [found.piece(number) for number in found.encode(["ka lo kalo"])[0]] == ["▁ka", "▁lo", "▁ka", "lo"]
    assert found.continuation_mask[found.encode(["ka lo kalo"])[0]].tolist() == [False, False, False, True]
    assert encode_with_words(found, "ka lo kalo").words == [0, 1, 2, 2]


def message(*pieces: tuple[str, float, int], kind: int = 1) -> bytes:
    """A model written by hand as protocol buffers."""

    def field(number: int, data: bytes) -> bytes:
        return bytes([number << 3 | 2, len(data)]) + data

    each = [
        field(1, text.encode()) + b"\x15" + struct.pack("<f", score) + bytes([24, type_])
        for text, score, type_ in pieces
    ]
    return b"".join(field(1, one) for one in each) + field(2, bytes([24, kind]))


def test_a_model_written_by_hand_is_read_without_any_library(tmp_path: Path) -> None:
    pieces = [("<pad>", 0.0, 3), ("</s>", 0.0, 3), ("<unk>", 0.0, 2), ("▁ka", -1.0, 1), ("lo", -2.0, 1)]
    path = tmp_path / "spiece.model"
    path.write_bytes(message(*pieces))
    found = sentencepiece.read(path)
    assert [(piece.text, piece.score, piece.kind) for piece in found.pieces] == pieces
    assert Tokenizer.load(tmp_path).encode_pair("kalo")[0] == [3, 4, 1]


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"", "is not a model of SentencePiece. Fetch it again."),
        (b"\xff" * 30, "is not a model of SentencePiece. Fetch it again."),
        (b"\x0a\xff\xff\xff\xff\x7f", "is not a model of SentencePiece. Fetch it again."),
        (message(("a", 0.0, 1), kind=3), "is a model of words or characters. Only Unigram and BPE are opened."),
        (
            message(("a", 0.0, 1)),
            "is a model of SentencePiece, and the special tokens of 'unknown' are not known. " + AGAIN,
        ),
        (
            message(("[CLS]", 0.0, 1)),
            "has no token [SEP]. It is not the tokenizer of this folder's network.",
        ),
    ],
)
def test_a_file_that_is_no_such_model_is_refused(data: bytes, line: str, tmp_path: Path) -> None:
    (tmp_path / "spiece.model").write_bytes(data)
    assert refused(tmp_path) == f"F/spiece.model: {line}"


def test_a_folder_without_a_vocabulary_is_refused_with_the_known_files(tmp_path: Path) -> None:
    assert refused(tmp_path) == (
        "F: holds no tokenizer.json, vocab.txt, vocab.json with merges.txt or spiece.model. "
        "Make one with: bertsmith tokenizer TEXT --out FOLDER."
    )
