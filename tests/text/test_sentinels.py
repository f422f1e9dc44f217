"""Vocabularies for T5: sentinels end them, one special token ends a text, and none begins it."""

import base64
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from text.syllables import lines
from typer.testing import CliRunner

from bertsmith.cli import app
from bertsmith.data.shards.encode import Encoder
from bertsmith.data.shards.shards import Shards
from bertsmith.errors import FolderError
from bertsmith.text.extend import extend
from bertsmith.text.fertility import measure_fertility
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train

SIZE = 350
ODD = [
    "",
    " ",
    "Ka lo <extra_id_0> mi <extra_id_99>nu.",
    "<extra_id_1><extra_id_0> ka<extra_id_100>lo",
    "ka</s> lo <pad> mi <unk> nu <s> [MASK] [CLS]",
    "tabs\tand\nlines,  two spaces ",
    "élan e\u0301lan ÉLAN ﬁn",
    "漢字 🤗 ▁a",
    "x" * 300,
]


def learnt(**changes: Any) -> Tokenizer:
    return train(lines(1_000), TokenizerConfig(kind="t5", vocabulary=SIZE, **changes))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return learnt()


@pytest.fixture(scope="module")
def published(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as T5 was published: SentencePiece's normalizer with an empty character map, and older settings."""
    folder = tmp_path_factory.mktemp("published")
    tokenizer.save(folder)
    written = json.loads((folder / "tokenizer.json").read_text())
    table = struct.pack("<I", 1_024) + bytes(1_024)
    written["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table).decode()}
    older = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}
    written["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, older]}
    written["decoder"] = older
    for step in written["post_processor"]["pair"]:
        next(iter(step.values()))["type_id"] = 0
    written["padding"] = {
        "strategy": "BatchLongest",
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "<pad>",
    }
    (folder / "tokenizer.json").write_text(json.dumps(written))
    settings = {
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "pad_token": "<pad>",
        "extra_ids": 100,
        "additional_special_tokens": [f"<extra_id_{number}>" for number in range(100)],
        "model_max_length": 512,
        "tokenizer_class": "T5Tokenizer",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def opened(folder: Path) -> Any:
    return pytest.importorskip("transformers").AutoTokenizer.from_pretrained(folder)


def test_sentinels_end_the_vocabulary_and_the_first_has_the_highest_id(tokenizer: Tokenizer) -> None:
    assert tokenizer.vocabulary == SIZE
    assert tokenizer.sentinels == tuple(range(SIZE - 1, SIZE - 101, -1))
    assert [tokenizer.piece(number) for number in tokenizer.sentinels] == [
        f"<extra_id_{place}>" for place in range(100)
    ]
    assert tokenizer.roles == {"padding": 0, "stop": 1, "unknown": 2}
    special = [0, 1, 2, *range(SIZE - 100, SIZE)]
    assert tokenizer.special_mask.nonzero()[0].tolist() == special
    assert not tokenizer.continuation_mask[special].any()


def test_a_small_text_gives_fewer_tokens_and_all_sentinels() -> None:
    small = train(["Ka lo mi."] * 3, TokenizerConfig(kind="t5"))
    assert small.vocabulary < 150
    assert small.sentinels == tuple(range(small.vocabulary - 1, small.vocabulary - 101, -1))


def test_other_kinds_have_no_sentinels() -> None:
    for kind in ("wordpiece", "bpe", "unigram"):
        assert train(lines(50), TokenizerConfig(kind=kind, vocabulary=300)).sentinels == ()


def test_names_of_special_tokens_in_a_text_are_not_learnt_as_tokens() -> None:
    names = ("<s>", "[CLS]", "[MASK]", "<|endoftext|>", "<extra_id_7>", "</s>")
    named = [line.replace(" ", name) for name in names for line in lines(100)]
    found = train(named, TokenizerConfig(kind="t5", vocabulary=SIZE))
    assert found.roles == {"padding": 0, "stop": 1, "unknown": 2}
    assert found.special_mask.sum() == 103
    assert len(found.sentinels) == 100


def test_a_missing_role_is_an_error(tokenizer: Tokenizer) -> None:
    with pytest.raises(
        FolderError, match=r"^tokenizer: has no special token for start\. Use a tokenizer that has one\.$"
    ):
        _ = tokenizer.start_id
    with pytest.raises(
        FolderError, match=r"^tokenizer: has no special token for mask\. Use the tokenizer of a masked model\.$"
    ):
        _ = tokenizer.mask_id


def test_one_special_token_ends_a_text_and_separates_two(tokenizer: Tokenizer) -> None:
    first, second = tokenizer.encode(["Ka lo", "mi"])
    assert tokenizer.encode_pair("Ka lo") == ([*first, 1], [0] * (len(first) + 1))
    ids, sides = tokenizer.encode_pair("Ka lo", "mi")
    assert ids == [*first, 1, *second, 1]
    assert sides == [0] * (len(first) + 1) + [1] * (len(second) + 1)
    assert (tokenizer.ends_with_special, tokenizer.separator_count) == (True, 1)


def test_special_tokens_in_a_text_stay_whole(tokenizer: Tokenizer) -> None:
    [ids] = tokenizer.encode(["Ka<extra_id_0> lo <extra_id_12></s> mi"])
    ka, lo, mi = (tokenizer.encode([word])[0] for word in ("Ka", "lo", "mi"))
    assert ids == [*ka, tokenizer.sentinels[0], *lo, tokenizer.sentinels[12], 1, *mi]
    assert tokenizer.decode(ids) == "Ka lo mi"
    assert tokenizer.decode(ids, keep_special=True) == "Ka<extra_id_0> lo<extra_id_12></s> mi"


def test_tokens_that_continue_a_word_are_known(tokenizer: Tokenizer) -> None:
    words: list[str] = []
    for number in tokenizer.encode(["Ka lomise <extra_id_3> sekavo"])[0]:
        piece = tokenizer.piece(number).removeprefix("▁")
        if tokenizer.continuation_mask[number]:
            words[-1] += piece
        else:
            words.append(piece)
    assert words == ["Ka", "lomise", "<extra_id_3>", "sekavo"]


@pytest.mark.parametrize("lowercase", [None, True])
@pytest.mark.parametrize("config", [False, True])
def test_transformers_opens_what_is_saved_and_gives_the_same_ids(
    lowercase: bool | None, config: bool, tmp_path: Path
) -> None:
    found = learnt(lowercase=lowercase)
    found.save(tmp_path, max_length=128)
    if config:  # config.json of a T5 must not bring T5's own normalizer
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "t5", "architectures": ["T5Model"]}))
    theirs = opened(tmp_path)
    for text in [*lines(50, seed=1), *ODD]:
        assert theirs(text)["input_ids"] == found.encode_pair(text)[0]
        assert theirs.decode(theirs(text)["input_ids"]) == found.decode(found.encode_pair(text)[0], keep_special=True)
    answer = theirs("Ka lo", "mi <extra_id_5>")
    assert answer["input_ids"] == found.encode_pair("Ka lo", "mi <extra_id_5>")[0]
    assert set(answer) == {"input_ids", "attention_mask"}  # T5 takes no token_type_ids
    assert (theirs.pad_token_id, theirs.eos_token_id, theirs.unk_token_id) == (0, 1, 2)
    assert [theirs.bos_token, theirs.cls_token, theirs.sep_token, theirs.mask_token] == [None] * 4
    assert theirs.convert_tokens_to_ids([f"<extra_id_{place}>" for place in range(100)]) == list(found.sentinels)
    assert set(found.sentinels) < set(theirs.all_special_ids)
    assert (len(theirs), theirs.model_max_length) == (SIZE, 128)


