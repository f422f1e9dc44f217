"""Text-to-text: every task as text, as T5 has it, and translation with label smoothing."""

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
from bertsmith.data.labelled.examples import Example, Kind, Question
from bertsmith.data.rows import Row, batch_by_length
from bertsmith.errors import FolderError, RecipeError, TextError
from bertsmith.metrics import scores
from bertsmith.metrics.bleu import bleu
from bertsmith.metrics.squad import squad_scores, token_f1
from bertsmith.models.generation.engine import GenerationEngine, generate_ids
from bertsmith.models.generation.search import GenerationConfig
from bertsmith.models.networks import EncoderDecoderNetwork
from bertsmith.objectives.base import Term
from bertsmith.tasks.base import Bucket, Item, Task, truncate
from bertsmith.tasks.classification import Metric, SequenceClassification
from bertsmith.text.tokenizer import Tokenizer

Problem = Literal["text", "number", "span"]

LENGTH_MULTIPLE = 16  # of which the longest row of a batch is taken for a multiple
MAX_CLASSES = 65_536  # of which texts are taken for the names, at most; those of more are texts
DECODER_START = 0  # what the writer begins with: T5's padding
NUMBER = re.compile(r"-?\d+(\.\d+)?")
# How T5 was asked the tasks of GLUE, and what it was to write for their classes. Raffel et al. 2020, appendix D.
GLUE_PROMPTS: dict[str, dict[str, Any]] = {
    "CoLA": {"prefix": "cola sentence:", "label_words": ("unacceptable", "acceptable")},
    "SST-2": {"prefix": "sst2 sentence:", "label_words": ("negative", "positive")},
    "MRPC": {"prefix": "mrpc", "label_words": ("not_equivalent", "equivalent")},
    "STS-B": {"prefix": "stsb", "output": "number"},
    "QQP": {"prefix": "qqp", "text_names": ("question1", "question2"), "label_words": ("not_duplicate", "duplicate")},
    "MNLI": {"prefix": "mnli", "text_names": ("premise", "hypothesis"), "reverse": True},
    "QNLI": {"prefix": "qnli", "text_names": ("question", "sentence")},
    "RTE": {"prefix": "rte"},
    "WNLI": {"prefix": "wnli", "label_words": ("not_entailment", "entailment")},
}


