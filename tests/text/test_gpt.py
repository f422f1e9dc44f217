"""Tokenizers as GPT and GPT-2 were published: one special token, or only the unknown one."""

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from text.syllables import lines
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from bertsmith.errors import FolderError
from bertsmith.tasks.base import with_special_tokens
from bertsmith.text.tokenizer import END_OF_TEXT, Template, Tokenizer, TokenizerConfig, train

TEXTS = ["Ka lo mi.", "", "  two  spaces", "élan 漢字", "ka"]


def gpt2(folder: Path, **settings: Any) -> Path:
    """Byte-level BPE; <|endoftext|> is the last token, and there are no special tokens around a text."""
    inner = tokenizers.Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.post_processor = processors.ByteLevel(trim_offsets=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    inner.train_from_iterator(lines(300), trainers.BpeTrainer(vocab_size=320, initial_alphabet=alphabet))
    inner.add_special_tokens([END_OF_TEXT])
    return _saved(inner, folder, settings)


def gpt(folder: Path, **settings: Any) -> Path:
    """Tokens that mark the ends of words."""
    inner = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    inner.normalizer = normalizers.BertNormalizer(lowercase=True)
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.BPEDecoder(suffix="</w>")
    trainer = trainers.BpeTrainer(vocab_size=120, special_tokens=["<unk>"], end_of_word_suffix="</w>")
    inner.train_from_iterator(lines(300), trainer)
    return _saved(inner, folder, settings)


def _saved(inner: tokenizers.Tokenizer, folder: Path, settings: dict[str, Any]) -> Path:
    folder.mkdir()
    inner.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.mark.parametrize(
    "settings", [{}, {"bos_token": END_OF_TEXT, "eos_token": {"content": END_OF_TEXT}, "unk_token": END_OF_TEXT}]
)
def test_one_token_has_every_role_except_the_mask(settings: dict[str, Any], tmp_path: Path) -> None:
    found = Tokenizer.load(gpt2(tmp_path / "published", **settings))
    assert found.start_id == found.stop_id == found.padding_id == found.vocabulary - 1
    assert found.special_mask.sum() == 1
    with pytest.raises(FolderError, match=r"has no special token for mask\. Use the tokenizer of a masked model\.$"):
        _ = found.mask_id


def test_names_in_the_settings_override_the_usual_ones(tmp_path: Path) -> None:
    folder = gpt2(tmp_path / "published", bos_token="a", eos_token="b")
    found = Tokenizer.load(folder)
    assert (found.piece(found.start_id), found.piece(found.stop_id), found.piece(found.padding_id)) == (
        "a",
        "b",
        END_OF_TEXT,
    )


def test_special_tokens_are_added_for_tasks_only(tmp_path: Path) -> None:
    plain = Tokenizer.load(gpt2(tmp_path / "published"))
    assert plain.template == Template()
    end, (first, second) = plain.start_id, plain.encode(["Ka lo", " mi"])
    assert plain.encode_pair("Ka lo")[0] == first == with_special_tokens(plain, first).ids.tolist()
    assert with_special_tokens(plain, []).ids.tolist() == [end]
    found = plain.for_tasks()
    assert (found.separator_count, found.ends_with_special) == (1, False)
    assert found.encode_pair("Ka lo")[0] == [end, *first] == with_special_tokens(found, first).ids.tolist()
    row = with_special_tokens(found, first, second)
    assert found.encode_pair("Ka lo", " mi") == (row.ids.tolist(), row.segments.tolist())
    assert row.ids.tolist() == [end, *first, end, *second]
    assert with_special_tokens(found, []).ids.tolist() == [end]
    assert with_special_tokens(found, first, []).ids.tolist() == [end, *first]
    assert found.for_tasks() is found
    assert found.for_prompts() is found


def test_our_byte_level_bpe_ends_a_text_but_not_a_prompt() -> None:
    own = train(lines(100), TokenizerConfig(kind="bpe", vocabulary=300))
    assert own.ends_with_special
    assert with_special_tokens(own, [7, 8]).ids.tolist() == [own.start_id, 7, 8, own.stop_id]
    prompts = own.for_prompts()
    assert prompts.template == Template((own.start_id,), (own.stop_id,), ())
    assert prompts.encode_pair("ka")[0] == [own.start_id, *own.encode(["ka"])[0]]
    assert prompts.roles == own.roles
    again = prompts.for_tasks()
    assert again.template == own.template == Template((own.start_id,), (own.stop_id, own.stop_id), (own.stop_id,))
    assert again.fingerprint == own.fingerprint


def test_transformers_opens_what_is_saved_and_gives_the_same_ids(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    found = Tokenizer.load(gpt2(tmp_path / "published"))
    found.save(tmp_path / "saved", max_length=64, segments=False)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert theirs.bos_token == theirs.eos_token == theirs.pad_token == END_OF_TEXT
    assert theirs.mask_token is None
    for text in TEXTS:
        assert theirs(text)["input_ids"] == found.encode_pair(text)[0]
        assert found.decode(theirs(text)["input_ids"]) == text
    assert theirs("a", "b")["input_ids"] == found.encode_pair("a", "b")[0]
    again = Tokenizer.load(tmp_path / "saved")
    assert again.fingerprint == found.fingerprint
    assert again.roles == dict.fromkeys(("padding", "start", "stop"), found.start_id)


def test_our_byte_level_bpe_has_bos_and_eos_tokens(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    train(lines(100), TokenizerConfig(kind="bpe", vocabulary=300)).save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert (theirs.bos_token, theirs.eos_token, theirs.pad_token) == ("<s>", "</s>", "<pad>")


def test_a_missing_role_is_an_error_only_where_it_is_needed(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    found = Tokenizer.load(gpt(tmp_path / "published", unk_token="<unk>"))
    assert found.roles == {"unknown": 0}
    [ids] = found.encode(["Ka lo mi"])
    assert found.decode(ids) == "ka lo mi"
    assert not found.continuation_mask.any()
    found.save(tmp_path / "saved")
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")("Ka lo mi")["input_ids"] == ids
    for role in ("start", "stop", "padding"):
        with pytest.raises(FolderError) as caught:
            getattr(found, f"{role}_id")
        place = tmp_path / "published" / "tokenizer.json"
        assert str(caught.value) == f"{place}: has no special token for {role}. Use a tokenizer that has one."
