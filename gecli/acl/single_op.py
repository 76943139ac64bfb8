"""One operator at a time: compiled at its first use, kept in the process by what it computes (GE: aclopExecuteV2)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecli.cache.digest import digest_of_json
from gecli.cache.op_model_cache import FUZZ_DYNAMIC, MAX_MODELS, NOT_FUZZ, OpModel, OpModelCache, next_model_id
from gecli.cache.stat_index import StatIndex
from gecli.compiler.api import fingerprint, image_of, new_session
from gecli.compiler.job import Job
from gecli.compiler.single_op import MODEL_OP_TYPE
from gecli.errors import InputError, InvalidOption
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.loading import LoadedModel
from gecli.loading.single_op import single_op_of
from gecli.ops.registry import find
from gecli.options.resolution import resolve
from gecli.options.table import find_flag
from gecli.runtime.model import LoadedModel as Executor
from gecli.runtime.session import Session

Array = NDArray[Any]
DEFAULT_STREAM = 0
_WORDS = {bool: "bool", int: "int", float: "float", str: "string", DataType: "data_type"}


class SingleOps:
    """Runs operators by type, inputs and attributes; equal operators are compiled once.

    `options` are those of `gecli compile` with underscores. At most `max_models` compiled operators are kept; those
    that were loaded from files are kept as long as this object.
    """

    def __init__(self, max_models: int = MAX_MODELS, **options: str) -> None:
        self.cache = OpModelCache(max_models)
        self._options = resolve("compile", {"output": ("-",), **_keys(options)})

    def run(
        self,
        op_type: str,
        inputs: Sequence[Array | None],
        attrs: Mapping[str, Any] | None = None,
        *,
        formats: Sequence[str] = (),
        outputs: int = 0,
    ) -> list[Array]:
        """The outputs of one operator. None is an optional input that is left out.

        `formats` name the layouts of the inputs (default ND); `outputs` says how many results are wanted (default:
        all). Raises InvalidOption (E10026 to E10030) and CompileError for an operator that does not take these inputs.
        """
        arrays = [None if each is None else np.asarray(each) for each in inputs]
        entry, key = _entry(op_type, arrays, dict(attrs or {}), list(formats), outputs)
        executor, mutex = self._ready(entry, key)
        fed = [array for array, desc in zip(arrays, entry["input_desc"]) if array is not None and not _is_const(desc)]
        with mutex:
            found, _ = executor.run({tensor.name: array for tensor, array in zip(executor.inputs, fed)})
        return list(found.values())

    def load(self, path: str | os.PathLike[str]) -> int:
        """Register the OM of a single operator (`gecli compile --singleop`); returns its id. It is never aged.

        The same file again is the model that is registered already, with its id.

        Raises InputError for a file that is no such OM.
        """
        executor = Session().load(path)
        name = executor.attrs.get(MODEL_OP_TYPE)
        if not name:
            raise InputError(
                "G3011", f"{os.fspath(path)} is not the OM of a single operator", file=os.fspath(path),
                why=f"it has no attribute {MODEL_OP_TYPE}", do="gecli compile --singleop FILE.json -o DIR/",
            )  # fmt: skip
        key = f"om {StatIndex().sha256(os.fspath(path))}"
        model_id = next_model_id()
        model = OpModel(str(name), cache_key=key, is_pinned=True)
        model.executors[DEFAULT_STREAM] = executor
        return model_id if self.cache.add(model_id, model) else self.cache.id_of(key) or model_id

    def execute(self, model_id: int, inputs: Sequence[Array]) -> list[Array]:
        """The outputs of a registered model. Raises InvalidOption for an unknown id, RuntimeFault for wrong inputs."""
        executor = self.cache.create_cached_executor(model_id, DEFAULT_STREAM, self._executor)
        mutex = self.cache.get_cache_mutex(model_id)
        if executor is None or mutex is None:
            raise InvalidOption(
                "E10001", f"there is no single-op model {model_id}", why="it was not loaded, or deleted"
            )
        with mutex:
            found, _ = executor.run({tensor.name: array for tensor, array in zip(executor.inputs, inputs)})
        return list(found.values())

    def _ready(self, entry: dict[str, Any], key: str) -> tuple[Executor, Any]:
        """What runs the operator, and the lock of its memory; again, should another thread let it age meanwhile."""
        while True:
            model_id = self.cache.find(key)
            if model_id is None:
                model_id = self._compile(entry, key)
            executor = self.cache.create_cached_executor(model_id, DEFAULT_STREAM, self._executor)
            mutex = self.cache.get_cache_mutex(model_id)
            if executor is not None and mutex is not None:
                return executor, mutex

    def _compile(self, entry: dict[str, Any], key: str) -> int:
        from io import BytesIO

        single = single_op_of(entry)
        job = Job("-", "-", single.name)
        loaded = LoadedModel(single.graph, "json", "-", ())
        session = new_session(self._options)
        digest = fingerprint(loaded, job, self._options, session)
        member = session.add(single.graph)
        session.compile_all()
        stream = BytesIO()
        image_of(member, session, loaded, job, self._options, digest).write(stream)
        assert member.compiled is not None
        data = stream.getvalue()
        fuzz = FUZZ_DYNAMIC if member.compiled.plan.is_dynamic else NOT_FUZZ
        model_id = next_model_id()
        if self.cache.add(model_id, OpModel(entry["op"], data, len(data), fuzz, key)):
            return model_id
        return self.cache.id_of(key) or model_id  # another thread was faster

    def _executor(self, model: OpModel) -> Executor:
        """Load a compiled operator; what it needs stays mapped, its file does not stay."""
        with TemporaryDirectory(prefix="gecli-op-") as folder:
            path = os.path.join(folder, f"{model.name}.om")
            with open(path, "wb") as stream:
                stream.write(model.data)
            executor = Session().load(path)
        self.cache.unload_cached_model_data(model.id)
        return executor


def _keys(options: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for name, text in options.items():
        flag = find_flag("compile", name)
        if flag is None:
            raise TypeError(f"SingleOps() has no option {name!r}")
        found[flag.option.key] = (text,)
    return found


def _entry(
    op_type: str, arrays: Sequence[Array | None], attrs: Mapping[str, Any], formats: Sequence[str], outputs: int
) -> tuple[dict[str, Any], str]:
    """The operator as an entry of a single-op file, and the key of what it computes."""
    kind = find(op_type)
    if kind is None:
        raise InvalidOption("E10026", f"operator type {op_type!r} is not known", why="the simulator has no such type")
    descs: list[dict[str, Any]] = []
    for slot, array in enumerate(arrays):
        if array is None:
            descs.append({"type": "UNDEFINED"})
            continue
        fmt = formats[slot] if slot < len(formats) else Format.ND.name
        desc = {"type": DataType.from_numpy(array.dtype).serial, "format": fmt, "shape": list(array.shape)}
        if slot in kind.shape_inputs and array.dtype.kind in "iuf":
            desc["const_value"] = array.reshape(-1).tolist()  # it decides the shape of the result
        descs.append(desc)
    listed = [{"name": name, **_attr(value)} for name, value in sorted(attrs.items())]
    entry = {"op": op_type, "input_desc": descs, "attr": listed, "outputs": outputs}
    return entry, digest_of_json([entry["op"], descs, listed, outputs])


def _attr(value: Any) -> dict[str, Any]:
    if isinstance(value, (list, tuple)):
        items = list(value)
        if items and all(isinstance(each, (list, tuple)) for each in items):
            return {"type": "list_list_int", "value": [list(each) for each in items]}
        kinds = {type(each) for each in items}
        word = "float" if kinds == {int, float} else _WORDS.get(kinds.pop(), "int") if len(kinds) == 1 else "int"
        return {"type": f"list_{word}", "value": items}
    return {"type": _WORDS.get(type(value), "string"), "value": value.serial if isinstance(value, DataType) else value}


def _is_const(desc: Mapping[str, Any]) -> bool:
    return "const_value" in desc