def test_a_published_folder_is_opened_and_gives_the_same_ids(published: Path, tokenizer: Tokenizer) -> None:
    found, theirs = Tokenizer.load(published), opened(published)
    assert type(theirs).__name__ == "T5Tokenizer"
    assert found.roles == tokenizer.roles
    assert found.sentinels == tokenizer.sentinels
    assert (found.special_mask == tokenizer.special_mask).all()
    assert (found.ends_with_special, found.separator_count) == (True, 1)
    for text in [*lines(50, seed=1), *ODD]:
        assert found.encode_pair(text)[0] == theirs(text)["input_ids"]
    assert found.encode_pair("Ka", "lo")[0] == theirs("Ka", "lo")["input_ids"]


def test_sentinels_among_the_added_tokens_are_special_even_if_not_marked() -> None:
    inner = tokenizers.Tokenizer(tokenizers.models.Unigram([("<pad>", 0.0), ("</s>", 0.0), ("▁ka", -1.0)], unk_id=0))
    inner.add_tokens(["<extra_id_1>", "<extra_id_0>", "<extra_id_3>"])
    found = Tokenizer(inner)
    assert found.sentinels == (4, 3)
    assert found.special_mask.tolist() == [True, True, False, True, True, False]


@pytest.mark.parametrize("source", ["learnt", "published"])
def test_an_extended_vocabulary_keeps_its_sentinels(
    source: str, tokenizer: Tokenizer, published: Path, tmp_path: Path
) -> None:
    old = tokenizer if source == "learnt" else Tokenizer.load(published)
    new = extend(old, ["Kalozi kalozi <extra_id_0> kalozi."] * 20, 3)
    assert new.vocabulary > SIZE
    assert "▁kalozi" in new.piece_ids
    assert new.sentinels == old.sentinels
    assert new.roles == old.roles
    assert new.special_mask[:SIZE].tolist() == old.special_mask.tolist()
    assert not new.special_mask[SIZE:].any()
    new.save(tmp_path)
    theirs = opened(tmp_path)
    for text in ["kalozi <extra_id_0> kalozi<extra_id_1>", *ODD]:
        assert Tokenizer.load(tmp_path).encode([text]) == new.encode([text])
        assert theirs(text)["input_ids"] == new.encode_pair(text)[0]


