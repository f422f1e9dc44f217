"""Words and tags come back as they were written, the tags in BIO; a bad line costs its sentence."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.data.labelled.bad_rows import BadRows, Policy
from bertsmith.data.labelled.conll import read, to_bio
from bertsmith.data.labelled.examples import Sentence
from bertsmith.data.labelled.sources import find_source
from bertsmith.errors import TextError

BAD = "sentences with a broken line"


def parsed(
    path: Path, data: str | bytes, policy: Policy = "skip", word: str | None = None, tag: str | None = None
) -> tuple[list[Sentence], str, dict[str, int]]:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    dropped = BadRows(policy)
    found, said = read(find_source(path), word, tag, dropped)
    return found, said, dict(dropped.counts)


def plain(found: list[Sentence]) -> list[tuple[tuple[str, ...], tuple[str, ...] | None]]:
    return [(sentence.words, sentence.tags) for sentence in found]


def test_the_word_is_in_the_first_column_and_the_tag_in_the_last(tmp_path: Path) -> None:
    data = "-DOCSTART- -X- O O\n\nEU NNP I-NP B-ORG\nrejects VBZ I-VP O\n\n\nPeter NNP I-NP B-PER\n"
    found, said, counts = parsed(tmp_path / "eng.train", data)
    assert plain(found) == [(("EU", "rejects"), ("B-ORG", "O")), (("Peter",), ("B-PER",))]
    assert [sentence.location.rpartition(":")[2] for sentence in found] == ["3", "7"]
    assert (said, counts) == ("words from column 0, tags from column 3, documents: 1", {})


def test_columns_can_be_named_by_their_numbers(tmp_path: Path) -> None:
    data = "1\tEU\tNNP\tB-ORG\n2\tsays\tVBZ\tO\textra\n"
    assert plain(parsed(tmp_path / "a.conll", data, word="1", tag="2")[0]) == [(("EU", "says"), ("NNP", "VBZ"))]
    with pytest.raises(TextError, match=r"a\.conll: has no column '4'\. Columns are numbered from 0 to 3\.$"):
        parsed(tmp_path / "a.conll", data, tag="4")


CONLLU = """# sent_id = 1
# text = vámonos al mar
1-2\tvámonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tvamos\tir\tVERB\t_\t_\t0\troot\t_\t_
2\tnos\tnosotros\tPRON\t_\t_\t1\tobj\t_\t_