class TextToText(Task):
    """Text to text: one network, one loss and one way to answer for all tasks. Raffel et al. 2020, section 2.4.

    Classes are written as words, numbers rounded as digits, and the answer to a question as it stands in the passage.
    Where something is written that is no class and no number, it is wrong, and it is counted.

    Departs from the paper: what is too long is cut from the longer of two texts, and not from the end of both.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config:
        output: Problem = "text"  # what is written: a text, which may name a class; a number; a stretch of a passage
        prefix: str = ""  # words before every text, by which one network can tell its tasks apart
        text_names: tuple[str, ...] = (
            "sentence1",
            "sentence2",
        )  # before each of two texts; those of SQuAD have their own
        reverse: bool = False  # of two texts the second stands first
        label_words: tuple[
            str, ...
        ] = ()  # how classes are written, in the order of their numbers; none: by their names
        rounding: float = 0.2  # numbers are rounded to a multiple of it
        max_new_tokens: int = 32  # tokens that are written, the one that stops included
        metric: Metric = "accuracy"  # the headline of classes; all that fit are told
        translation: bool = False  # texts say the same in other words, and are judged by BLEU
        label_smoothing: float = (
            0.0  # of what is learnt, shared among all words: 0.1 in Vaswani et al. 2017, section 5.4
        )

        def __post_init__(self) -> None:
            if len(self.text_names) != 2:
                raise ValueError(f"text_names are {list(self.text_names)}. Give two, for the first text and the second")
            if not 0 < self.rounding < math.inf:
                raise ValueError(f"rounding is {self.rounding}. Give more than 0, usually 0.2")
            if self.max_new_tokens < 2:
                raise ValueError(
                    f"max_new_tokens is {self.max_new_tokens}. Give at least 2, for a token and the one that stops"
                )
            if not 0 <= self.label_smoothing < 1:
                raise ValueError(
                    f"label_smoothing is {self.label_smoothing}. Give a share, at least 0 and below 1, usually 0.1"
                )
            if self.translation and (self.output != "text" or self.label_words):
                raise ValueError("translations are texts, and no classes or numbers. Leave output and label_words out")

    trunk: EncoderDecoderNetwork  # type: ignore[assignment]  # two networks, where other tasks have one
    config: Config

    def __init__(self, trunk: EncoderDecoderNetwork, config: Config, labels: tuple[str, ...] = ()) -> None:
        super().__init__(trunk, config, labels if config.output == "text" and not config.translation else ())
        if config.label_words and len(config.label_words) != len(self.labels):
            fact = f"names {len(config.label_words)} classes, and there are {len(self.labels)}"
            raise RecipeError("task.label_words", fact, f"Give a word for each of {self.labels}" if self.labels else "")
        if self.labels and config.metric not in ("accuracy", "macro_f1") and len(self.labels) != 2:
            raise RecipeError("task.metric", f"'{config.metric}' needs two classes", "Use accuracy or macro_f1")

    @property
    def max_new_tokens(self) -> int:
        """Tokens that are written, as many as are asked for and as the network can write."""
        return min(self.config.max_new_tokens, self.trunk.config.max_length - 1)

    @classmethod
    def file_kind(cls, config: Config) -> Kind:
        kinds: dict[Problem, Kind] = {"text": "classify", "number": "number", "span": "answer"}
        return kinds[config.output]

    @classmethod
    def collect_labels(cls, examples: Iterable[Example | Question]) -> tuple[str, ...]:
        """What is to be written, if that names classes: if each, in the mean, is to be written twice or more."""
        named, count = dict[str, Example](), 0
        for one in examples:
            if isinstance(one, Example) and isinstance(one.label, str):
                named.setdefault(one.label, one)
                count += 1
                if len(named) > MAX_CLASSES:
                    return ()
        return SequenceClassification.collect_labels(named.values()) if 2 * len(named) <= count else ()

    # ------------------------------------------------------------------------------------------- learning

    def forward(self, batch: Batch) -> dict[str, Term]:
        assert batch.decoder_tokens is not None
        assert batch.targets is not None
        logits = self.trunk.logits(self.trunk(batch.tokens, batch.decoder_tokens)).float()  # N V
        smoothing = self.config.label_smoothing if self.training else 0.0
        how: dict[str, Any] = {"reduction": "sum", "ignore_index": -100, "label_smoothing": smoothing}
        return {"text": Term(F.cross_entropy(logits, batch.targets, **how), None)}

    def preprocess(self, examples: Sequence[Example | Question], tokenizer: Tokenizer, max_length: int) -> list[Item]:
        if tokenizer.padding_id != DECODER_START:
            fact = f"its padding is piece {tokenizer.padding_id}"
            raise FolderError(
                tokenizer.location, fact, f"A T5 begins to write with padding, which is piece {DECODER_START}"
            )
        words = dict(zip(self.labels, self.config.label_words or self.labels, strict=True))
        spelling = LabelWords.of(tokenizer, words, self.max_new_tokens)
        texts = [self._texts(example) for example in examples]
        heads = {count: tokenizer.encode(self._prefixes(count)) for count in {len(row) for row in texts}}
        rooms = {count: max_length - 1 - sum(map(len, head)) for count, head in heads.items()}
        if min(rooms.values(), default=1) < 1:
            fact = (
                f"with names it takes {max_length - 1 - min(rooms.values())} tokens, and leaves no room in {max_length}"
            )
            raise RecipeError("task.prefix", fact, "Shorten it, or raise data.max_length")
        targets = [self._target(example, words) for example in examples]
        pieces = iter(tokenizer.encode([text for row in texts for text in row]))
        asked = iter(tokenizer.encode([target for target in targets if target is not None]))
        items = []
        for number, (row, target) in enumerate(zip(texts, targets, strict=True)):
            first, second, cut = truncate(next(pieces), next(pieces) if len(row) > 1 else None, rooms[len(row)])
            ids = [*heads[len(row)][0], *first, *([] if second is None else [*heads[2][1], *second]), tokenizer.stop_id]
            written = [DECODER_START]
            if target is not None:
                whole = next(asked)
                written += [*whole[: self.max_new_tokens - 1], tokenizer.stop_id]
                cut += max(0, len(whole) + 1 - self.max_new_tokens)
            asks = np.array(written, np.int32)
            items.append(Item(rows=(_row(ids),), example=number, target=asks, notes=spelling, truncated=cut))
        return items

    def collate(self, items: Sequence[Item], bucket: Bucket) -> Batch:
        """Both halves in few shapes, and neither much longer than the longest that it holds."""
        # What is given is what is to be written one place later; of nothing to be written, that which begins.
        given = [item.target[: max(1, len(item.target) - 1)] for item in items]
        longest = max(max(len(item.rows[0]), len(ids)) for item, ids in zip(items, given, strict=True))
        near = (
            -(-longest // LENGTH_MULTIPLE) * LENGTH_MULTIPLE
        )  # one for both: each of its own would make shapes of all combinations
        multiple = min(bucket.pad_to_multiple_of, max(64, -(-bucket.batch_size * self.max_new_tokens // 4)))
        tokens = replace(bucket, max_length=min(bucket.max_length, near)).collate(
            [item.rows[0] for item in items], bucket.batch_size
        )
        half = replace(bucket, max_length=min(self.max_new_tokens, near), pad_to_multiple_of=multiple)
        written = half.collate([_row(ids) for ids in given], bucket.batch_size)
        tokens, written = _equalise_sequences(tokens, written)
        targets = np.full(len(written.ids), -100)
        targets[: sum(map(len, given))] = np.concatenate(
            [item.target[1:] if len(item.target) > 1 else [-100] for item in items]
        )
        lengths = [(len(item.rows[0]), len(ids)) for item, ids in zip(items, given, strict=True)]
        counts = {"text": max(1, int((targets != -100).sum())), "tokens": sum(map(sum, lengths))}
        counts["squares"] = sum(read * read + write * write for read, write in lengths)
        return Batch(tokens=tokens, decoder_tokens=written, targets=torch.from_numpy(targets), counts=counts)

    @torch.no_grad()
    def loss(self, items: Sequence[Item], device: torch.device, budget: int) -> float:
        """The mean of a token's loss, with nothing smoothed, of a network that is not learning just now."""
        total, count = 0.0, 0
        for some in batch_by_length([len(item.rows[0]) for item in items], budget):
            batch = self.collate(
                [items[number] for number in some], Bucket(batch_size=len(some), max_length=self.max_new_tokens)
            )
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
            decoder = GenerationEngine(
                self.trunk, prepack_weights=self.config.translation, decoder_start_id=DECODER_START
            )
            rows = [row.tolist() for row in torch.split(tokens.ids, tokens.bounds.diff().tolist())]
            found = generate_ids(
                decoder, rows, GenerationConfig(max_new_tokens=self.max_new_tokens, temperature=0), [rows[0][-1]]
            )
        return [torch.tensor(ids, dtype=torch.float32) for ids, *_ in found]

    def postprocess(
        self, example: Example | Question, items: Sequence[Item], outputs: Sequence[NDArray[np.float32]]
    ) -> Any:
        spelling: LabelWords = items[0].notes
        text = spelling.tokenizer.decode(outputs[0].astype(np.int64).tolist()).strip()
        match self.config.output:
            case "span":
                return {"id": getattr(example, "name", example.location), "answer": text}
            case "number":
                return {"text": text, "number": float(text) if NUMBER.fullmatch(text) else None}
        return {"text": text} | ({"label": spelling.labels.get(text)} if self.labels else {})

    def score(self, examples: Sequence[Example | Question], predictions: Sequence[Any]) -> dict[str, float]:
        if self.config.output == "span":
            return _span_scores(examples, predictions)
        gold = [example.label for example in examples if isinstance(example, Example)]
        if self.config.output == "number":
            return _regression_scores([float(label) for label in gold], [said["number"] for said in predictions])  # type: ignore[arg-type]
        truth = [str(label) for label in gold]
        if self.labels:
            figures = _class_scores(truth, [said["label"] for said in predictions], self.labels)
            return {self.config.metric: figures.pop(self.config.metric), **figures}
        pairs = list(zip(truth, [said["text"] for said in predictions], strict=True))
        same = [one.split() == other.split() for one, other in pairs]
        if self.config.translation:
            return {"bleu": bleu([said for _, said in pairs], truth), "exact": float(np.mean(same))}
        return {"f1": float(np.mean([token_f1(*pair) for pair in pairs])), "exact": float(np.mean(same))}

    # ----------------------------------------------------------------------------------- examples as texts

    def _texts(self, example: Example | Question) -> tuple[str, ...]:
        """One text, or two in the order in which they are read."""
        texts = (example.question, example.context) if isinstance(example, Question) else example.texts
        if len(texts) > 2:
            raise TextError(example.location, f"has {len(texts)} texts", "Name one or two with data.texts")
        return texts[::-1] if self.config.reverse else texts

    def _prefixes(self, texts: int) -> list[str]:
        """What stands before each of so many texts."""
        prefix, names = self.config.prefix, self.config.text_names
        if texts == 1:
            return [prefix]
        first, second = ("question", "context") if self.config.output == "span" else names
        if self.config.reverse:
            first, second = second, first
        return [f"{prefix} {first}:".strip(), f"{second}:"]

    def _target(self, example: Example | Question, label_words: dict[str, str]) -> str | None:
        """What is to be written; None where nobody has said."""
        if isinstance(example, Question):
            return None if example.answers is None else next((answer.text for answer in example.answers), "")
        label = example.label
        if label is None or self.config.output == "span":
            return None
        if self.config.output == "number":
            return _format_number(float(label), self.config.rounding)  # type: ignore[arg-type]
        return label_words.get(str(label), str(label))


