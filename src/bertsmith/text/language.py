"""Language detection: the script and language of a text, from which lowercasing and accent stripping follow.

A script is recognised by its characters, a language by its most frequent words. Nothing is downloaded: a wrong guess
costs little, is reported in one line, and can be overridden by an option.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

LANGUAGE_CHARACTERS = 200_000  # characters that are examined
MIN_FREQUENT_WORDS = 0.08  # minimum share of a text's words that are among the most frequent ones of a language
CODE = 0.06  # signs of source code per word: prose and Markdown have up to 0.025, code with long comments 0.1
MAX_RARE_ACCENTS = 0.002  # accented letters below this share are those of names and loanwords

# Unicode ranges of the letters of each script, roughly.
SCRIPTS: dict[str, tuple[tuple[int, int], ...]] = {
    "Latin": ((0x41, 0x5A), (0x61, 0x7A), (0xC0, 0x24F), (0x1E00, 0x1EFF)),
    "Greek": ((0x370, 0x3FF), (0x1F00, 0x1FFF)),
    "Cyrillic": ((0x400, 0x52F),),
    "Armenian": ((0x530, 0x58F),),
    "Hebrew": ((0x590, 0x5FF),),
    "Arabic": ((0x600, 0x6FF), (0x750, 0x77F), (0x8A0, 0x8FF), (0xFB50, 0xFDFF), (0xFE70, 0xFEFF)),
    "Indic": ((0x900, 0xDFF),),
    "Thai": ((0xE00, 0xE7F),),
    "Lao": ((0xE80, 0xEFF),),
    "Tibetan": ((0xF00, 0xFFF),),
    "Burmese": ((0x1000, 0x109F),),
    "Georgian": ((0x10A0, 0x10FF),),
    "Hangul": ((0x1100, 0x11FF), (0xAC00, 0xD7AF)),
    "Ethiopic": ((0x1200, 0x137F),),
    "Khmer": ((0x1780, 0x17FF),),
    "Japanese": ((0x3040, 0x30FF), (0xFF66, 0xFF9D)),
    "Chinese": ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x323AF)),
}
CASED = ("Latin", "Greek", "Cyrillic", "Armenian")
UNSPACED = ("Chinese", "Japanese", "Thai", "Lao", "Khmer", "Burmese", "Tibetan")  # no space between words
COMMON_WORDS = {  # the most frequent words of languages in Latin script
    "English": "the of and to in is that was for it with as his on be at by this had not are but from or have an they",
    "German": "der die und das in den von zu mit sich des auf für ist im dem nicht ein eine als auch es an er sie hat",
    "Dutch": "de het een van en in is dat op te voor met zijn niet aan er ook als door maar om bij naar wordt deze",
    "French": "le la les de des du et un une est en que qui dans pour par sur au il ne pas plus avec son ce sont",
    "Spanish": "el la los las de que y en un una es se del por con para no su al lo como más fue pero sus",
    "Portuguese": "o a os as de que e em um uma do da dos das no na para com não se por mais como foi ao ele",
    "Italian": "il la le di che e un una in del della per non con si da è sono al come anche dei nel alla più gli",
    "Catalan": "el la els les de i que en un una per amb no del al és va als més com aquest seva però dels",
    "Romanian": "de și în a la cu pe nu o un din care este să se pentru mai ca al fost au sau prin dar",
    "Swedish": "och att det i en som är på av för med den till inte om ett var de har han jag från vi men",
    "Danish": "og at det i en er på af for med den til ikke som der et var de har han jeg fra vi men hun",
    "Norwegian": "og å det i en er på av for med den til ikke som et var de har han jeg fra vi men seg",
    "Icelandic": "og að í á er sem það til um við með ekki en var fyrir því hann hún af þetta eru",
    "Finnish": "ja on ei se että oli hän ovat kun mutta joka tai myös niin kuin ole sen hänen sitä jo vain",
    "Estonian": "ja on ei et see oli ta kui mis ka aga ma siis nii oma selle seda ning või välja",
    "Hungarian": "a az és hogy nem is egy van volt meg csak de ha mint már ez azt még kell vagy",
    "Polish": "w i na z nie się do to że jest o jak po co ale za od jego przez dla czy był być",
    "Czech": "a v se na je že to s z do o i jako by ale za jsem byl tak po jeho která který není",
    "Slovak": "a v sa na je že to s z do o aj ako by ale za som bol tak po jeho ktorá ktorý nie",
    "Croatian": "i u je na se da su za od s o kao ne bi ali to koji koja iz što nije bio sam",
    "Slovene": "in je v na se da so za z ki po pa ne od bi s to tudi kot bil ni ali iz",
    "Lithuanian": "ir kad į su iš tai yra ne buvo bet kaip jis o tik ar dėl nuo už jau apie",
    "Latvian": "un ir ka ar no uz par tas bija viņš kā bet lai vai arī nav pēc to es kas",
    "Turkish": "ve bir bu da de için ile çok o ne daha gibi var olarak olan kadar sonra değil ama en ise mi",
    "Azerbaijani": "və bir bu da də üçün ilə çox o nə daha kimi var olaraq olan qədər sonra deyil amma ən",
    "Vietnamese": "và của là có cho không được trong một với người các đã này những để khi đến về ở",
    "Indonesian": "yang dan di dengan untuk ini itu dari dalam tidak pada akan ke adalah juga oleh ada sebagai",
}
COMMON_WORD_SETS = {language: frozenset(words.split()) for language, words in COMMON_WORDS.items()}
_LANGUAGES_OF = {  # the languages that have a frequent word
    word: tuple(name for name, common in COMMON_WORD_SETS.items() if word in common)
    for word in frozenset().union(*COMMON_WORD_SETS.values())
}
SPLITTING = {"German": "de", "Spanish": "es", "Italian": "it", "Dutch": "nl"}  # whose abbreviations sentencex knows
SPLITTING_CHARACTERS = 400  # of a document, by which its language is guessed for splitting
DOTLESS = ("Turkish", "Azerbaijani")  # where I is the capital of ı, and i that of İ
VOWELLED = {"Arabic": "[\u064b-\u0652\u0670]", "Hebrew": "[\u05b0-\u05bd\u05bf\u05c1\u05c2]"}  # marks of vowels
SOME_WORDS = 0.1, 0.9  # share of words with such marks: below they are rare, above the text is written with them
COMMON_LETTER = 0.02  # share of ı among letters: in Turkish one in twenty, in no other large language


@dataclass(frozen=True)
class Writing:
    """The script of a text, its language where that is known, and the normalisation that follows from both."""

    script: str | None
    language: str | None = None
    accents: float = 0.0  # share of letters with an accent
    code: bool = False  # it is source code
    vowelled: float = 0.0  # share of words with marks of vowels, in scripts where they may be left out

    @property
    def lowercase(self) -> bool:
        """Whether to lowercase: not in scripts without case, nor where case distinguishes letters or names."""
        return (self.script in CASED or self.script is None) and not self._case_matters

    @property
    def _case_matters(self) -> bool:
        """Whether lowercasing would confuse letters (Turkish I) or names (in source code)."""
        return self.language in DOTLESS or self.code

    @property
    def strip_accents(self) -> bool:
        """Whether to strip accents, as BERT uncased: only in English, where names and loanwords have them."""
        return (self.language == "English" or self.script is None) and not self.code

    @property
    def strip_vowels(self) -> bool:
        """Whether to strip the marks of vowels: where some words have them, so that one word has two spellings."""
        least, most = SOME_WORDS
        return least < self.vowelled < most

    @property
    def spaced(self) -> bool:
        return self.script not in UNSPACED

    @property
    def units(self) -> str:
        """The units in which the length of a text is counted."""
        return "words" if self.spaced else "characters"

    @property
    def reason(self) -> str:
        """The reason for the treatment of case and accents."""
        if self.script is None:
            return "the text has few letters"
        if self.script not in CASED:
            vowels = ", and marks of vowels are in some words only" if self.strip_vowels else ""
            return f"the {self.script} script has no capitals{vowels}"
        if self.code:
            return "the text looks like source code, where capitals distinguish names"
        if self.language in DOTLESS:
            return f"the text looks {self.language}, where i and ı are two letters"
        return f"the text looks {self.language}" if self.language else f"the text is in {self.script} letters"


def describe(lowercase: bool, strip_accents: bool, reason: str) -> str:
    """One line on the treatment of case and accents, and its reason."""
    capitals = "lowercased" if lowercase else "capitals kept"
    return f"{capitals}, accents {'stripped' if strip_accents else 'kept'}: {reason}"


def detect_writing(texts: Iterable[str]) -> Writing:
    """The script and language of texts, guessed from the first ones."""
    text = join_sample(texts)
    script = main_script(text)
    if script != "Latin":
        return Writing(script, vowelled=_vowelled(text, script))
    letters = [letter for letter in unicodedata.normalize("NFC", text) if letter.isalpha()]
    accents = sum(letter > "\x7f" for letter in letters) / max(len(letters), 1)
    return Writing(script, _language(text, accents), accents, is_code(text))


def splitting_language(texts: Iterable[str]) -> str:
    """The code of the language by whose abbreviations a document is split into sentences: "en" where in doubt.

    Of the languages that sentencex has, French, Polish, Portuguese and Turkish are split better by the English rules.
    """
    text = join_sample(texts, SPLITTING_CHARACTERS)
    if not text.isascii() and main_script(text) == "Cyrillic":
        return "ru"
    return SPLITTING.get(_language(text, 0.0) or "", "en")


def main_script(text: str) -> str | None:
    """The script of most letters of a text; None if it has fewer than 20 letters."""
    counts = Counter[str]()
    for letter, times in Counter(text).items():
        if script := _script(letter):
            counts[script] += times
    if sum(counts.values()) < 20:
        return None
    if counts["Japanese"] > 0.1 * counts["Chinese"]:  # Japanese is written with Chinese characters, too
        counts["Japanese"] += counts.pop("Chinese", 0)
    return max(counts, key=lambda name: counts[name])


def frequent_word_shares(words: Iterable[str]) -> dict[str, float]:
    """For each language with a list of frequent words, the share of lowercased words that are in its list."""
    counts, found = Counter(words), dict.fromkeys(COMMON_WORD_SETS, 0)
    for word in counts.keys() & _LANGUAGES_OF.keys():
        for name in _LANGUAGES_OF[word]:
            found[name] += counts[word]
    total = max(sum(counts.values()), 1)
    return {name: count / total for name, count in found.items()}


def is_code(text: str) -> bool:
    """Whether a text is source code, by the number of calls, brackets, operators and names_like_this."""
    least = CODE * max(len(text.split()), 1)
    # Each sign has one of these characters, so that most prose is recognised by counting them.
    return sum(map(text.count, "(){}=>:_[;")) > least and len(_CODE.findall(text)) > least


def join_sample(texts: Iterable[str], max_characters: int = LANGUAGE_CHARACTERS) -> str:
    """The first characters of texts, one text per line."""
    found, size = [], 0
    for text in texts:
        found.append(text[: max_characters - size])
        size += len(found[-1])
        if size >= max_characters:
            break
    return "\n".join(found)


def count_words(text: str) -> int:
    """The number of words; in scripts without spaces, of characters."""
    if text.isascii():
        return len(text.split())
    characters = len(UNSPACED_LETTER.findall(text))
    return characters + len(UNSPACED_LETTER.sub(" ", text).split()) if characters else len(text.split())


def unwrap(text: str) -> str:
    """Wrapped lines as one: a line break becomes a space, or nothing between characters of scripts without spaces."""
    return (text if text.isascii() else _UNSPACED_BREAK.sub("", text)).replace("\n", " ")


def close_up(text: str) -> str:
    """A decoded text without the spaces around Chinese characters, each of which is a word to BERT's tokenizer.

    Other spaces stay, such as those between Japanese syllables: there the text had one.
    """
    return text if text.isascii() else _SPACE_AT_CHARACTER.sub("", text)


def is_word(piece: str) -> bool:
    """Whether a token is all letters and combining marks, such as the vowels of Hindi and Thai."""
    return any(map(str.isalpha, piece)) and all(
        letter.isalpha() or unicodedata.category(letter).startswith("M") for letter in piece
    )


def _vowelled(text: str, script: str | None) -> float:
    """The share of words with marks of vowels, of those in the script."""
    if script not in VOWELLED:
        return 0.0
    words = [word for word in text.split() if _script(word[0]) == script]
    return sum(bool(re.search(VOWELLED[script], word)) for word in words) / max(len(words), 1)


def _language(text: str, accents: float) -> str | None:
    """The language whose frequent words have the largest share of the text, if it is large enough."""
    shares = frequent_word_shares(re.findall(r"[^\W\d_]+", unicodedata.normalize("NFC", text).lower()))
    if text.count("ı") > COMMON_LETTER * max(sum(map(str.isalpha, text)), 1):
        return max(DOTLESS, key=lambda name: shares[name])
    best = max(shares, key=lambda name: shares[name])
    if shares[best] < MIN_FREQUENT_WORDS:
        return None
    if best == "English" and accents > 10 * MAX_RARE_ACCENTS:
        return None  # English has hardly any accents: it is another language, or a mix
    return best


@cache
def _script(letter: str) -> str | None:
    code = ord(letter)
    if not letter.isalpha() and code < 0x900:
        return None
    scripts = (name for name, ranges in SCRIPTS.items() if any(first <= code <= last for first, last in ranges))
    return next(scripts, None)


UNSPACED_LETTERS = "".join(f"{chr(first)}-{chr(last)}" for name in UNSPACED for first, last in SCRIPTS[name])
_WIDE = f"[{UNSPACED_LETTERS}\u3001-\u303f\uff01-\uff60]"  # with their punctuation
_CHARACTER = "[\u3001-\u303f\u3400-\u9fff\uf900-\ufaff\uff01-\uff60\U00020000-\U000323af]"
_SPACE_AT_CHARACTER = re.compile(f"(?<={_CHARACTER}) (?={_WIDE})|(?<={_WIDE}) (?={_CHARACTER})")
_UNSPACED_BREAK = re.compile(rf"(?<={_WIDE})[ \t]*\n[ \t]*(?={_WIDE})")
UNSPACED_LETTER = re.compile(f"[{UNSPACED_LETTERS}]")
_CODE = re.compile(  # calls, braces, operators, names_like_this, assignments, ends of statements, indices
    r"[A-Za-z_]\w*\(|[{}]|[=!<>+\-*/]=|->|=>|::|[a-z0-9]_[a-z0-9]"
    r"|(?<=[\w\])]) = (?=[^\s=])|\)[:;]|\w\[|;$",
    re.MULTILINE,
)
