"""From the options of `gecli inspect-om` to what is printed and the exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from gecli.artifacts.file_access import unchanged
from gecli.artifacts.publish import NO_SPACE
from gecli.errors import Diagnostic, InputError, InvalidOption, OutputError
from gecli.json_text import escape_halves
from gecli.options.inspect_table import VIEWS
from gecli.report.inspect.json_text import json_chunks
from gecli.report.inspect.subject import Subject, open_subject
from gecli.report.inspect.view import Table, View
from gecli.wire.walker import WireError

if TYPE_CHECKING:
    from gecli.options.values import Options
    from gecli.report.inspect.load_needs import LoadTarget
    from gecli.report.inspect.salvage import Salvage
    from gecli.report.inspect.stored_data import Store

STDIN = "-"
OPEN_FILES = "/proc/self/fd"
COPY_BYTES = 1 << 20
DRAWN_ROWS = 1000  # rich takes milliseconds for each
LINES_AT_ONCE = 500
CHARACTERS_AT_ONCE = 1 << 17
COPY_AGAIN = "copy or compile the file again"


class Screen(Protocol):
    """The console of the command line."""

    json: bool
    stdout: TextIO
    document_printed: bool

    def report(self, diagnostics: Any) -> None: ...
    def say(self, text: str, level: int = 0) -> None: ...
    def colored(self, stream: TextIO) -> bool: ...


def inspect_command(options: Options, paths: list[str], screen: Screen) -> int:
    """Show every file; returns the exit status: the gravest of all files, so that their order does not matter."""
    _check(options, paths)
    if options.flag("print-schema"):
        return _print_schema(options, paths, screen)
    with _together(options), _output(options, screen) as out, _store(options) as store:
        if options.flag("oneline"):
            return _one_line_each(options, paths, screen, out)
        if len(paths) == 1:
            return _one(options, paths[0], screen, out, store)
        return _several(options, paths, screen, out, store)


def _check(options: Options, paths: list[str]) -> None:
    if options.texts("extract") and not options.text("to"):
        raise InvalidOption("E10054", "--extract needs --to", option="--to", do="--extract all --to DIR")
    if options.text("to") and not options.texts("extract"):
        raise InvalidOption("E10054", "--to needs --extract", option="--extract", do="--extract all --to DIR")
    if len(paths) > 1 and options.texts("extract"):
        raise InvalidOption(
            "E10054", "--extract takes one file", option="--extract", do=f"gecli inspect-om {paths[0]} --extract ...",
            why=f"{len(paths)} files are given, and tensors of two files may have one name",
        )  # fmt: skip
    if options.flag("embed-data") and options.text("data-file"):
        raise InvalidOption("E10047", "--embed-data and --data-file exclude each other", do="--embed-data")
    if options.flag("full") and not options.flag("json"):
        raise InvalidOption(
            "E10057", "--full belongs to --json", option="--full", do="gecli inspect-om FILE --json --full"
        )
    if paths.count(STDIN) > 1:
        raise InvalidOption("E10054", "standard input can be read once only", why="- is given twice", do="give - once")


def _print_schema(options: Options, paths: list[str], screen: Screen) -> int:
    """The published schemas of what --json prints with these options: of the view, of what is salvaged, of an error."""
    import json
    from importlib.resources import files

    screen.document_printed = True
    folder = files("gecli.report").joinpath("schemas")
    names = _printed_documents(options, paths)
    either = [json.loads(folder.joinpath(f"inspect.{each}.json").read_text(encoding="utf-8")) for each in names]
    dialect = either[0]["$schema"]
    for schema in either:
        del schema["$schema"]  # belongs to the root of a schema only
    title = " or ".join(schema["title"] for schema in either)
    shown = {"$schema": dialect, "title": title, "anyOf": either}
    _stdout_writer(screen.stdout)(json.dumps(shown, indent=2, sort_keys=True) + "\n")
    return 0


def _printed_documents(options: Options, paths: list[str]) -> list[str]:
    if options.flag("oneline"):
        return ["oneline", "error"]
    if len(paths) > 1:
        return ["files", "error"]
    view = next((each for each in ("extract", *VIEWS) if options.get(each)), "full")
    salvaged = ["salvage"] if options.flag("salvage") else []  # of a damaged file that has not this view any more
    return [{"full": "model"}.get(view, view), *salvaged, "error"]


def _one(options: Options, path: str, screen: Screen, out: Output, store: Store) -> int:
    with _placed(path) as place, unchanged(place):
        try:
            view, subject = _shown(options, path, place, store)
        except InputError as error:
            if not options.flag("salvage"):
                raise _named(error, path, place) from error
            return _salvaged(error, options, path, place, screen, out)
        warnings = _warnings(subject, options, path, place)
        out.write(view, [warning.as_json() for warning in warnings])
        screen.report(warnings)
    return max(view.status, *_statuses(warnings))


def _several(options: Options, paths: list[str], screen: Screen, out: Output, store: Store) -> int:
    status = 0
    as_text = not _is_document(options, screen)
    documents: list[dict[str, Any]] = []
    for path in paths:
        documents.append({"path": path})
        with _placed(path) as place:
            try:
                with unchanged(place):
                    view, subject = _shown(options, path, place, store)
                    warnings = _warnings(subject, options, path, place)
                    _add(documents[-1], view, warnings, out, as_text=as_text)
            except InputError as error:
                rest, found = _rest_of(error, options, path, place)
                if rest is not None:
                    _add(documents[-1], rest, found.diagnostics, out, as_text=as_text)
                documents[-1]["errors"] = [each.as_json() for each in found.diagnostics]
                screen.report(found.diagnostics)
                status = max(status, found.exit_status)
                continue
            screen.report(warnings)
            status = max(status, view.status, *_statuses(warnings))
    if _is_document(options, screen):
        out.document({"schema": "gecli.inspect.files/1", "files": documents})
    return status


def _is_document(options: Options, screen: Screen) -> bool:
    """--atc-json is JSON by itself."""
    return screen.json or (options.flag("atc-json") and not options.texts("extract"))


def _add(
    entry: dict[str, Any], view: View, warnings: Sequence[Diagnostic], out: Output, *, as_text: bool
) -> None:  # fmt: skip
    """Print the view of one file of several, or keep its document for the one that is printed at the end."""
    if as_text:
        out.text(f"== {entry['path']}")
        out.write(view, [])
        return
    told = [warning.as_json() for warning in warnings]
    if view.name == "atc-json":  # has the members that atc gives it, no others
        entry |= {"document": view.document, "warnings": told}
    else:
        entry["document"] = {**view.full_document(), "warnings": told}
    out.chunks_into(entry)


def _one_line_each(options: Options, paths: list[str], screen: Screen, out: Output) -> int:
    """Bad files are lines among the others; what is wrong with them is also said on stderr.

    The status is 3 if one cannot be read; else, with a target, 1 if one does not load there.
    """
    from gecli.report.inspect.summary import oneline
    from gecli.report.inspect.summary_text import oneline_text

    status = 0
    target = _target(options)
    rows: list[dict[str, Any]] = []
    for path in paths:
        with _placed(path) as place:
            try:
                with unchanged(place):
                    subject = open_subject(path, place)
                    if options.flag("strict"):
                        _check_all(subject)  # the state counts what is found
                    row = oneline(subject, target, recursive=options.flag("recursive"))
                    problems = _warnings(subject, options, path, place)
            except InputError as error:
                row, found = _bad_line(error, options, path, place)
                problems = list(found.diagnostics)
        errors = [problem for problem in problems if problem.severity == "error"]
        if errors and row["state"] != "bad":  # what --strict makes of warnings
            row |= {"ok": False, "state": "bad", "error": errors[0].message}
        refused = target.is_asked and row["loads"] is False
        status = max(status, int(refused), *_statuses(problems))
        screen.report(problems)
        rows.append(row)
        if not screen.json:
            out.text(oneline_text(row))
    if screen.json:
        out.document({"schema": "gecli.inspect.oneline/1", "files": rows})
    return status


def _target(options: Options) -> LoadTarget:
    from gecli.report.inspect.load_needs import LoadTarget

    return LoadTarget(options.text("target"), options.text("for-version"))


def _bad_line(error: InputError, options: Options, path: str, place: str) -> tuple[dict[str, Any], InputError]:
    """The line of a bad file: with --salvage what is left of it, too."""
    from gecli.report.inspect.summary import oneline

    found = _named(error, path, place)
    row: dict[str, Any] = dict.fromkeys(("name", "soc", "signature", "size"))
    if options.flag("salvage"):
        rest = _salvage(path, place)
        row |= {} if rest is None else oneline(rest.subject)
        found = _with_salvage_given(found)
    told = {"error": found.first.message, "problems": [each.message for each in found.diagnostics]}
    bad = {"path": path, "ok": False, "state": "bad", "kind": found.kind or None, "loads": False, "answer": None}
    return row | bad | told, found


def _shown(options: Options, path: str, place: str, store: Store) -> tuple[View, Subject]:
    subject = open_subject(path, place)
    if options.flag("strict") and not any(options.get(name) for name in VIEWS if name != "summary"):
        _check_all(subject)  # the verdict of the summary counts what is found
    if options.flag("salvage") and subject.kind == "model-def":
        subject.model()  # nothing else is in the file: of one that cannot be read the nodes in front of the fault
    return _view_or_files(subject, options, store), subject


def _view_or_files(subject: Subject, options: Options, store: Store) -> View:
    if not options.texts("extract"):
        return view_of(subject, options, store)
    from gecli.artifacts.publish import published_together
    from gecli.report.inspect.extraction import extract

    names, directory = options.texts("extract"), options.text("to") or "."
    _require_other_place(subject, directory)
    with published_together(), unchanged(subject.place):
        return extract(subject, names, directory, origin_format=options.flag("origin-format"))


def _require_other_place(subject: Subject, directory: str) -> None:
    """Raises InvalidOption for an input that a tensor of its name, or the manifest, would replace."""
    folder, name = os.path.split(os.path.realpath(subject.place))
    if name.endswith((".npy", ".json")) and folder == os.path.realpath(directory):
        raise InvalidOption(
            "E10047", f"--extract would overwrite the input {subject.path}", option="--to", file=subject.path,
            why=f"it lies in {directory}, where tensors are .npy files with a .json beside each",
            do="--to ANOTHER_DIR",
        )  # fmt: skip


def view_of(subject: Subject, options: Options, store: Store) -> View:
    """The view that the options name; without one the summary, or the whole model with --json."""
    name = next((each for each in VIEWS if options.get(each)), "")
    if not name:
        name = "full" if options.flag("json") else "summary"
    if name == "full":
        from gecli.report.inspect.model_document import model_view

        return model_view(subject, store)
    if name == "summary":
        from gecli.report.inspect.summary import summary_view

        return summary_view(subject, _target(options), recursive=options.flag("recursive"))
    if name == "partitions":
        from gecli.report.inspect.partitions import partitions_view

        return partitions_view(subject, digests=options.flag("hash"))
    if name == "hex":
        from gecli.report.inspect.hexdump import hex_view

        return hex_view(subject, options.text("hex") or "")
    if name in ("nodes", "tensors", "vars"):
        return _graph_view(name, subject, options)
    return _simple_view(name, subject)


def _graph_view(name: str, subject: Subject, options: Options) -> View:
    if name == "nodes":
        from gecli.report.inspect.nodes import NodeFilter, nodes_view

        show = frozenset((options.text("show") or "").split(",")) - {""}
        wanted = NodeFilter(options.texts("type"), options.texts("name"), options.text("graph-name"), show)
        return nodes_view(subject, wanted)
    if name == "tensors":
        from gecli.report.inspect.tensors import tensors_view

        return tensors_view(subject, statistics=options.flag("stats"))
    from gecli.report.inspect.variables import vars_view

    return vars_view(subject, draw_map=options.flag("map"))


def _simple_view(name: str, subject: Subject) -> View:
    if name == "info":
        from gecli.report.inspect.model_info import info_view

        return info_view(subject)
    if name == "atc-json":
        from gecli.report.inspect.atc_document import atc_document
        from gecli.report.inspect.model_document import open_fields

        subject.model()  # its problems are the warnings
        subject.forget_model()
        return View("atc-json", atc_document(open_fields(subject)))
    if name == "io":
        from gecli.report.inspect.interface import io_view

        return io_view(subject)
    if name == "options":
        from gecli.report.inspect.recorded_options import options_view

        return options_view(subject)
    from gecli.report.inspect.task_list import kernels_view, tasks_view

    return tasks_view(subject) if name == "tasks" else kernels_view(subject)


def _warnings(subject: Subject, options: Options, path: str, place: str) -> list[Diagnostic]:
    """The reader's warnings under the name that the user typed; errors with --strict."""
    severity = "error" if options.flag("strict") else "warning"
    if options.flag("strict"):
        _check_all(subject)
    found = [_renamed(warning, path, place) for warning in subject.warnings]
    if options.flag("salvage"):
        found = [_without_salvage(warning) for warning in found]
    told = (each if _is_fixed(each) else replace(each, severity=_severity(each, severity)) for each in found)
    return [_explained(each) for each in told]