@dataclass(frozen=True)
class LabelWords:
    """What is needed to read what was written: the tokenizer, and for the spelling of each class its name."""

    tokenizer: Tokenizer
    labels: dict[str, str]

    @classmethod
    def of(cls, tokenizer: Tokenizer, label_words: dict[str, str], max_new_tokens: int) -> "LabelWords":
        """Classes as they come out of the tokenizer, which may know no capitals."""
        found: dict[str, str] = {}
        for (label, word), ids in zip(label_words.items(), tokenizer.encode(list(label_words.values())), strict=True):
            spelt = tokenizer.decode(ids[: max_new_tokens - 1]).strip()
            if spelt in found:
                fact = f"'{label_words[found[spelt]]}' and '{word}' are both written '{spelt}'"
                raise RecipeError(
                    "task.label_words", fact, "Give the classes other words, or raise task.max_new_tokens"
                )
            found[spelt] = label
        return cls(tokenizer, found)


def _row(ids: Sequence[int] | NDArray[np.int32]) -> Row:
    """Tokens of one text, of which T5 tells no second one apart."""
    return Row(np.array(ids, np.int32), np.zeros(len(ids), np.int32))


def _equalise_sequences(one: Tokens, other: Tokens) -> tuple[Tokens, Tokens]:
    """Both with as many sequences, the last of them empty: each that is written looks at one that is read."""
    most = max(len(one.bounds), len(other.bounds))
    ends = (torch.cat([part.bounds, part.bounds[-1:].expand(most - len(part.bounds))]) for part in (one, other))
    first, second = (replace(part, bounds=bounds) for part, bounds in zip((one, other), ends, strict=True))
    return first, second


