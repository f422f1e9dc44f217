"""An inspection as a whole: every reading is there, what people see of it, and hostile text that does nothing."""

import html
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from inference.test_load import plain, saved
from tasks.small import CASES, shape, stirred, tokenizer

import bertsmith
from bertsmith.errors import BertsmithError, TextError
from bertsmith.insight.inspection.assembly import MAX_READINGS, as_inputs, inspect
from bertsmith.insight.inspection.inspection import Inspection, check_ending, rounded
from bertsmith.insight.inspection.points import _occurrence_vector, draw_map, read_points
from bertsmith.insight.inspection.projection import MAX_POINTS, pca
from bertsmith.insight.inspection.subject import Subject
from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.family import FAMILY
from bertsmith.models.recurrent import Recurrent, RecurrentConfig
from bertsmith.models.static import Static, StaticConfig
from bertsmith.models.transformer import Transformer
from bertsmith.objectives.base import Objective
from bertsmith.objectives.causal import CausalLM
from bertsmith.objectives.masked import MaskedLM
from bertsmith.objectives.recurrent_lm import RecurrentLM
from bertsmith.tasks.text_to_text import TextToText

HOSTILE = "<script>alert(1)</script> & </script> \u2028 \u2029 \U0001f642 \u0645\u0631\u062d\u0628\u0627 the cat"
PASSAGE = "the old cat sees the green river and the dog likes the garden " * 4


def subject(objective: Objective, name: str = "small", **known: Any) -> Subject:
    return Subject(name, "bert", "pretrained", objective, tokenizer(), **known)


def masked_lm(seed: int = 0) -> Subject:
    return subject(stirred(MaskedLM(Transformer(shape()), MaskedLM.Config(pairs="none")), seed))


def task(name: str) -> Subject:
    return subject(CASES[name].task(), has_lm_head=False)


def test_every_model_reads_every_text_and_all_pairs_are_compared() -> None:
    found = inspect([masked_lm(), masked_lm(1)], ["the cat sees the dog", "the cat likes the dog"])
    assert [(one.model, one.text) for one in found.readings] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [(a, b, one.what) for a, b, one in found.comparisons] == [
        (0, 1, "texts"), (2, 3, "texts"), (0, 2, "models"), (1, 3, "models"),
    ]  # fmt: skip
    assert [one.name for one in found.subjects] == ["small", "small (2)"]
    figures = found.figures()
    assert figures["format"] == 1
    assert figures["map"] is None
    assert [one["model"] for one in figures["readings"]] == [0, 0, 1, 1]
    assert figures["models"][0] == {
        "name": "small", "kind": "bert", "architecture": "encoder", "layers": 2, "heads": 4, "width": 32,
        "parameters": found.subjects[0].parameters, "purpose": "pretrained",
    }  # fmt: skip


def test_figures_have_what_the_page_reads() -> None:
    figures = inspect([masked_lm()], "the [MASK] sees the dog").figures()
    (reading,) = figures["readings"]
    assert sorted(reading) == [
        "attentions", "attributions", "backward_predictions", "masked", "model", "neighbours", "notes", "predictions",
        "targets", "text", "tokens",
    ]  # fmt: skip
    (attribution,) = reading["attributions"]
    assert sorted(attribution) == ["baseline", "gap", "name", "output", "scores", "steps", "target", "words"]
    assert len(attribution["scores"]) == len(reading["tokens"]) == len(reading["neighbours"]["static"])
    assert reading["neighbours"]["static"][0] is None
    assert all(float(f"{score:.4g}") == score for score in attribution["scores"])


def test_the_json_is_the_figures_and_can_stand_in_a_page() -> None:
    found = inspect([masked_lm()], HOSTILE)
    text = found.json()
    assert not set(text) & set("<>&\u2028\u2029")
    assert json.loads(text) == found.figures()
    assert json.loads(text)["texts"] == [HOSTILE]


