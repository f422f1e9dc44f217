"""The files of a training, dev or test set in a folder, found by their names; the shards of a set are read together."""

import glob
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from bertsmith.data.corpus.sources import COMPRESSIONS
from bertsmith.data.labelled.conll import CONLL_SUFFIXES
from bertsmith.data.labelled.tables import TABLE_SUFFIXES
from bertsmith.data.labelled.treebank import TREEBANK_SUFFIX
from bertsmith.errors import TextError

SUFFIXES = (*TABLE_SUFFIXES, *CONLL_SUFFIXES, TREEBANK_SUFFIX)
# train-00000-of-00003 of the Hub, once with a hash at the end; train.0 and train-1.
SHARD = re.compile(r"(?P<base>.+?)[-_.](?P<number>\d+)(?P<total>[-_]of[-_](?P<count>\d+))?(?P<hash>-[0-9a-f]{16})?")
MAX_SHOWN = 6  # names of files in an error


@dataclass(frozen=True)
class _Set:
    """A file, or the shards of one: their stem without numbers, and the pattern that matches them."""

    stem: str
    paths: tuple[Path, ...]
    pattern: str = ""
    count: int = 1  # of the shards that there should be

    def fits(self, word: str) -> int | None:
        """How well the name suits a split: 0 for the very name, 1 for its shards, 2 if the name has the word in it."""
        if self.stem == word:
            return int(bool(SHARD.fullmatch(_stem(self.paths[0]))))
        mentioned = word in re.split("[-_.]", self.stem)
        # `eng.train` has no ending of its own; notes such as `dev_notes.txt` are no data.
        labelled = _ending(self.paths[0]) in {*SUFFIXES} - {".txt"} or self.stem.endswith(f".{word}")
        return 2 if mentioned and labelled else None


def find_split(folder: Path, words: Sequence[str]) -> Path | None:
    """The file of a split, or a pattern for its shards: by its name, else by one of the words in its name.

    Of `train.csv` and `train-old.csv` the first is taken; of two that fit alike none.
    """
    sets = _sets([path for path in sorted(folder.iterdir()) if path.is_file() and not path.name.startswith(".")])
    for rank in range(3):
        for word in words:
            found = [one for one in sets if one.fits(word) == rank]
            if len(found) > 1:
                paths = [path for one in found for path in one.paths]
                raise TextError(folder, f"holds several '{word}' files: {_names(paths)}", "Name the one that is meant")
            if found:
                return _only(folder, found[0])
    return None


def describe(path: Path) -> str:
    """The name of a file, or of shards with their number."""
    count = len(glob.glob(str(path))) if not path.exists() else 1  # noqa: PTH207  (a Path takes no absolute pattern)
    return f"{path.name} ({count} files)" if count > 1 else path.name


def _only(folder: Path, one: _Set) -> Path:
    """The path of a file, or the pattern of all its shards."""
    if len(one.paths) < one.count:
        fact = f"holds {len(one.paths)} of {one.count} shards: {_names(one.paths)}"
        raise TextError(folder, fact, "Get the others, or name the files with a pattern")
    if len(one.paths) == 1:
        return one.paths[0]
    matched = [path for path in sorted(folder.iterdir()) if fnmatchcase(path.name, one.pattern)]
    if len(matched) != len(one.paths):
        raise TextError(folder, f"holds other files among the shards: {_names(matched)}", "Move them elsewhere")
    return Path(glob.escape(str(folder))) / one.pattern


def _sets(paths: Sequence[Path]) -> list[_Set]:
    """The files, those that differ only in the number of a shard as one."""
    sets, shards = list[_Set](), dict[tuple[str, int], list[tuple[int, Path]]]()
    for path in paths:
        stem = _stem(path)
        # `train-v1.1` is a version: a bare number counts shards only after a single word.
        if (shard := SHARD.fullmatch(stem)) and (shard["total"] or shard["base"].isalpha()):
            before, after = path.name[: shard.start("number")], path.name[len(stem) :]
            rest = (shard["total"] or "") + ("-*" if shard["hash"] else "")
            pattern = f"{glob.escape(before)}[0-9]*{rest}{glob.escape(after)}"
            shards.setdefault((pattern, int(shard["count"] or 0)), []).append((int(shard["number"]), path))
        else:
            sets.append(_Set(stem.lower(), (path,)))
    for (pattern, count), numbered in shards.items():
        numbers, members = zip(*sorted(numbered), strict=True)
        base = SHARD.fullmatch(_stem(members[0]))["base"].lower()  # type: ignore[index]
        if count or numbers in (tuple(range(len(numbers))), tuple(range(1, len(numbers) + 1))):
            sets.append(_Set(base, members, pattern, count or len(members)))
        else:  # `train-100` and `train-1000`
            sets += [_Set(base, (path,)) for path in members]
    return sets


def _ending(path: Path) -> str:
    endings = [ending.lower() for ending in path.suffixes if ending.lower() not in COMPRESSIONS]
    return endings[-1] if endings else ""


def _stem(path: Path) -> str:
    """The name without the endings of packed and of labelled files."""
    name = path.name
    for known in (COMPRESSIONS, SUFFIXES):
        name = name[: -len(suffix)] if (suffix := Path(name).suffix).lower() in known else name
    return name


def _names(paths: Sequence[Path]) -> str:
    names = [path.name for path in paths]
    return ", ".join(names[:MAX_SHOWN]) + (", ..." if len(names) > MAX_SHOWN else "")
