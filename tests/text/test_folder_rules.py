"""Rules in the other files of a folder: those of BERT's tokenizer, and the lowercasing of sentence-transformers."""

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from tasks.small import WORDS
from tokenizers import Tokenizer as Library
from tokenizers import normalizers

from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train

TEXTS = ["The Cat", "thé cat", "THÉ 漢字 cat", "dog"]


def folder(path: Path, kind: str, normalizer: Any = None, **settings: Any) -> Path:
    made = train(
        [" ".join(WORDS)] * 3 + ["T C a b c d e é É H E 漢 字"], TokenizerConfig(vocabulary=140, min_frequency=1)
    )
    inner = Library.from_str(made._inner.to_str())
    inner.normalizer = normalizer or normalizers.BertNormalizer(lowercase=False)
    path.mkdir(exist_ok=True)
    inner.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind, **settings}))
    return path


@pytest.mark.parametrize("kind", ["BertTokenizer", "BertTokenizerFast", "ElectraTokenizer", "PreTrainedTokenizerFast"])
@pytest.mark.parametrize(
    "settings",
    [
        {"do_lower_case": True},
        {"do_lower_case": False},
        {"do_lower_case": True, "strip_accents": False},
        {"do_lower_case": False, "strip_accents": True},
        {"do_lower_case": False, "tokenize_chinese_chars": False},
    ],
)
def test_the_settings_of_berts_tokenizer_win_over_its_file(kind: str, settings: Any, tmp_path: Path) -> None:
    theirs = transformers.AutoTokenizer.from_pretrained(folder(tmp_path, kind, **settings))
    ours = Tokenizer.load(tmp_path)
    for text in TEXTS:
        assert ours.encode_pair(text)[0] == theirs(text)["input_ids"], text


def test_settings_that_are_not_given_leave_the_file_as_it_is(tmp_path: Path) -> None:
    found = Tokenizer.load(folder(tmp_path, "BertTokenizer"))
    assert (found.lowercase, found.strips_accents) == (False, False)


@pytest.mark.parametrize("normalizer", [None, normalizers.NFC(), normalizers.BertNormalizer(lowercase=True)])
def test_sentence_transformers_lowercases_and_strips_no_accent_by_that(normalizer: Any, tmp_path: Path) -> None:
    folder(tmp_path, "PreTrainedTokenizerFast", normalizer)
    before = Tokenizer.load(tmp_path)
    (tmp_path / "sentence_bert_config.json").write_text(json.dumps({"do_lower_case": True}))
    found = Tokenizer.load(tmp_path)
    assert found.encode(TEXTS) == before.encode([text.lower() for text in TEXTS])
    found.save(tmp_path / "saved")
    assert Tokenizer.load(tmp_path / "saved").encode(TEXTS) == found.encode(TEXTS)
    (tmp_path / "sentence_bert_config.json").write_text(json.dumps({"do_lower_case": False}))
    assert Tokenizer.load(tmp_path).fingerprint == before.fingerprint
