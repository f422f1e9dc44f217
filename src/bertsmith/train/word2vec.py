"""The loop that makes word vectors: draw, move, log, save.

The trainer of networks moves every weight by every batch, and would spend its time on rows that no word of the batch
has. What it promises is kept here, too: what is random is a pure function of (seed, epoch, step), a run that was killed
goes on where it was saved and ends as if nothing had been. That is so on a CPU; a GPU adds up rows in any order.
"""

import math
import os
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from bertsmith.data.corpus.word_ids import WordIds
from bertsmith.errors import RunError, StopError
from bertsmith.models.word2vec import Word2Vec
from bertsmith.nn.cuda_graph import capture
from bertsmith.nn.layout import kernels_unavailable
from bertsmith.objectives.word2vec import (
    MAX_UPDATE_NORM,
    TILE,
    Blocks,
    NegativeSamplingConfig,
    cumulative_distribution,
    keep_probability,
    loss,
    resolve_config,
    sample_blocks,
    sgd_step,
)
from bertsmith.random_bits import mix, permute
from bertsmith.train import checkpoint
from bertsmith.train.checkpoint import Checkpoint
from bertsmith.train.clock import Clock, Extent, parse_duration
from bertsmith.train.display import Display, Progress
from bertsmith.train.log import Log
from bertsmith.train.signals import Signals

WORDS_PER_STEP = 1 << 16  # of the text in a step: what is drawn at once, and logged
BLOCKS_PER_GRAPH = 16  # blocks that are recorded as one
MIN_WORDS_TO_COMPILE = 1 << 20  # words of a text from which on it pays to compile loops, once on a machine
MAX_SAMPLING_THREADS = 8  # that draw, at most, where a GPU learns faster than one of them can
LOSS_EVERY = 2  # of so many groups the loss of one block is looked at
MIN_LEARNING_RATE_FACTOR = 1e-4  # the part of the rate that is left at the end
DEFAULT_EPOCHS = 5.0
ORDER_KEY = 19  # what a draw is for


@dataclass(frozen=True, kw_only=True)
class Word2VecTrainConfig:
    """How long word vectors are learnt, and how fast. Five epochs where neither epochs nor budget are given."""

    epochs: float | None = None
    budget: str | None = None  # wall-clock time, as in "10m"
    learning_rate: float | None = None  # at the beginning, from where it falls to nought; None: by the kind
    seed: int = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    checkpoints: int = 4  # over the run, evenly
    keep_checkpoints: int = 2  # checkpoints

    def __post_init__(self) -> None:
        if self.epochs is not None and self.budget is not None:
            raise ValueError("give one of epochs and budget, not both")
        if self.budget is not None:
            parse_duration(self.budget)
        if self.epochs is not None and not self.epochs > 0:
            raise ValueError(f"{self.epochs} epochs are none. Give more than 0")
        if self.learning_rate is not None and not self.learning_rate > 0:
            raise ValueError(f"a learning_rate of {self.learning_rate} moves nothing. Give more than 0")

    @property
    def extent(self) -> Extent:
        if self.budget is not None:
            return Extent(budget=parse_duration(self.budget))
        return Extent(epochs=DEFAULT_EPOCHS if self.epochs is None else self.epochs)


LEARNING_RATES = {"skip-gram": 0.025, "cbow": 0.15}


