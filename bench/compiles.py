"""Whether a member's whole training step compiles for an H200: told on a machine that has no GPU.

    python bench/compiles.py RECIPE DATA [section.key=value ...] [--vocabulary 30522]

DATA is a prepared folder; a vocabulary that is not its own changes shapes alone. Torch is told of a card that is not
there, and tensors are only thought of. So inductor writes the kernels of a step, forwards and backwards, and Triton
makes programs for sm_90 of them and of ours; nothing is loaded, timed or run. What does not compile is told with its
source, as the first error. `model.layers=2` is enough: layers repeat their kernels.

Wants a torch for CPUs, and Triton. One for CUDA asks its driver too many questions; on a GPU just train.
"""

import argparse
import ctypes
import os
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

# No processes beside this one, so that errors are told whole, and nothing found in a cache.
os.environ |= {"TORCHINDUCTOR_COMPILE_THREADS": "1", "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}

import torch
import torch._functorch.config
import torch._inductor.config
import triton
from torch import Tensor
from torch._dynamo.device_interface import CudaInterface
from torch._inductor.fx_passes import pad_mm
from torch._inductor.fx_passes.joint_graph import UniformValueConstantFolder
from torch._inductor.output_code import CompiledFxGraph
from torch._inductor.runtime.triton_heuristics import CachingAutotuner
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.driver import CudaDriver

from bertsmith import kit, run
from bertsmith.recipe import Recipe
from bertsmith.train.trainer import Trainer

CARD = SimpleNamespace(
    name="NVIDIA H200", major=9, minor=0, multi_processor_count=132, total_memory=139 << 30, warp_size=32,
    max_threads_per_multi_processor=2048, max_threads_per_block=1024, regs_per_multiprocessor=65536,
    shared_memory_per_block=49152, shared_memory_per_block_optin=232448, L2_cache_size=60 << 20, gcnArchName="",
)  # fmt: skip
TOLD: dict[str, Any] = {  # by torch.cuda
    "is_available": lambda: True,
    "is_initialized": lambda: True,
    "_lazy_init": lambda: None,
    "device_count": lambda: 1,
    "current_device": lambda: 0,
    "set_device": lambda device: None,
    "_exchange_device": lambda device: 0,
    "_maybe_exchange_device": lambda device: 0,
    "get_device_properties": lambda device=None: CARD,
    "get_device_capability": lambda device=None: (CARD.major, CARD.minor),
    "get_device_name": lambda device=None: CARD.name,
    "is_bf16_supported": lambda including_emulation=True: True,
    "get_rng_state": lambda device="cuda": torch.zeros(16, dtype=torch.uint8),
    "set_rng_state": lambda *_, **__: None,
    "synchronize": lambda device=None: None,
    "device": nullcontext,
}
CUDA, META = 1, 14  # among the kinds of devices
PLACE = "cuda:0"
made: Counter[str] = Counter()  # programs, by kernel


class Done(BaseException):
    """All is compiled, and the first kernel was about to run."""


class Driver(CudaDriver):  # type: ignore[misc]
    """What Triton asks before it runs anything."""

    def __init__(self) -> None:
        self.get_current_device = lambda: 0
        self.get_device_capability = lambda device=0: (CARD.major, CARD.minor)

    @staticmethod
    def is_active() -> bool:
        return True

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 10 * CARD.major + CARD.minor, CARD.warp_size)


class Home(TorchDispatchMode):
    """What inductor computes while it compiles, constants, is computed on the CPU."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = tree_map_only(torch.device, lambda _: torch.device("cpu"), (args, kwargs or {}))
        return func(*args, **kwargs)


def pretend() -> None:
    """Tell torch, inductor and Triton of the card. What is compiled is not run: it raises `Done` instead."""
    for name, value in TOLD.items():
        setattr(torch.cuda, name, value)
        if hasattr(CudaInterface, name):
            setattr(CudaInterface, name, value if isinstance(value, type) else staticmethod(value))
    CudaInterface.get_raw_stream = staticmethod(lambda index: 0)
    CudaInterface.Worker.current_device = staticmethod(lambda: 0)
    CudaInterface.Worker.get_device_properties = staticmethod(lambda device=None: CARD)
    torch._C._cuda_getCurrentRawStream = lambda index: 0
    triton.runtime.driver.set_active(Driver())
    triton.backends.backends["nvidia"] = replace(triton.backends.backends["nvidia"], driver=Driver)
    guards = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    found = (ctypes.c_void_p * (META + 1)).in_dll(guards, "_ZN3c104impl26device_guard_impl_registryE")
    found[CUDA] = found[META]  # one that does nothing
    fake_tensor.init_gpu_context = lambda device: None
    FakeTensorMode.avoid_device_init = property(lambda self: True)
    UniformValueConstantFolder.__init__ = _at_home(UniformValueConstantFolder.__init__)
    UniformValueConstantFolder.run = _at_home(UniformValueConstantFolder.run)
    pad_mm._should_pad = lambda *_, **__: False  # else both ways would be timed
    CachingAutotuner._make_launchers = _note
    CachingAutotuner._dynamic_scale_rblock = lambda self: None  # asks the driver how many registers are taken
    CompiledFxGraph.__call__ = _stop
    torch._functorch.config.force_non_lazy_backward_lowering = True  # else it would wait for what is never run
    torch._inductor.config.compile_threads = 1


def _at_home(work: Callable[..., Any]) -> Callable[..., Any]:
    def done(*given: Any, **told: Any) -> Any:
        with Home():
            return work(*given, **told)

    return done


def _note(tuner: CachingAutotuner) -> None:
    for result in tuner.compile_results:
        shared = result.kernel.shared if hasattr(result.kernel, "shared") else result.kernel.metadata.shared
        if shared > CARD.shared_memory_per_block_optin:
            raise MemoryError(f"{tuner.fn.__name__}: {shared} bytes of shared memory")
        made[tuner.fn.__name__] += 1


def _stop(graph: CompiledFxGraph, inputs: Any) -> None:
    raise Done


def compiled(work: Callable[..., Any], *given: Any) -> None:
    """Compile a function of thought tensors as a trainer would."""
    with suppress(Done):
        torch.compile(work, fullgraph=True, dynamic=False)(*given)


def thought(*shape: int, dtype: torch.dtype) -> Tensor:
    """A tensor on the card. Only within a FakeTensorMode."""
    return torch.empty(shape, dtype=dtype, device=PLACE)


def step(recipe: Recipe, vocabulary: int | None) -> None:
    """The step of a recipe, in pure bfloat16."""
    tokenizer, train, _ = kit.data(recipe)
    shape = replace(recipe.model.settings, vocabulary=vocabulary or tokenizer.vocabulary)
    with torch.device("meta"):
        feed = kit.feed(recipe, kit.built(recipe, shape), tokenizer, train)
    batch = feed(feed.first()).to("meta")
    with FakeTensorMode(allow_non_fake_inputs=True):
        trainer = Trainer.__new__(Trainer)
        with torch.device(PLACE):
            trainer.objective = kit.built(recipe, shape).train()
        trainer.precision = torch.bfloat16
        compiled(trainer._rounded, replace(batch.to(PLACE), counts={}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("data", type=Path, help="a prepared folder")
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--vocabulary", type=int)
    options = parser.parse_args()
    recipe = run.read(options.recipe, [f"data.folder={options.data}", *options.overrides])
    pretend()
    began = time.perf_counter()
    step(recipe, options.vocabulary)
    took = time.perf_counter() - began
    print(f"{options.recipe.stem}: {len(made)} kernels, {made.total()} programs, {took:.0f} s")


if __name__ == "__main__":
    main()
