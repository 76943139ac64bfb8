"""Variables before and after `gecli run`: --load-vars, --set-var, --get-var, --save-vars."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gecli.cli.console import Console
    from gecli.options.values import Options
    from gecli.runtime.session import Session


def set_variables(options: Options, shared: Session, sessions: Iterable[Session], console: Console) -> None:
    """Give the variables their values before the first run, and look for those that are asked for behind the last.

    Raises InvalidOption, InputError and RuntimeFault.
    """
    if options.text("load-vars"):
        for session in dict.fromkeys(sessions):
            _load(options, session, console)
    _set_each(options, shared)
    _check_names(options, shared)


def take_variables(options: Options, session: Session, console: Console) -> None:
    """Save and show variables behind the last run. Raises OutputError and RuntimeFault."""
    if options.text("save-vars"):
        _save(options, session, console)
    _get_each(options, session, console)


def _load(options: Options, session: Session, console: Console) -> None:
    from gecli.runtime.checkpoint import load_variables

    path = options.text("load-vars") or ""
    found, warnings = load_variables(session.store, path, globs=_globs(options), strict=options.flag("vars-strict"))
    console.report(warnings)
    console.say(f"loaded {len(found)} of {len(session.store.names())} variables from {path}", level=1)


def _save(options: Options, session: Session, console: Console) -> None:
    from gecli.artifacts.publish import after_publication
    from gecli.runtime.checkpoint import save_variables

    path = options.text("save-vars") or ""
    saved = save_variables(session.store, path, raw=options.flag("raw-format"), globs=_globs(options))
    after_publication(partial(console.say, f"saved {len(saved)} variables to {path}", level=1))


def _globs(options: Options) -> tuple[str, ...]:
    return tuple(glob for glob in (options.text("var-names") or "").split(",") if glob)


def _set_each(options: Options, session: Session) -> None:
    if not options.texts("set-var"):
        return
    from gecli.runtime.array_files import read_npy
    from gecli.runtime.checkpoint import set_variable

    for item in options.texts("set-var"):
        name, path = _named("--set-var", item, session)
        set_variable(session.store, name, read_npy(path), path)


def _check_names(options: Options, session: Session) -> None:
    """Raises InvalidOption before the run for a --get-var or --var-names that no model has."""
    if options.text("save-vars") and (globs := _globs(options)):
        from gecli.runtime.checkpoint import chosen_names

        chosen_names(session.store.names(), globs, "the models")
    for item in options.texts("get-var"):
        _named("--get-var", item, session)


def _get_each(options: Options, session: Session, console: Console) -> None:
    from gecli.artifacts.publish import after_publication
    from gecli.report.run_report import output_lines

    for item in options.texts("get-var"):
        name, path = _named("--get-var", item, session)
        array = session.store.value(name, raw=options.flag("raw-format"))
        if path:
            from io import BytesIO

            import numpy as np

            from gecli.artifacts.publish import publish_bytes
            from gecli.runtime.checkpoint import portable

            buffer = BytesIO()
            np.lib.format.write_array(buffer, portable(array), allow_pickle=False)
            publish_bytes(path, buffer.getvalue())
        else:
            after_publication(partial(console.result, output_lines(name, array)))


def _named(option: str, item: str, session: Session) -> tuple[str, str]:
    """The variable and the file of `NAME=FILE` or `NAME`; of names that hold a "=" the longest that exists.

    Raises InvalidOption when no variable has such a name.
    """
    ends = [place for place in range(len(item) - 1, -1, -1) if item[place] == "="]
    for end in ends if option == "--set-var" else [len(item), *ends]:
        if session.store.take_over(item[:end]):
            return item[:end], item[end + 1 :]
    raise _no_variable(option, item.partition("=")[0], session)


def _no_variable(option: str, name: str, session: Session) -> Exception:
    import difflib

    from gecli.errors import InvalidOption

    names = session.store.names()
    file = "=FILE.npy" if option == "--set-var" else ""
    near = difflib.get_close_matches(name, names, n=1)
    return InvalidOption(
        "E10016", f"{option} names {name!r}, which is no variable of the models", option=option,
        why=f"their variables: {', '.join(names) or 'none'}", expected=names, actual=name,
        do=f"{option} {_typed(f'{near[0] if near else names[0]}{file}')}" if names else f"leave out {option}",
    )  # fmt: skip


def _typed(value: str) -> str:
    """A value as the shell passes it on, with the quotes around it once more: the command removes a pair."""
    import shlex

    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return shlex.quote(f'"{value}"' if quoted else value)