class TableUpdater:
    """The tables moved, block after block. All blocks of a run have one shape, so a GPU is told but once what to do.

    A block keeps an H200 busy for less time than the host takes to name its kernels, and the host has threads beside it
    that draw: recorded, `GROUP` blocks are one thing to say.
    """

    def __init__(self, model: Word2Vec, sampling: NegativeSamplingConfig, words: int) -> None:
        self.model, self.negatives = model, sampling.negatives
        self.uses_kernel = (
            self._kernel_fits(sampling)
            if model.inputs.is_cuda
            else words >= MIN_WORDS_TO_COMPILE and find_spec("numba") is not None
        )
        self._learning_rate, self._loss_and_count = model.inputs.new_zeros(()), model.inputs.new_zeros(2)
        self._captured: tuple[Blocks, torch.cuda.CUDAGraph, torch.cuda.CUDAGraph] | None = None

    def __call__(self, blocks: Blocks, rate: float) -> tuple[float, float]:
        """Learn from all of them. Returns the loss of those that were looked at, and how much that is."""
        self._learning_rate.fill_(rate)
        self._loss_and_count.zero_()
        for place, some in enumerate(
            blocks.map_tensors(lambda part: part.to(self._learning_rate.device)).split(BLOCKS_PER_GRAPH)
        ):
            self._train_group(some, measure_loss=place % LOSS_EVERY == 0)
        total, told = self._loss_and_count.tolist()  # here the host waits
        return total, told

    def _train_group(self, blocks: Blocks, measure_loss: bool) -> None:
        if self._captured is not None:
            place, looks, moves = self._captured
            place.copy_from(blocks)
            if measure_loss:
                looks.replay()
            moves.replay()
            return
        if measure_loss:
            self._measure_loss(blocks)
        self._train(blocks)
        if self._learning_rate.is_cuda:  # by now every library has set itself up there
            self._captured = self._capture(blocks)

    def _measure_loss(self, blocks: Blocks) -> None:
        self._loss_and_count.add_(torch.stack(loss(self.model, blocks[0], self.negatives)))

    def _train(self, blocks: Blocks) -> None:
        if not self.uses_kernel:
            for number in range(len(blocks)):
                sgd_step(self.model, blocks[number], self.negatives, self._learning_rate)
            return
        way: dict[str, Any] = {"kind": self.model.config.kind, "negatives": self.negatives, "max_step": MAX_UPDATE_NORM}
        if not self._learning_rate.is_cuda:
            from bertsmith.nn.kernels import word2vec_cpu  # needs Numba

            tables = self.model.inputs.numpy(), self.model.outputs.numpy()
            drawn = (part.numpy() for part in blocks.tensors)
            word2vec_cpu.update(
                *tables, *drawn, learning_rate=float(self._learning_rate), threads=torch.get_num_threads(), **way
            )
            return
        from bertsmith.nn.kernels import word2vec  # needs Triton

        for words, near, false in zip(blocks.word_ids, blocks.is_neighbour, blocks.negative_ids, strict=True):
            word2vec.update(self.model.inputs, self.model.outputs, words, near, false, self._learning_rate, **way)

    def _capture(self, blocks: Blocks) -> tuple[Blocks, torch.cuda.CUDAGraph, torch.cuda.CUDAGraph]:
        """Where blocks of this shape are to be laid, what looks at them, and what moves the tables by them."""
        place = blocks.map_tensors(lambda part: part.new_zeros(BLOCKS_PER_GRAPH, *part.shape[1:]))
        graphs = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        for graph, what in zip(graphs, (self._measure_loss, self._train), strict=True):
            with capture(graph):
                what(place)
        return place, *graphs

    def _kernel_fits(self, neighbours: NegativeSamplingConfig) -> bool:
        """Whether our own kernels can do it."""
        if kernels_unavailable(self.model.inputs.device) is not None:
            return False
        from bertsmith.nn.kernels import word2vec  # needs Triton

        assert neighbours.shared_negatives is not None  # it was fitted
        return word2vec.fits(TILE + 2 * neighbours.window, neighbours.shared_negatives)


