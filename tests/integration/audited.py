"""`python -m tests.integration.audited start …`: pybroker that logs what a message must never make it do.

Each line begins with `AUDIT`: a module that is imported, code that is compiled or run, a program that is started, or a
connection to another host, once the broker serves.
"""

import sys
from typing import Any

_EVENTS = (
    "compile", "exec", "import", "marshal.loads", "os.exec", "os.posix_spawn", "os.system", "pickle.find_class",
    "socket.connect", "socket.getaddrinfo", "subprocess.Popen", "urllib.Request",
)  # fmt: skip


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in _EVENTS:
        return
    if event == "import" and arguments[0] in sys.modules:
        return
    sys.stderr.write(f"AUDIT {event} {str(arguments)[:300]!r}\n")


if __name__ == "__main__":
    from pybroker.broker.app import node
    from pybroker.broker.app.cli import main

    log = node._log.info

    def _arm(text: str, *arguments: object) -> None:
        log(text, *arguments)
        if text.startswith("listening on"):
            sys.addaudithook(_audit)
            compile("0", "canary", "eval")

    node._log.info = _arm  # type: ignore[method-assign, assignment]
    main()
