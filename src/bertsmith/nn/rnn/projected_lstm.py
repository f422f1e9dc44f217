"""LSTM with projection (LSTMP): the hidden state is a narrower projection of the cell's output. Sak et al. 2014.

On a CPU torch sums the gradient of every matrix token by token. Here the factors are kept, and each gradient is one
product over all tokens: the same numbers, in two thirds of the time.
"""

import warnings
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence


class ProjectedLSTM(nn.LSTM):
    """One layer in one direction: torch's LSTM in every respect except its time on a CPU."""

    def __init__(self, width: int, hidden: int, projection: int) -> None:
        super().__init__(width, hidden, batch_first=True, proj_size=projection)

    def forward(self, inputs: Any, state: Any = None) -> Any:
        packed = isinstance(inputs, PackedSequence)
        tokens = inputs.data if packed else inputs
        trains = torch.is_grad_enabled() and self.weight_ih_l0.requires_grad
        plain = tokens.device.type == "cpu" and tokens.dtype == self.weight_ih_l0.dtype and not _autocast_enabled()
        if not (trains and plain and tokens.numel()) or state is not None:
            with warnings.catch_warnings():  # that cuDNN, no faster here, is not used
                warnings.filterwarnings("ignore", "LSTM with projections")
                return super().forward(inputs, state)
        if packed:
            return inputs._replace(data=self._scan(inputs.data, inputs.batch_sizes.tolist())), None
        rows, steps, _ = inputs.shape
        output = self._scan(inputs.transpose(0, 1).flatten(0, 1), [rows] * steps)
        return output.view(steps, rows, -1).transpose(0, 1), None

    def _scan(self, hidden: Float[Tensor, "T D"], batch_sizes: Sequence[int]) -> Float[Tensor, "T K"]:
        weight_ih, weight_hh, bias_ih, bias_hh, projection = self.parameters()  # in torch's order
        weights = weight_ih, weight_hh, bias_ih + bias_hh, projection
        output: Tensor = _ProjectedLSTMScan.apply(hidden, batch_sizes, *weights)  # type: ignore[no-untyped-call]
        return output


def _autocast_enabled() -> bool:
    """Whether autocast computes products in half precision."""
    return torch.is_autocast_enabled("cpu")


class _ProjectedLSTMScan(torch.autograd.Function):
    """All first tokens, all second ones, and so on; `batch_sizes` are the sequences at each step."""

    @staticmethod
    def forward(
        ctx: Any,
        tokens: Tensor,
        batch_sizes: Sequence[int],
        weight_ih: Tensor,
        weight_hh: Tensor,
        bias: Tensor,
        projection: Tensor,
    ) -> Tensor:
        hidden = projection.shape[1]
        gates = torch.addmm(bias, tokens, weight_ih.T)  # T 4H
        cells, tanh_cells, exposed = (gates.new_empty(len(tokens), hidden) for _ in range(3))
        output = gates.new_empty(len(tokens), projection.shape[0])
        input_gate, forget_gate, candidate, output_gate = gates.chunk(4, 1)
        before = 0
        for begin, end in pairwise(accumulate(batch_sizes, initial=0)):
            now, last = slice(begin, end), slice(before, before + end - begin)
            if begin:
                gates[now].addmm_(output[last], weight_hh.T)
            gates[now, : 2 * hidden].sigmoid_()
            candidate[now].tanh_()
            output_gate[now].sigmoid_()
            torch.mul(input_gate[now], candidate[now], out=cells[now])
            if begin:
                cells[now].addcmul_(forget_gate[now], cells[last])
            torch.tanh(cells[now], out=tanh_cells[now])
            torch.mul(output_gate[now], tanh_cells[now], out=exposed[now])
            torch.mm(exposed[now], projection.T, out=output[now])
            before = begin
        ctx.batch_sizes = batch_sizes
        ctx.save_for_backward(tokens, gates, cells, tanh_cells, exposed, output, weight_ih, weight_hh, projection)
        return output

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        tokens, gates, cells, tanh_cells, exposed, output, weight_ih, weight_hh, projection = ctx.saved_tensors
        sizes, hidden = ctx.batch_sizes, projection.shape[1]
        input_gate, forget_gate, candidate, output_gate = gates.chunk(4, 1)
        grad_output = grad_outputs[0].clone()
        grad_gates = gates * (1 - gates)  # at first the derivatives of the sigmoids, and of tanh for the candidate
        grad_gates[:, 2 * hidden : 3 * hidden] = 1 - candidate * candidate
        grad_input_gate, grad_forget_gate, grad_candidate, grad_output_gate = grad_gates.chunk(4, 1)
        cell_factor = output_gate * (1 - tanh_cells * tanh_cells)
        grad_cells = gates.new_zeros(sizes[0], hidden)
        ends = list(accumulate(sizes))
        begins = [end - size for end, size in zip(ends, sizes, strict=True)]
        for step in reversed(range(len(sizes))):
            now, grad_cell = slice(begins[step], ends[step]), grad_cells[: sizes[step]]
            grad_exposed = grad_output[now] @ projection
            grad_cell.addcmul_(grad_exposed, cell_factor[now])
            grad_output_gate[now] *= grad_exposed.mul_(tanh_cells[now])
            grad_input_gate[now] *= grad_cell * candidate[now]
            grad_candidate[now] *= grad_cell * input_gate[now]
            if not step:
                grad_forget_gate[now] = 0.0
                break
            last = slice(begins[step - 1], begins[step - 1] + sizes[step])
            grad_forget_gate[now] *= grad_cell * cells[last]
            grad_output[last].addmm_(grad_gates[now], weight_hh)
            grad_cell *= forget_gate[now]
        steps = zip(begins[:-1], sizes[1:], strict=True)
        previous = [torch.arange(begin, begin + size) for begin, size in steps]  # each token's predecessor
        earlier = output.index_select(0, torch.cat(previous)) if previous else output[:0]
        grad_weight_hh = grad_gates[sizes[0] :].T @ earlier
        grad_weights = grad_gates.T @ tokens, grad_weight_hh, grad_gates.sum(0), grad_output.T @ exposed
        return grad_gates @ weight_ih, None, *grad_weights
