"""Worker processes: fresh interpreters with one thread each, which find a sweep by its name and take cells as JSON.

Nothing is pickled. The parent writes a line per cell to a worker's standard input and reads a line per record from its
standard output; what a trial prints goes to standard error. A worker whose parent died ends at once.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NoReturn

from kernattn._runtime.checks import shown
from kernattn._runtime.compiling import VARIABLE as QUIET
from kernattn._runtime.parallel import VARIABLE
from kernattn.errors import KernattnError, ParameterError
from kernattn.studies._cells import TrialFailed, measure
from kernattn.studies._records import Record
from kernattn.studies._sweep import Cell, Sweep

THREADS = (VARIABLE, "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def load_named(name: str) -> Any:
    """Return the object called ``module:object``."""
    module, _, path = name.partition(":")
    if not module or not path:
        raise ParameterError(f"an object elsewhere is named as module:object; got {shown(name)}")
    try:
        value: Any = import_module(module)
        for part in path.split("."):
            value = getattr(value, part)
    except (ImportError, AttributeError) as error:
        raise ParameterError(f"{name} is not there: {error}") from error
    return value


def find_sweep(name: str, settings: Mapping[str, Any]) -> Sweep:
    """Return the sweep called ``module:object``, an object or a function of these settings that returns one."""
    value = load_named(name)
    sweep = value if isinstance(value, Sweep) and not settings else value(**settings) if callable(value) else value
    if not isinstance(sweep, Sweep):
        raise ParameterError(f"{name} must be a Sweep, or a function of the settings that returns one; got {sweep!r}")
    return sweep


def find_name(sweep: Sweep) -> str:
    """Return the name under which another process finds this sweep: that of a variable of a module."""
    module = getattr(sweep.trial, "__module__", "__main__")
    for name, value in vars(sys.modules[module]).items() if module != "__main__" else ():
        if value is sweep:
            return f"{module}:{name}"
    raise ParameterError(
        f"worker processes find a sweep by its name, and {sweep.name} has none: put it into a variable of a module "
        "beside its trial and import it from there, name it as 'module:object', or take workers=0"
    )


class Worker:
    """A process that measures one cell after the other of a sweep, by the name and settings that `find_sweep` takes."""

    def __init__(self, name: str, settings: Mapping[str, Any]) -> None:
        path = os.pathsep.join(each or str(Path.cwd()) for each in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from kernattn.studies._worker import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | dict.fromkeys(THREADS, "1") | {"PYTHONPATH": path, QUIET: "1"},
        )
        self._send({"name": name, "settings": settings})

    def _send(self, value: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(value).encode() + b"\n")
        self._process.stdin.flush()

    def measure(self, sweep: Sweep, cell: Cell) -> Record:
        """Return the record of one cell."""
        assert self._process.stdout is not None
        try:
            self._send({axis: cell[axis] for axis in sweep.axes})
            line = self._process.stdout.readline()
        except OSError:
            line = b""
        if not line:
            raise TrialFailed(f"{sweep.name}, cell {cell}: its process ended with status {self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise TrialFailed(answer["error"])
        if answer["record"]["cell"] != cell.name:
            raise TrialFailed(f"{sweep.name}, cell {cell}: a worker process finds another sweep under this name")
        return dict(answer["record"])

    def end(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(OSError):  # what was not sent any more
                pipe.close()


def serve() -> NoReturn:
    """Be a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and ends this process
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    lines: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_listen, args=(lines,), daemon=True).start()
    asked = json.loads(lines.get())
    sweep: Sweep | None = None
    while True:
        values = json.loads(lines.get())
        answer: dict[str, Any]
        try:
            if sweep is None:
                sweep = find_sweep(asked["name"], asked["settings"])
                if sweep.prepare is not None:
                    sweep.prepare()
            answer = {"record": measure(sweep, sweep.cell(values))}
        except TrialFailed as error:
            if error.__cause__ is not None and not isinstance(error.__cause__, KernattnError):
                traceback.print_exception(error.__cause__)
            answer = {"error": str(error)}
        except Exception as error:
            answer = {"error": f"{asked['name']}: {type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _listen(lines: SimpleQueue[str]) -> None:
    for line in sys.stdin:
        lines.put(line)
    os._exit(0)  # there is nobody to measure for
