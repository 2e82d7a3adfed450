"""Common parts of benchmarks: options, a table for people, and a file with the figures and their circumstances.

A figure without machine, Python, commit and command means nothing, so the JSON file always has all four:

```text
{"benchmark": …, "command": …, "date": …, "commit": …, "python": …, "machine": {…}, "tables": {title: [row, …]}}
```
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

Cell = str | int | float
Row = Mapping[str, Cell]

_SIGNIFICANT_DIGITS = 4
"""More would claim a precision that a shared machine does not have."""


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return a command line parser with the common options; `description` is a module's docstring."""
    made = argparse.ArgumentParser(
        description=(description or "").splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    made.add_argument("--quick", action="store_true", help="run for about a second: shows that it works, not how fast")
    made.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to a file")
    made.add_argument("--directory", default=tempfile.gettempdir(), help="where stores and locks are put")
    return made


class Report:
    """Tables of one run: printed as they come, written together at the end."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._json: Path | None = options.json
        self._directory: str = options.directory
        self._load = os.getloadavg()[0]
        self._tables: dict[str, Sequence[Row]] = {}

    def table(self, title: str, rows: Sequence[Row]) -> None:
        """Print rows, whose keys are the columns, under a title, and store them for the file."""
        rows = [{name: _rounded(cell) for name, cell in row.items()} for row in rows]
        self._tables[title] = rows
        print(f"\n{title}\n{render(rows)}", flush=True)

    def finish(self) -> None:
        """Write the file if one was requested."""
        if self._json is None:
            return
        package = _main_module()
        facts = {
            "benchmark": package.rpartition(".")[2],
            "command": " ".join(["python", "-m", package, *sys.argv[1:]]),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": commit(),
            "python": f"{platform.python_implementation()} {platform.python_version()} ({platform.python_compiler()})",
            "machine": machine(self._directory) | {"load at start": round(self._load, 2)},
            "tables": self._tables,
        }
        self._json.write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n")


def render(rows: Sequence[Row]) -> str:
    """Return rows as a Markdown table, numbers to the right."""
    names = list(rows[0])
    texts = [names, *[[_text(row[name]) for name in names] for row in rows]]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    numeric = [not isinstance(rows[0][name], str) for name in names]
    lines = [
        "| " + " | ".join(t.rjust(w) if n else t.ljust(w) for t, w, n in zip(line, widths, numeric, strict=True)) + " |"
        for line in texts
    ]
    lines.insert(
        1, "|" + "|".join("-" * (w + 1) + (":" if n else "-") for w, n in zip(widths, numeric, strict=True)) + "|"
    )
    return "\n".join(lines)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return median, 90th percentile and maximum."""
    return {"median": statistics.median(values), "p90": quantile(values, 0.9), "max": max(values)}


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of all values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


# ---------------------------------------------------------------- where it was measured


def machine(directory: str) -> dict[str, Cell]:
    """Return what the figures depend on: processor, kernel, and the file system of that directory."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count() or 0,
        "kernel": f"{platform.system()} {platform.release()}",
        "file system": _file_system(Path(directory).resolve()),
    }


def commit() -> str:
    """Return the checkout's commit, with `+` when the package was changed since; `unknown` outside of a checkout."""
    root = Path(__file__).parent
    head = _git(root, "rev-parse", "--short=12", "HEAD")
    if head is None:
        return "unknown"
    return head + ("+" if _git(root, "status", "--porcelain", "--", "../pybroker") else "")


def _git(directory: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=directory, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(directory: Path) -> str:
    """Return the type of the mount that holds a directory: the one with the longest path above it."""
    mounts = [line.split()[1:3] for line in Path("/proc/self/mounts").read_text().splitlines()]
    above = [(point, kind) for point, kind in mounts if directory.is_relative_to(point)]
    return max(reversed(above), key=lambda mount: len(mount[0]))[1]  # reversed: of several on one point the last counts


def _main_module() -> str:
    specification = sys.modules["__main__"].__spec__
    return specification.name.removesuffix(".__main__") if specification is not None else Path(sys.argv[0]).stem


def _rounded(cell: Cell) -> Cell:
    return float(f"{cell:.{_SIGNIFICANT_DIGITS}g}") if isinstance(cell, float) else cell


def _text(cell: Cell) -> str:
    if isinstance(cell, float) and cell >= 10 ** (_SIGNIFICANT_DIGITS - 1):
        return f"{cell:,.0f}"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)