def test_hostile_text_and_names_are_escaped_on_the_page() -> None:
    found = inspect([replace(masked_lm(), name="<img src=x onerror=alert(1)>")], HOSTILE)
    page = found.page()
    assert "alert(1)</script>" not in page
    assert "<img src=x" not in page
    assert "default-src 'none'" in page
    assert page.count("alert(1)") == html.unescape(page).count("alert(1)")


def test_a_notebook_shows_the_page_in_a_frame_of_its_own() -> None:
    found = inspect([masked_lm()], 'the "cat"')
    frame = found._repr_html_()
    assert frame.startswith('<iframe sandbox="allow-scripts"')
    assert frame.count("<") == 2
    inside = frame.split('srcdoc="')[1].rpartition('"></iframe>')[0]
    assert '"' not in inside
    assert html.unescape(inside) == found.page()


def test_people_read_heads_blanks_and_decisive_words() -> None:
    lines = repr(inspect([masked_lm()], "the [MASK] sees the dog")).split("\n")
    assert lines[:2] == ["Inspection", "small: 'the [MASK] sees the dog'"]
    assert lines[2].startswith("  self-attention: 8 heads: ")
    assert lines[3].startswith("  [MASK] at 2: ")
    assert lines[4].startswith("  [MASK] at 2: ")
    assert "(gap 0." in lines[4]
    assert repr(inspect([task("class")], "the cat").readings[0]).startswith(
        "InspectedText('[CLS] the cat [SEP]', Attri"
    )


@pytest.mark.parametrize("ending", ["html", "json", pytest.param("png", marks=pytest.mark.slow("imports matplotlib"))])
def test_an_inspection_is_saved_by_its_ending(ending: str, tmp_path: Path) -> None:
    if ending == "png":
        pytest.importorskip("matplotlib")
    found = inspect([masked_lm()], ["the $cat$ sees", "the dog"])
    path = found.save(str(tmp_path / "deep" / f"inside.{ending}"))
    content = path.read_bytes()
    assert content.startswith({"html": b"<!doctype html>", "json": b'{"format":1', "png": b"\x89PNG"}[ending])


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("inside.pdf", "inside.pdf: has the unknown ending '.pdf'. Known: .html, .json, .png."),
        ("inside.htm", "inside.htm: has the unknown ending '.htm'. Did you mean '.html'?"),
        ("inside", "inside: has the unknown ending ''. Use .html, .json, .png."),
        ("", "path: is missing. Name a file: inside.html."),
    ],
)
def test_an_unknown_ending_is_refused_in_one_line(path: str, message: str) -> None:
    with pytest.raises(TextError) as caught:
        check_ending(path)
    assert str(caught.value) == message


@pytest.mark.parametrize("name", ["class", "number", "labels", "tag"])
def test_the_prediction_of_a_task_is_attributed(name: str) -> None:
    (reading,) = inspect([task(name)], "the cat sees the unbelievable garden").readings
    assert reading.attributions
    assert max(one.gap for one in reading.attributions) <= 0.05
    assert not inspect([task(name)], "the cat", attribute=False).readings[0].attributions


def test_questions_and_choices_are_pairs_and_every_ending_is_a_text() -> None:
    found = inspect([task("answer")], ("the cat", "the dog likes the old river"))
    assert found.texts == ["the cat\nthe dog likes the old river"]
    assert found.readings[0].attributions[0].name.startswith("answer span: ")
    found = inspect([task("choose")], [("the cat sees", ["the dog", "the river"])])
    assert found.texts == ["the cat sees\nthe dog", "the cat sees\nthe river"]
    assert all(one.attributions[0].name.startswith("ending: score ") for one in found.readings)
    with pytest.raises(TextError, match=r"small reads pairs of texts. Give .question, context."):
        inspect([task("answer")], "the cat")


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        ([], {}, "texts: there is none. Give at least one text."),
        (["", "a"], {}, "text: is empty. Write at least one word."),
        ("[CLS] [SEP]", {}, "text: has no token that the model knows, besides special ones. Write at least one word."),
        ([3], {}, "text 1: is '3'. Give a text, or a pair of texts as a tuple."),
        (["the"] * 40, {}, "texts: 40 texts and 1 models are 40 readings. A page has at most 32: leave some out."),
        ("the cat", {"word": "bank"}, "word: is for a map. Name the file with its occurrences, too."),
        ("the cat", {"target": "x"}, "target: is for networks with an encoder and a decoder. Leave it out."),
    ],
)
def test_what_cannot_be_inspected_is_refused_in_one_line(texts: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BertsmithError) as caught:
        inspect([masked_lm()], texts, **options)
    assert str(caught.value) == message


