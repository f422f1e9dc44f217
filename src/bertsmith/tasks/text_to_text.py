"""Text-to-text: every task as text generation, as in T5; also translation, with label smoothing."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.data.batch import DecoderBatch, Tokens
from bertsmith.data.labelled.examples import Example, Kind, Question
from bertsmith.data.rows import Row, batch_by_length
from bertsmith.errors import FolderError, RecipeError, TextError
from bertsmith.metrics.bleu import bleu
from bertsmith.metrics.squad import token_f1
from bertsmith.models.generation.engine import GenerationEngine, generate
from bertsmith.models.generation.search import GenerationConfig
from bertsmith.models.networks import EncoderDecoderNetwork
from bertsmith.objectives.base import Term
from bertsmith.tasks.base import Bucket, Item, Task, truncate
from bertsmith.tasks.classification import Metric, SequenceClassification
from bertsmith.tasks.generated_scores import class_scores, regression_scores, span_scores
from bertsmith.tasks.label_words import LabelWords, format_number
from bertsmith.text.tokenizer import Tokenizer

Output = Literal["text", "number", "span"]

LENGTH_MULTIPLE = 16  # to which the longest row of a batch is rounded up
MAX_CLASSES = 65_536  # with more different targets, they are texts and no classes
DECODER_START = 0  # the decoder's first token: T5's padding
ANSWER_NUMBER = re.compile(r"-?\d+(\.\d+)?")


class TextToText(Task):
    """One network, one loss and one decoder for all tasks. Raffel et al. 2020, section 2.4.

    Classes are generated as words, numbers as rounded digits, and the answer to a question as its text. A generated
    text that is no class or no number is wrong, and is counted.

    Departs from the paper: a pair that is too long is truncated from its longer text, and not from the end of both.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config:
        output: Output = "text"  # what is generated: text or a class, a number, or a span of a context
        prefix: str = ""  # words before every text, which name the task
        text_names: tuple[str, ...] = ("sentence1", "sentence2")  # before each text of a pair
        reverse: bool = False  # put the second text of a pair first
        label_words: tuple[str, ...] = ()  # the words of the classes, in the order of their ids; none: their names
        rounding: float = 0.2  # numbers are rounded to a multiple of this
        max_new_tokens: int = 32  # longest generated text in tokens, with the stop token
        metric: Metric = "accuracy"  # the headline of classes; the other metrics are reported, too
        translation: bool = False  # texts are translations, scored by BLEU
        label_smoothing: float = 0.0  # share of the target for all tokens; Vaswani et al. 2017, section 5.4: 0.1

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

    generates = True
    trunk: EncoderDecoderNetwork  # type: ignore[assignment]  # an encoder and a decoder
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
        """The configured number of tokens, limited by the network's positions."""
        return min(self.config.max_new_tokens, self.trunk.config.max_length - 1)

    @classmethod
    def file_kind(cls, config: Config) -> Kind:
        kinds: dict[Output, Kind] = {"text": "classify", "number": "number", "span": "answer"}
        return kinds[config.output]

    @classmethod
    def collect_labels(cls, examples: Iterable[Example | Question]) -> tuple[str, ...]:
        """The target texts as classes, if each occurs twice or more on average."""
        named, count = dict[str, Example](), 0
        for one in examples:
            if isinstance(one, Example) and isinstance(one.label, str):
                named.setdefault(one.label, one)
                count += 1
                if len(named) > MAX_CLASSES:
                    return ()
        return SequenceClassification.collect_labels(named.values()) if 2 * len(named) <= count else ()

    # ------------------------------------------------------------------------------------------- learning

    def forward(self, batch: DecoderBatch) -> dict[str, Term]:
        logits = self.trunk.logits(self.trunk(batch.tokens, batch.decoder_tokens)).float()  # N V
        smoothing = self.config.label_smoothing if self.training else 0.0
        options: dict[str, Any] = {"reduction": "sum", "ignore_index": -100, "label_smoothing": smoothing}
        return {"text": Term(F.cross_entropy(logits, batch.targets, **options), None)}

    def preprocess(self, examples: Sequence[Example | Question], tokenizer: Tokenizer, max_length: int) -> list[Item]:
        if tokenizer.padding_id != DECODER_START:
            fact = f"its padding token has id {tokenizer.padding_id}"
            remedy = f"A decoder starts with the padding token, whose id must be {DECODER_START}"
            raise FolderError(tokenizer.location, fact, remedy)
        words = dict(zip(self.labels, self.config.label_words or self.labels, strict=True))
        label_words = LabelWords.of(tokenizer, words, self.max_new_tokens)
        texts = [self._texts(example) for example in examples]
        prefixes = {count: tokenizer.encode(self._prefixes(count)) for count in {len(row) for row in texts}}
        rooms = {count: max_length - 1 - sum(map(len, prefix)) for count, prefix in prefixes.items()}
        if min(rooms.values(), default=1) < 1:
            taken = max_length - 1 - min(rooms.values())
            fact = f"with names it takes {taken} tokens, and leaves no room in {max_length}"
            raise RecipeError("task.prefix", fact, "Shorten it, or raise data.max_length")
        targets = [self._target(example, words) for example in examples]
        encoded = iter(tokenizer.encode([text for row in texts for text in row]))
        encoded_targets = iter(tokenizer.encode([target for target in targets if target is not None]))
        items = []
        for number, (row, target) in enumerate(zip(texts, targets, strict=True)):
            first, second, cut = truncate(next(encoded), next(encoded) if len(row) > 1 else None, rooms[len(row)])
            second_part = [] if second is None else [*prefixes[2][1], *second]
            ids = [*prefixes[len(row)][0], *first, *second_part, tokenizer.stop_id]
            decoder_ids = [DECODER_START]
            if target is not None:
                whole = next(encoded_targets)
                decoder_ids += [*whole[: self.max_new_tokens - 1], tokenizer.stop_id]
                cut += max(0, len(whole) + 1 - self.max_new_tokens)
            target_ids = np.array(decoder_ids, np.int32)
            items.append(Item(rows=(_row(ids),), example=number, target=target_ids, notes=label_words, truncated=cut))
        return items

    def collate(self, items: Sequence[Item], bucket: Bucket) -> DecoderBatch:
        """Encoder and decoder inputs in few shapes, neither much longer than its longest row."""
        # Teacher forcing: the decoder input is the target without its last token.
        inputs = [item.target[: max(1, len(item.target) - 1)] for item in items]
        longest = max(max(len(item.rows[0]), len(ids)) for item, ids in zip(items, inputs, strict=True))
        # One length for both: separate ones would make shapes of all combinations.
        rounded = -(-longest // LENGTH_MULTIPLE) * LENGTH_MULTIPLE
        multiple = min(bucket.pad_to_multiple_of, max(64, -(-bucket.batch_size * self.max_new_tokens // 4)))
        encoder_bucket = replace(bucket, max_length=min(bucket.max_length, rounded))
        tokens = encoder_bucket.collate([item.rows[0] for item in items], bucket.batch_size)
        decoder_bucket = replace(bucket, max_length=min(self.max_new_tokens, rounded), pad_to_multiple_of=multiple)
        decoder_tokens = decoder_bucket.collate([_row(ids) for ids in inputs], bucket.batch_size)
        tokens, decoder_tokens = _equalise_sequences(tokens, decoder_tokens)
        targets = np.full(len(decoder_tokens.ids), -100)
        targets[: sum(map(len, inputs))] = np.concatenate(
            [item.target[1:] if len(item.target) > 1 else [-100] for item in items]
        )
        lengths = [(len(item.rows[0]), len(ids)) for item, ids in zip(items, inputs, strict=True)]
        counts = {"text": max(1, int((targets != -100).sum())), "tokens": sum(map(sum, lengths))}
        counts["squares"] = sum(encoder**2 + decoder**2 for encoder, decoder in lengths)
        return DecoderBatch(
            tokens=tokens, decoder_tokens=decoder_tokens, targets=torch.from_numpy(targets), counts=counts
        )

    @torch.no_grad()
    def loss(self, items: Sequence[Item], device: torch.device, budget: int) -> float:
        """The mean loss per token without label smoothing, for a task in eval mode."""
        total, count = 0.0, 0
        for chosen in batch_by_length([len(item.rows[0]) for item in items], budget):
            bucket = Bucket(batch_size=len(chosen), max_length=self.max_new_tokens)
            batch = self.collate([items[number] for number in chosen], bucket)
            total += float(self(batch.to(device))["text"].total)
            count += batch.counts["text"]
        return total / max(1, count)

    # ---------------------------------------------------------------------------------------- predictions

    def outputs(self, tokens: Tokens) -> list[Tensor]:
        """Greedy decoding, in float32, since small differences change the text.

        The last token of each input is the stop token.
        """
        with torch.autocast(tokens.ids.device.type, enabled=False):
            # Prepacking weights pays for sentences, not for single words.
            prepack = self.config.translation
            engine = GenerationEngine(self.trunk, prepack_weights=prepack, decoder_start_id=DECODER_START)
            rows = [row.tolist() for row in torch.split(tokens.ids, tokens.bounds.diff().tolist())]
            config = GenerationConfig(max_new_tokens=self.max_new_tokens, temperature=0)
            found = generate(engine, rows, config, [rows[0][-1]])
        return [torch.tensor(ids, dtype=torch.float32) for ids, *_ in found]

    def postprocess(
        self, example: Example | Question, items: Sequence[Item], outputs: Sequence[NDArray[np.float32]]
    ) -> Any:
        label_words: LabelWords = items[0].notes
        text = label_words.tokenizer.decode(outputs[0].astype(np.int64).tolist()).strip()
        if self.config.translation and not any(one.strip() for one in self._texts(example)):
            return {"text": ""}  # the translation of nothing, whatever was generated
        match self.config.output:
            case "span":
                return {"id": getattr(example, "name", example.location), "answer": text}
            case "number":
                return {"text": text, "number": float(text) if ANSWER_NUMBER.fullmatch(text) else None}
        return {"text": text} | ({"label": label_words.labels.get(text)} if self.labels else {})

    def score(self, examples: Sequence[Example | Question], predictions: Sequence[Any]) -> dict[str, float]:
        if self.config.output == "span":
            return span_scores(examples, predictions)
        gold = [example.label for example in examples if isinstance(example, Example)]
        if self.config.output == "number":
            numbers = [prediction["number"] for prediction in predictions]
            return regression_scores([float(label) for label in gold], numbers)  # type: ignore[arg-type]
        true = [str(label) for label in gold]
        if self.labels:
            metrics = class_scores(true, [prediction["label"] for prediction in predictions], self.labels)
            return {self.config.metric: metrics.pop(self.config.metric), **metrics}
        texts = [prediction["text"] for prediction in predictions]
        pairs = list(zip(true, texts, strict=True))
        exact = float(np.mean([one.split() == other.split() for one, other in pairs]))
        if self.config.translation:
            return {"bleu": bleu(texts, true), "exact": exact}
        return {"f1": float(np.mean([token_f1(*pair) for pair in pairs])), "exact": exact}

    # ----------------------------------------------------------------------------------- examples as texts

    def _texts(self, example: Example | Question) -> tuple[str, ...]:
        """One text, or two in the order of the input."""
        texts = (example.question, example.context) if isinstance(example, Question) else example.texts
        if len(texts) > 2:
            raise TextError(example.location, f"has {len(texts)} texts", "Name one or two with data.texts")
        return texts[::-1] if self.config.reverse else texts

    def _prefixes(self, texts: int) -> list[str]:
        """The words before each of one or two texts."""
        prefix, names = self.config.prefix, self.config.text_names
        if texts == 1:
            return [prefix]
        first, second = ("question", "context") if self.config.output == "span" else names
        if self.config.reverse:
            first, second = second, first
        return [f"{prefix} {first}:".strip(), f"{second}:"]

    def _target(self, example: Example | Question, label_words: dict[str, str]) -> str | None:
        """The target text; None without a label."""
        if isinstance(example, Question):
            return None if example.answers is None else next((answer.text for answer in example.answers), "")
        label = example.label
        if label is None or self.config.output == "span":
            return None
        if self.config.output == "number":
            return format_number(float(label), self.config.rounding)  # type: ignore[arg-type]
        return label_words.get(str(label), str(label))


def _row(ids: Sequence[int] | NDArray[np.int32]) -> Row:
    """A row without segments, which T5 does not have."""
    return Row(np.array(ids, np.int32), np.zeros(len(ids), np.int32))


def _equalise_sequences(one: Tokens, other: Tokens) -> tuple[Tokens, Tokens]:
    """Both with the same number of sequences, by empty ones at the end: cross-attention pairs them up."""
    most = max(len(one.bounds), len(other.bounds))
    ends = (torch.cat([part.bounds, part.bounds[-1:].expand(most - len(part.bounds))]) for part in (one, other))
    first, second = (replace(part, bounds=bounds) for part, bounds in zip((one, other), ends, strict=True))
    return first, second
