"""ONNX Runtime as a backend: a graph in place of a network's forward pass, on the CPU."""

from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.data.batch import Tokens
from bertsmith.errors import FolderError, RunError
from bertsmith.models.layers import take
from bertsmith.models.transformer import Memory, Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.kernel_choice import KernelName

VECTORS = "last_hidden_state"  # the output of a graph without a head, as optimum names it
LOGITS = "logits"
SPANS = ("start_logits", "end_logits")
PADDED_TOKENS = 512  # tokens of a rectangle, with padding: no slower on a core than more, and with less padding

# Arrays from ONNX Runtime, the row and the column of each token, and the lengths of the sequences.
Outputs = tuple[Sequence[NDArray[np.float32]], NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]


def import_onnx(name: str, location: object) -> Any:
    """A module of the extra `onnx`; without it, one line that says how to install it."""
    try:
        return import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        raise RunError(location, f"needs {package}", "Install it with: pip install 'bertsmith[onnx]'") from None


class Graph:
    """A graph that ONNX Runtime has opened. It takes flat batches, and pads them for the graph."""

    def __init__(self, path: Path, padding_id: int, threads: int) -> None:
        runtime = import_onnx("onnxruntime", path)
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3  # errors; they are raised as well
        try:
            self.session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # ONNX Runtime has a class for each of a dozen causes, and no common one
            first_line = str(error).partition("\n")[0][:100]
            raise FolderError(path, f"ONNX Runtime does not open it ({first_line})", "Export it again") from None
        self.path, self.padding_id = path, padding_id
        self.inputs = {one.name: len(one.shape) for one in self.session.get_inputs()}
        self.outputs = tuple(one.name for one in self.session.get_outputs())

    @property
    def gives_vectors(self) -> bool:
        """Whether the graph ends with hidden vectors, and has no head."""
        return self.outputs == (VECTORS,)

    def hidden_vectors(self, tokens: Tokens) -> Float[Tensor, "T D"]:
        """The vectors of all tokens."""
        return torch.cat([torch.from_numpy(hidden[rows, columns]) for [hidden], rows, columns, _ in self._run(tokens)])

    def sequence_outputs(self, tokens: Tokens) -> list[Tensor]:
        """The logits of each sequence, as the `outputs` of a task."""
        found: list[Tensor] = []
        for outputs, _, _, lengths in self._run(tokens):
            if self.outputs == (LOGITS,) and outputs[0].ndim == 2:  # a vector for a text, or a number for an ending
                logits = torch.from_numpy(outputs[0])
                found += list(logits[:, 0] if self.takes_choices else logits)
            else:
                by_token = torch.from_numpy(np.stack(outputs, -1) if self.outputs == SPANS else outputs[0])
                found += [row[:length] for row, length in zip(by_token, lengths.tolist(), strict=True)]
        return found

    def logits_at(self, tokens: Tokens, positions: Int[Tensor, "N"]) -> Float[Tensor, "N V"]:
        """The logits over the vocabulary at some positions of the flat batch, in ascending order."""
        chosen, begin, parts = positions.numpy(), 0, []
        for [logits], rows, columns, _ in self._run(tokens):
            own = chosen[(chosen >= begin) & (chosen < begin + len(rows))] - begin
            parts.append(torch.from_numpy(logits[rows[own], columns[own]]))
            begin += len(rows)
        return torch.cat(parts)

    @property
    def takes_choices(self) -> bool:
        """Whether the rows of a batch come in groups, as the endings of a multiple choice."""
        return self.inputs["input_ids"] == 3

    def _run(self, tokens: Tokens) -> Iterator[Outputs]:
        """The outputs of each group of sequences, the row and the column of each of its tokens, and their lengths."""
        bounds = tokens.bounds.numpy()
        segments = np.zeros(bounds[-1], np.int64) if tokens.segments is None else tokens.segments.numpy()
        for first, stop in _groups(np.diff(bounds)):
            some, lengths = slice(bounds[first], bounds[stop]), np.diff(bounds[first : stop + 1])
            rows, columns = np.repeat(np.arange(stop - first), lengths), tokens.positions.numpy()[some]
            values: dict[str, tuple[Any, int]] = {
                "input_ids": (tokens.ids.numpy()[some], self.padding_id),
                "attention_mask": (1, 0),
                "token_type_ids": (segments[some], 0),
            }
            feed = {}
            for name in self.inputs:
                own, filler = values[name]
                padded = np.full((stop - first, max(1, int(lengths.max()))), filler, np.int64)
                padded[rows, columns] = own
                feed[name] = padded[:, None] if self.takes_choices else padded
            yield self.session.run(None, feed), rows, columns, lengths


def _groups(lengths: NDArray[np.int32]) -> Iterator[tuple[int, int]]:
    """Neighbours that are padded together: callers sort by length, so that few of them need little padding."""
    first = longest = 0
    for number, length in enumerate(lengths.tolist()):
        longest = max(longest, length)
        if number > first and longest * (number + 1 - first) > PADDED_TOKENS:
            yield first, number
            first, longest = number, length
    if len(lengths):
        yield first, len(lengths)


class GraphTrunk(Transformer):
    """An encoder whose forward pass is a graph's. Its own weights are on the meta device, and take no memory."""

    def __init__(self, config: TransformerConfig, graph: Graph) -> None:
        with torch.device("meta"):
            super().__init__(config)
        self.graph = graph

    def forward(
        self,
        tokens: Tokens,
        kernel: KernelName | None = None,
        *,
        selected: Int[Tensor, "N"] | None = None,
        memory: Memory | None = None,
        causal: bool = False,
    ) -> Float[Tensor, "_ D"]:
        """The last layer's hidden vectors."""
        return take(self.graph.hidden_vectors(tokens), selected)

    def hidden_states(self, tokens: Tokens, kernel: KernelName | None = None) -> NoReturn:
        """Refused: only the last layer leaves the graph."""
        raise FolderError(self.graph.path, "gives the vectors of the last layer only", "Load the model folder itself")
