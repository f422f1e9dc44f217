"""Texts as a network reads them: any text is shown as it is, long ones are cut with a note, empty ones refused."""

import json

import pytest
from insight.inspection.small import SIZES, tokenizer
from tasks.small import stirred

from bertsmith.errors import TextError
from bertsmith.insight.inspection.inputs import Inputs, read_text
from bertsmith.insight.inspection.reading import read
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.objectives.causal import CausalLM
from bertsmith.objectives.masked import MaskedLM
from bertsmith.text.special_tokens import Kind

HOSTILE = [
    "<script>alert('cat')</script> & \"dog\"",
    "the 🙂🙃 dog",
    "שלום the עולם",
    "a\u200b\u0000\u202edog",
    "dog\n\n\tcat  river",
    "[CLS] the [SEP] dog [PAD]",
]


def masked_lm(kind: Kind = "wordpiece", **changes: object) -> MaskedLM:
    sizes = SIZES | {"vocabulary": tokenizer(kind).vocabulary, "segments": 2} | changes
    made: MaskedLM = stirred(MaskedLM(Transformer(TransformerConfig(**sizes)), MaskedLM.Config(pairs="none")))
    return made


def tokens_of(text: str, kind: Kind = "wordpiece", pair: str | None = None) -> Inputs:
    return read_text(masked_lm(kind), tokenizer(kind), text, pair)


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_tokens_name_their_characters_and_their_word(kind: Kind) -> None:
    text = "the old  dog likes, unlikely!"
    tokens = tokens_of(text, kind).tokens
    assert tokens[0].special
    assert tokens[-1].special
    assert (tokens[0].word, tokens[0].start, tokens[0].end) == (-1, 0, 0)
    inside = tokens[1:-1]
    assert "".join(text[token.start : token.end] for token in inside) == text.replace(" ", "")
    words: dict[int, str] = {}
    for token in inside:
        words[token.word] = words.get(token.word, "") + text[token.start : token.end]
    assert list(words) == list(range(len(words)))
    assert {"the", "old", "dog"} <= set(words.values())
    assert "unlikely" in {word.strip("!,") for word in words.values()}


def test_marks_of_the_vocabulary_are_not_shown() -> None:
    for kind, mark in (("wordpiece", "##"), ("bpe", "Ġ"), ("unigram", "▁")):
        tokens = tokens_of("the old dog likes unlikely catgardens", kind).tokens  # type: ignore[arg-type]
        assert any(mark in token.text for token in tokens)
        assert not any(mark in token.shown for token in tokens if token.text != mark)


@pytest.mark.parametrize("text", HOSTILE)
def test_any_text_is_read_and_written_as_json(text: str) -> None:
    reading = read(masked_lm(), tokenizer(), text)
    figures = json.loads(json.dumps(reading.figures()))
    assert len(figures["tokens"]) == len(reading.tokens)
    assert all(0 <= token["start"] <= token["end"] <= len(text) for token in figures["tokens"])


@pytest.mark.parametrize("text", ["", " ", "\n\t", "\u200b"])
def test_an_empty_text_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(TextError) as caught:
        read(masked_lm(), tokenizer(), text)
    assert str(caught.value).startswith("text: ")
    assert str(caught.value).endswith("Write at least one word.")
    with pytest.raises(TextError, match=r"^text 2: is empty"):
        read(masked_lm(), tokenizer(), "dog", pair="")


def test_half_a_character_is_refused_in_one_line() -> None:
    with pytest.raises(TextError, match=r"^text: the library gave up [^\n]*$"):
        read(masked_lm(), tokenizer(), "\ud800 dog")


def test_a_long_text_is_cut_with_a_note() -> None:
    reading = read(masked_lm(), tokenizer(), "the dog " * 50)
    assert len(reading.tokens) == 64
    assert reading.tokens[-1].text == "[SEP]"
    assert reading.notes == ("The text has 102 tokens with special ones, and the first 64 are shown.",)
    pair = read(masked_lm(), tokenizer(), "the dog " * 50, pair="the river", max_length=20)
    assert [token.text for token in pair.tokens].count("river") == 1
    assert len(pair.tokens) == 20
    with pytest.raises(TextError, match="leave no room"):
        read(masked_lm(), tokenizer(), "dog", max_length=2)


def test_a_text_that_fits_has_no_note() -> None:
    assert read(masked_lm(), tokenizer(), "the dog " * 31).notes == ()


def test_a_causal_model_reads_a_start_token_first() -> None:
    sizes = SIZES | {"vocabulary": tokenizer("bpe").vocabulary, "causal": True}
    objective = stirred(CausalLM(Transformer(TransformerConfig(**sizes)), CausalLM.Config()))
    reading = read(objective, tokenizer("bpe"), "the dog")
    assert [token.shown for token in reading.tokens] == ["<s>", "t", "he", "d", "og"]
    assert reading.predictions is not None
    assert reading.predictions.figures()["truths"] == ["t", "he", "d", "og", None]