def _explained(fault: Diagnostic) -> Diagnostic:
    """A warning with the cause and the remedy of the catalogue, which an error has by itself.

    Where a file can be shown, --salvage shows no more.
    """
    from gecli.error_catalog import entry_of

    entry = entry_of(fault.code)
    if fault.severity != "warning" or entry is None:
        return fault
    remedy = COPY_AGAIN if "--salvage" in entry.remedy else entry.remedy
    return replace(fault, why=fault.reason() or entry.cause, do=fault.do or remedy)


def _is_fixed(fault: Diagnostic) -> bool:
    """Notes stay notes; what a view could not do is an error; a newer version is a warning whatever --strict says."""
    return fault.severity != "warning" or fault.code == "G3005"


def _severity(fault: Diagnostic, usual: str) -> str:
    """A view that shows the rest of a file whose model cannot be read ends with an error all the same."""
    return "error" if fault.code == "G3010" or (fault.code == "G3004" and fault.where == "MODEL_DEF") else usual


def _statuses(problems: Iterable[Diagnostic]) -> list[int]:
    """0, and the exit statuses of the errors."""
    return [0, *(each.exit_status for each in problems if each.severity == "error")]


def _check_all(subject: Subject) -> None:
    """Read every part, so that --strict finds what is wrong in those that the view does not show."""
    from gecli.report.inspect.inner_models import check_everything

    check_everything(subject)