class Word2VecTrainer:
    """One run over a text: two tables, and the step that moves them."""

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
        self.steps_per_epoch = -(-len(text.ids) // WORDS_PER_STEP)  # of an epoch
        self.log = Log(folder, tensorboard=tensorboard)
        self.clock = Clock(config.extent)
        self.step, self.words, self.loss = 0, 0, math.nan
        self.prefetch = (
            min(MAX_SAMPLING_THREADS, os.cpu_count() or 1) if self.device.type == "cuda" else 1
        )  # steps drawn before theirs
        self._train_blocks = TableUpdater(model, self.sampling, len(text.ids))
        self._order = lru_cache(2)(self._shuffle)  # of the epoch, and of the next

    def fit(self) -> dict[str, float]:
        """Train to the end of the run, going on from the newest checkpoint. Returns the last figures."""
        self._resume()
        if (
            self.device.type == "cpu"
            and len(self.text.ids) >= MIN_WORDS_TO_COMPILE
            and not self._train_blocks.uses_kernel
        ):
            self.display.say("Numba is not installed: with `pip install 'bertsmith[words]'` it is three times as fast")
        self.clock.start()
        with Signals() as signals, ThreadPoolExecutor(self.prefetch) as pool:
            drawing = deque(pool.submit(self.blocks, self.step + number) for number in range(self.prefetch))
            share = self._progress()
            while share < 1:
                blocks = drawing.popleft().result()
                drawing.append(pool.submit(self.blocks, self.step + self.prefetch))
                self.update(blocks, self.learning_rate * max(1 - share, MIN_LEARNING_RATE_FACTOR))
                before, share = share, self._progress()
                if signals.received or _crossed_mark(before, share, self.config.checkpoints):
                    self.save()
                if signals.received:
                    raise StopError(
                        self.folder, f"stopped at step {self.step}, saved", "The same command goes on from there"
                    )
            if self.config.checkpoints:
                self.save()
        self.log.close()
        return {"loss": self.loss, "step": self.step, "words": self.words, "seconds": self.clock.training_seconds}

    def update(self, blocks: Blocks, rate: float) -> None:
        """Learn from one stretch of the text, block by block."""
        began = time.monotonic()
        total, told = self._train_blocks(blocks, rate)
        if not math.isfinite(total):
            remedy = "The last checkpoint is whole; give a new run a lower --learning-rate"
            raise RunError(self.folder, f"the loss was not a number at step {self.step + 1}", remedy)
        self.step, self.words = self.step + 1, self.words + blocks.words_read
        self.loss = total / told if told else self.loss
        self._log_step(rate, blocks.words_read / max(time.monotonic() - began, 1e-9))

    def blocks(self, step: int) -> Blocks:
        """What is learnt from in a step: sentences in an order of the epoch's own, and what was drawn for them."""
        epoch, turn = divmod(step, self.steps_per_epoch)
        order, begins = self._order(epoch)
        some = order[begins[turn] : begins[turn + 1]]
        starts = self.text.bounds[some]
        lengths = self.text.bounds[some + 1] - starts
        ends = np.cumsum(lengths)
        places = np.arange(lengths.sum()) + np.repeat(starts - (ends - lengths), lengths)
        sentences = np.repeat(np.arange(len(some)), lengths)
        key = self.config.seed, epoch, step
        return sample_blocks(self.text.ids[places], sentences, places, self.distributions, self.sampling, key)

    def save(self) -> None:
        """A checkpoint of all that the next step depends on."""
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
        self.display.say(f"going on from step {self.step}")

    def _shuffle(self, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The sentences in the order of an epoch, and with which of them each step begins."""
        count = self.text.sentences
        order = permute(np.arange(count), count, int(mix(self.config.seed, ORDER_KEY, epoch)))
        lengths = np.diff(self.text.bounds)[order]
        turns = (np.cumsum(lengths) - lengths) // WORDS_PER_STEP  # the step that each sentence begins in
        return order, np.searchsorted(turns, np.arange(self.steps_per_epoch + 1))

    def _progress(self) -> float:
        return self.clock.progress(self.step, self.step / self.steps_per_epoch)

    def _log_step(self, rate: float, speed: float) -> None:
        """Log and show a step that is done."""
        record = {"kind": "step", "step": self.step, "loss": self.loss, "learning_rate": rate, "words": self.words}
        self.log.write(record | {"seconds": round(self.clock.training_seconds, 3), "words_per_second": round(speed)})
        share = self._progress()
        self.display.update(
            Progress(
                step=self.step,
                fraction=share,
                loss=self.loss,
                learning_rate=rate,
                tokens_per_second=speed,
                seconds_left=self.clock.remaining(share),
            )
        )


def _crossed_mark(before: float, now: float, times: int) -> bool:
    """Whether one of so many evenly spaced marks lies between two shares of the run. The end is no mark."""
    return now < 1 and math.floor(now * times) > math.floor(before * times)