1\tal\ta\tADP\tIN\t_\t2\tcase\t_\t_
1.1\tgran\tgran\tADJ\t_\t_\t_\t_\t_\t_
2\tmar\tmar\tNOUN\tNN\t_\t0\troot\t_\t_
"""


@pytest.mark.parametrize("name", ["es-ud-train.conllu", "train.txt"])
def test_conllu_is_words_with_their_universal_parts_of_speech(tmp_path: Path, name: str) -> None:
    found, said, counts = parsed(tmp_path / name, CONLLU)
    assert plain(found) == [(("vamos", "nos"), ("VERB", "PRON")), (("al", "mar"), ("ADP", "NOUN"))]
    assert (said, counts) == ("words from column 1, tags from column 3 (CoNLL-U)", {})
    assert plain(parsed(tmp_path / name, CONLLU, tag="4")[0])[1] == (("al", "mar"), ("IN", "NN"))


def test_ten_columns_without_numbers_are_no_conllu(tmp_path: Path) -> None:
    data = "\n".join(["\t".join([word, *"bcdefghi", "O"]) for word in ("It", "is", "1984")])
    found, said, _ = parsed(tmp_path / "a.conll", data)
    assert plain(found) == [(("It", "is", "1984"), ("O", "O", "O"))]
    assert said == "words from column 0, tags from column 9"


def test_a_no_break_space_is_part_of_a_word(tmp_path: Path) -> None:
    found, _, counts = parsed(tmp_path / "a.conll", "pays O\n10\u00a0000  B-NUM\neuros O\n")
    assert plain(found) == [(("pays", "10\u00a0000", "euros"), ("O", "B-NUM", "O"))]
    assert counts == {}


def test_words_with_spaces_are_separated_by_tabs_and_comments_are_skipped(tmp_path: Path) -> None:
    data = "# id 7 domain=en\nNew York\tB-LOC\n#\tO\n\n# text = hello\nhello\tO\n"
    found, _, counts = parsed(tmp_path / "a.conll", data)
    assert plain(found) == [(("New York", "#"), ("B-LOC", "O")), (("hello",), ("O",))]
    assert counts == {}


def test_line_ends_and_byte_order_marks_do_not_matter(tmp_path: Path) -> None:
    data = "\ufeffEU B-ORG\r\nsays O\r\n\r\nIt O\r\n"
    assert plain(parsed(tmp_path / "a.conll", data)[0]) == [(("EU", "says"), ("B-ORG", "O")), (("It",), ("O",))]


@pytest.mark.parametrize(
    ("line", "reason", "fact"),
    [
        (b"alone", BAD, "a line of the sentence that begins here has 1 columns and not 2"),
        (b"one two three", BAD, "a line of the sentence that begins here has 3 columns and not 2"),
        (b"b\xffd O", "rows with bad bytes", "holds bytes that are not UTF-8"),
        (b"n\0l O", "rows with NUL characters", "holds a NUL character"),
    ],
)
def test_a_bad_line_costs_its_sentence(tmp_path: Path, line: bytes, reason: str, fact: str) -> None:
    data = b"EU B-ORG\n\nIt O\n" + line + b"\nsays O\n\nEnd O\n"
    found, _, counts = parsed(tmp_path / "a.conll", data)
    assert plain(found) == [(("EU",), ("B-ORG",)), (("End",), ("O",))]
    assert counts == {reason: 1}
    with pytest.raises(TextError, match=rf"a\.conll:3: {fact}\. Mend the file"):
        parsed(tmp_path / "a.conll", data, "fail")


def test_an_empty_column_costs_its_sentence(tmp_path: Path) -> None:
    found, _, counts = parsed(tmp_path / "a.conll", "a\tX\tO\n\nb\t\tO\n\nc\tY\tO\n", tag="1")
    assert (plain(found), counts) == ([(("a",), ("X",)), (("c",), ("Y",))], {BAD: 1})


def test_a_file_without_sentences_or_tags_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TextError, match=r"a\.conll: is empty\. Give it words and tags\.$"):
        parsed(tmp_path / "a.conll", "")
    with pytest.raises(TextError, match=r"a\.conll: holds no sentence\."):
        parsed(tmp_path / "a.conll", "\n \n")
    with pytest.raises(TextError, match=r"a\.conll: has one column and so no tags\. Put a word, a tab and its tag"):
        parsed(tmp_path / "a.conll", "only\nwords\n")


@pytest.mark.parametrize(
    ("before", "after", "repaired"),
    [
        ("B-X I-X O B-Y", "B-X I-X O B-Y", 0),
        ("I-X I-X B-X O I-Y", "B-X I-X B-X O B-Y", 2),  # IOB1
        ("B-X I-Y I-Y", "B-X B-Y I-Y", 1),
        ("S-X O B-Y I-Y E-Y", "B-X O B-Y I-Y I-Y", 0),  # IOBES
        ("U-X U-X B-Y L-Y", "B-X B-X B-Y I-Y", 0),  # BILOU
        ("B-X M-X E-X W-X", "B-X I-X I-X B-X", 0),  # BMEWO
        ("B-X E-X I-X", "B-X I-X B-X", 1),
        ("NN VB PRP-S O", "NN VB PRP-S O", 0),  # no spans
        ("L-verb M-noun", "L-verb M-noun", 0),  # letters of no scheme
        ("B-X odd I-X", "B-X odd B-X", 1),
        ("B-a-b I-a-b", "B-a-b I-a-b", 0),
        ("", "", 0),
    ],
)
def test_tags_become_bio(before: str, after: str, repaired: int) -> None:
    assert to_bio(before.split()) == (tuple(after.split()), repaired)


@given(st.lists(st.sampled_from(["O", "B-X", "I-X", "B-Y", "I-Y"]), max_size=12))
def test_bio_has_no_span_that_begins_inside_and_stays_as_it_is(tags: list[str]) -> None:
    found, repaired = to_bio(tags)
    assert to_bio(found) == (found, 0)
    assert sum(old != new for old, new in zip(tags, found, strict=True)) == repaired
    assert [tag[1:] for tag in found] == [tag[1:] for tag in tags]


def test_the_conversion_of_tags_is_reported(tmp_path: Path) -> None:
    for tags, said in (
        ("I-X I-X B-X O I-Y", ", IOB1 turned into BIO"),
        ("B-X I-X O B-Y I-X", ", spans that began with I- repaired: 1"),
        ("S-X O", ", IOBES turned into BIO"),
        ("U-X E-X", ""),
        ("NN VB", ""),
    ):
        data = "\n".join(f"word {tag}" for tag in tags.split())
        assert parsed(tmp_path / "a.conll", data)[1] == "words from column 0, tags from column 1" + said


WORDS = st.text(st.characters(blacklist_categories=["Cs", "Z", "C"]), min_size=1, max_size=6)
GOOD = st.lists(st.tuples(WORDS.filter(lambda word: word[0] not in "#-"), st.sampled_from(["O", "B-X"])), min_size=1)
SPOILT = st.sampled_from([b"", b"alone", b"a b c", b"b\xffd O", b"n\0l O", b"\xed\xa0\x80 O"])


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(sentences=st.lists(st.tuples(GOOD, SPOILT), min_size=1, max_size=6), between=st.sampled_from([" ", "\t"]))
def test_good_sentences_survive_bad_ones(
    tmp_path_factory: pytest.TempPathFactory, sentences: list[tuple[list[tuple[str, str]], bytes]], between: str
) -> None:
    data, good, bad = b"one O\ntwo O\nthree O\nfour O\nfive O\nsix O\nseven O\n\n", [], 0
    for rows, spoilt in sentences:
        data += "".join(f"{word}{between}{tag}\n" for word, tag in rows).encode() + b"\n"
        good.append((tuple(word for word, _ in rows), tuple(tag for _, tag in rows)))
        if spoilt:
            data += b"first O\n" + spoilt + b"\nlast O\n\n"
            bad += 1
    found, _, counts = parsed(tmp_path_factory.getbasetemp() / "good.conll", data)
    assert plain(found)[1:] == good
    assert sum(counts.values()) == bad


@settings(max_examples=60, deadline=None)
@given(noise=st.binary(max_size=40), at=st.integers(0, 30), policy=st.sampled_from(["skip", "fail"]))
def test_any_bytes_are_sentences_or_one_clear_line(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, at: int, policy: Policy
) -> None:
    data = b"EU B-ORG\nsays O\n\nIt O\nends O\n"
    said = "any.conll"
    try:
        parsed(tmp_path_factory.getbasetemp() / "any.conll", data[:at] + noise + data[at:], policy)
    except TextError as error:
        said = str(error)
    assert "any.conll" in said
    assert "\n" not in said


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "sentences", "words", "documents", "spans"),
    [
        ("eng.train.xz", 14_041, 203_621, "946", {"LOC": 7_140, "PER": 6_600, "ORG": 6_321, "MISC": 3_438}),
        ("eng.testa.xz", 3_250, 51_362, "216", {"LOC": 1_837, "PER": 1_842, "ORG": 1_341, "MISC": 922}),
    ],
)
def test_conll_2003_has_the_published_counts(
    shared: Path, name: str, sentences: int, words: int, documents: str, spans: dict[str, int]
) -> None:
    dropped = BadRows("fail")
    found, said = read(find_source(shared / "data" / "conll2003" / name), None, None, dropped)
    assert (len(found), sum(len(sentence.words) for sentence in found)) == (sentences, words)
    assert said == f"words from column 0, tags from column 3, IOB1 turned into BIO, documents: {documents}"
    tags = Counter(tag for sentence in found for tag in sentence.tags or ())
    assert {tag[2:]: count for tag, count in tags.items() if tag.startswith("B-")} == spans