def test_texts_come_in_the_forms_that_people_give_them() -> None:
    assert [one.shown for one in as_inputs("a")] == ["a"]
    assert [one.shown for one in as_inputs(("a", "b"))] == ["a\nb"]
    assert [one.shown for one in as_inputs(["a", ("b", "c"), ("d", ["e", "f"])])] == ["a", "b\nc", "d\ne", "d\nf"]


def test_a_text_that_is_too_long_is_cut_with_a_note() -> None:
    found = inspect([masked_lm()], "the cat " * 60, attribute=False)
    assert len(found.readings[0].tokens) == 64
    assert found.figures()["readings"][0]["notes"][0].endswith("the first 64 are shown.")
    short = inspect([masked_lm()], "the cat sees the dog", max_length=4)
    assert [token.shown for token in short.readings[0].tokens] == ["[CLS]", "the", "cat", "[SEP]"]


def test_many_texts_are_compared_with_their_neighbours() -> None:
    found = inspect([masked_lm()], [f"the cat {'sees ' * count}" for count in range(1, 7)], attribute=False)
    assert [(a, b) for a, b, _ in found.comparisons] == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 5)]
    assert MAX_READINGS >= 6


def test_a_network_without_attention_says_so_and_has_cells() -> None:
    config = RecurrentConfig(vocabulary=tokenizer().vocabulary, width=16, layers=1)
    lstm = subject(stirred(RecurrentLM(Recurrent(config), RecurrentLM.Config())), "lstm")
    found = inspect([lstm], "the cat sees")
    assert found.time is None
    assert found.readings[0].attentions == ()
    assert "This network has no attention." in found.figures()["readings"][0]["notes"]
    assert found.subjects[0].figures()["heads"] == 0
    assert found.readings[0].attributions[0].name.startswith("next token: ")
    found = inspect([lstm], PASSAGE)
    assert "Gradient flow through time" in found.page()
    assert "of the gradient reaches 16 tokens back" in repr(found)
    assert inspect([lstm], "the cat", passage=PASSAGE).time is not None


def test_static_vectors_have_neighbours_and_nothing_else() -> None:
    class Vectors(Objective):
        def forward(self, batch: Any) -> Any:
            raise NotImplementedError

    objective = Vectors()
    objective.trunk = Static(StaticConfig(vocabulary=tokenizer().vocabulary, width=8))
    torch.nn.init.normal_(objective.trunk.embedding.weight)
    (reading,) = inspect([subject(objective, has_lm_head=False)], "the cat sees").readings
    assert reading.attentions == ()
    assert reading.attributions == []
    assert reading.neighbours is not None
    assert reading.neighbours.static[1]


