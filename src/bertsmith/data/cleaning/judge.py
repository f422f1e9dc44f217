"""The first reading: every document is judged by the quality rules, and gets a signature and hashes of its lines."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bertsmith.data.cleaning import duplicates, repeated_lines
from bertsmith.data.cleaning.config import LANGUAGE, NEAR_DUPLICATES, REPEATED, CleaningConfig
from bertsmith.data.cleaning.examples import CANDIDATES, Examples, excerpt
from bertsmith.data.cleaning.ngrams import WordHashes
from bertsmith.data.cleaning.passages import NumberedPassage
from bertsmith.data.cleaning.rules import RULES, failed
from bertsmith.data.cleaning.text import UNSPACED, Text

LIST, RUNNING, CODE = 1, 2, 4  # bits of `kind`
DOCUMENT = np.dtype(  # a judged document: its words, the rules that it fails and the languages it may be in, as bits
    [("words", "<u4"), ("failed", "<u4"), ("languages", "<u4"), ("script", "u1"), ("kind", "u1")]
)
FILES = ("documents.bin", "signed.bin", "signatures.bin", "lines.bin")  # in which the results of all chunks are stored


class Judge:
    """Judges passages; what depends on the whole text (its languages, duplicates) is decided after all are read."""

    def __init__(self, config: CleaningConfig) -> None:
        self.config, self._hashes = config, WordHashes()
        self._judges_prose = any(config.applies(rule.name) and not rule.code for rule in RULES)

    def judge(self, passages: Sequence[NumberedPassage]) -> tuple[dict[str, Any], list[bytes]]:
        """Examples of kept documents nearest to the limits; and the bytes for each of `FILES`."""
        documents = np.zeros(len(passages), DOCUMENT)
        signed, hashes, lines = list[int](), list[Any](), list[tuple[int, int]]()
        examples = Examples(most=CANDIDATES)
        for row, passage in enumerate(passages):
            text = Text(passage.lines, passage.layout, self._hashes)
            # A list of sentences has no figures of its own: its lines are judged in the second reading.
            bits, figures = (0, {}) if passage.is_list else failed(text, self.config.skip)
            code = self._judges_prose and text.code
            kind = LIST * passage.is_list | RUNNING * (passage.layout == "running") | CODE * code
            languages, script = text.languages_and_script if self.config.applies(LANGUAGE) else (0, 0)
            documents[row] = len(text.words), bits, languages, script, kind
            if not bits:
                self._keep_nearest(examples, passage, text, figures)
            if self.config.applies(NEAR_DUPLICATES) and len(text.words) >= duplicates.MIN_WORDS:
                signed.append(passage.number)
                hashes.append(text.hashes)
            if self.config.applies(REPEATED):
                lines += line_keys(passage, text.line_words)
        buffers = [
            documents.tobytes(),
            np.array(signed, "<u8").tobytes(),
            duplicates.signatures(hashes).tobytes(),
            np.array(lines, repeated_lines.LINE).tobytes(),
        ]
        return examples.found, buffers

    def _keep_nearest(
        self, examples: Examples, passage: NumberedPassage, text: Text, figures: dict[str, float]
    ) -> None:
        """Note a document that no rule drops, if its figure is nearer to a limit than those before."""
        nearest = {rule.name: (rule.margin(figures[rule.name]), rule) for rule in RULES if rule.name in figures}
        for name, (margin, rule) in nearest.items():
            if margin < 1 and examples.wants(name, margin):  # a figure of 0 is not near to any limit
                note = rule.describe(figures[name])
                examples.add(name, _example(margin, passage, note))
        if (
            self.config.applies(LANGUAGE)
            and text.languages
            and examples.wants(LANGUAGE, share := max(text.shares.values()))
        ):
            best = max(text.shares, key=lambda name: text.shares[name])
            examples.add(LANGUAGE, _example(share, passage, f"{share:.0%} of its words are frequent ones of {best}"))


def _example(key: float, passage: NumberedPassage, note: str) -> dict[str, Any]:
    shown = excerpt("\n".join(passage.lines[:20]))
    return {"key": key, "number": passage.number, "location": passage.location, "text": shown, "note": note}


def line_keys(passage: NumberedPassage, words: Sequence[Sequence[str]]) -> list[tuple[int, int]]:
    """The hashes of the lines that are long enough, each with the number of the document; in documents each once."""
    keys: Iterable[int | None] = (
        key_of_line(line, line_words, in_list=passage.is_list)
        for line, line_words in zip(passage.lines, words, strict=True)
    )
    number = passage.number
    if passage.is_list:
        number |= int(repeated_lines.LIST_BIT)
    else:
        keys = dict.fromkeys(keys)
    return [(key, number) for key in keys if key is not None]


def key_of_line(line: str, words: Sequence[str], *, in_list: bool) -> int | None:
    """The hash of a line with these words; None if it is too short to count."""
    min_words = repeated_lines.MIN_LIST_WORDS if in_list else repeated_lines.MIN_WORDS
    if not line.isascii() and UNSPACED.search(line):
        min_words *= 2  # two characters of Chinese are about a word
    return repeated_lines.line_key(words) if len(words) >= min_words else None
