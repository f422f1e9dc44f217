"""Languages: what a text is written in, so that capitals and accents are treated as its language needs them.

A script is known by its characters, a language by its commonest words. Nothing is downloaded: a guess that is wrong
costs little, is said in one line, and is overruled by an option.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

SAMPLE = 200_000  # characters that a guess is made from
SURE = 0.08  # the share of a text's words that must be among the commonest of a language
CODE = 0.06  # signs of source code for each word: prose and Markdown have up to 0.025, code with long comments 0.1
RARE = 0.002  # accented letters below this share are names and loans

# Where a script's letters lie in Unicode, roughly; those without case have nothing to make small.
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
COMMON_WORDS = {  # the commonest words of each language in Latin letters
    "English": "the of and to in is that was for it with as his on be at by this had not are but from or have an they",
    "German": "der die und das in den von zu mit sich des auf für ist im dem nicht ein eine als auch es an werden",
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
DOTLESS = ("Turkish", "Azerbaijani")  # where I is the capital of ı, and i that of İ
COMMON_LETTER = 0.02  # of all letters: ı is one in twenty in Turkish, and in no other large language


@dataclass(frozen=True)
class Writing:
    """How a text is written: its script, its language where that is known, and what follows from both."""

    script: str | None
    language: str | None = None
    accents: float = 0.0  # the share of letters that have one
    code: bool = False  # it is source code, in whatever language its comments are

    @property
    def lowercase(self) -> bool:
        """Whether capitals are better made small: not where there are none, or where it would change the letter."""
        return (self.script in CASED or self.script is None) and not self._keeps

    @property
    def _keeps(self) -> bool:
        """Whether a capital is another letter, or part of a name that would be another without it."""
        return self.language in DOTLESS or self.code

    @property
    def strip_accents(self) -> bool:
        """Whether accents may go, as in BERT uncased: in English alone, where they are those of names and loans."""
        return (self.language == "English" or self.script is None) and not self.code

    @property
    def spaced(self) -> bool:
        return self.script not in UNSPACED

    @property
    def units(self) -> str:
        """What a text is counted in."""
        return "words" if self.spaced else "characters"

    @property
    def reason(self) -> str:
        """Why capitals and accents are treated so, in some words."""
        if self.script is None:
            return "the text has few letters"
        if self.script not in CASED:
            return f"the {self.script} script has no capitals"
        if self.code:
            return "the text looks like source code, where capitals tell names apart"
        if self.language in DOTLESS:
            return f"the text looks {self.language}, where i and ı are two letters"
        return f"the text looks {self.language}" if self.language else f"the text is in {self.script} letters"


def describe(lowercase: bool, strip_accents: bool, reason: str) -> str:
    """One line on what is done to capitals and accents, and why."""
    capitals = "lowercased" if lowercase else "capitals kept"
    return f"{capitals}, accents {'stripped' if strip_accents else 'kept'}: {reason}"


def detect_writing(texts: Iterable[str]) -> Writing:
    """How texts are written, guessed from the first of them."""
    text = join_sample(texts)
    counts = Counter[str]()
    for letter, times in Counter(text).items():
        if script := _script(letter):
            counts[script] += times
    if sum(counts.values()) < 20:
        return Writing(None)
    if counts["Japanese"] > 0.1 * counts["Chinese"]:  # Japanese is written with Chinese characters, too
        counts["Japanese"] += counts.pop("Chinese", 0)
    script = max(counts, key=lambda name: counts[name])
    if script != "Latin":
        return Writing(script)
    letters = [letter for letter in unicodedata.normalize("NFC", text) if letter.isalpha()]
    accents = sum(letter > "\x7f" for letter in letters) / max(len(letters), 1)
    return Writing(script, _language(text, accents), accents, is_code(text))


def is_code(text: str) -> bool:
    """Whether a text is source code: calls, brackets, operators and names_like_this among its words."""
    return len(_CODE.findall(text)) > CODE * max(len(text.split()), 1)


def join_sample(texts: Iterable[str], max_characters: int = SAMPLE) -> str:
    """The beginning of texts, a line each."""
    found, size = [], 0
    for text in texts:
        found.append(text[: max_characters - size])
        size += len(found[-1])
        if size >= max_characters:
            break
    return "\n".join(found)


def count_words(text: str) -> int:
    """How many words there are; in scripts without spaces every character counts."""
    if text.isascii():
        return len(text.split())
    alone = len(_UNSPACED.findall(text))
    return alone + len(_UNSPACED.sub(" ", text).split()) if alone else len(text.split())


def is_word(piece: str) -> bool:
    """Whether all of it is letters, and the marks that letters carry, as vowels in Hindi and in Thai."""
    return any(map(str.isalpha, piece)) and all(
        letter.isalpha() or unicodedata.category(letter).startswith("M") for letter in piece
    )


def _language(text: str, accents: float) -> str | None:
    """The language whose commonest words are most of the text, if they are enough of it."""
    words = Counter(re.findall(r"[^\W\d_]+", unicodedata.normalize("NFC", text).lower()))
    total = sum(words.values())
    shares = {name: sum(words[word] for word in common) / max(total, 1) for name, common in COMMON_WORD_SETS.items()}
    if text.count("ı") > COMMON_LETTER * max(sum(map(str.isalpha, text)), 1):
        return max(DOTLESS, key=lambda name: shares[name])
    best = max(shares, key=lambda name: shares[name])
    if shares[best] < SURE:
        return None
    if best == "English" and accents > 10 * RARE:
        return None  # English has no such letters: it is another language, or a mix
    return best


def _script(letter: str) -> str | None:
    code = ord(letter)
    if not letter.isalpha() and code < 0x900:
        return None
    within = (name for name, ranges in SCRIPTS.items() if any(first <= code <= last for first, last in ranges))
    return next(within, None)


_UNSPACED = re.compile(
    "[" + "".join(f"{chr(first)}-{chr(last)}" for name in UNSPACED for first, last in SCRIPTS[name]) + "]"
)
_CODE = re.compile(  # calls, braces, operators, names_like_this, assignments, ends of statements, indices
    r"[A-Za-z_]\w*\(|[{}]|[=!<>+\-*/]=|->|=>|::|[a-z0-9]_[a-z0-9]"
    r"|(?<=[\w\])]) = (?=[^\s=])|\)[:;]|\w\[|;$",
    re.MULTILINE,
)