def test_a_translation_has_three_kinds_of_attention() -> None:
    sizes = replace(FAMILY["transformer-tiny"], vocabulary=tokenizer().vocabulary, decoder_layers=2, width=32, layers=2,
                    heads=2, feed_forward=48, max_length=64)  # fmt: skip
    writer = TextToText(stirred(EncoderDecoder(sizes)), TextToText.Config(translation=True, max_new_tokens=10))
    found = inspect([subject(writer)], "the cat", target="the dog sees")
    assert [maps.name for maps in found.readings[0].attentions] == ["encoder", "decoder", "cross-attention"]
    assert found.subjects[0].figures()["architecture"] == "encoder_decoder"
    assert json.loads(found.json())["readings"][0]["targets"]
    assert "cross-attention: 4 heads" in repr(found)
    note = "Generated text is not attributed to the words that were read."
    assert note in found.figures()["readings"][0]["notes"]
    assert note not in inspect([subject(writer)], "the cat", attribute=False).figures()["readings"][0]["notes"]


def test_a_causal_model_predicts_the_next_token_in_its_summary() -> None:
    config = replace(FAMILY["gpt2"], vocabulary=tokenizer().vocabulary, width=32, layers=2, heads=2, feed_forward=48,
                     max_length=64)  # fmt: skip
    found = inspect([subject(stirred(CausalLM(Transformer(config), CausalLM.Config())))], "the cat")
    assert "after cat at " in repr(found)
    assert found.subjects[0].figures()["architecture"] == "decoder"


# ------------------------------------------------------------------------------------------------- maps


