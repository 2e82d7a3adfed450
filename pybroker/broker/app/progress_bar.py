"""A progress bar on standard error, for commands that read much."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

Progress = Callable[[int, int], None]
"""Called with the bytes that are done, and the bytes in all."""


@contextmanager
def progress_bar(title: str, *, is_printing: bool = False) -> Generator[Progress | None]:
    """Show a progress bar on a terminal.

    Args:
        title: the description of the work.
        is_printing: the work prints lines; no bar is shown on the same terminal.
    """
    if not sys.stderr.isatty() or (is_printing and sys.stdout.isatty()):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    # With redirection rich would send all printed lines to the terminal.
    with Bar(*columns, console=console, redirect_stdout=False, redirect_stderr=False, transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
