"""The training loop of word2vec: sample blocks, update the tables, log, save.

The trainer of networks updates every weight in every step, and would spend its time on rows of words that are not in
the batch. The same guarantees hold here: everything random is a pure function of (seed, epoch, step), and a resumed run
ends with the same vectors. This is exact on a CPU; a GPU adds rows in any order.
"""

import math
import os
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bertsmith.data.corpus.word_ids import WordIds
from bertsmith.errors import RunError, StopError
from bertsmith.models.word2vec import Word2Vec
from bertsmith.objectives.word2vec_blocks import (
    Blocks,
    NegativeSamplingConfig,
    cumulative_distribution,
    keep_probability,
    resolve_config,
    sample_blocks,
)
from bertsmith.random_bits import mix, permute
from bertsmith.train import checkpoint
from bertsmith.train.checkpoint import Checkpoint
from bertsmith.train.clock import Clock, Extent, crossed_mark, parse_duration
from bertsmith.train.display import Display, Progress
from bertsmith.train.log import Log
from bertsmith.train.signals import Signals
from bertsmith.train.train_config import check_seed
from bertsmith.train.word2vec_updater import TableUpdater

WORDS_PER_STEP = 1 << 16  # words of the text in a step: sampled together, and one record in the log
MAX_SAMPLING_THREADS = 8  # that sample blocks for a GPU, which learns faster than one thread samples
MIN_LEARNING_RATE_FACTOR = 1e-4  # of the learning rate, at the end
DEFAULT_EPOCHS = 5.0
ORDER_KEY = 19  # keeps the random bits of the order apart


@dataclass(frozen=True, kw_only=True)
class Word2VecTrainConfig:
    """Training of word vectors. Five epochs if neither epochs nor budget are given."""

    epochs: float | None = None  # passes over the text
    budget: str | None = None  # wall-clock time instead of epochs, as in "10m"
    learning_rate: float | None = None  # at the start, then linear decay; None: 0.025 in skip-gram, 0.15 in CBOW
    seed: int = 0  # random seed
    device: Literal["auto", "cpu", "cuda"] = "auto"  # auto: a GPU if there is one
    checkpoints: int = 4  # number of checkpoints over the run, evenly spaced
    keep_checkpoints: int = 2  # newest checkpoints that stay on disk

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if self.epochs is not None and self.budget is not None:
            raise ValueError("give one of epochs and budget, not both")
        if self.budget is not None and not parse_duration(self.budget) > 0:
            raise ValueError(f"budget is {self.budget}. Give more than 0")
        if self.epochs is not None and not self.epochs > 0:
            raise ValueError(f"epochs is {self.epochs}. Give more than 0")
        if self.learning_rate is not None and not self.learning_rate > 0:
            raise ValueError(f"learning_rate is {self.learning_rate}. Give more than 0")

    @property
    def extent(self) -> Extent:
        if self.budget is not None:
            return Extent(budget=parse_duration(self.budget))
        return Extent(epochs=DEFAULT_EPOCHS if self.epochs is None else self.epochs)


LEARNING_RATES = {"skip-gram": 0.025, "cbow": 0.15}


