"""The result of a cleaning: counts of each rule, with examples of text that is dropped and kept."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from bertsmith.data.cleaning.config import CONTAMINATION, NEAR_DUPLICATES, PERSONAL, REASONS, CleaningConfig
from bertsmith.data.cleaning.decisions import Verdicts
from bertsmith.data.cleaning.examples import SHOWN, Example, Examples, excerpt, random_key
from bertsmith.data.cleaning.passages import NumberedPassage
from bertsmith.data.cleaning.rules import RULES
from bertsmith.errors import TextError

RESULT = "clean.json"
NAMES = ("", *REASONS)  # by the number of a verdict


class Tally:
    """Counts and examples of the second reading; `state` is what a journal keeps of it."""

    def __init__(self, pairs: Sequence[Sequence[int]], **state: Any) -> None:
        self.pairs = pairs  # near-duplicates that are shown, as (earlier, later)
        self.counts = Counter[str](state.get("counts", {}))
        self.dropped, self.kept = Examples(state.get("dropped")), Examples(state.get("kept"))
        self.shown: dict[str, Example] = state.get("shown", {})  # the documents of the pairs, by number
        self.sizes: dict[str, int] = state.get("sizes", {})  # of the files of text

    @property
    def state(self) -> dict[str, Any]:
        return {
            "counts": self.counts,
            "dropped": self.dropped.found,
            "kept": self.kept.found,
            "shown": self.shown,
            "sizes": self.sizes,
        }

    @property
    def parts(self) -> list[str]:
        return list(self.sizes)

    def part(self, layout: str, size: int, max_bytes: int) -> str:
        """The file that the next text of a layout goes to."""
        parts = [name for name in self.sizes if name.startswith(f"{layout}-")]
        if not parts or self.sizes[parts[-1]] + size > max_bytes:
            parts.append(f"{layout}-{len(parts):05}.txt.part")
        self.sizes[parts[-1]] = self.sizes.get(parts[-1], 0) + size
        return parts[-1]

    def add(self, passages: Sequence[NumberedPassage], verdicts: Verdicts, header: dict[str, Any]) -> None:
        """Add a chunk: its dropped documents, and what was found in the lines of the others."""
        self.counts.update(header["counts"])
        self.dropped.merge(header["dropped"])
        self.kept.merge(header["kept"])
        wanted = {number for pair in self.pairs for number in pair}
        for passage in passages:
            if passage.number in wanted:
                self.shown[str(passage.number)] = _example(passage)
            name = NAMES[verdicts[passage.number]]
            if name and name != NEAR_DUPLICATES and self.dropped.wants(name, random_key(passage.number)):
                self.dropped.add(name, _example(passage))


def summarise(
    tally: Tally, decided: dict[str, Any], judged: dict[str, Any], verdicts: Verdicts, config: CleaningConfig
) -> dict[str, Any]:
    """The counts of all rules with their examples."""
    rules, counts = [], tally.counts
    off = {rule.name for bit, rule in enumerate(RULES) if not decided["kind"][2] >> bit & 1}  # not for source code
    off |= set() if config.decontaminate else {CONTAMINATION}
    for earlier, later in tally.pairs:
        note = f"like {tally.shown[str(earlier)]['location']}"
        tally.dropped.add(NEAR_DUPLICATES, tally.shown[str(later)] | {"note": note})
        tally.kept.add(NEAR_DUPLICATES, tally.shown[str(earlier)] | {"note": "the first one"})
    for name, what in REASONS.items():
        documents, words = decided["dropped"][name]
        nearest = [one for one in judged["examples"].get(name, []) if not verdicts[one["number"]]]
        rules.append(
            {
                "name": name,
                "what": what,
                "on": config.applies(name) and name not in off,
                "documents": documents,
                "lines": counts[f"lines {name}"],
                "words": words + counts[f"words {name}"],
                "dropped": tally.dropped.found.get(name, []),
                "kept": [*tally.kept.found.get(name, []), *nearest][:SHOWN],
            }
        )
    kept_words = decided["words"] - sum(rule["words"] for rule in rules)
    if not counts["documents"]:
        worst = max(rules, key=lambda rule: rule["words"])
        fact = f"no text is left: {worst['name']} dropped {worst['words']:,} of {decided['words']:,} words"
        raise TextError("clean", fact, f"Leave the rule out with --skip {worst['name']}")
    return {
        "documents": decided["documents"],
        "words": decided["words"],
        "kept_documents": counts["documents"],
        "kept_words": kept_words,
        "rules": rules,
        "personal": {
            "on": config.personal,
            "replaced": counts[f"replaced {PERSONAL}"],
            "dropped": tally.dropped.found.get(PERSONAL, []),
            "kept": tally.kept.found.get(PERSONAL, []),
        },
        "languages": decided["languages"],
        "scripts": decided["scripts"],
        "share_read": judged["share"],
        "corrections": judged.get("corrections", {}),
        "files": [part.removesuffix(".part") for part in tally.parts],
    }


def _example(passage: NumberedPassage) -> Example:
    text = excerpt("\n".join(passage.lines[:20]))
    return {
        "key": random_key(passage.number),
        "number": passage.number,
        "location": passage.location,
        "text": text,
        "note": "",
    }
