"""Muon: the update of a hidden matrix is its momentum, orthogonalised, so that all directions have the same scale.

Jordan et al. 2024 (Nesterov momentum, a quintic Newton-Schulz iteration); Liu et al. 2025, "Muon is Scalable for LLM
Training" (with weight decay). Matrices of one shape are stacked and orthogonalised together, in a few batched products
on which the host never waits. A convolution is a matrix with a row for each output channel.

NorMuon (Li et al. 2025) also divides each row by the root of a running mean of its squares.

On a GPU the passes over memory before and after the products are kernels of ours (`nn/kernels/muon.py`).
"""

from collections.abc import Iterator, Mapping, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from bertsmith.nn.kernels.availability import kernels_unavailable
from bertsmith.train.polar_express import Quintic

# One iteration maps every singular value s to 3.4445 s - 4.7750 s^3 + 2.0315 s^5. Jordan et al. chose the steepest
# slope at zero for which values still end near one: five iterations map a value of at least 1/500 of the norm to
# between 0.68 and 1.21, and multiply smaller ones by up to 485. More iterations would not bring them nearer to one.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 5
JORDAN: tuple[Quintic, ...] = (COEFFICIENTS,) * NEWTON_SCHULZ_STEPS
EPSILON = 1e-7  # a matrix with a smaller norm is not scaled up
SMALLEST_SECOND_MOMENT = 1e-10  # of NorMuon: rows without an update are not scaled up


def orthogonalise(
    matrices: Float[Tensor, "n rows columns"], iterations: Sequence[Quintic] = JORDAN
) -> Float[Tensor, "n rows columns"]:
    """Each matrix with the same singular vectors and singular values near one; zero stays zero.

    In bfloat16 on a GPU, where that is far cheaper and the values need not be exact; elsewhere in the given precision.
    """
    tall = matrices.shape[1] > matrices.shape[2]
    wide = matrices.mT if tall else matrices  # so that wide @ wide.T is the smaller product
    # The Frobenius norm is an upper bound of the singular values.
    wide = wide / torch.linalg.vector_norm(wide, dim=(1, 2), keepdim=True).clamp(min=EPSILON)
    if wide.is_cuda:
        wide = wide.bfloat16()
    for first, third, fifth in iterations:
        square = torch.bmm(wide, wide.mT)
        change = torch.baddbmm(square, square, square, beta=third, alpha=fifth)
        wide = torch.baddbmm(wide, change, wide, beta=first)
    return wide.mT if tall else wide


def update_scale(rows: int, columns: int) -> float:
    """The factor of a matrix's learning rate: above 1 if it is taller than wide, so that outputs change alike."""
    return float(max(1.0, rows / columns) ** 0.5)


def normalised_dimension(rows: int, columns: int) -> int:
    """The dimension that NorMuon averages over: rows are normalised in a tall matrix, and columns in a wide one.

    The vectors of the shorter side are orthonormal already, by the orthogonalisation.
    """
    return 2 if rows >= columns else 1


def normalising_factors(
    square: Float[Tensor, "n _ _"], second_moment: Float[Tensor, "n _ _"], weight: Float[Tensor, ""]
) -> Float[Tensor, "n _ _"]:
    """The factor of each row (or column) of an update: over the root of the running mean of its squares, at equal norm.

    `square` is the mean of the squares of each row, and `weight` its weight in the running mean, which is updated in
    place. NorMuon, Li et al. 2025, algorithm 1.
    """
    second_moment.lerp_(square, weight)
    inverse = second_moment.clamp(min=SMALLEST_SECOND_MOMENT).rsqrt()
    before, after = square.sum((1, 2), keepdim=True), (square * inverse.square()).sum((1, 2), keepdim=True)
    return inverse * (before / after.clamp(min=SMALLEST_SECOND_MOMENT)).sqrt()


@torch.no_grad()
def step(
    weights: Sequence[Float[Tensor, "_ rows columns"]],
    gradients: Sequence[Float[Tensor, "_ rows columns"]],
    momenta: Sequence[Float[Tensor, "_ rows columns"]],
    learning_rate: Float[Tensor, ""],
    found_inf: Bool[Tensor, ""],
    *,
    momentum: float,
    weight_decay: float,
    iterations: Sequence[Quintic] = JORDAN,
    second_moments: Sequence[Float[Tensor, "_ _ _"]] = (),
    beta: float = 0.0,
) -> None:
    """Update weights and momenta in place, unless the gradient is not finite: then every bit stays as it is.

    Learning rate and flag are read on the device. `second_moments`, whose decay is `beta`, are NorMuon's.
    """
    _, rows, columns = weights[0].shape
    good = 1 - found_inf.to(weights[0].dtype)  # a factor of 1 or 0
    update = orthogonalise(_nesterov_direction(gradients, momenta, good, momentum), iterations)
    scales = (good * learning_rate * -update_scale(rows, columns)).expand(len(update), rows, 1)
    if second_moments:
        dimension = normalised_dimension(rows, columns)
        norms = torch.linalg.vector_norm(update, dim=dimension, keepdim=True, dtype=weights[0].dtype)
        running = torch.cat(list(second_moments))
        factors = normalising_factors(norms.square() / update.shape[dimension], running, good * (1 - beta))
        torch._foreach_copy_(list(second_moments), list(torch.split(running, [len(one) for one in second_moments])))
        scales = scales[:, :1] * factors
    _apply(weights, update, scales, 1 - good * learning_rate * weight_decay)


