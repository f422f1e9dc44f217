"""Write: every task as text. A text is read, and what is to be said of it is written, word by word."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.data.batch import Batch, Tokens
from bertsmith.data.examples import Example, Question
from bertsmith.data.labelled import Kind
from bertsmith.data.rows import Row, passes
from bertsmith.errors import FolderError, RecipeError, TextError
from bertsmith.models.decoder import Decoder, continued
from bertsmith.models.networks import Translator
from bertsmith.models.search import SearchConfig
from bertsmith.objectives.base import Term
from bertsmith.tasks import scores
from bertsmith.tasks.base import Item, Mould, Task, fitted
from bertsmith.tasks.bleu import bleu
from bertsmith.tasks.classify import Classify, Measure
from bertsmith.tasks.squad import overlap, squad_scores
from bertsmith.text.tokenizer import Tokenizer

Answer = Literal["text", "number", "stretch"]

NEAR = 16  # of which the longest row of a batch is taken for a multiple
CLASSES = 65_536  # of which texts are taken for the names, at most; those of more are texts
START = 0  # what the writer begins with: T5's padding
NUMBER = re.compile(r"-?\d+(\.\d+)?")
# How T5 was asked the tasks of GLUE, and what it was to write for their classes. Raffel et al. 2020, appendix D.
GLUE: dict[str, dict[str, Any]] = {
    "CoLA": {"prefix": "cola sentence:", "words": ("unacceptable", "acceptable")},
    "SST-2": {"prefix": "sst2 sentence:", "words": ("negative", "positive")},
    "MRPC": {"prefix": "mrpc", "words": ("not_equivalent", "equivalent")},
    "STS-B": {"prefix": "stsb", "answer": "number"},
    "QQP": {"prefix": "qqp", "names": ("question1", "question2"), "words": ("not_duplicate", "duplicate")},
    "MNLI": {"prefix": "mnli", "names": ("premise", "hypothesis"), "turned": True},
    "QNLI": {"prefix": "qnli", "names": ("question", "sentence")},
    "RTE": {"prefix": "rte"},
    "WNLI": {"prefix": "wnli", "words": ("not_entailment", "entailment")},
}


class Write(Task):
    """Text to text: one network, one loss and one way to answer for all tasks. Raffel et al. 2020, section 2.4.

    Classes are written as words, numbers rounded as digits, and the answer to a question as it stands in the passage.
    Where something is written that is no class and no number, it is wrong, and it is counted.

    Departs from the paper: what is too long is cut from the longer of two texts, and not from the end of both.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config:
        answer: Answer = "text"  # what is written: a text, which may name a class; a number; a stretch of a passage
        prefix: str = ""  # words before every text, by which one network can tell its tasks apart
        names: tuple[str, ...] = ("sentence1", "sentence2")  # before each of two texts; those of SQuAD have their own
        turned: bool = False  # of two texts the second stands first
        words: tuple[str, ...] = ()  # how classes are written, in the order of their numbers; none: by their names
        step: float = 0.2  # numbers are rounded to a multiple of it
        most: int = 32  # tokens that are written, the one that stops included
        measure: Measure = "accuracy"  # the headline of classes; all that fit are told
        translates: bool = False  # texts say the same in other words, and are judged by BLEU
        smoothing: float = 0.0  # of what is learnt, shared among all words: 0.1 in Vaswani et al. 2017, section 5.4

        def __post_init__(self) -> None:
            if len(self.names) != 2:
                raise ValueError(f"names are {list(self.names)}. Give two, for the first text and the second")
            if not 0 < self.step < math.inf:
                raise ValueError(f"step is {self.step}. Give more than 0, usually 0.2")
            if self.most < 2:
                raise ValueError(f"most is {self.most}. Give at least 2, for a token and the one that stops")
            if not 0 <= self.smoothing < 1:
                raise ValueError(f"smoothing is {self.smoothing}. Give a share, at least 0 and below 1, usually 0.1")
            if self.translates and (self.answer != "text" or self.words):
                raise ValueError("translations are texts, and no classes or numbers. Leave answer and words out")

    trunk: Translator  # type: ignore[assignment]  # two networks, where other tasks have one
    config: Config

    def __init__(self, trunk: Translator, config: Config, labels: tuple[str, ...] = ()) -> None:
        super().__init__(trunk, config, labels if config.answer == "text" and not config.translates else ())
        if config.words and len(config.words) != len(self.labels):
            fact = f"names {len(config.words)} classes, and there are {len(self.labels)}"
            raise RecipeError("task.words", fact, f"Give a word for each of {self.labels}" if self.labels else "")
        if self.labels and config.measure not in ("accuracy", "macro_f1") and len(self.labels) != 2:
            raise RecipeError("task.measure", f"'{config.measure}' needs two classes", "Use accuracy or macro_f1")

    @property
    def most(self) -> int:
        """Tokens that are written, as many as are asked for and as the network can write."""
        return min(self.config.most, self.trunk.config.length - 1)

    @classmethod
    def reads(cls, config: Config) -> Kind:
        kinds: dict[Answer, Kind] = {"text": "classify", "number": "number", "stretch": "answer"}
        return kinds[config.answer]

    @classmethod
    def classes(cls, examples: Iterable[Example | Question]) -> tuple[str, ...]:
        """What is to be written, if that names classes: if each, in the mean, is to be written twice or more."""
        named, count = dict[str, Example](), 0
        for one in examples:
            if isinstance(one, Example) and isinstance(one.label, str):
                named.setdefault(one.label, one)
                count += 1
                if len(named) > CLASSES:
                    return ()
        return Classify.classes(named.values()) if 2 * len(named) <= count else ()

    # ------------------------------------------------------------------------------------------- learning

    def forward(self, batch: Batch) -> dict[str, Term]:
        assert batch.written is not None
        assert batch.targets is not None
        logits = self.trunk.logits(self.trunk(batch.tokens, batch.written)).float()  # N V
        smoothing = self.config.smoothing if self.training else 0.0
        how: dict[str, Any] = {"reduction": "sum", "ignore_index": -100, "label_smoothing": smoothing}
        return {"text": Term(F.cross_entropy(logits, batch.targets, **how), None)}

    def items(self, examples: Sequence[Example | Question], tokenizer: Tokenizer, length: int) -> list[Item]:
        if tokenizer.padding != START:
            fact = f"its padding is piece {tokenizer.padding}"
            raise FolderError(tokenizer.place, fact, f"A T5 begins to write with padding, which is piece {START}")
        words = dict(zip(self.labels, self.config.words or self.labels, strict=True))
        spelling = Spelling.of(tokenizer, words, self.most)
        texts = [self._texts(example) for example in examples]
        heads = {count: tokenizer.encode(self._heads(count)) for count in {len(row) for row in texts}}
        rooms = {count: length - 1 - sum(map(len, head)) for count, head in heads.items()}
        if min(rooms.values(), default=1) < 1:
            fact = f"with names it takes {length - 1 - min(rooms.values())} tokens, and leaves no room in {length}"
            raise RecipeError("task.prefix", fact, "Shorten it, or raise data.length")
        targets = [self._target(example, words) for example in examples]
        pieces = iter(tokenizer.encode([text for row in texts for text in row]))
        asked = iter(tokenizer.encode([target for target in targets if target is not None]))
        items = []
        for number, (row, target) in enumerate(zip(texts, targets, strict=True)):
            first, second, cut = fitted(next(pieces), next(pieces) if len(row) > 1 else None, rooms[len(row)])
            ids = [*heads[len(row)][0], *first, *([] if second is None else [*heads[2][1], *second]), tokenizer.stop]
            written = [START]
            if target is not None:
                whole = next(asked)
                written += [*whole[: self.most - 1], tokenizer.stop]
                cut += max(0, len(whole) + 1 - self.most)
            asks = np.array(written, np.int32)
            items.append(Item(rows=(_row(ids),), example=number, target=asks, notes=spelling, cut=cut))
        return items

    def collate(self, items: Sequence[Item], mould: Mould) -> Batch:
        """Both halves in few shapes, and neither much longer than the longest that it holds."""
        # What is given is what is to be written one place later; of nothing to be written, that which begins.
        given = [item.target[: max(1, len(item.target) - 1)] for item in items]
        longest = max(max(len(item.rows[0]), len(ids)) for item, ids in zip(items, given, strict=True))
        near = -(-longest // NEAR) * NEAR  # one for both: each of its own would make shapes of all combinations
        bucket = min(mould.bucket, max(64, -(-mould.items * self.most // 4)))
        tokens = replace(mould, length=min(mould.length, near)).pour([item.rows[0] for item in items], mould.items)
        half = replace(mould, length=min(self.most, near), bucket=bucket)
        written = half.pour([_row(ids) for ids in given], mould.items)
        tokens, written = _evened(tokens, written)
        targets = np.full(len(written.ids), -100)
        targets[: sum(map(len, given))] = np.concatenate(
            [item.target[1:] if len(item.target) > 1 else [-100] for item in items]
        )
        lengths = [(len(item.rows[0]), len(ids)) for item, ids in zip(items, given, strict=True)]
        counts = {"text": max(1, int((targets != -100).sum())), "tokens": sum(map(sum, lengths))}
        counts["squares"] = sum(read * read + write * write for read, write in lengths)
        return Batch(tokens=tokens, written=written, targets=torch.from_numpy(targets), counts=counts)

    @torch.no_grad()
    def loss(self, items: Sequence[Item], device: torch.device, budget: int) -> float:
        """The mean of a token's loss, with nothing smoothed, of a network that is not learning just now."""
        total, count = 0.0, 0
        for some in passes([len(item.rows[0]) for item in items], budget):
            batch = self.collate([items[number] for number in some], Mould(items=len(some), length=self.most))
            total += float(self(batch.to(device))["text"].total)
            count += batch.counts["text"]
        return total / max(1, count)

    # ---------------------------------------------------------------------------------------- predictions

    def outputs(self, tokens: Tokens) -> list[Tensor]:
        """The tokens that are likeliest one after the other; in full precision, since the least difference tells.

        Each text ends with the token that also ends what is written.
        """
        with torch.autocast(tokens.ids.device.type, enabled=False):
            # To lay the weights out anew for each pass pays where sentences are written, not where a word is.
            decoder = Decoder(self.trunk, pack=self.config.translates, start=START)
            rows = [row.tolist() for row in torch.split(tokens.ids, tokens.bounds.diff().tolist())]
            found = continued(decoder, rows, SearchConfig(most=self.most, temperature=0), [rows[0][-1]])
        return [torch.tensor(ids, dtype=torch.float32) for ids, *_ in found]

    def read(self, example: Example | Question, items: Sequence[Item], outputs: Sequence[NDArray[np.float32]]) -> Any:
        spelling: Spelling = items[0].notes
        text = spelling.tokenizer.decode(outputs[0].astype(np.int64).tolist()).strip()
        match self.config.answer:
            case "stretch":
                return {"id": getattr(example, "name", example.place), "answer": text}
            case "number":
                return {"text": text, "number": float(text) if NUMBER.fullmatch(text) else None}
        return {"text": text} | ({"label": spelling.labels.get(text)} if self.labels else {})

    def score(self, examples: Sequence[Example | Question], predictions: Sequence[Any]) -> dict[str, float]:
        if self.config.answer == "stretch":
            return _stretches(examples, predictions)
        gold = [example.label for example in examples if isinstance(example, Example)]
        if self.config.answer == "number":
            return _numbers([float(label) for label in gold], [said["number"] for said in predictions])  # type: ignore[arg-type]
        truth = [str(label) for label in gold]
        if self.labels:
            figures = _classes(truth, [said["label"] for said in predictions], self.labels)
            return {self.config.measure: figures.pop(self.config.measure), **figures}
        pairs = list(zip(truth, [said["text"] for said in predictions], strict=True))
        same = [one.split() == other.split() for one, other in pairs]
        if self.config.translates:
            return {"bleu": bleu([said for _, said in pairs], truth), "exact": float(np.mean(same))}
        return {"f1": float(np.mean([overlap(*pair) for pair in pairs])), "exact": float(np.mean(same))}

    # ----------------------------------------------------------------------------------- examples as texts

    def _texts(self, example: Example | Question) -> tuple[str, ...]:
        """One text, or two in the order in which they are read."""
        texts = (example.question, example.passage) if isinstance(example, Question) else example.texts
        if len(texts) > 2:
            raise TextError(example.place, f"has {len(texts)} texts", "Name one or two with data.texts")
        return texts[::-1] if self.config.turned else texts

    def _heads(self, texts: int) -> list[str]:
        """What stands before each of so many texts."""
        prefix, names = self.config.prefix, self.config.names
        if texts == 1:
            return [prefix]
        first, second = ("question", "context") if self.config.answer == "stretch" else names
        if self.config.turned:
            first, second = second, first
        return [f"{prefix} {first}:".strip(), f"{second}:"]

    def _target(self, example: Example | Question, words: dict[str, str]) -> str | None:
        """What is to be written; None where nobody has said."""
        if isinstance(example, Question):
            return None if example.answers is None else next((answer.text for answer in example.answers), "")
        label = example.label
        if label is None or self.config.answer == "stretch":
            return None
        if self.config.answer == "number":
            return _rounded(float(label), self.config.step)  # type: ignore[arg-type]
        return words.get(str(label), str(label))


@dataclass(frozen=True)
class Spelling:
    """What is needed to read what was written: the tokenizer, and for the spelling of each class its name."""

    tokenizer: Tokenizer
    labels: dict[str, str]

    @classmethod
    def of(cls, tokenizer: Tokenizer, words: dict[str, str], most: int) -> "Spelling":
        """Classes as they come out of the tokenizer, which may know no capitals."""
        found: dict[str, str] = {}
        for (label, word), ids in zip(words.items(), tokenizer.encode(list(words.values())), strict=True):
            spelt = tokenizer.decode(ids[: most - 1]).strip()
            if spelt in found:
                fact = f"'{words[found[spelt]]}' and '{word}' are both written '{spelt}'"
                raise RecipeError("task.words", fact, "Give the classes other words, or raise task.most")
            found[spelt] = label
        return cls(tokenizer, found)


def _row(ids: Sequence[int] | NDArray[np.int32]) -> Row:
    """Tokens of one text, of which T5 tells no second one apart."""
    return Row(np.array(ids, np.int32), np.zeros(len(ids), np.int32))


def _evened(one: Tokens, other: Tokens) -> tuple[Tokens, Tokens]:
    """Both with as many sequences, the last of them empty: each that is written looks at one that is read."""
    most = max(len(one.bounds), len(other.bounds))
    ends = (torch.cat([part.bounds, part.bounds[-1:].expand(most - len(part.bounds))]) for part in (one, other))
    first, second = (replace(part, bounds=bounds) for part, bounds in zip((one, other), ends, strict=True))
    return first, second


def _rounded(number: float, step: float) -> str:
    """A number as T5 was to write it: 3.75 as 3.8. Raffel et al. 2020, section 2.4."""
    decimals = max(0, -int(Decimal(repr(step)).as_tuple().exponent))
    return f"{round(number / step) * step:.{decimals}f}"


def _classes(gold: Sequence[str], said: Sequence[str | None], labels: tuple[str, ...]) -> dict[str, float]:
    """The measures of `classify`. What is no class is, of two, the wrong one, as T5's authors count."""
    number = {label: place for place, label in enumerate(labels)}
    right = [number.get(label, -2) for label in gold]
    guessed = [-1 if label is None else number[label] for label in said]
    if len(labels) == 2:
        guessed = [1 - max(0, one) if other < 0 else other for one, other in zip(right, guessed, strict=True)]
    return scores.of_classes(right, guessed, len(labels)) | {"no_class": said.count(None) / max(1, len(said))}


def _numbers(gold: Sequence[float], said: Sequence[float | None]) -> dict[str, float]:
    """Correlations. What is no number counts as the end of the scale that is farther from what is right."""
    low, high = min(gold), max(gold)
    worst = [high if high - one > one - low else low for one in gold]
    guessed = [bad if number is None else number for number, bad in zip(said, worst, strict=True)]
    figures = {"spearman": scores.spearman(gold, guessed), "pearson": scores.pearson(gold, guessed)}
    return figures | {"no_number": said.count(None) / max(1, len(said))}


def _stretches(examples: Sequence[Example | Question], predictions: Sequence[Any]) -> dict[str, float]:
    """SQuAD's own figures."""
    gold, guessed = {}, {}
    for example, said in zip(examples, predictions, strict=True):
        if isinstance(example, Question) and example.answers is not None:
            gold[example.name] = tuple(answer.text for answer in example.answers)
            guessed[example.name] = said["answer"]
    figures = squad_scores(gold, guessed)
    return {"f1": figures.pop("f1"), **figures}