def _salvaged(error: InputError, options: Options, path: str, place: str, screen: Screen, out: Output) -> int:
    view, found = _rest_of(error, options, path, place)
    if view is None:
        raise found from error
    out.write(view, [each.as_json() for each in found.diagnostics])
    screen.report(found.diagnostics)
    return found.exit_status


def _rest_of(error: InputError, options: Options, path: str, place: str) -> tuple[View | None, InputError]:
    """The error of a file and, with --salvage, what can be shown of it all the same.

    That is the view that was asked for where its part of the file is whole, else an overview of what is left.
    """
    found = _named(error, path, place)
    if not options.flag("salvage"):
        return None, found
    rest = _salvage(path, place)
    if rest is None:
        return None, _with_salvage_given(found)
    from gecli.report.inspect.stored_data import no_data

    asked = options.texts("extract") or any(options.get(name) for name in VIEWS if name != "summary")
    view = None
    if asked:
        try:
            view = _view_or_files(rest.subject, options, no_data)
            errors = [each for each in rest.subject.warnings if each.severity == "error"]
            found = _joined(found.diagnostics, errors)
        except InputError as further:
            found = _joined(found.diagnostics, _named(rest.explained(further), path, place).diagnostics)
    return view or rest.overview(), _with_salvage_given(found)


