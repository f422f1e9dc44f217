"""Token classification: a label for every word, as in named entity recognition (NER) and part-of-speech tagging."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.data.batch import TargetBatch, Tokens
from bertsmith.data.labelled.examples import Kind, Sentence
from bertsmith.errors import RecipeError, TextError, suggest
from bertsmith.metrics.entities import entity_scores
from bertsmith.models.transformer import Transformer, make_pooler
from bertsmith.nn.heads import Classifier
from bertsmith.objectives.base import Term
from bertsmith.tasks.base import Bucket, Item, Task, count_tokens, with_characters, with_special_tokens
from bertsmith.text.characters import encode_words_with_characters
from bertsmith.text.tokenizer import Tokenizer


class TokenClassification(Task):
    """A tag for each word, predicted at its first token. Devlin et al. 2018, section 5.3.

    A sentence longer than the model is split into overlapping windows; each word is trained and predicted once, in the
    window where it is farthest from an edge. Nothing is cut off.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config:
        overlap: float = 0.5  # overlap of the windows of a long sentence, as a share of a window

        def __post_init__(self) -> None:
            if not 0 <= self.overlap < 1:
                raise ValueError(f"overlap is {self.overlap}. Give a share, at least 0 and below 1")

    def __init__(self, trunk: Transformer, config: Config, labels: tuple[str, ...]) -> None:
        super().__init__(trunk, config, labels)
        if len(labels) < 2:
            raise RecipeError("task", f"there is only one tag, {labels}", "Give examples of at least two")
        self.pooler = make_pooler(trunk.config, whole_text=False)
        self.classifier = Classifier(trunk.config.width, len(labels), trunk.config.dropout)

    @classmethod
    def file_kind(cls, config: Config) -> Kind:
        return "tag"

    @classmethod
    def collect_labels(cls, examples: Iterable[Sentence]) -> tuple[str, ...]:
        return tuple(sorted({tag for example in examples for tag in example.tags or ()}))

    def forward(self, batch: TargetBatch) -> dict[str, Term]:
        logits = self.classifier(self.pooler(self.trunk(batch.tokens))).float()  # T C
        return {"tag": Term(F.cross_entropy(logits, batch.targets, reduction="sum", ignore_index=-100), None)}

    def preprocess(self, examples: Sequence[Sentence], tokenizer: Tokenizer, max_length: int) -> list[Item]:
        return make_windows(examples, tokenizer, max_length, self.labels, self.config.overlap)

    def collate(self, items: Sequence[Item], bucket: Bucket) -> TargetBatch:
        return collate_tags(items, bucket)

    def outputs(self, tokens: Tokens) -> list[Tensor]:
        logits = self.classifier(self.pooler(self.trunk(tokens)))
        return list(torch.split(logits, tokens.bounds.diff().tolist()))

    def postprocess(self, example: Sentence, items: Sequence[Item], outputs: Sequence[NDArray[np.float32]]) -> Any:
        return decode_tags(example, items, outputs, self.labels)

    def postprocess_detailed(
        self, example: Sentence, items: Sequence[Item], outputs: Sequence[NDArray[np.float32]]
    ) -> Any:
        return self.postprocess(example, items, outputs) | {"probabilities": tag_probabilities(example, items, outputs)}

    def score(self, examples: Sequence[Sentence], predictions: Sequence[Any]) -> dict[str, float]:
        return score_tags(examples, predictions, self.labels)


# ------------------------------------------------------------------------- shared with tagging from features


def make_windows(
    examples: Sequence[Sentence],
    tokenizer: Tokenizer,
    max_length: int,
    labels: tuple[str, ...],
    overlap: float,
    letters: int = 0,
) -> list[Item]:
    """Sentences as items: a target for each token; notes are the positions of first tokens, and their words.

    With `letters`, the rows also have that many characters per word.
    """
    items = []
    for number, (example, (ids, owners, spelling)) in enumerate(
        zip(examples, _encode(examples, tokenizer, letters), strict=True)
    ):
        words, firsts = np.unique(np.array(owners, np.int64), return_index=True)
        tags = _tag_ids(example, labels)
        for begin, end, owned in _windows(len(ids), firsts, max_length - 2, overlap):
            positions = firsts[owned] - begin + (1 if letters else len(tokenizer.template.before))  # after [CLS]
            row = with_special_tokens(tokenizer, ids[begin:end])
            if spelling is not None:
                row = with_characters(tokenizer, ids[begin:end], spelling[begin:end])
            target = np.full(len(row), -100)
            target[positions] = -100 if tags is None else tags[words[owned]]
            items.append(Item(rows=(row,), example=number, target=target, notes=(positions, words[owned])))
    return items


