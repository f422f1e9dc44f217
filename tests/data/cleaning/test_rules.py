"""Quality rules: rubbish is dropped by the rule that is meant for it; real text of any layout and script is kept."""

import json
import lzma
import random
from pathlib import Path

import pytest

from bertsmith.data.cleaning.clean import clean
from bertsmith.data.cleaning.config import CleaningConfig
from bertsmith.data.cleaning.ngrams import WordHashes
from bertsmith.data.cleaning.rules import RULES, failed
from bertsmith.data.cleaning.text import Text
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.errors import RecipeError
from bertsmith.text.language import COMMON_WORD_SETS
from bertsmith.text.sentences import Layout

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"
PROSE = [
    "The old ship lay in the harbour, and its captain walked along the quay every morning.",
    "He knew every stone of it, and he had a word for each of the sailors who came by.",
    "In winter the sea was grey and loud, so that nobody sailed for weeks.",
]
RUBBISH: dict[str, tuple[list[str], Layout]] = {
    "short-words": (["a b c d e f g h i j k l m n o p q r s t u v w x y z"], "lines"),
    "long-words": (["Donaudampfschifffahrtsgesellschaft Rindfleischetikettierung " * 12], "lines"),
    "letter-runs": (["The key is", "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAabcdefghijklmnop"], "lines"),
    "numbers": (["Total 12 14 18 9 4 2 11 0 34 1998 77 81 23 4 5 6 per cent and more of it"], "lines"),
    "symbols": (["| # | * | @ | the | = | of | + | and | ~ | it | < | is | > | by | ^ | on " * 3], "lines"),
    "braces": (["function () { return value } if (that) { this } else { other } while it is " * 3], "lines"),
    "bullets": ([f"• item of the list number {number} here" for number in range(12)], "running"),
    "ellipses": (
        [f"This is the beginning of story {number} that goes on and on..." for number in range(12)],
        "running",
    ),
    "frequent-words": (["discount viagra casino poker jackpot winner bonus cheap pills replica watches " * 8], "lines"),
    "lorem-ipsum": (["Lorem ipsum dolor sit amet, consectetur adipiscing elit."], "lines"),
    "garbled": (["Die SchÃ¼ler kÃ¶nnen die BÃ¼cher nicht finden, weil sie ungÃ¼ltig sind."], "lines"),
    "repeats": (["Buy this wonderful thing now, before it is gone."] * 9, "running"),
    "repeated-n-grams": (["the cat sat on the mat with the other cat of the house " * 12], "lines"),
    "one-n-gram": (
        ["click here now " * 6 + "for the story of one man and his dog in a town by the sea that " * 3],
        "lines",
    ),
    "menus": ([f"Products {letter}" for letter in "abcdefghijklmnopqrstuvwxyz"], "running"),
}


def reasons(lines: list[str], layout: Layout) -> list[str]:
    bits, _ = failed(Text(lines, layout, WordHashes()))
    return [rule.name for number, rule in enumerate(RULES) if bits >> number & 1]


def test_every_rule_has_rubbish_that_it_drops() -> None:
    assert [rule.name for rule in RULES] == list(RUBBISH)


@pytest.mark.parametrize("rule", RUBBISH)
def test_rubbish_is_dropped_by_its_rule(rule: str) -> None:
    assert rule in reasons(*RUBBISH[rule])


@pytest.mark.parametrize("layout", ["lines", "running"])
def test_prose_fails_no_rule(layout: Layout) -> None:
    assert reasons(PROSE, layout) == []