def _format_number(number: float, step: float) -> str:
    """A number as T5 was to write it: 3.75 as 3.8. Raffel et al. 2020, section 2.4."""
    decimals = max(0, -int(Decimal(repr(step)).as_tuple().exponent))
    return f"{round(number / step) * step:.{decimals}f}"


def _class_scores(gold: Sequence[str], predicted: Sequence[str | None], labels: tuple[str, ...]) -> dict[str, float]:
    """The measures of `classify`. What is no class is, of two, the wrong one, as T5's authors count."""
    number = {label: place for place, label in enumerate(labels)}
    right = [number.get(label, -2) for label in gold]
    guessed = [-1 if label is None else number[label] for label in predicted]
    if len(labels) == 2:
        guessed = [1 - max(0, one) if other < 0 else other for one, other in zip(right, guessed, strict=True)]
    return scores.classification_scores(right, guessed, len(labels)) | {
        "no_class": predicted.count(None) / max(1, len(predicted))
    }


def _regression_scores(gold: Sequence[float], predicted: Sequence[float | None]) -> dict[str, float]:
    """Correlations. What is no number counts as the end of the scale that is farther from what is right."""
    low, high = min(gold), max(gold)
    worst = [high if high - one > one - low else low for one in gold]
    guessed = [bad if number is None else number for number, bad in zip(predicted, worst, strict=True)]
    figures = {"spearman": scores.spearman(gold, guessed), "pearson": scores.pearson(gold, guessed)}
    return figures | {"no_number": predicted.count(None) / max(1, len(predicted))}


def _span_scores(examples: Sequence[Example | Question], predictions: Sequence[Any]) -> dict[str, float]:
    """SQuAD's own figures."""
    gold, guessed = {}, {}
    for example, said in zip(examples, predictions, strict=True):
        if isinstance(example, Question) and example.answers is not None:
            gold[example.name] = tuple(answer.text for answer in example.answers)
            guessed[example.name] = said["answer"]
    figures = squad_scores(gold, guessed)
    return {"f1": figures.pop("f1"), **figures}
