"""Few-shot prompting: a causal model classifies after a few examples in its prompt. Brown et al. 2020.

A prompt holds labelled examples (shots) and a text without its label; the words of each label are scored as the
continuation, and the most probable label is the prediction. No weight is changed.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64, Int64
from numpy.typing import NDArray

from bertsmith.data.batch import SelectedBatch
from bertsmith.data.labelled.examples import Example
from bertsmith.data.rows import BATCH_TOKENS, Row, batch_by_length, pack_rows
from bertsmith.errors import RecipeError, TextError, suggest
from bertsmith.inference.likelihood import token_log_probabilities
from bertsmith.inference.prompt import DRAW_ORDER, DemonstrationPool, Template, Texts
from bertsmith.objectives.causal import CausalLM
from bertsmith.random_bits import mix, permute
from bertsmith.text.tokenizer import Tokenizer

Text = str | tuple[str, str]  # one text, or a pair
TokenIds = tuple[int, ...]

CONTENT_FREE = "N/A"  # the content-free input of Zhao et al. 2021, section 4


@dataclass(frozen=True, kw_only=True)
class FewShotConfig:
    """Settings of few-shot classification."""

    shots: tuple[int, ...] = (0, 1, 2, 4, 8)  # examples in a prompt
    template: str | None = None  # how an example is written; None: the default for one text or two
    label_words: dict = field(default_factory=dict)  # by label, the words that stand for it in the prompt
    calibrate: bool = False  # also report scores calibrated by a content-free input

    def __post_init__(self) -> None:
        if not self.shots or min(self.shots) < 0:
            fact = f"{list(self.shots)} are no numbers of examples"
            raise RecipeError("shots", fact, "Write them as in --shots 0,1,2,4,8")
        for label, name in self.label_words.items():
            if not isinstance(name, str):
                raise RecipeError(f"label_words.{label}", f"{name!r} is no text", "Put it into quotes")


@dataclass(frozen=True)
class FewShotPredictions:
    """Scores of all labels for some texts."""

    labels: tuple[str, ...]
    log_likelihoods: Float64[np.ndarray, "P C"]  # log-likelihood of each label after each prompt
    content_free: Float64[np.ndarray, "P C"] | None  # the same with the content-free input as text
    shots: Int64[np.ndarray, "P"]  # examples in each prompt
    truncated: Int64[np.ndarray, "P"]  # tokens of each text that did not fit

    @property
    def calibrated(self) -> Float64[np.ndarray, "P C"]:
        """Contextual calibration: log-likelihoods minus those of the content-free input. Zhao et al. 2021, sec. 5."""
        return self.log_likelihoods if self.content_free is None else self.log_likelihoods - self.content_free

    def to_dicts(self) -> list[dict[str, Any]]:
        """The most probable label of each text, and the probability of each label."""
        probabilities = np.exp(self.calibrated - self.calibrated.max(1, keepdims=True))
        probabilities /= probabilities.sum(1, keepdims=True)
        best = self.calibrated.argmax(1)
        return [
            {"label": self.labels[one], "probabilities": dict(zip(self.labels, row.tolist(), strict=True))}
            for one, row in zip(best, probabilities, strict=True)
        ]


class FewShotClassifier:
    """A causal language model as a classifier: its labels, and the template of its prompts."""

    def __init__(
        self, objective: CausalLM, tokenizer: Tokenizer, labels: Mapping[str, str], template: Template
    ) -> None:
        """`labels` map each label to its words in a prompt."""
        self.objective, self.tokenizer, self.labels, self.template = objective, tokenizer, labels, template
        if len(labels) < 2:
            raise TextError("labels", f"there is no choice among {len(labels)}", "Give at least two")
        self._label_ids = self._encode([template.answer(words) for words in labels.values()])
        owners: dict[TokenIds, str] = {}
        for label, pieces in zip(labels, self._label_ids, strict=True):
            if not pieces:
                raise TextError(f"label '{label}'", "has no tokens to be scored by", "Give it a name in words")
            if pieces in owners:
                raise TextError(f"label '{label}'", f"reads the same as '{owners[pieces]}'", "Give it another name")
            owners[pieces] = label
        length = objective.trunk.config.max_length
        self._prefix_ids = tokenizer.template.before  # special tokens before a prompt: none in GPT-2
        # One more than the positions: the last token is predicted, not read.
        self._max_prompt_length = length + 1 - len(self._prefix_ids) - max(map(len, owners))
        if self._max_prompt_length < 1:
            raise TextError("labels", f"do not fit a model of {length} positions", "Give them shorter names")

    def predict(
        self,
        texts: Sequence[Texts],
        shots: Sequence[Sequence[Example]],
        *,
        order_keys: Sequence[int] | None = None,
        calibrate: bool = False,
        batch_tokens: int = BATCH_TOKENS,
    ) -> FewShotPredictions:
        """Score the labels for each text after its shots, of which the first that fit are used.

        With `order_keys`, the shots of a text are permuted by its key. A text that does not fit alone loses its
        beginning.
        """
        questions = self._encode([self.template.question(one) for one in texts])
        distinct = list(dict.fromkeys(chain.from_iterable(shots)))
        pieces = dict(zip(distinct, self._encode([self._demonstration(one) for one in distinct]), strict=True))
        free: TokenIds = ()
        if calibrate:
            [free] = self._encode([self.template.question((CONTENT_FREE,) * self.template.text_count)])
        prompts, empty, shown = list[TokenIds](), list[TokenIds](), list[int]()
        for number, (question, some) in enumerate(zip(questions, shots, strict=True)):
            own = [pieces[one] for one in some]
            left = self._max_prompt_length - max(len(question), len(free))
            count = int(np.searchsorted(np.cumsum([len(one) for one in own]), left, side="right"))
            order = range(count) if order_keys is None else permute(np.arange(count), count, order_keys[number])
            before = tuple(chain.from_iterable(own[index] for index in order))
            prompts.append(before + question[-self._max_prompt_length :])
            empty.append(before + free[-self._max_prompt_length :])
            shown.append(count)
        contexts = [*prompts, *empty] if calibrate else prompts
        framed = [self._prefix_ids + prompt or (self.tokenizer.start_id,) for prompt in contexts]
        found = score_answers(self.objective, framed, self._label_ids, batch_tokens)
        return FewShotPredictions(
            labels=tuple(self.labels),
            log_likelihoods=found[: len(prompts)],
            content_free=found[len(prompts) :] if calibrate else None,
            shots=np.array(shown, np.int64),
            truncated=np.array([max(0, len(question) - self._max_prompt_length) for question in questions], np.int64),
        )

    def evaluate(
        self, examples: Mapping[int, Example], pool: DemonstrationPool, count: int, seed: int, calibrate: bool = False
    ) -> dict[str, float]:
        """Accuracy with `count` shots, and the numbers of prompts with fewer shots and of truncated texts."""
        shots = [pool.draw(count, seed, number) for number in examples]
        keys = [int(mix(seed, DRAW_ORDER, number)) for number in examples]
        predictions = self.predict(
            [one.texts for one in examples.values()], shots, order_keys=keys, calibrate=calibrate
        )
        gold, names = np.array([one.label for one in examples.values()]), np.array(predictions.labels)
        figures = {"accuracy": float((names[predictions.log_likelihoods.argmax(1)] == gold).mean())}
        if calibrate:
            figures["calibrated"] = float((names[predictions.calibrated.argmax(1)] == gold).mean())
        return {
            **figures,
            "fewer_shots": int((predictions.shots < count).sum()),
            "truncated": int((predictions.truncated > 0).sum()),
        }

    def _demonstration(self, example: Example) -> str:
        label = str(example.label)
        if label not in self.labels:
            raise TextError(example.location, f"has the unknown label '{label}'", suggest(label, self.labels))
        return self.template.demonstration(example.texts, self.labels[label])

    def _encode(self, texts: Sequence[str]) -> list[TokenIds]:
        return [tuple(ids) for ids in self.tokenizer.encode(texts)]


def classify_few_shot(
    objective: CausalLM,
    tokenizer: Tokenizer,
    texts: Sequence[Text],
    examples: Sequence[tuple[Text, str]],
    labels: Sequence[str] | Mapping[str, str] | None = None,
    *,
    template: str | None = None,
    calibrate: bool = False,
) -> list[dict[str, Any]]:
    """The label of each text and the probability of each label, after all examples that fit before it, in order.

    `labels` are those of the examples by default. Calibrated probabilities compare a label with its likelihood after
    a content-free input.
    """
    if isinstance(texts, str):
        raise TextError("texts", "is one text, not several", "Put it into a list")
    asked = [_texts(text) for text in texts]
    shown = [
        Example(location=f"example {number}", texts=_texts(text), label=label)
        for number, (text, label) in enumerate(examples, 1)
    ]
    given = dict.fromkeys(label for _, label in examples) if labels is None else labels
    words = labels if isinstance(labels, Mapping) else {label: label for label in given}
    form = Template.of(template, max(map(len, asked), default=1))
    predictions = FewShotClassifier(objective, tokenizer, words, form).predict(
        asked, [shown] * len(asked), calibrate=calibrate
    )
    for number, (count, cut) in enumerate(
        zip(predictions.shots.tolist(), predictions.truncated.tolist(), strict=True), 1
    ):
        if count < len(shown):
            warnings.warn(f"text {number}: only {count} of {len(shown)} examples fit before it", stacklevel=3)
        if cut:
            warnings.warn(f"text {number}: {cut} of its tokens were not read", stacklevel=3)
    return predictions.to_dicts()


def _texts(text: Text) -> Texts:
    return (text,) if isinstance(text, str) else tuple(text)


@torch.inference_mode()
def score_answers(
    objective: CausalLM, prompts: Sequence[TokenIds], answers: Sequence[TokenIds], batch_tokens: int = BATCH_TOKENS
) -> Float64[np.ndarray, "P C"]:
    """The log-likelihood of each answer after each prompt: the sum over its tokens.

    The last token of an answer is predicted and not read, so that for answers of one token a prompt is read once;
    answers that share a prefix share its computation.
    """
    once = {prompt: number for number, prompt in enumerate(dict.fromkeys(prompts))}
    prefixes = _shared_prefixes(answers)
    rows = [(prompt, prefix) for prompt in once for prefix in prefixes]
    device, training = objective.trunk.embedding.weight.device, objective.training
    found, owners = [torch.empty(0, device=device)], [np.empty(0, np.int64)]
    objective.eval()
    try:
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            for some in batch_by_length([len(prompt) + len(prefix) for prompt, prefix in rows], batch_tokens):
                taken = [rows[row] for row in some]
                ids = [np.array([*prompt, *prefix], np.int32) for prompt, prefix in taken]
                tokens = pack_rows([Row(one, np.zeros_like(one)) for one in ids])
                chosen, targets = list[NDArray[np.int64]](), list[NDArray[np.int64]]()
                for (prompt, prefix), begin in zip(taken, tokens.bounds.tolist(), strict=False):
                    offsets, pieces, numbers = prefixes[prefix]
                    chosen.append(begin + len(prompt) - 1 + offsets)
                    targets.append(pieces)
                    owners.append(once[prompt] * len(answers) + numbers)
                arrays = [torch.from_numpy(np.concatenate(parts)) for parts in (chosen, targets)]
                batch = SelectedBatch(tokens=tokens, target_positions=arrays[0], targets=arrays[1])
                found.append(token_log_probabilities(objective, batch.to(device)))
    finally:
        objective.train(training)
    sums = np.zeros(len(once) * len(answers))
    np.add.at(sums, np.concatenate(owners), torch.cat(found).cpu().numpy())
    return sums.reshape(len(once), len(answers))[[once[prompt] for prompt in prompts]]


def _shared_prefixes(answers: Sequence[TokenIds]) -> dict[TokenIds, Int64[np.ndarray, "3 N"]]:
    """The distinct continuations to read after a prompt; for each, the offset, target token and answer number."""
    prefixes: dict[TokenIds, list[tuple[int, int, int]]] = {}
    for number in sorted(range(len(answers)), key=lambda number: -len(answers[number])):
        body = answers[number][:-1]
        shared = next((prefix for prefix in prefixes if prefix[: len(body)] == body), body)
        prefixes.setdefault(shared, []).extend((offset, piece, number) for offset, piece in enumerate(answers[number]))
    return {prefix: np.array(targets, np.int64).T for prefix, targets in prefixes.items()}