def _encode(
    examples: Sequence[Sentence], tokenizer: Tokenizer, letters: int
) -> list[tuple[list[int], list[int], NDArray[np.int16] | None]]:
    """The tokens of each sentence, the word of each token, and its characters if `letters`."""
    words = [example.words for example in examples]
    if letters:
        return [
            (ids, owners, spelling) for ids, owners, spelling in encode_words_with_characters(tokenizer, words, letters)
        ]
    return [(ids, owners, None) for ids, owners in tokenizer.encode_words(words)]


def collate_tags(items: Sequence[Item], bucket: Bucket) -> TargetBatch:
    """Items as one batch."""
    tokens = bucket.collate([item.rows[0] for item in items], bucket.batch_size)
    targets = np.full(len(tokens.ids), -100)
    targets[: sum(len(item.target) for item in items)] = np.concatenate([item.target for item in items])
    counts = {"tag": max(1, int((targets != -100).sum())), **count_tokens(items)}
    return TargetBatch(tokens=tokens, targets=torch.from_numpy(targets), counts=counts)


def decode_tags(
    example: Sentence, items: Sequence[Item], outputs: Sequence[NDArray[np.float32]], labels: tuple[str, ...]
) -> Any:
    """The words of a sentence and their likeliest tags."""
    missing = "O" if "O" in labels else labels[0]  # for a word without tokens
    tags = [missing] * len(example.words)
    for item, logits in zip(items, outputs, strict=True):
        positions, words = item.notes
        for word, best in zip(words, logits[positions].argmax(-1), strict=True):
            tags[word] = labels[best]
    return {"words": list(example.words), "tags": tags}


def tag_probabilities(
    example: Sentence, items: Sequence[Item], outputs: Sequence[NDArray[np.float32]]
) -> list[float | None]:
    """The probability of each word's predicted tag; None for a word without tokens."""
    found: list[float | None] = [None] * len(example.words)
    for item, logits in zip(items, outputs, strict=True):
        positions, words = item.notes
        shifted = logits[positions].astype(np.float64)
        exponentials = np.exp(shifted - shifted.max(-1, keepdims=True, initial=-np.inf))
        for word, probability in zip(words, (1 / exponentials.sum(-1)).tolist(), strict=True):
            found[word] = probability
    return found


def score_tags(examples: Sequence[Sentence], predictions: Sequence[Any], labels: tuple[str, ...]) -> dict[str, float]:
    """Entity-level F1 for B- and I- tags, else accuracy of words."""
    pairs = zip(examples, predictions, strict=True)
    known = [(example.tags, prediction["tags"]) for example, prediction in pairs if example.tags is not None]
    found = entity_scores([gold for gold, _ in known], [predicted for _, predicted in known])
    if not any(label[:2] in ("B-", "I-") for label in labels):
        return {"accuracy": found.accuracy}
    return {"f1": found.f1, "precision": found.precision, "recall": found.recall, "accuracy": found.accuracy}


def _tag_ids(example: Sentence, labels: tuple[str, ...]) -> NDArray[np.int64] | None:
    if example.tags is None:
        return None
    if unknown := set(example.tags) - set(labels):
        fact = f"the tag '{min(unknown)}' is not among those learnt"
        raise TextError(example.location, fact, suggest(min(unknown), labels))
    return np.array([labels.index(tag) for tag in example.tags], np.int64)


def _windows(
    pieces: int, firsts: NDArray[np.int64], max_length: int, overlap: float
) -> list[tuple[int, int, NDArray[np.int64]]]:
    """Windows of at most `max_length` tokens, each with the words that are farthest from an edge in it."""
    step = max(1, max_length - int(overlap * max_length))
    begins = np.arange(0, max(1, pieces - max_length + step), step)
    ends = np.minimum(begins + max_length, pieces)
    # At the ends of the sentence no context is missing.
    left = np.where(begins[:, None] == 0, pieces, firsts - begins[:, None])
    right = np.where(ends[:, None] == pieces, pieces, ends[:, None] - 1 - firsts)
    owner = np.minimum(left, right).argmax(0)
    return [(int(b), int(e), np.flatnonzero(owner == w)) for w, (b, e) in enumerate(zip(begins, ends, strict=True))]