KEPT = {
    "a caption": ["Two dogs play in the snow."],
    "one word": ["Exit."],
    "a speaker": ["ROMEO:", "O!"],
    "verse": [
        "Tyger Tyger, burning bright", "In the forests of the night;", "What immortal hand or eye,",
        "Could frame thy fearful symmetry?", "In what distant deeps or skies", "Burnt the fire of thine eyes?",
        "On what wings dare he aspire?", "What the hand, dare seize the fire?", "Tyger Tyger, burning bright",
        "In the forests of the night:",
    ],
    "a dialogue": [
        "- Where have you been?", "- At the market.", "- And what did you buy?", "- Bread, and a fish.", "- No wine?",
        "- There was none left.", "- Then we drink water.", "- As we did yesterday.", "- And the day before.", "- Yes.",
    ],
    "Chinese": ["春眠不觉晓，处处闻啼鸟。夜来风雨声，花落知多少。白日依山尽，黄河入海流。欲穷千里目，更上一层楼。"],
    "Japanese": ["吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。何でも薄暗い所で泣いていた。"],
    "Thai": ["ฉันชอบอ่านหนังสือในห้องสมุดทุกวันเพราะเงียบสงบและมีหนังสือให้เลือกอ่านมากมาย"],
    "Hindi": ["भारत एक विशाल देश है और यहाँ अनेक भाषाएँ बोली जाती हैं। यहाँ के लोग मिलजुल कर रहते हैं और त्योहार मनाते हैं।"],
    "Russian": ["Все счастливые семьи похожи друг на друга, каждая несчастливая семья несчастлива по-своему."],
    "Finnish": ["Kansainvälisyyskasvatuksen kehittämissuunnitelmassa korostetaan ympäristötietoisuuden lisäämistä."],
    "Arabic": ["كان يا ما كان في قديم الزمان ملك عظيم يحكم بلادا واسعة وكان الناس يحبونه كثيرا لأنه كان عادلا"],
    "WikiText": ["The <unk> of the @-@ <unk> was built in 1 @,@ 902 by the <unk> family , and sold in that year ."],
}  # fmt: skip


@pytest.mark.parametrize("text", KEPT)
@pytest.mark.parametrize("layout", ["lines", "running"])
def test_text_of_other_layouts_and_scripts_is_kept(text: str, layout: Layout) -> None:
    assert reasons(KEPT[text], layout) == []


def test_a_skipped_rule_is_not_applied() -> None:
    lines, layout = RUBBISH["lorem-ipsum"]
    assert failed(Text(lines, layout, WordHashes()), ["lorem-ipsum"])[0] == 0


def test_an_unknown_rule_is_refused_in_one_line() -> None:
    with pytest.raises(RecipeError, match=r"^skip: unknown rule 'languages'\. Did you mean 'language'\?$"):
        CleaningConfig(skip=("languages",))


@pytest.mark.parametrize("similarity", [0.0, 1.1])
def test_a_similarity_that_is_no_share_is_refused(similarity: float) -> None:
    with pytest.raises(
        RecipeError, match=rf"^similarity: {similarity} is not a share\. Give a number such as 0\.75\.$"
    ):
        CleaningConfig(similarity=similarity)


REAL = {  # the largest share of words that rules may drop
    "tinyshakespeare/input.txt.xz": 0.005,
    "multi30k/train.en.xz": 0.005,
    "multi30k/train.de.xz": 0.005,
    "wikitext-2/valid.txt.xz": 0.01,
    "corpus-small/valid.txt.xz": 0.005,
}


@pytest.mark.exhaustive(suite=2)
@pytest.mark.shared
@pytest.mark.slow("reads megabytes of text twice")
@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("blank_lines", [True, False], ids=["as it is", "one sentence a line"])
def test_real_text_is_kept(tmp_path: Path, name: str, blank_lines: bool) -> None:
    pytest.importorskip("rensa")
    if not (SHARED / name).exists():
        pytest.skip("the datasets are not beside the repository")
    text = lzma.decompress((SHARED / name).read_bytes()).decode()[:1_000_000]
    if not blank_lines:
        text = "\n".join(line for line in text.split("\n") if line.strip())
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    result = clean(Corpus([str(tmp_path / "text.txt")]), tmp_path / "out", CleaningConfig(), workers=0)
    assert result["kept_words"] >= (1 - REAL[name]) * result["words"]


def test_every_line_of_a_list_is_judged_by_itself(tmp_path: Path) -> None:
    """A file without blank lines loses its bad lines, and no good one."""
    draw = random.Random(1)
    words = [*sorted(COMMON_WORD_SETS["English"]), "house", "river", "stone", "tree", "road", "bread"]
    good = [" ".join(draw.choices(words, k=24)) + "." for _ in range(600)]
    bad = RUBBISH["numbers"][0] + RUBBISH["lorem-ipsum"][0]
    (tmp_path / "text.txt").write_text("\n".join([*good[:300], *bad, *good[300:]]), encoding="utf-8")
    config = CleaningConfig(skip=("near-duplicates",))
    result = clean(Corpus([str(tmp_path / "text.txt")], layout="lines"), tmp_path / "out", config, workers=0)
    assert (tmp_path / "out" / "lines-00000.txt").read_text().split() == " ".join(good).split()
    assert {rule["name"]: rule["lines"] for rule in result["rules"] if rule["lines"]} == {
        "numbers": 1,
        "lorem-ipsum": 1,
    }
    assert json.loads((tmp_path / "out" / "clean.json").read_text())["kept_words"] == 600 * 24
