"""An output file: complete at the end, resumed after any interruption, and every refusal in one line."""

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bertsmith.data import output as outputs
from bertsmith.data.output import Output, fingerprint
from bertsmith.errors import RunError

ROWS = [f"row {number}" for number in range(10)]


@pytest.fixture(autouse=True)
def noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "JOURNAL_SECONDS", 0.0)  # every row is noted


def made_with() -> dict[str, Any]:
    return {"verb": "test", "options": {"a": (1, 2)}}


def run(
    out: Path, rows: list[str] = ROWS, die: int | None = None, settings: Callable[[], Any] = made_with
) -> list[str]:
    """Write a line for each row; die after some; return the rows that were computed."""
    made = []
    with Output(out, settings, header=b"head\n") as output:
        for row in output.resume(lambda: iter(rows), str):
            if die == output.rows:
                raise KeyboardInterrupt
            made.append(row)
            output.add([row], f"{row}!\n".encode(), {"last": row})
        assert output.state == {"last": rows[-1]}
        output.finish()
    return made


def whole(rows: list[str] = ROWS) -> str:
    return "head\n" + "".join(f"{row}!\n" for row in rows)


def test_a_complete_file_is_renamed_and_leaves_no_other_file(tmp_path: Path) -> None:
    run(tmp_path / "new" / "out.txt")  # its folder is made
    assert (tmp_path / "new" / "out.txt").read_text() == whole()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["out.txt"]


@pytest.mark.parametrize("die", range(10))
def test_whenever_it_is_interrupted_it_resumes_after_the_rows_done(tmp_path: Path, die: int) -> None:
    out = tmp_path / "out.txt"
    with pytest.raises(KeyboardInterrupt):
        run(out, die=die)
    assert not out.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == (["out.txt.part", "out.txt.part.json"] if die else [])
    assert run(out) == ROWS[die:]
    assert out.read_text() == whole()


def test_rows_after_the_last_entry_of_the_journal_are_truncated(tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    with pytest.raises(KeyboardInterrupt):
        run(out, die=4)
    with (tmp_path / "out.txt.part").open("a") as file:
        file.write("row 4!\nrow")  # as a kill between the row and the note leaves it
    assert run(out) == ROWS[4:]
    assert out.read_text() == whole()


def test_other_inputs_options_or_a_damaged_journal_start_again(tmp_path: Path) -> None:
    def other() -> dict[str, Any]:
        return {"verb": "other"}

    def older(part: Path) -> None:
        """The journal of version 1, which has another key."""
        journal = part.with_name(part.name + ".json")
        entry = json.loads(journal.read_text())
        journal.write_text(json.dumps(entry | {"format": 1, "asked": entry.pop("made_with")}))

    changed = ["row 0", "ROW 1", *ROWS[2:]]
    cases: list[tuple[list[str], Callable[[], Any], Callable[[Path], object]]] = [
        (changed, made_with, lambda part: None),
        (ROWS[:2], made_with, lambda part: None),
        (ROWS, other, lambda part: None),
        (ROWS, made_with, lambda part: part.with_name(part.name + ".json").write_text("{")),
        (ROWS, made_with, lambda part: os.truncate(part, 9)),
        (ROWS, made_with, older),
    ]
    for number, (rows, settings, harm) in enumerate(cases):
        out = tmp_path / f"{number}.txt"
        with pytest.raises(KeyboardInterrupt):
            run(out, die=4)
        harm(tmp_path / f"{number}.txt.part")
        assert run(out, rows, settings=settings) == rows
        assert out.read_text() == whole(rows)
    # Rows that were added to the inputs are made, and no others.
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "more.txt", die=4)
    assert run(tmp_path / "more.txt", [*ROWS, "more"]) == [*ROWS[4:], "more"]


def test_a_full_disk_is_reported_with_the_bytes_needed_and_rows_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, write = tmp_path / "out.txt", os.write

    def full(file: int, data: Any) -> int:
        if bytes(data).startswith(b"row 6"):
            write(file, bytes(data)[:3])  # some of it fits
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(RunError, match=r"out\.txt: the disk is full: 7 bytes needed, [\d,]+ free\. Free space and run"):
        run(out)
    monkeypatch.setattr(os, "write", write)
    assert json.loads((tmp_path / "out.txt.part.json").read_text())["rows"] == 6
    assert run(out) == ROWS[6:]
    assert out.read_text() == whole()


def test_a_conversion_that_fails_costs_no_row(tmp_path: Path) -> None:
    out = tmp_path / "out.txt"

    def convert(part: Path, target: Path) -> None:
        target.write_text(part.read_text().upper())

    def full(part: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def computed(finish: Callable[[Path, Path], None]) -> list[str]:
        made = []
        with Output(out, made_with) as output:
            for row in output.resume(lambda: iter(ROWS), str):
                made.append(row)
                output.add([row], row.encode())
            output.finish(finish)
        return made

    with pytest.raises(RunError, match="the disk is full"):
        computed(full)
    assert computed(convert) == []
    assert out.read_text() == "".join(ROWS).upper()
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]


def test_two_commands_cannot_write_one_file_and_a_device_is_written_straight(tmp_path: Path) -> None:
    with (
        Output(tmp_path / "out.txt", made_with),
        pytest.raises(RunError, match="another command is writing it"),
        Output(tmp_path / "out.txt", made_with),
    ):
        pass
    with Output(Path("/dev/null"), made_with) as output:
        output.add(["row"], b"row")
        output.finish()
    with pytest.raises(RunError, match="the disk is full"), Output(Path("/dev/full"), made_with) as output:
        output.add(["row"], b"row")


def test_a_place_that_cannot_be_written_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    cases = {
        "file/out.txt": "is a file and not a folder. Choose another folder.",
        "folder": "is a folder. Name a file in it.",
        "x" * 300: "cannot be written (File name too long). Choose another file.",
    }
    for name, ending in cases.items():
        with pytest.raises(RunError) as caught, Output(tmp_path / name, made_with):
            pass
        assert str(caught.value).endswith(ending)


def test_a_model_is_known_by_its_files(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_text("a")
    before = fingerprint(tmp_path)
    (tmp_path / "README.md").write_text("a card")
    assert fingerprint(tmp_path) == before
    (tmp_path / "model.safetensors").write_text("b")
    assert fingerprint(tmp_path) != before


def test_a_stream_that_cannot_be_read_again_is_told(tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    with pytest.raises(KeyboardInterrupt):
        run(out, die=4)
    once: list[Iterator[str]] = [iter(["other"])]

    def stream() -> Iterator[str]:
        if not once:
            raise outputs.changed_input_error("standard input")
        return once.pop()

    with (
        pytest.raises(Exception, match="standard input: differs from the text read before the interruption"),
        Output(out, made_with) as output,
    ):
        output.resume(stream, str)
