"""SGD on word2vec's two tables, a group of blocks at a time: by torch, by Numba, or by Triton in a CUDA graph."""

from importlib.util import find_spec
from typing import Any

import torch

from bertsmith.models.word2vec import Word2Vec
from bertsmith.nn.cuda_graph import capture
from bertsmith.nn.kernels.availability import kernels_unavailable
from bertsmith.objectives.word2vec import MAX_UPDATE_NORM, loss, sgd_step
from bertsmith.objectives.word2vec_blocks import TILE, Blocks, NegativeSamplingConfig

BLOCKS_PER_GRAPH = 16  # blocks that are captured in one CUDA graph
MIN_WORDS_TO_COMPILE = 1 << 20  # words of a text for which it pays to compile Numba's loops, once on a machine
LOSS_EVERY = 2  # one block of every second group is measured


class TableUpdater:
    """Updates the tables by groups of blocks. All groups of a run have one shape, so a GPU replays one CUDA graph.

    A block takes an H200 less time than the host needs to launch its kernels, and the host also samples blocks in
    threads: captured, `BLOCKS_PER_GRAPH` blocks are one launch.
    """

    def __init__(self, model: Word2Vec, sampling: NegativeSamplingConfig, words: int) -> None:
        self.model, self.negatives = model, sampling.negatives
        compiles = words >= MIN_WORDS_TO_COMPILE
        self.lacks_numba = compiles and find_spec("numba") is None
        self.uses_kernel = self._kernel_fits(sampling) if model.inputs.is_cuda else compiles and not self.lacks_numba
        self._learning_rate, self._loss_and_count = model.inputs.new_zeros(()), model.inputs.new_zeros(2)
        self._captured: tuple[Blocks, torch.cuda.CUDAGraph, torch.cuda.CUDAGraph] | None = None

    def __call__(self, blocks: Blocks, learning_rate: float) -> tuple[float, float]:
        """Train on all blocks. Returns the summed loss of the measured ones, and the number of their targets."""
        self._learning_rate.fill_(learning_rate)
        self._loss_and_count.zero_()
        blocks = blocks.map_tensors(lambda part: part.to(self._learning_rate.device))
        for number, group in enumerate(blocks.split(BLOCKS_PER_GRAPH)):
            self._train_group(group, measure_loss=number % LOSS_EVERY == 0)
        total, count = self._loss_and_count.tolist()  # the host waits here
        return total, count

    def _train_group(self, blocks: Blocks, measure_loss: bool) -> None:
        if self._captured is not None:
            buffer, measuring, training = self._captured
            buffer.copy_from(blocks)
            if measure_loss:
                measuring.replay()
            training.replay()
            return
        if measure_loss:
            self._measure_loss(blocks)
        self._train(blocks)
        if self._learning_rate.is_cuda:  # after a first run, by which libraries have allocated their workspaces
            self._captured = self._capture(blocks)

    def _measure_loss(self, blocks: Blocks) -> None:
        self._loss_and_count.add_(torch.stack(loss(self.model, blocks[0], self.negatives)))

    def _train(self, blocks: Blocks) -> None:
        if not self.uses_kernel:
            for number in range(len(blocks)):
                sgd_step(self.model, blocks[number], self.negatives, self._learning_rate)
            return
        options: dict[str, Any] = {"kind": self.model.config.kind, "negatives": self.negatives}
        options["max_step"] = MAX_UPDATE_NORM
        if not self._learning_rate.is_cuda:
            from bertsmith.nn.kernels import word2vec_cpu  # needs Numba

            tables = self.model.inputs.numpy(), self.model.outputs.numpy()
            arrays = (part.numpy() for part in blocks.tensors)
            options |= {"learning_rate": float(self._learning_rate), "threads": torch.get_num_threads()}
            word2vec_cpu.update(*tables, *arrays, **options)
            return
        from bertsmith.nn.kernels import word2vec  # needs Triton

        for block in zip(blocks.word_ids, blocks.is_neighbour, blocks.negative_ids, strict=True):
            word2vec.update(self.model.inputs, self.model.outputs, *block, self._learning_rate, **options)

    def _capture(self, blocks: Blocks) -> tuple[Blocks, torch.cuda.CUDAGraph, torch.cuda.CUDAGraph]:
        """The input buffer of the graphs, the graph that measures the loss, and the graph that trains."""
        buffer = blocks.map_tensors(lambda part: part.new_zeros(BLOCKS_PER_GRAPH, *part.shape[1:]))
        graphs = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        for graph, function in zip(graphs, (self._measure_loss, self._train), strict=True):
            with capture(graph):
                function(buffer)
        return buffer, *graphs

    def _kernel_fits(self, sampling: NegativeSamplingConfig) -> bool:
        """Whether the Triton kernel takes blocks of this shape, on this GPU."""
        if kernels_unavailable(self.model.inputs.device) is not None:
            return False
        from bertsmith.nn.kernels import word2vec  # needs Triton

        assert sampling.shared_negatives is not None  # set by resolve_config
        return word2vec.fits(TILE + 2 * sampling.window, sampling.shared_negatives)
