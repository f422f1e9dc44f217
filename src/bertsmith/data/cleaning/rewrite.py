"""The second reading: kept documents are written, without the lines that are dropped."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertsmith.data.cleaning import decisions, repeated_lines
from bertsmith.data.cleaning.config import CONTAMINATION, LANGUAGE, NOTICES, PERSONAL, REPEATED, CleaningConfig
from bertsmith.data.cleaning.contamination import EvaluationNgrams
from bertsmith.data.cleaning.examples import Examples, excerpt, random_key
from bertsmith.data.cleaning.judge import key_of_line
from bertsmith.data.cleaning.ngrams import WordHashes, normalised_words
from bertsmith.data.cleaning.passages import NumberedPassage
from bertsmith.data.cleaning.personal import replace_personal
from bertsmith.data.cleaning.rules import RULES, failed
from bertsmith.data.cleaning.text import Text

LAYOUTS = ("lines", "running")  # each is written to files of its own, since a file has one layout
DOCUMENT_END = {"lines": "\n\n", "running": "\n\n\n"}  # blank lines by which the reader ends a document
MAX_NOTICE_WORDS = 30
NOTICE = re.compile(
    r"\b(enable javascript|javascript (is disabled|is required|must be)|(uses?|use of|accept|our) cookies|cookie policy"
    r"|privacy policy|terms of (use|service)|all rights reserved)\b",
    re.IGNORECASE,
)


class Rewriter:
    """Drops lines of kept passages, by what the first reading has found."""

    def __init__(self, folder: Path, config: CleaningConfig) -> None:
        self.config, self._hashes = config, WordHashes()
        self._kind = decisions.read_kind(folder)
        self._repeated = repeated_lines.RepeatedLines(folder / decisions.REPEATED_TABLE)
        self._evaluation = EvaluationNgrams(folder)

    def rewrite(self, passages: Sequence[NumberedPassage]) -> tuple[dict[str, Any], list[bytes]]:
        """Counts and examples; and the bytes to append for each layout."""
        self._counts, self._dropped, self._kept = Counter[str](), Examples(), Examples()
        texts: dict[str, list[str]] = {layout: [] for layout in LAYOUTS}
        for passage in passages:
            if lines := self._kept_lines(passage):
                texts[passage.layout].append("\n".join(lines) + DOCUMENT_END[passage.layout])
                self._counts["documents"] += 1
        header = {"counts": self._counts, "dropped": self._dropped.found, "kept": self._kept.found}
        return header, ["".join(texts[layout]).encode() for layout in LAYOUTS]

    def _kept_lines(self, passage: NumberedPassage) -> list[str]:
        reasons = self._in_list(passage) if passage.is_list else self._in_document(passage)
        if self._evaluation:
            hashes = [self._hashes(normalised_words(line)) for line in passage.lines]
            found = self._evaluation.lines_with(hashes)
            reasons |= dict.fromkeys(found - reasons.keys(), CONTAMINATION)
            if found:
                self._show_rest(passage, reasons)
        for row, reason in reasons.items():
            self._counts[f"lines {reason}"] += 1
            self._counts[f"words {reason}"] += len(normalised_words(passage.lines[row]))
            self._show(self._dropped, reason, passage, row)
        kept = [line for row, line in enumerate(passage.lines) if row not in reasons]
        return self._without_personal(kept, passage) if self.config.personal else kept

    def _in_document(self, passage: NumberedPassage) -> dict[int, str]:
        """The lines of a document that are dropped, with the reasons."""
        reasons = dict[int, str]()
        for row, line in enumerate(passage.lines):
            if passage.layout == "running" and self.config.applies(NOTICES) and _is_notice(line):
                reasons[row] = NOTICES
            elif self.config.applies(REPEATED):
                key = key_of_line(line, normalised_words(line), in_list=False) if self._repeated else None
                first = None if key is None else self._repeated.first(key, in_list=False)
                if first == passage.number:
                    self._show(self._kept, REPEATED, passage, row)
                elif first is not None:
                    reasons[row] = REPEATED
        return reasons

    def _in_list(self, passage: NumberedPassage) -> dict[int, str]:
        """The lines of a file without documents that are dropped, with the reasons: each is judged by itself."""
        reasons, seen = dict[int, str](), set[int]()
        for row, line in enumerate(passage.lines):
            text = Text([line], "lines", self._hashes)
            bits = failed(text, self.config.skip)[0] & self._kind.rules
            if bits:
                reasons[row] = RULES[(bits & -bits).bit_length() - 1].name
            elif self.config.applies(LANGUAGE) and self._kind.is_foreign(*text.languages_and_script):
                reasons[row] = LANGUAGE
            elif self.config.applies(REPEATED):
                key = key_of_line(line, text.words, in_list=True) if self._repeated else None
                first = None if key is None else self._repeated.first(key, in_list=True)
                if key is None or first is None:
                    continue
                if first != passage.number or key in seen:
                    reasons[row] = REPEATED
                else:
                    self._show(self._kept, REPEATED, passage, row)
                seen.add(key)
        return reasons

    def _without_personal(self, lines: list[str], passage: NumberedPassage) -> list[str]:
        found = list[str]()
        for row, line in enumerate(lines):
            text, count = replace_personal(line)
            found.append(text)
            if count:
                self._counts[f"replaced {PERSONAL}"] += count
                for examples, shown in ((self._dropped, line), (self._kept, text)):
                    self._add(examples, PERSONAL, passage, row, shown)
        return found

    def _show(self, examples: Examples, reason: str, passage: NumberedPassage, row: int) -> None:
        self._add(examples, reason, passage, row, passage.lines[row])

    def _show_rest(self, passage: NumberedPassage, reasons: dict[int, str]) -> None:
        """Show a line next to a contaminated one, which is kept."""
        beside = (row + 1 for row, reason in reasons.items() if reason == CONTAMINATION)
        rest = next((row for row in beside if row < len(passage.lines) and row not in reasons), None)
        if rest is not None:
            self._show(self._kept, CONTAMINATION, passage, rest)

    def _add(self, examples: Examples, reason: str, passage: NumberedPassage, row: int, text: str) -> None:
        key = random_key(passage.number << 20 | row)
        if examples.wants(reason, key):
            examples.add(
                reason,
                {
                    "key": key,
                    "number": passage.number,
                    "location": passage.location,
                    "text": excerpt(text),
                    "note": f"line {row + 1} of the document",
                },
            )


def _is_notice(line: str) -> bool:
    return len(line) < 40 * MAX_NOTICE_WORDS and bool(NOTICE.search(line)) and line.count(" ") < MAX_NOTICE_WORDS