class Word2VecTrainer:
    """One run of word2vec over a text: two tables, and the loop that trains them."""

    def __init__(
        self,
        model: Word2Vec,
        text: WordIds,
        sampling: NegativeSamplingConfig,
        config: Word2VecTrainConfig,
        *,
        folder: Path,
        display: Display,
        tensorboard: bool = True,
    ) -> None:
        self.model, self.text, self.config = model, text, config
        self.folder, self.display = folder, display
        self.device = model.inputs.device
        self.learning_rate = config.learning_rate or LEARNING_RATES[model.config.kind]
        self.sampling = resolve_config(sampling, model.config.kind, text.counts, self.learning_rate)
        self.distributions = (
            keep_probability(text.counts, sampling.subsample),
            cumulative_distribution(text.counts, sampling.power),
        )
        self.steps_per_epoch = -(-len(text.ids) // WORDS_PER_STEP)
        self.log = Log(folder, tensorboard=tensorboard)
        self.clock = Clock(config.extent)
        self.step, self.words, self.loss = 0, 0, math.nan
        # Steps whose blocks are sampled ahead.
        self.prefetch = min(MAX_SAMPLING_THREADS, os.cpu_count() or 1) if self.device.type == "cuda" else 1
        self._train_blocks = TableUpdater(model, self.sampling, len(text.ids))
        self._order = lru_cache(2)(self._shuffle)  # of this epoch, and of the next

    def fit(self) -> dict[str, float]:
        """Train to the end of the run, resuming from the newest checkpoint. Returns the last metrics."""
        self._resume()
        if self.device.type == "cpu" and self._train_blocks.lacks_numba:
            self.display.say("Numba is not installed: with `pip install 'bertsmith[words]'` it is three times as fast")
        self.clock.start()
        with Signals() as signals, ThreadPoolExecutor(self.prefetch) as pool:
            sampling = deque(pool.submit(self.blocks, self.step + number) for number in range(self.prefetch))
            progress = self._progress()
            while progress < 1:
                blocks = sampling.popleft().result()
                sampling.append(pool.submit(self.blocks, self.step + self.prefetch))
                self.update(blocks, self.learning_rate * max(1 - progress, MIN_LEARNING_RATE_FACTOR))
                before, progress = progress, self._progress()
                if signals.received or crossed_mark(before, progress, self.config.checkpoints):
                    self.save()
                if signals.received:
                    raise StopError(self.folder, f"stopped at step {self.step}, saved", "The same command resumes it")
            if self.config.checkpoints:
                self.save()
        self.log.close()
        return {"loss": self.loss, "step": self.step, "words": self.words, "seconds": self.clock.training_seconds}

    def update(self, blocks: Blocks, learning_rate: float) -> None:
        """One step: SGD on each block in turn."""
        began = time.monotonic()
        total, targets = self._train_blocks(blocks, learning_rate)
        if not math.isfinite(total):
            remedy = "The last checkpoint is whole; give a new run a lower --learning-rate"
            raise RunError(self.folder, f"the loss was not a number at step {self.step + 1}", remedy)
        self.step, self.words = self.step + 1, self.words + blocks.words_read
        self.loss = total / targets if targets else self.loss
        self._log_step(learning_rate, blocks.words_read / max(time.monotonic() - began, 1e-9))

    def blocks(self, step: int) -> Blocks:
        """The blocks of a step: sentences in the epoch's random order, with sampled windows and negatives."""
        epoch, turn = divmod(step, self.steps_per_epoch)
        order, begins = self._order(epoch)
        chosen = order[begins[turn] : begins[turn + 1]]
        starts = self.text.bounds[chosen]
        lengths = self.text.bounds[chosen + 1] - starts
        ends = np.cumsum(lengths)
        positions = np.arange(lengths.sum()) + np.repeat(starts - (ends - lengths), lengths)
        sentences = np.repeat(np.arange(len(chosen)), lengths)
        key = self.config.seed, epoch, step
        return sample_blocks(self.text.ids[positions], sentences, positions, self.distributions, self.sampling, key)

    def save(self) -> None:
        """Write a checkpoint: the tables, the position in the text and the clock."""
        self.log.sync()
        tensors = {"model": {"inputs": self.model.inputs, "outputs": self.model.outputs}}
        state = {
            "words": self.words,
            "loss": self.loss,
            "training_seconds": self.clock.training_seconds,
            "data_fingerprint": self.text.fingerprint,
        }
        checkpoint.save(
            self.folder / "checkpoints", Checkpoint(self.step, tensors, state), keep=self.config.keep_checkpoints
        )

    def _resume(self) -> None:
        found = checkpoint.load_newest(self.folder / "checkpoints")
        if found is None:
            self.log.rewind(-1)
            return
        saved, broken = found
        for line in broken:
            self.display.say(line)
        if saved.state["data_fingerprint"] != self.text.fingerprint:
            raise RunError(self.folder, "was begun with other text", "Choose another folder, or give it the same text")
        self.model.inputs.copy_(saved.tensors["model"]["inputs"])
        self.model.outputs.copy_(saved.tensors["model"]["outputs"])
        self.step, self.words, self.loss = saved.step, saved.state["words"], saved.state["loss"]
        self.clock = Clock(self.config.extent, training_seconds=saved.state["training_seconds"])
        if damage := self.log.rewind(self.step):
            self.display.say(damage)
        self.display.say(f"resuming from step {self.step}")

    def _shuffle(self, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The sentences in the order of an epoch, and the first sentence of each step."""
        count = self.text.sentences
        order = permute(np.arange(count), count, int(mix(self.config.seed, ORDER_KEY, epoch)))
        lengths = np.diff(self.text.bounds)[order]
        steps = (np.cumsum(lengths) - lengths) // WORDS_PER_STEP  # the step that each sentence begins in
        return order, np.searchsorted(steps, np.arange(self.steps_per_epoch + 1))

    def _progress(self) -> float:
        return self.clock.progress(self.step, self.step / self.steps_per_epoch)

    def _log_step(self, learning_rate: float, speed: float) -> None:
        """Log and show a finished step."""
        record = {"kind": "step", "step": self.step, "loss": self.loss, "learning_rate": learning_rate}
        record |= {"words": self.words, "seconds": round(self.clock.training_seconds, 3)}
        self.log.write(record | {"words_per_second": round(speed)})
        progress = self._progress()
        self.display.update(
            Progress(
                step=self.step,
                fraction=progress,
                loss=self.loss,
                learning_rate=learning_rate,
                tokens_per_second=speed,
                seconds_left=self.clock.remaining(progress),
            )
        )
