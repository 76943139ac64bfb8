"""The `gecli` program: answers the cheapest questions itself and leaves the rest to `gecli.cli`."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line of this process; the result is its exit status."""
    argv = sys.argv[1:]
    if argv == ["--version"]:
        return _print_version()
    try:
        # As GE's tool, when installed under its name.
        if sys.argv[0].endswith("atc"):
            argv = ["compile", "--atc-compat", *argv]
        if argv and argv[0] == "compile":
            from gecli.cli.fast_hit import try_fast_hit

            status = try_fast_hit(argv)
            if status is not None:
                return status
        from gecli.cli.app import run

        return run(argv)
    except KeyboardInterrupt:  # outside of run(), which handles its own
        from gecli.cli.app import INTERRUPTED, clean_up

        clean_up()
        return INTERRUPTED


def _print_version() -> int:
    from gecli.version import __version__

    print(f"gecli {__version__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
