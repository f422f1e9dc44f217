"""Export to ONNX: the network of a model, with its head, as a graph that ONNX Runtime and optimum open.

Inputs and outputs have optimum's names. Batch size and sequence length are free. Weights in int8 are quantised per
output channel, activations while the graph runs (dynamic quantisation).
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bertsmith import files
from bertsmith.errors import FolderError, RunError
from bertsmith.inference.model import Model
from bertsmith.inference.onnx_session import LOGITS, SPANS, VECTORS, import_onnx
from bertsmith.models.hf.layouts import LAYOUTS, layout_of
from bertsmith.models.rectangle import PaddedTransformer
from bertsmith.models.transformer import Transformer
from bertsmith.objectives.masked import MaskedLM
from bertsmith.tasks.classification import SequenceClassification
from bertsmith.tasks.multiple_choice import MultipleChoice
from bertsmith.tasks.question_answering import QuestionAnswering
from bertsmith.tasks.tagging import TokenClassification

OPSET = 20  # the first with GELU as one operation
MAX_BYTES = (1 << 31) - (1 << 20)  # of a graph with its weights: Protocol Buffers end at 2 GiB
EXPORTABLE = (MaskedLM, SequenceClassification, TokenClassification, QuestionAnswering, MultipleChoice)
EXAMPLE_SIZES = {"batch_size": 3, "num_choices": 2, "sequence_length": 8}  # traced with these; any others will do


class PaddedModel(nn.Module):
    """A network with its head on padded rows: from token ids to the outputs that transformers' classes have."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        task = model.objective
        if not isinstance(task.trunk, Transformer) or task.trunk.config.architecture != "encoder":
            known = ", ".join(name for name, one in LAYOUTS.items() if one.defaults.architecture == "encoder")
            raise FolderError(model.path, "is no encoder, and has no export to ONNX", f"These have: {known}")
        if not isinstance(task, EXPORTABLE):
            raise FolderError(
                model.path, f"has no export to ONNX as a {type(task).__name__}", "Its pretrained form has"
            )
        self.task, self.trunk = task, PaddedTransformer(task.trunk)
        self.has_lm_head = isinstance(task, MaskedLM) and model.has_lm_head
        # As transformers: a network with one segment takes no numbers of segments.
        self.inputs = ["input_ids", "attention_mask", *(["token_type_ids"] if task.trunk.config.segments > 1 else [])]
        self.axes = ["batch_size", *(["num_choices"] if isinstance(task, MultipleChoice) else []), "sequence_length"]

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs."""
        if isinstance(self.task, QuestionAnswering):
            return SPANS
        return (VECTORS,) if isinstance(self.task, MaskedLM) and not self.has_lm_head else (LOGITS,)

    @property
    def parts(self) -> set[str]:
        """The heads in the graph, by their names in layouts."""
        if isinstance(self.task, MaskedLM):  # the heads of sentence pairs are left out
            return {"mlm_head"} if self.has_lm_head else set()
        known = layout_of(self.trunk.trunk.config).parts.keys()
        return {name for name, head in self.task.named_children() if name in known and list(head.parameters())}

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Any:
        task, shape = self.task, input_ids.shape
        if isinstance(task, MultipleChoice):  # B C L: every ending is a row
            segments = None if token_type_ids is None else token_type_ids.flatten(0, 1)
            first = self.trunk(input_ids.flatten(0, 1), attention_mask.flatten(0, 1), segments, first=True)
            return task.classifier(task.pooler(first)).view(shape[:2])
        if isinstance(task, SequenceClassification) and task.pooling == "first":
            first = self.trunk(input_ids, attention_mask, token_type_ids, first=True)
            return task.classifier(task.pooler(first))
        hidden = self.trunk(input_ids, attention_mask, token_type_ids)  # T D: a product of matrices for all rows
        match task:
            case SequenceClassification():  # the mean of all tokens
                mask = attention_mask[:, :, None].to(hidden.dtype)
                sums = (hidden.unflatten(0, shape) * mask).sum(1)
                return task.classifier(task.pooler(sums / mask.sum(1).clamp(min=1)))
            case TokenClassification():
                hidden = task.classifier(task.pooler(hidden))
            case QuestionAnswering():
                return task.span(task.pooler(hidden)).unflatten(0, shape).unbind(-1)
            case MaskedLM() if self.has_lm_head:
                hidden = task.logits(hidden)
        return hidden.unflatten(0, shape)


def export_graph(model: PaddedModel, path: Path) -> None:
    """Write the network as an ONNX graph with its weights."""
    onnx = import_onnx("onnx", path)
    import_onnx("onnxscript", path)
    size = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    if size > MAX_BYTES:
        raise RunError(path, f"{size / 1e9:.1f} GB of weights do not fit into one ONNX file", "Export a smaller model")
    dimensions = {name: torch.export.Dim(name) for name in model.axes}
    dimensions["sequence_length"] = torch.export.Dim("sequence_length", max=model.trunk.trunk.config.max_length)
    axes = dict(enumerate(dimensions.values()))
    ones = torch.ones([EXAMPLE_SIZES[name] for name in model.axes], dtype=torch.long)
    with _quiet(), torch.no_grad():
        program = torch.onnx.export(
            model.eval(),
            tuple(ones.clone() for _ in model.inputs),
            dynamo=True,
            opset_version=OPSET,
            input_names=model.inputs,
            output_names=list(model.outputs),
            dynamic_shapes=tuple(axes for _ in model.inputs),
            verbose=False,
        )
    assert program is not None
    graph = program.model_proto
    graph.graph.ClearField("value_info")  # shapes of intermediate results, which are wrong once a weight is transposed
    onnx.checker.check_model(graph)
    files.write(path, graph.SerializeToString())


def quantise(source: Path, target: Path) -> None:
    """Write a graph with weights in int8. Per channel, since one scale for a whole matrix loses five times as much."""
    quantisation = import_onnx("onnxruntime.quantization", source)
    model = import_onnx("onnx", source).load(source)
    _transpose_weights(model.graph)
    temporary = target.with_name(target.name + ".writing")
    with _quiet():
        quantisation.quantize_dynamic(model, temporary, per_channel=True, weight_type=quantisation.QuantType.QInt8)
    files.write(target, temporary.read_bytes())
    temporary.unlink()


def _transpose_weights(graph: Any) -> None:
    """Store weights as the quantiser wants them, each transposed once.

    Left to itself it transposes a weight anew for every node that reads it: ALBERT's, which all layers share, and the
    embedding table, which is the output layer as well.
    """
    numpy_helper = import_onnx("onnx.numpy_helper", "int8")
    weights, transposed = {one.name: one for one in graph.initializer}, set[str]()
    for node in graph.node:
        flags = [one for one in node.attribute if one.name == "transB" and one.i]
        if node.op_type != "Gemm" or not flags or node.input[1] not in weights:
            continue
        name = f"{node.input[1]}.transposed"
        if name not in transposed:
            weight = numpy_helper.to_array(weights[node.input[1]]).T
            graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(weight), name))
            transposed.add(name)
        node.input[1], flags[0].i = name, 0
    used = {name for node in graph.node for name in node.input}
    kept = [one for one in graph.initializer if one.name in used]
    graph.ClearField("initializer")
    graph.initializer.extend(kept)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings and notes of the exporter, which speak to its authors."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)