def test_a_file_of_lines_is_a_map_of_sentences_and_one_of_words_a_map_of_words(tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("the cat sees\n\nthe dog likes the river\nthe garden\n")
    found = inspect([masked_lm(), task("class")], [], map_file=lines)
    assert found.map is not None
    assert found.texts == ["the cat sees"]  # a page without a text would be empty
    assert [point.text for point in found.map.points] == ["the cat sees", "the dog likes the river", "the garden"]
    assert found.map.what == "sentences"
    assert len(found.map.coordinates) == 2
    assert repr(found).endswith("Map(3 sentences, PCA)")
    lines.write_text("cat\ndog\nunbelievable\nriver\n")
    points = read_points(lines)
    assert points.what == "words"
    one = masked_lm()
    drawn = draw_map(points, [one])
    table = one.objective.trunk.embedding.weight.detach().numpy()
    rows = np.stack([table[ids].mean(0) for ids in tokenizer().encode(points.texts)])
    assert drawn.coordinates[0]["PCA"] == pytest.approx(pca(rows)[0], abs=1e-5)


def test_labels_of_a_table_colour_the_points(tmp_path: Path) -> None:
    table = tmp_path / "reviews.csv"
    rows = [f"the {noun} sees it,{label}" for noun, label in (("cat", "good"), ("dog", "bad")) for _ in range(6)]
    table.write_text("\n".join(["text,label", *rows]) + "\n")
    points = read_points(table)
    assert {point.label for point in points.points} == {"good", "bad"}
    assert points.points[0].text == "the cat sees it"
    texts = tmp_path / "texts.jsonl"
    texts.write_text('{"text": "the cat"}\n{"text": "the dog"}\n{"text": "a river"}\n')
    assert [point.label for point in read_points(texts).points] == [""] * 3


def test_occurrences_of_a_word_are_marked_and_are_vectors_in_context(tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("the cat sees the Cat\nthe caterpillar\nold cat\n" + "garden " * 90 + "cat")
    points = read_points(lines, "cat")
    assert points.what == "occurrences of 'cat'"
    shown = [point.text[slice(*point.mark)] for point in points.points if point.mark is not None]
    assert shown == ["cat", "Cat", "cat", "cat"]
    assert len(points.points[3].text) < 120  # what stands around it
    one = masked_lm()
    drawn = draw_map(points, [one])
    assert len(drawn.points) == 4
    hidden = inspect([one], "old cat").readings[0].reading.trace.hidden[-1]
    assert _occurrence_vector(one, "old cat", (4, 7)).detach().numpy() == pytest.approx(hidden[2], abs=1e-5)


@pytest.mark.parametrize(
    ("word", "fact"),
    [
        ("rivr", "no line has the word 'rivr'. Did you mean 'river'?"),
        ("xyzzyq", "no line has the word 'xyzzyq'. Name a word that occurs in it."),
    ],
)
def test_a_word_that_does_not_occur_is_refused_with_the_nearest(word: str, fact: str, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("the cat sees the river\n")
    with pytest.raises(TextError) as caught:
        read_points(lines, word)
    assert str(caught.value) == f"{lines}: {fact}"
    with pytest.raises(TextError, match="word: is empty"):
        read_points(lines, " ")


def test_an_empty_file_has_no_map(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n \n")
    with pytest.raises(TextError, match=r"empty.txt: has no text. Give a file with a text on each line."):
        read_points(tmp_path / "empty.txt")


def test_a_large_file_is_drawn_from_with_a_note(tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(f"the cat {number}" for number in range(5000)))
    points = read_points(lines)
    assert len(points.points) == MAX_POINTS
    assert points.notes == ["The map has 2,000 of 5,000 points, drawn at random."]
    assert [point.text for point in points.points] == sorted(points.texts, key=lambda text: int(text.split()[-1]))
    assert read_points(lines).points == points.points != read_points(lines, seed=1).points


@pytest.mark.parametrize("kind", ["translation", "lstm"])
def test_every_network_has_a_map(kind: str, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("the cat sees\nthe dog likes\nthe garden in green\n")
    vocabulary = tokenizer().vocabulary
    objective: Objective
    if kind == "lstm":
        config = RecurrentConfig(vocabulary=vocabulary, width=16, layers=1)
        objective = RecurrentLM(Recurrent(config), RecurrentLM.Config())
    else:
        sizes = replace(FAMILY["transformer-tiny"], vocabulary=vocabulary, decoder_layers=1, width=16, layers=1,
                        heads=2, feed_forward=16, max_length=16)  # fmt: skip
        objective = TextToText(EncoderDecoder(sizes), TextToText.Config(translation=True))
    assert draw_map(read_points(lines), [subject(stirred(objective))]).coordinates[0]["PCA"].any()


# ---------------------------------------------------------------------------------------------- the front door


@pytest.mark.slow("saves and loads a model")
def test_a_loaded_model_inspects_itself_under_the_name_of_its_run(tmp_path: Path) -> None:
    model = bertsmith.load(plain(tmp_path / "mine" / "model"))
    found = model.inspect("the [MASK] sees")
    assert isinstance(found, Inspection)
    assert found.subjects[0].name == "mine"
    best = model.fill("the [MASK] sees").blanks[0][0]
    predictions = found.readings[0].reading.predictions
    assert predictions is not None
    (row,) = [row for row, truth in enumerate(predictions.truths) if truth is None]
    shown = [word for word, _ in predictions.top(row, len(predictions.layers) - 1)]
    assert best.word in shown or best.word not in tokenizer().piece_ids
    with pytest.raises(BertsmithError, match=r"atribute: is not an option here. Did you mean 'attribute'"):
        model.inspect("the cat", atribute=True)


@pytest.mark.slow("saves and loads models")
def test_several_models_are_inspected_side_by_side(tmp_path: Path) -> None:
    mine, reviews = plain(tmp_path / "mine" / "model"), saved(tmp_path / "reviews" / "model", "class")
    found = bertsmith.inspect([tmp_path / "mine", bertsmith.load(reviews), str(mine)], "the cat")
    assert [one.name for one in found.subjects] == ["mine", "reviews", "mine (2)"]
    assert found.subjects[1].purpose == "classify (no, so-so, yes)"
    with pytest.raises(BertsmithError, match=r"models: is an empty list. Give at least one model."):
        bertsmith.inspect([], "the cat")


def test_numbers_are_rounded_to_four_digits_wherever_they_are() -> None:
    assert rounded({"a": [1.23456, (2.0, "x", None)], "b": 7, "c": float("nan")}) == {
        "a": [1.235, [2.0, "x", None]],
        "b": 7,
        "c": None,
    }