def test_fertility_does_not_count_sentinels_as_tokens_of_text(tokenizer: Tokenizer) -> None:
    found = measure_fertility(tokenizer, lines(1_000))
    assert (found.vocabulary, found.unknown) == (SIZE, 0)
    used = {number for row in tokenizer.encode(lines(1_000)) for number in row}
    assert found.unused == SIZE - 103 - len(used)
    assert not any("extra" in piece for piece in found.longest)


def test_words_are_remembered_with_the_ids_that_the_tokenizer_gives(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    encoder = Encoder(tmp_path, "uint16")
    for text in [*lines(20, seed=3), *ODD] * 2:
        assert np.frombuffer(encoder.encode([[text]]).tokens, np.uint16).tolist() == tokenizer.encode([text])[0]


def test_a_vocabulary_is_made_and_a_text_prepared_from_the_command_line(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(lines(300)), encoding="utf-8")
    for command in (
        ["tokenizer", text, "--out", tmp_path / "words", "--kind", "t5", "--vocabulary", SIZE],
        ["prepare", text, "--out", tmp_path / "data", "--tokenizer", tmp_path / "words", "--workers", 1],
        ["tokenizer", text, "--out", tmp_path / "small", "--kind", "t5", "--vocabulary", SIZE, "--lowercase"],
    ):
        done = CliRunner().invoke(app, [str(word) for word in command])
        assert done.exit_code == 0, done.output
    words = Tokenizer.load(tmp_path / "words")
    assert (words.vocabulary, len(words.sentinels)) == (SIZE, 100)
    assert words.decode(words.encode(["Ka Lo"])[0]).startswith("Ka")
    small = Tokenizer.load(tmp_path / "small")
    assert small.decode(small.encode(["Ka Lo"])[0]) == "ka lo"
    shards = [Shards(folder) for folder in sorted((tmp_path / "data").iterdir()) if (folder / "index.json").is_file()]
    assert sum(found.documents for found in shards) == 300
    for found in shards:
        found.check_tokenizer(words.fingerprint)
