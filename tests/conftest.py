"""Fixtures and options that all tests share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"
REPOSITORY = Path(__file__).parent.parent
VERIFIED_PROCESS = Path(__file__).parent / "verified_process"  # a directory that turns --verify-passes on

PARENT_CHECK_S = 0.5

Gecli = Callable[..., "subprocess.CompletedProcess[str]"]
Golden = Callable[[str, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files instead of comparing with them")
    parser.addoption("--models-dir", help="directory of real models for the tests marked `models`")


def pytest_configure(config: pytest.Config) -> None:
    """End with the process that started this one: a worker with pytest, pytest with make, however they were killed."""
    if hasattr(config, "workerinput") or "MAKELEVEL" in os.environ:
        threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell; commands inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_S)
    os._exit(1)


@pytest.fixture(autouse=True, scope="session")
def every_compile_of_the_suite_is_verified() -> Iterator[None]:
    """Evaluate small graphs around every pass, as --verify-passes does, in this process."""
    spec = spec_from_file_location("verified_process", VERIFIED_PROCESS / "sitecustomize.py")
    assert spec is not None and spec.loader is not None
    finders = list(sys.meta_path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.meta_path[:] = finders
    from gecli.compiler import graph_compiler

    plain = graph_compiler.run_pipeline
    graph_compiler.run_pipeline = module.verified(plain)
    yield
    graph_compiler.run_pipeline = plain


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare a text with tests/golden/NAME, or write it there with --update-golden."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"{path} is missing; run pytest --update-golden and read the diff"
        assert text == path.read_text(encoding="utf-8")

    return compare


@pytest.fixture
def gecli(tmp_path: Path) -> Gecli:
    """Run the real command as a process in an empty directory, without the environment of the test's user."""

    def run(
        *arguments: str,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
        stdin: str | None = None,
        timeout: float = 60,
    ) -> subprocess.CompletedProcess[str]:
        kept = {
            name: os.environ[name] for name in ("PATH", "SYSTEMROOT", "PYTHONDONTWRITEBYTECODE") if name in os.environ
        }
        environment = {
            **kept,
            "PYTHONPATH": f"{VERIFIED_PROCESS}{os.pathsep}{REPOSITORY}",
            "HOME": str(tmp_path),
            **(env or {}),
        }
        return subprocess.run(
            [sys.executable, "-m", "gecli", *arguments],
            cwd=cwd or tmp_path, env=environment, input=stdin, capture_output=True, text=True, timeout=timeout,
        )  # fmt: skip

    return run