def _salvage(path: str, place: str) -> Salvage | None:
    """What is left of the file; None where it is no OM, or cannot even be opened."""
    from gecli.report.inspect.salvage import salvage

    try:
        return salvage(path, place)
    except InputError:
        return None


def _with_salvage_given(error: InputError) -> InputError:
    """The error whose remedies do not name --salvage, which was given already."""
    told = InputError.of(_without_salvage(each) for each in error.diagnostics)
    assert isinstance(told, InputError)
    return told


def _without_salvage(diagnostic: Diagnostic) -> Diagnostic:
    """The diagnostic with another remedy where that of the catalogue names --salvage."""
    if diagnostic.do or "--salvage" not in _remedy(diagnostic):
        return diagnostic
    return replace(diagnostic, do=COPY_AGAIN)


def _remedy(diagnostic: Diagnostic) -> str:
    from gecli.error_catalog import entry_of

    entry = entry_of(diagnostic.code)
    return "" if entry is None else entry.remedy


def _joined(first: Sequence[Diagnostic], second: Sequence[Diagnostic]) -> InputError:
    joined = InputError.of([*first, *(each for each in second if each not in first)])
    assert isinstance(joined, InputError)
    return joined


def _named(error: InputError, path: str, place: str) -> InputError:
    """The error under the name that the user typed."""
    if path == place:
        return error
    found = InputError.of(_renamed(each, path, place) for each in error.diagnostics)
    assert isinstance(found, InputError)
    return found


def _renamed(diagnostic: Diagnostic, path: str, place: str) -> Diagnostic:
    if path == place:
        return diagnostic
    return replace(
        diagnostic,
        message=diagnostic.message.replace(place, path),
        where=diagnostic.where.replace(place, path),
        do=diagnostic.do.replace(place, path),
        file=path,
    )


