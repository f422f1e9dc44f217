"""Decisions between the two readings: which documents are dropped, by what the whole text shows."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith import files
from bertsmith.data.cleaning import duplicates, repeated_lines
from bertsmith.data.cleaning.config import LANGUAGE, NEAR_DUPLICATES, REASONS, SHORT, CleaningConfig
from bertsmith.data.cleaning.examples import SHOWN, random_key
from bertsmith.data.cleaning.judge import CODE, DOCUMENT, LIST, RUNNING
from bertsmith.data.cleaning.rules import RULES
from bertsmith.data.cleaning.text import LANGUAGES, SCRIPT_NAMES

MIN_SHARE = 0.1  # of the words: languages and scripts below it are foreign to the text
CODE_SHARE = 0.3  # of the words in source code from which the rules for prose are off
SHORT_WORDS, TYPICAL_WORDS = 10, 100  # a short document, and the median from which it is dropped
NUMBERS = {reason: number for number, reason in enumerate(REASONS, 1)}  # verdicts; 0 is kept
VERDICTS, REPEATED_TABLE, DECISIONS = "verdicts.bin", "repeated.bin", "decisions.json"

Documents = NDArray[Any]
Verdicts = NDArray[np.uint8]


@dataclass(frozen=True)
class TextKind:
    """What most of the text is: the rules for single lines need it, too."""

    languages: int  # as bits; 0: no language is known
    scripts: tuple[int, ...]
    rules: int  # the quality rules that apply, as bits

    def is_foreign(self, languages: int, script: int) -> bool:
        """Whether a text in these languages and this script is in none of the text's."""
        if script and self.scripts and script not in self.scripts:
            return True
        return bool(languages and self.languages and not languages & self.languages)


def decide(folder: Path, config: CleaningConfig) -> dict[str, Any]:
    """Decide on every document, write the verdicts and the repeated lines, and return the counts."""
    documents = np.fromfile(folder / "documents.bin", DOCUMENT)
    kind = text_kind(documents, config)
    verdicts = np.zeros(len(documents), np.uint8)
    applied = documents["failed"] & np.uint32(kind.rules)
    for bit, rule in reversed(list(enumerate(RULES))):  # of several rules the first counts
        verdicts[(applied >> np.uint32(bit)) & 1 > 0] = NUMBERS[rule.name]
    if config.applies(SHORT):
        verdicts[_short(documents) & (verdicts == 0)] = NUMBERS[SHORT]
    if config.applies(LANGUAGE):
        verdicts[_foreign(documents, kind) & (verdicts == 0)] = NUMBERS[LANGUAGE]
    pairs = _near_duplicates(folder, config, verdicts) if config.applies(NEAR_DUPLICATES) else []
    repeated = repeated_lines.write_table(folder / "lines.bin", verdicts == 0, folder / REPEATED_TABLE)
    files.write(folder / VERDICTS, verdicts.tobytes())
    dropped = {
        reason: [int(np.sum(mask := verdicts == number)), int(documents["words"][mask].sum(dtype=np.int64))]
        for reason, number in NUMBERS.items()
    }
    decisions = {
        "documents": len(documents),
        "words": int(documents["words"].sum(dtype=np.int64)),
        "dropped": dropped,  # documents and words
        "pairs": pairs,
        "repeated_lines": repeated,
        "languages": [name for name, bit in LANGUAGES.items() if bit & kind.languages],
        "scripts": [SCRIPT_NAMES[number] for number in kind.scripts],
        "kind": [kind.languages, list(kind.scripts), kind.rules],
    }
    files.write_json(folder / DECISIONS, decisions)
    return decisions


def text_kind(documents: Documents, config: CleaningConfig) -> TextKind:
    """The languages and scripts with a tenth of the text or more, and the rules that suit the text."""
    words = documents["words"].astype(np.int64)
    known = words * (documents["languages"] > 0)
    shares = {
        bit: int(words[(documents["languages"] & np.uint32(bit)) > 0].sum()) / max(int(known.sum()), 1)
        for bit in LANGUAGES.values()
    }
    per_script = np.bincount(documents["script"], words, len(SCRIPT_NAMES))[1:]
    scripts = np.flatnonzero(per_script >= MIN_SHARE * max(per_script.sum(), 1)) + 1
    is_code = (documents["kind"] & CODE) > 0
    code = int(words[is_code].sum()) > CODE_SHARE * max(int(words.sum()), 1)
    rules = sum(1 << bit for bit, rule in enumerate(RULES) if config.applies(rule.name) and (rule.code or not code))
    languages = sum(bit for bit, share in shares.items() if share >= MIN_SHARE)
    return TextKind(languages, tuple(map(int, scripts)), rules)


def _short(documents: Documents) -> NDArray[np.bool_]:
    """Short documents of running text, where its documents are usually long."""
    running = (documents["kind"] & RUNNING) > 0
    if not running.any() or np.median(documents["words"][running]) < TYPICAL_WORDS:
        return np.zeros(len(documents), bool)
    return np.asarray(running & (documents["words"] < SHORT_WORDS))


def _foreign(documents: Documents, kind: TextKind) -> NDArray[np.bool_]:
    other_script = (documents["script"] > 0) & ~np.isin(documents["script"], kind.scripts)
    other_language = (documents["languages"] > 0) & ((documents["languages"] & np.uint32(kind.languages)) == 0)
    whole = (documents["kind"] & LIST) == 0  # the lines of a list are judged one by one
    return np.asarray(whole & (other_script | (other_language & bool(kind.languages))))


def _near_duplicates(folder: Path, config: CleaningConfig, verdicts: Verdicts) -> list[list[int]]:
    """Mark near-duplicates among the documents that are left; a few pairs (earlier, later) as examples."""
    signed = np.fromfile(folder / "signed.bin", "<u8").astype(np.int64)
    found = duplicates.read_signatures(folder / "signatures.bin", len(signed))
    rows = np.flatnonzero(verdicts[signed] == 0)
    originals = duplicates.find_near_duplicates(found, rows, config.similarity)
    later = np.flatnonzero(originals >= 0)
    verdicts[signed[later]] = NUMBERS[NEAR_DUPLICATES]
    shown = sorted(later.tolist(), key=random_key)[:SHOWN]
    return [[int(signed[originals[row]]), int(signed[row])] for row in shown]


def read_kind(folder: Path) -> TextKind:
    """The kind of text, as `decide` wrote it."""
    languages, scripts, rules = files.read_json(folder / DECISIONS)["kind"]
    return TextKind(languages, tuple(scripts), rules)
