"""A child process of the server, as its supervisor sees it."""

import asyncio
import sys

import msgspec

from bertsmith.serving.control import Event


class Child:
    """A child process: its orders go through its standard input, its events come from its standard output."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def start(cls, module: str, settings: msgspec.Struct, descriptors: tuple[int, ...] = ()) -> "Child":
        """Start a module of this package, with its settings as the first line of its input."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            f"bertsmith.serving.{module}",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=descriptors,
        )
        child = cls(process)
        child.order(settings)
        return child

    def order(self, line: msgspec.Struct) -> None:
        """Write a line to its input."""
        assert self.process.stdin is not None
        if not self.process.stdin.is_closing():
            self.process.stdin.write(msgspec.json.encode(line) + b"\n")

    async def event(self) -> Event | None:
        """Its next event; None when it has ended."""
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        return msgspec.json.decode(line, type=Event) if line else None

    def finish(self) -> None:
        """Tell it to finish, by closing its input."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    async def wait(self, seconds: float) -> None:
        """Wait for its end, and kill it if it takes too long."""
        try:
            await asyncio.wait_for(self.process.wait(), seconds)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()