@contextmanager
def _placed(path: str) -> Iterator[str]:
    """Where the bytes of a file are: standard input is copied to a temporary file, which views can read at random."""
    if path != STDIN:
        yield path
        return
    from tempfile import NamedTemporaryFile, TemporaryFile, gettempdir

    unnamed = os.path.isdir(OPEN_FILES)  # a file without a name is not left behind, whatever ends the process
    with TemporaryFile() if unnamed else NamedTemporaryFile(prefix="gecli-stdin-") as copy:
        try:
            while block := sys.stdin.buffer.read(COPY_BYTES):
                copy.write(block)
            copy.flush()
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            raise OutputError(
                "G6002", "no space left for a copy of standard input", where=gettempdir(), why=error.strerror or "",
                do="name the file in place of -, or export TMPDIR=DIRECTORY, one with more space",
            ) from error  # fmt: skip
        yield os.path.join(OPEN_FILES, str(copy.fileno())) if unnamed else copy.name


# ---------------------------------------------------------------- output


class Output:
    """Where the view goes: standard output, or the file of -o."""

    def __init__(self, screen: Screen, write: Any, *, is_file: bool) -> None:
        self.screen = screen
        self._write = write
        self.is_file = is_file

    def write(self, view: View, warnings: list[dict[str, Any]]) -> None:
        """The whole view, as JSON or as text."""
        if view.name == "atc-json":
            self.document(view.document)
        elif self.screen.json:
            self.document({**view.full_document(), "warnings": warnings})
        else:
            for block in view.blocks:
                if isinstance(block, Table):
                    self.table(block)
                elif isinstance(block, str):
                    self.text(block)
                else:
                    self.lines(block)

    def text(self, line: str) -> None:
        self._write(line + "\n")

    def table(self, table: Table) -> None:
        stdout = self.screen.stdout
        drawn = not self.is_file and stdout.isatty() and self.screen.colored(stdout)
        if drawn and not table.is_longer_than(DRAWN_ROWS):
            from gecli.report.inspect.rich_table import print_table

            if print_table(table, stdout):
                return
        self.lines(table.lines())

    def lines(self, lines: Iterable[str]) -> None:
        """Many at once: standard output may write at every line end."""
        left = iter(lines)
        while some := list(islice(left, LINES_AT_ONCE)):
            self.text("\n".join(some))

    def document(self, content: Mapping[str, Any]) -> None:
        self.screen.document_printed = self.screen.document_printed or not self.is_file
        encoding = "utf-8" if self.is_file else (self.screen.stdout.encoding or "ascii")
        ascii_only = encoding.lower().replace("-", "") != "utf8"
        try:
            some: list[str] = []
            length = 0
            for chunk in json_chunks(content, ascii_only=ascii_only):
                some.append(chunk)
                length += len(chunk)
                if length > CHARACTERS_AT_ONCE:
                    self._write("".join(some))
                    some, length = [], 0
            self._write("".join(some))
        except WireError as error:
            raise InputError("G3004", f"MODEL_DEF is damaged: {error}", kind="bad-proto", where="MODEL_DEF") from error
        self._write("\n")

    def chunks_into(self, entry: dict[str, Any]) -> None:
        """Make the lists of a document now, while its file is open."""
        import json

        entry["document"] = json.loads("".join(json_chunks(entry["document"])))


def _together(options: Options) -> AbstractContextManager[None]:
    """With -o FILE all files appear at once. Else a reader of stdout that goes takes no file away."""
    if options.text("output") in (None, "", STDIN):
        return nullcontext()
    from gecli.artifacts.publish import published_together

    return published_together()


@contextmanager
def _store(options: Options) -> Iterator[Store]:
    """What happens to the data that the document of --json describes."""
    from gecli.report.inspect.stored_data import DataFile, base64_data, no_data

    target = options.text("data-file")
    if not target:
        yield base64_data if options.flag("embed-data") else no_data
        return
    from gecli.artifacts.publish import publishing

    with publishing(target) as stream:
        yield DataFile(os.path.basename(target), stream.write).store


@contextmanager
def _output(options: Options, screen: Screen) -> Iterator[Output]:
    target = options.text("output")
    if not target or target == STDIN:
        yield Output(screen, _stdout_writer(screen.stdout), is_file=False)
        return
    from gecli.artifacts.publish import after_publication, publishing

    with publishing(target) as stream:
        yield Output(screen, lambda text: stream.write(text.encode("utf-8", "backslashreplace")), is_file=True)
    after_publication(partial(screen.say, f"wrote {os.fspath(target)}", level=1))


def _stdout_writer(stdout: TextIO) -> Any:
    """Characters that the encoding lacks become escapes."""

    def write(text: str) -> None:
        text = escape_halves(text)
        try:
            stdout.write(text)
        except UnicodeEncodeError:
            encoding = stdout.encoding or "ascii"
            stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))

    return write
