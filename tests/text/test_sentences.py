"""Running text is split into sentences, and the layout of a text guessed from its first lines."""

import lzma
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bertsmith.data.corpus.passages import Passage
from bertsmith.text import sentences
from bertsmith.text.language import splitting_language
from bertsmith.text.sentences import SPLIT_WINDOW, guess_layout, is_wrapped, split_sentences


@pytest.fixture(params=["sentencex", "rules"])
def splitter(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Sentences are split by the library, or by our rules where it is not installed."""
    if request.param == "rules":
        monkeypatch.setitem(sys.modules, "sentencex", None)
    else:
        pytest.importorskip("sentencex")
    sentences._segment.cache_clear()
    assert sentences.has_sentencex() == (request.param == "sentencex")
    yield request.param
    sentences._segment.cache_clear()


@pytest.mark.usefixtures("splitter")
@pytest.mark.parametrize(
    "expected",
    [
        ["Dr. Smith paid $3.50 to the U.S. Treasury.", "He was not pleased!", "Was she?"],
        ['"Shall we go?" she asked.', "He nodded, e.g. like this."],
        ["He looked at the sea.", '"No doubt," he said.', '"None at all."'],
        ["日本語です。", "そうですか？", "はい！"],
        ["No full stop at the end"],
    ],
)
def test_sentences_end_where_a_reader_ends_them(expected: list[str]) -> None:
    join = "" if expected[0][0] == "日" else " "
    assert list(split_sentences(join.join(expected))) == expected


@pytest.mark.parametrize(
    "expected",
    [
        ["Mr. J. R. Hobbs met Prof. Lee.", "See Fig. 3 and No. 7.", "He said no.", "They left at 5 p.m. on Monday."],
        ["«Comment?» dit-elle.", "Élise ne répondit pas...", "¿Quién es?", "Ça va."],
        ["Он пришёл.", "«Где ты?» — спросил он.", "Никто не ответил!"],
        ["यह एक वाक्य है।", "यह दूसरा है।"],
        ["هل هذا سؤال؟", "نعم، هذا سؤال."],
        ["「そうですか。」", "と言った。"],
        ["It cost 3.14 then.", "(He knew.)", "2 days passed, e.g. Monday.", "End"],
    ],
)
def test_simple_rules_know_abbreviations_and_scripts(expected: list[str]) -> None:
    text = ("" if expected[0][0] == "「" else " ").join(expected)
    assert [part.strip() for part in sentences.split_by_rules("en", text)] == expected


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        (
            "de",
            ["Das kostet z. B. 5 Euro, ca. 3 Mrd. Euro im Jahr.", "Am 3. Oktober ist es nicht teuer.", "Das ist gut."],
        ),
        ("ru", ["А. С. Пушкин жил в г. Москве, ул. Ленина, д. 5.", "Он родился в 1950 г. в деревне."]),
        ("es", ["El Sr. García y la Sra. Ruiz viven en EE. UU. desde 1950.", "La pág. 5 del vol. 3 no es la última."]),
        ("it", ["Il sig. Rossi e il dott. Bianchi sono in una casa.", "La città non è grande come questa."]),
        ("nl", ["De heer en dhr. Jansen wonen bijv. in een huis aan het water.", "Het is niet ver van de stad."]),
        ("en", ["Dr. Smith paid for it in the U.S. and was not pleased.", "He was at home."]),
        ("en", ["M. Dupont et Mme. Durand sont dans la maison de la ville.", "Il est né en 1950."]),
    ],
)
def test_a_document_is_split_by_the_abbreviations_of_its_language(language: str, expected: list[str]) -> None:
    assert splitting_language(expected) == language
    passage = Passage([" ".join(expected)], "file", 1, "running")
    assert passage.sentences() == expected


@pytest.mark.usefixtures("splitter")
def test_a_text_longer_than_the_window_is_split_as_if_it_were_short() -> None:
    expected = [f"This is the sentence with the number {number}, and nothing else." for number in range(500)]
    assert list(split_sentences(" ".join(expected))) == expected


@pytest.mark.usefixtures("splitter")
def test_a_sentence_without_end_is_cut_at_spaces() -> None:
    found = list(split_sentences("word " * 5_000))
    assert " ".join(found) == ("word " * 5_000).strip()
    assert max(map(len, found)) <= SPLIT_WINDOW


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.usefixtures("splitter")
@given(text=st.text(alphabet=st.sampled_from("aB .!?\"'(\n\t。é\u2028")) | st.text())
def test_no_character_is_lost(text: str) -> None:
    text = text.encode("utf-8", "ignore").decode()
    found = list(split_sentences(text * 40))
    assert "".join("".join(found).split()) == "".join((text * 40).split())
    assert all(sentence == sentence.strip() != "" for sentence in found)


@pytest.mark.usefixtures("splitter")
@pytest.mark.parametrize("unit", ["a. ", "A.", '"', "(", "word ", "x", "Yes! "])
def test_time_grows_linearly(unit: str) -> None:
    def seconds(characters: int) -> float:
        text, began = unit * (characters // len(unit)), time.process_time()
        list(split_sentences(text))
        return time.process_time() - began

    assert seconds(400_000) < 16 * seconds(100_000) + 0.5


@pytest.mark.parametrize("splitter", ["sentencex"], indirect=True)
def test_text_that_the_library_cannot_split_stays_whole(splitter: str) -> None:
    assert list(split_sentences("One. Half \ud800 of it. Three.")) == ["One. Half \ud800 of it. Three."]
    assert list(split_sentences("Wide\u2028.\u3000Two. Three.")) == ["Wide\u2028.", "Two.", "Three."]


PARAGRAPH = (
    "The lighthouse stood at the end of a long pier. Ships passed it by night and by day. Its keeper had not "
    "spoken to anybody for a year, and he liked it so! On Sundays he read. On Mondays he mended his nets."
)


@pytest.mark.usefixtures("splitter")
def test_layouts_are_recognised() -> None:
    lines = list(split_sentences(PARAGRAPH)) * 20
    assert guess_layout(lines) == "lines"
    assert guess_layout([*lines, ""] * 2) == "lines"
    assert guess_layout(["short title", "another one entirely here", "a third"] * 20) == "lines"
    assert guess_layout([]) == "lines"
    assert guess_layout([PARAGRAPH] * 3) == "running"
    assert guess_layout(["A Heading", "", PARAGRAPH, "", PARAGRAPH]) == "running"
    assert guess_layout(["吾輩は猫である。名前はまだ無い。どこで生れたか見当がつかぬ。"] * 3) == "running"
    for width in (40, 72, 100):
        broken = textwrap.wrap(PARAGRAPH * 9, width)
        assert guess_layout(broken) == "running"
        assert is_wrapped(broken)
    assert not is_wrapped(lines)
    assert not is_wrapped([PARAGRAPH] * 9)


@pytest.mark.usefixtures("splitter")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("هل قرأت هذا الكتاب؟", "نعم قرأته في العام الماضي."),
        ("קראתי את הספר הזה.", "הוא היה טוב מאוד."),
        ("यह एक अच्छा दिन है।", "हम सब बहुत खुश हैं।"),
        ("나는 어제 책을 읽었다.", "오늘은 비가 온다."),
        ("床前明月光。", "疑是地上霜！"),
    ],
)
def test_running_text_and_its_sentences_are_recognised_in_scripts_without_capitals(first: str, second: str) -> None:
    paragraph = f"{first} {second}"
    assert guess_layout([paragraph] * 9) == "running"
    assert guess_layout([first, second] * 9) == "lines"
    assert list(split_sentences(paragraph)) == [first, second]


def test_paragraphs_between_blank_lines_are_running_text_though_most_have_one_sentence() -> None:
    sentences = list(split_sentences(PARAGRAPH))
    paragraphs = [line for sentence in sentences * 2 for line in (sentence, "")]
    assert guess_layout(paragraphs) == "lines"
    assert guess_layout([*paragraphs, PARAGRAPH, "", PARAGRAPH, ""]) == "running"
    assert guess_layout([*sentences * 2, "", PARAGRAPH, "", PARAGRAPH]) == "lines"  # documents of several lines


@pytest.mark.shared
def test_the_layouts_of_real_texts_are_recognised(shared: Path) -> None:
    data = shared / "data"
    for name in ("corpus-small/valid", "corpus/wiki-val", "corpus/books-val"):
        lines = lzma.decompress((data / f"{name}.txt.xz").read_bytes()).decode().split("\n")
        blocks = [lines[start : start + 200] for start in range(0, len(lines) - 200, 1_000)]
        assert {guess_layout(block) for block in blocks} == {"lines"}
        documents = "\n".join(lines).split("\n\n")[:40]
        assert guess_layout([document.replace("\n", " ") for document in documents]) == "running"
        assert guess_layout([line for text in documents for line in textwrap.wrap(text, 72)][:200]) == "running"