def _nesterov_direction(
    gradients: Sequence[Tensor], momenta: Sequence[Tensor], good: Float[Tensor, ""], momentum: float
) -> Float[Tensor, "n rows columns"]:
    """Nesterov's direction of all matrices, the momentum as it would be after this gradient again; momenta in place."""
    counts = [len(gradient) for gradient in gradients]
    if _has_kernels(gradients[0]):
        from bertsmith.nn.kernels import muon as kernels

        half = torch.empty(sum(counts), *gradients[0].shape[1:], dtype=torch.bfloat16, device=gradients[0].device)
        for gradient, average, piece in zip(gradients, momenta, torch.split(half, counts), strict=True):
            kernels.nesterov_momentum(gradient, average, piece, good, momentum)
        return half
    stack = torch.cat(list(gradients)).masked_fill_(good == 0, 0.0)  # since NaN times 0 is NaN
    pieces = list(torch.split(stack, counts))
    torch._foreach_mul_(list(momenta), good * momentum + (1 - good))
    torch._foreach_add_(list(momenta), pieces, alpha=1 - momentum)
    stack.mul_(1 - momentum)
    torch._foreach_add_(pieces, list(momenta), alpha=momentum)
    return stack


def _apply(
    weights: Sequence[Tensor],
    update: Float[Tensor, "n rows columns"],
    scales: Float[Tensor, "n _ _"],
    decay: Float[Tensor, ""],
) -> None:
    """Multiply the weights by `decay`, and add the update with a scale for each of its rows (or columns)."""
    counts = [len(weight) for weight in weights]
    if _has_kernels(weights[0]):
        from bertsmith.nn.kernels import muon as kernels

        parts = torch.split(update.contiguous(), counts), torch.split(scales.contiguous(), counts)
        for weight, piece, own_scales in zip(weights, *parts, strict=True):
            kernels.apply_update(weight, piece, own_scales, decay)
        return
    torch._foreach_mul_(list(weights), decay)
    torch._foreach_add_(list(weights), list(torch.split(update.to(weights[0].dtype) * scales, counts)))


def _has_kernels(tensor: Tensor) -> bool:
    return tensor.is_cuda and tensor.dtype == torch.float32 and kernels_unavailable(tensor.device) is None


class Muon:
    """Muon for the hidden matrices of a network, with their momenta and learning rates.

    `matrix_counts` is the number of matrices stacked by rows in each parameter; each is orthogonalised separately.
    `learning_rate_scales` multiply the learning rate. Matrices of the same shape and scale are updated together.
    `beta` is the decay of NorMuon's second moments; 0: there are none.
    Learning rates and momenta are on the device from the start, so that a CUDA graph can capture `step`.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        matrix_counts: Mapping[str, int],
        learning_rate_scales: Mapping[str, float],
        *,
        learning_rate: float,
        momentum: float,
        weight_decay: float,
        iterations: Sequence[Quintic] = JORDAN,
        beta: float = 0.0,
    ) -> None:
        self.parameters, self._matrix_counts = dict(parameters), dict(matrix_counts)
        self._learning_rate, self._momentum, self._weight_decay = learning_rate, momentum, weight_decay
        self._iterations, self._beta = iterations, beta
        self.momenta = {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}
        self.second_moments: dict[str, Tensor] = {}
        together: dict[tuple[float, torch.Size], list[str]] = {}
        for name, parameter in parameters.items():
            matrices = self._matrices(name, parameter.detach())
            shape = matrices.shape[1:]
            together.setdefault((learning_rate_scales.get(name, 1.0), shape), []).append(name)
            if beta:
                self.second_moments[name] = torch.zeros_like(matrices.mean(normalised_dimension(*shape), keepdim=True))
        self._stacks = list(together.values())
        device = next(iter(parameters.values())).device
        self._scales = torch.tensor([scale for scale, _ in together], dtype=torch.float32, device=device)
        self._learning_rates = learning_rate * self._scales

    def set_learning_rate(self, factor: float) -> None:
        """Set the learning rate of the next step, as a factor of the peak."""
        torch.mul(self._scales, self._learning_rate * factor, out=self._learning_rates)

    def step(self, found_inf: Bool[Tensor, ""]) -> None:
        """Update matrices that have a gradient, unless it is not finite."""
        for names, learning_rate in zip(self._stacks, self._learning_rates.unbind(), strict=True):
            gradients = {name: gradient for name in names if (gradient := self.parameters[name].grad) is not None}
            if gradients:
                step(
                    [self._matrices(name, self.parameters[name].detach()) for name in gradients],
                    [self._matrices(name, gradient) for name, gradient in gradients.items()],
                    [self._matrices(name, self.momenta[name]) for name in gradients],
                    learning_rate,
                    found_inf,
                    momentum=self._momentum,
                    weight_decay=self._weight_decay,
                    iterations=self._iterations,
                    second_moments=[self.second_moments[name] for name in gradients] if self._beta else (),
                    beta=self._beta,
                )

    def state(self) -> Iterator[tuple[str, str, Tensor]]:
        """Each tensor of the state, after the names of its parameter and of the part that it is."""
        for name, momentum in self.momenta.items():
            yield name, "momentum", momentum
        for name, second_moment in self.second_moments.items():
            yield name, "second_moment", second_moment

    def _matrices(self, name: str, tensor: Float[Tensor, "all *columns"]) -> Float[Tensor, "parts rows columns"]:
        """The matrices of a parameter; a convolution is one, with a row for each of its outputs."""
        return tensor.view(self._matrix_counts[name], -1, tensor[0].numel())
