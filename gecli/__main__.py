"""The `gecli` program: answers the cheapest questions itself and leaves the rest to `gecli.cli`."""

from __future__ import annotations

import gc
import sys

from gecli.cli.stopping import STOPS, arm, disarm, end, stop_behind


def main() -> int:
    """Run the command line of this process; the result is its exit status."""
    try:
        arm()
        status = _answered(sys.argv[1:])
        end()
    except STOPS as stop:  # outside of app.run(), which handles its own
        status = _stopped(stop)
    except Exception as error:
        wrapped = stop_behind(error)
        if wrapped is None:
            raise
        status = _stopped(wrapped)
    disarm()
    return status


def _answered(argv: list[str]) -> int:
    if None in (sys.stdin, sys.stdout, sys.stderr):
        _fill_standard_streams()
    if argv == ["--version"] and (status := _print_version()) is not None:
        return status
    # As GE's tool, when installed under its name.
    if sys.argv[0].endswith("atc"):
        argv = ["compile", "--atc-compat", *argv]
    if argv and argv[0] == "compile":
        from gecli.cli.fast_hit import try_fast_hit

        status = try_fast_hit(argv)
        if status is not None:
            return status
    # Imports and graphs make many objects and little garbage; by default a tenth of the time went into looking.
    gc.set_threshold(200_000, 20, 100)
    if argv and argv[0] == "inspect-om":  # a graph that is shown lives to the end, and its nodes are cycles
        gc.disable()
    from gecli.cli.app import run

    status = run(argv)
    # The interpreter looks for garbage three times while it ends; a fifth of a small compile went into that.
    gc.freeze()
    return status


def _stopped(stop: BaseException) -> int:
    end()  # before the import, which a second signal would cut off
    from gecli.cli.app import stopped

    return stopped(stop)


def _fill_standard_streams() -> None:
    """Put the null device where the caller closed a stream: no file may get its number, no text its content."""
    import os

    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115  # as long as the process
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def _print_version() -> int | None:
    """None when standard output takes nothing: the command line says why."""
    from gecli.version import __version__

    try:
        print(f"gecli {__version__}", flush=True)
    except BrokenPipeError:
        from gecli.cli.fast_hit import broken_pipe

        return broken_pipe()
    except OSError:
        return None
    return 0


if __name__ == "__main__":
    sys.exit(main())
