"""Lowercasing and accent stripping follow the language of a text."""

from functools import cache
from pathlib import Path

import pytest

from bertsmith.commands import prepare
from bertsmith.text import language
from bertsmith.text.language import Writing
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train
from bertsmith.text.train import BERT_MAX_WORD

TEXTS = {
    "English": "The children of the house went to the river, and it was late when they came back from there.",
    "German": "Das Geschäft ist heute nicht geöffnet, und die Leute warten auf der Straße für eine Stunde.",
    "Turkish": "Bu ev çok büyük ve bahçesi de güzel bir yer olarak bilinir, ama İstanbul kadar kalabalık değil.",
    "French": "Le garçon est allé à l'école avec sa sœur, et il ne savait pas que les élèves étaient dans la cour.",
    "Chinese": "我们今天去北京看朋友，天气很好，大家都很高兴。我爱学习中文。",
    "Japanese": "今日はとても良い天気です。私は学校に行きました。",
    "Thai": "ภาษาไทยเป็นภาษาที่มีเสียงวรรณยุกต์",
    "Indic": "यह एक अच्छा दिन है और हम सब बहुत खुश हैं",
    "Arabic": "ذهب الولد إلى المدرسة في الصباح الباكر",
    "Cyrillic": "Он пошёл в школу и увидел там своего друга.",
}


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("English", "lowercased, accents stripped: the text looks English"),
        ("German", "lowercased, accents kept: the text looks German"),
        ("French", "lowercased, accents kept: the text looks French"),
        ("Turkish", "capitals kept, accents kept: the text looks Turkish, where i and ı are two letters"),
        ("Chinese", "capitals kept, accents kept: the Chinese script has no capitals"),
        ("Japanese", "capitals kept, accents kept: the Japanese script has no capitals"),
        ("Thai", "capitals kept, accents kept: the Thai script has no capitals"),
        ("Indic", "capitals kept, accents kept: the Indic script has no capitals"),
        ("Arabic", "capitals kept, accents kept: the Arabic script has no capitals"),
        ("Cyrillic", "lowercased, accents kept: the text is in Cyrillic letters"),
    ],
)
def test_the_treatment_of_case_and_accents_is_reported_with_its_reason(name: str, line: str) -> None:
    found = language.detect_writing([TEXTS[name]])
    assert language.describe(found.lowercase, found.strip_accents, found.reason) == line


def test_marks_of_vowels_are_stripped_where_only_some_words_have_them() -> None:
    vowelled = "ذَهَبَ الوَلَدُ إِلَى المَدرَسَةِ"
    lines = {share: [TEXTS["Arabic"]] * (10 - share) + [vowelled] * share for share in (0, 4, 10)}
    written = {share: language.detect_writing(texts) for share, texts in lines.items()}
    assert [one.strip_vowels for one in written.values()] == [False, True, False]
    assert written[4].reason == "the Arabic script has no capitals, and marks of vowels are in some words only"
    hebrew = ["הוא הלך לבית הספר בבוקר", "בְּרֵאשִׁית בָּרָא אֱלֹהִים"]
    assert language.detect_writing(hebrew).strip_vowels
    assert not language.detect_writing(hebrew[:1]).strip_vowels


def test_a_tokenizer_of_such_a_text_has_one_spelling_of_a_word(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"{TEXTS['Arabic']}\nذَهَبَ الوَلَدُ إِلَى المَدرَسَةِ\n" * 20, encoding="utf-8")
    prepare.tokenizer([str(tmp_path)], tmp_path / "made", TokenizerConfig(vocabulary=200))
    made = Tokenizer.load(tmp_path / "made")
    assert made.encode(["الوَلَدُ"]) == made.encode(["الولد"])
    assert (made.lowercase, made.strips_accents) == (False, True)


def test_a_text_of_few_letters_is_treated_as_bert_uncased() -> None:
    found = language.detect_writing(["12 34 !", "a"])
    assert (found, found.lowercase, found.strip_accents) == (Writing(None), True, True)
    assert found.reason == "the text has few letters"


def test_an_unknown_language_keeps_its_accents() -> None:
    found = language.detect_writing(["lorem ipsum dolor sit amet consectetur adipiscing elit"])
    assert (found.language, found.lowercase, found.strip_accents) == (None, True, False)


def test_scripts_without_spaces_count_characters() -> None:
    assert language.count_words("the cat sat") == 3
    assert language.count_words("das Geschäft öffnet") == 3
    assert language.count_words("我爱 BERT 学习") == 5
    units = {name: language.detect_writing([text]).units for name, text in TEXTS.items()}
    assert {name for name, unit in units.items() if unit == "characters"} == {"Chinese", "Japanese", "Thai"}


def test_wrapped_lines_are_joined_as_their_script_is_written() -> None:
    assert language.unwrap("one\ntwo") == "one two"
    assert language.unwrap("Größe\nändern") == "Größe ändern"
    assert language.unwrap("名前は\nまだ無い。\nどこで") == "名前はまだ無い。どこで"
    assert language.unwrap("安装\nLinux\n内核，\n然后") == "安装 Linux 内核，然后"


def test_chinese_and_japanese_are_decoded_without_spaces_and_encoded_again_as_before() -> None:
    texts = ["安装 Linux 内核，然后重启。", "図書館でファイルを読みました。", "ここ あそこ", "an old 人"]
    made = train(texts * 3, TokenizerConfig(vocabulary=300, min_frequency=1, lowercase=False))
    for text in texts:
        assert made.decode(made.encode([text])[0]) == text
    ids = made.encode(["安装内核"])[0]
    masked = made.decode([ids[0], made.mask_id, *ids[2:]], keep_special=True)
    assert masked == "安 [MASK] 内核"
    assert made.encode([masked])[0] == [ids[0], made.mask_id, *ids[2:]]


