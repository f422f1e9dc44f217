"""Loading models anew, and their death, in any order: the supervisor without processes."""

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from bertsmith.errors import RunError
from bertsmith.serving import supervisor as module
from bertsmith.serving.child import Child
from bertsmith.serving.control import Order
from bertsmith.serving.settings import Settings
from bertsmith.serving.supervisor import MAX_FAILURES, Supervisor


class FakeProcess:
    def __init__(self) -> None:
        self.returncode: int | None = None
        self.ended = asyncio.Event()

    def end(self, status: int) -> None:
        self.returncode = status
        self.ended.set()

    async def wait(self) -> int:
        await self.ended.wait()
        assert self.returncode is not None
        return self.returncode


class FakeModel(Child):
    """A model process, which ends when it is told to finish."""

    def __init__(self) -> None:
        self.process: Any = FakeProcess()

    def finish(self) -> None:
        self.process.end(0)


class FakeFront(Child):
    """A front that uses what it is told, except some generations."""

    def __init__(self, owner: Supervisor, number: int) -> None:
        self.owner, self.number, self.refuses, self.silent, self.used = owner, number, set[int](), set[int](), [0]

    def order(self, line: Any) -> None:
        assert isinstance(line, Order)
        if line.generation in self.refuses:
            self.owner._spawn(self.owner._refuse(line.generation, "tokenizer.json: is broken."))
        elif line.generation not in self.silent:
            self.used.append(line.generation)
            self.owner._spawn(self.owner._note(self.number, line.generation))


class FakeSupervisor(Supervisor):
    """Its model processes start at once, unless a generation `fails`, or as soon as it `may_start`."""

    def __init__(self) -> None:
        super().__init__(Settings(models={"plain": "nowhere"}))
        self.sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        self.fakes = [FakeFront(self, number) for number in range(2)]
        self.fronts = {front.number: front for front in self.fakes}
        self.models: dict[int, FakeModel] = {}
        self.fails = set[int]()
        self.may_start = asyncio.Event()
        self.may_start.set()

    async def _start_model(self) -> tuple[Child, Order]:
        self._generation += 1
        generation = self._generation
        await self.may_start.wait()
        if generation in self.fails:
            raise RunError("model", "cannot be loaded")
        self.models[generation] = FakeModel()
        return self.models[generation], Order(connect="", generation=generation)

    async def until(self, *used: int) -> None:
        """Wait until each front uses a generation."""
        async with asyncio.timeout(10):
            while [front.used[-1] for front in self.fakes] != [*used]:
                await asyncio.sleep(0.01)

    async def says(self, line: str, capsys: pytest.CaptureFixture[str]) -> None:
        async with asyncio.timeout(10):
            heard = ""
            while line not in heard:
                await asyncio.sleep(0.01)
                heard += "".join(capsys.readouterr())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)


@pytest.fixture
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


async def started() -> FakeSupervisor:
    found = FakeSupervisor()
    found._spawn(found._keep_model())
    await found.until(1, 1)
    return found


async def ended(found: FakeSupervisor) -> None:
    for task in list(found._tasks):
        task.cancel()
    for one in found.sockets:
        one.close()
    assert found._failure is None


def test_models_are_loaded_anew_during_the_first_load(loop: asyncio.Runner, capsys: pytest.CaptureFixture[str]) -> None:
    async def check() -> None:
        found = FakeSupervisor()
        found.may_start.clear()
        found._spawn(found._keep_model())
        await asyncio.sleep(0.05)
        found._reload.set()
        await asyncio.sleep(0.05)
        found.may_start.set()
        await found.says("bertsmith serves plain at http://127.0.0.1:", capsys)
        await found.until(2, 2)
        await asyncio.wait_for(found.models[1].process.wait(), 5)
        await ended(found)

    loop.run(check())


def test_if_one_front_refuses_all_stay(loop: asyncio.Runner, capsys: pytest.CaptureFixture[str]) -> None:
    async def check() -> None:
        found = await started()
        found.fakes[1].refuses.add(2)
        found._reload.set()
        await found.says("models stay as they are, since a front cannot use them: tokenizer.json: is broken.", capsys)
        await found.until(1, 1)
        assert found.models[2].process.returncode == 0
        assert found.models[1].process.returncode is None
        found._reload.set()  # nothing is locked
        await found.until(3, 3)
        await asyncio.wait_for(found.models[1].process.wait(), 5)
        await ended(found)

    loop.run(check())


def test_new_models_that_die_before_they_are_used_change_nothing(
    loop: asyncio.Runner, capsys: pytest.CaptureFixture[str]
) -> None:
    async def check() -> None:
        found = await started()
        found.fakes[1].silent.add(2)
        found._reload.set()
        await found.until(2, 1)
        found.models[2].process.end(-9)
        await found.says("the models stay as they are, since their process has died (-9)", capsys)
        await found.until(1, 1)
        assert found.models[1].process.returncode is None
        await ended(found)

    loop.run(check())


def test_old_models_that_die_during_a_load_are_replaced_by_it(
    loop: asyncio.Runner, capsys: pytest.CaptureFixture[str]
) -> None:
    async def check() -> None:
        found = await started()
        found.may_start.clear()
        found._reload.set()
        await asyncio.sleep(0.05)
        found.models[1].process.end(-9)
        await asyncio.sleep(0.05)
        found.may_start.set()
        await found.says("the new models are served", capsys)
        await asyncio.sleep(0.05)
        assert set(found.models) == {1, 2}
        found.models[2].process.end(-9)
        await found.until(3, 3)
        await ended(found)

    loop.run(check())


def test_a_restart_that_fails_is_tried_again(loop: asyncio.Runner) -> None:
    async def check() -> None:
        found = await started()
        found.fails |= {2, 3}
        found.models[1].process.end(1)
        await found.until(4, 4)
        await ended(found)

    loop.run(check())


def test_restarts_that_fail_for_good_end_the_server(loop: asyncio.Runner) -> None:
    async def check() -> None:
        found = await started()
        found.fails |= set(range(2, 20))
        found.models[1].process.end(1)
        await asyncio.wait_for(found._stop.wait(), 5)
        assert str(found._failure) == "model: cannot be loaded."
        assert found._generation == MAX_FAILURES
        found._failure = None
        await ended(found)

    loop.run(check())