def test_words_may_have_combining_marks() -> None:
    assert all(map(language.is_word, ("cat", "हिन्दी", "ไทย", "我", "öl")))
    assert not any(map(language.is_word, ("", "a1", "##", "।", "\u0301")))


@cache
def learnt(lowercase: bool | None, strip_accents: bool | None) -> Tokenizer:
    settings = TokenizerConfig(vocabulary=200, min_frequency=1, lowercase=lowercase, strip_accents=strip_accents)
    return train(["Öl ol Geschäft geschaft ışık isik हिन्दी"] * 3, settings)


@pytest.mark.slow
def test_a_long_thai_phrase_without_spaces_is_known_here_and_in_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    phrase = TEXTS["Thai"] * 4
    made = train([f"{TEXTS['Thai']} linux"] * 5, TokenizerConfig(vocabulary=300, lowercase=False))
    ids = made.encode([phrase])[0]
    assert len(phrase) > BERT_MAX_WORD
    assert made.unknown_id not in ids
    made.save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs.encode(phrase, add_special_tokens=False) == ids
    english = train([TEXTS["English"]] * 5, TokenizerConfig(vocabulary=300))
    assert english.encode(["x" * (BERT_MAX_WORD + 1)])[0] == [english.unknown_id]  # as in BERT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lowercase", "strip_accents", "normal"),
    [
        (None, None, "ol ol geschaft ısık"),
        (True, True, "ol ol geschaft ısık"),
        (True, False, "öl ol geschäft ışık"),
        (False, False, "Öl ol Geschäft ışık"),
        (False, True, "Ol ol Geschaft ısık"),
    ],
)
def test_case_and_accents_are_the_same_here_and_in_transformers(
    lowercase: bool | None, strip_accents: bool | None, normal: str, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    made = learnt(lowercase, strip_accents)
    text = "Öl ol Geschäft ışık हिन्दी"
    assert made.normalise("Öl ol Geschäft ışık") == normal
    assert (made.lowercase, made.strips_accents) == (lowercase is not False, strip_accents is not False)
    made.save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs.encode(text, add_special_tokens=False) == made.encode([text])[0]
    assert Tokenizer.load(tmp_path).fingerprint == made.fingerprint


def test_explicit_and_default_settings_of_bert_uncased_give_the_same_file() -> None:
    assert learnt(None, None).fingerprint == learnt(True, True).fingerprint == learnt(True, None).fingerprint


@pytest.mark.parametrize("kind", ["words", "unigram"])
def test_other_kinds_keep_accents_too(kind: str) -> None:
    settings = TokenizerConfig(kind=kind, vocabulary=120, min_frequency=1, lowercase=True, strip_accents=False)  # type: ignore[arg-type]
    assert train(["Öl und Ol Geschäft geschaft"] * 9, settings).normalise("Öl Geschäft") == "öl geschäft"


def test_turkish_is_recognised_by_a_letter_where_its_frequent_words_are_rare() -> None:
    found = language.detect_writing(
        ["Yaşlı adam gölün kıyısında balık tutmayı seviyordu.", "Işıklı sokakta on kişi yürüdü."]
    )
    assert found.language == "Turkish"
    assert not found.lowercase
    assert not found.strip_accents
    assert language.detect_writing(
        ["The ı of Turkish is a letter that the rest of the world does not have." * 3]
    ).lowercase


PYTHON = """def first_of(items):
    # the first of the items that is not None, or the default of the class
    for item in items:
        if item != None:
            return Found(item)
"""
JAVA = """public class Main {
  // the name of it, which is shown to the user
  private String userName = null;
  void run() { System.out.println(userName); }
}
"""


@pytest.mark.parametrize("text", [PYTHON, JAVA, Path(language.__file__).read_text(encoding="utf-8")])
def test_source_code_keeps_its_capitals_though_its_comments_are_english(text: str) -> None:
    found = language.detect_writing(text.splitlines())
    assert language.describe(found.lowercase, found.strip_accents, found.reason) == (
        "capitals kept, accents kept: the text looks like source code, where capitals distinguish names"
    )


def test_prose_with_some_code_and_markup_in_it_is_no_source_code() -> None:
    manual = "To begin, call run() once; the rest (if you like) is in the manual, or at https://a.b/c?d=e for those "
    assert not language.is_code(f"{manual} who have a few minutes more and want to know why it was made so.\n" * 9)
    assert not language.is_code(
        " = Robert Boulter = \n Boulter is an English actor ; in 2000 he had a role in it .\n" * 9
    )
    readme = Path(__file__).parents[2] / "README.md"
    assert not language.is_code(readme.read_text(encoding="utf-8"))


def test_a_folder_of_source_code_has_a_vocabulary_with_capitals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "src").mkdir()
    for number in range(3):
        (tmp_path / "src" / f"part{number}.py").write_text(PYTHON * 5)
    prepare.tokenizer([str(tmp_path / "src")], tmp_path / "out", TokenizerConfig(vocabulary=200), plain=True)
    assert "capitals kept, accents kept: the text looks like source code" in " ".join(capsys.readouterr().out.split())
    assert "Found" in Tokenizer.load(tmp_path / "out").decode(Tokenizer.load(tmp_path / "out").encode(["Found"])[0])
