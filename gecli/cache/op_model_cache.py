"""The in-process cache of single-operator models (GE: OpModelCache; cache.md 10). Nothing of it is on disk."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import field, replace
from itertools import count
from threading import RLock
from typing import Any

from gecli.records import dataclass

MAX_MODELS = 20_000  # GE: aclopSetMaxOpQueueNum
NOT_FUZZ, FUZZ_STATIC, FUZZ_DYNAMIC = 0, 1, 2  # GE: the flag of a fuzzy compile

Unload = Callable[["OpModel"], None]
_ids = count(1)  # one for the whole process, as in GE


def next_model_id() -> int:
    """An id that no model of this process has."""
    return next(_ids)


@dataclass(slots=True, eq=False)
class OpModel:
    """One registered model. `is_pinned`: it was loaded from a file and is never aged."""

    name: str
    data: bytes = b""
    size_bytes: int = 0
    fuzz: int = NOT_FUZZ
    cache_key: str = ""
    profiling_index: int = 0
    is_pinned: bool = False
    id: int = 0
    executor: Any = None  # shared by all streams
    executors: dict[Hashable, Any] = field(default_factory=dict)  # of single streams
    mutex: Any = None


@dataclass(slots=True)
class Counters:
    """What happened since the cache was made."""

    hits: int = 0
    misses: int = 0
    evictions: int = 0


class OpModelCache:
    """Models by id, and by the key of what they compute; all methods exclude each other.

    `max_models` limits those that are not pinned: adding one more lets the one that was not used for the longest time
    go. `unload_static` and `unload_dynamic` are told of models that leave.
    """

    def __init__(
        self,
        max_models: int = MAX_MODELS,
        *,
        unload_static: Unload | None = None,
        unload_dynamic: Unload | None = None,
    ) -> None:
        if max_models < 1:
            raise ValueError(f"a cache of {max_models} models is none")
        self.max_models = max_models
        self.counters = Counters()
        self._lock = RLock()
        self._models: dict[int, OpModel] = {}  # the one that was not used for the longest time first
        self._by_key: dict[str, int] = {}
        self._unpinned = 0
        self._unload_static = unload_static
        self._unload_dynamic = unload_dynamic

    def __len__(self) -> int:
        return len(self._models)

    def add(self, model_id: int, model: OpModel) -> bool:
        """Register a model; False, and nothing changes, when the id is taken or another model computes the same."""
        with self._lock:
            if model_id in self._models or (model.cache_key and model.cache_key in self._by_key):
                return False
            if not model.is_pinned and self._unpinned >= self.max_models:
                self._evict()
            model.id, model.mutex = model_id, RLock()
            self._models[model_id] = model
            self._unpinned += not model.is_pinned
            if model.cache_key:
                self._by_key[model.cache_key] = model_id
            return True

    def find(self, cache_key: str) -> int | None:
        """The id of the model that computes this; a hit makes it the last to be aged."""
        with self._lock:
            found = self._by_key.get(cache_key)
            if found is None:
                self.counters.misses += 1
                return None
            self.counters.hits += 1
            self._models[found] = self._models.pop(found)
            return found

    def id_of(self, cache_key: str) -> int | None:
        """The id of the model that computes this; no use of it, and not counted."""
        with self._lock:
            return self._by_key.get(cache_key)

    def get_op_model(self, model_id: int) -> OpModel | None:
        """A copy of the record; None for an unknown id."""
        with self._lock:
            found = self._models.get(model_id)
            return None if found is None else replace(found, executors=dict(found.executors))

    def delete(self, model_id: int, *, is_dynamic: bool = False) -> bool:
        """Remove and unload a model. An id that is unknown is gone already, which is a success."""
        with self._lock:
            found = self._forget(model_id)
            unload = self._unload_dynamic if is_dynamic else self._unload_static
            if found is not None and unload is not None:
                unload(found)
            return True

    def get_cache_mutex(self, model_id: int) -> Any:
        """The lock of one model; None for an unknown id."""
        with self._lock:
            found = self._models.get(model_id)
            return None if found is None else found.mutex

    def get_rt2_executor(self, model_id: int) -> Any:
        """The executor that all streams share; None when there is none."""
        with self._lock:
            found = self._models.get(model_id)
            return None if found is None else found.executor

    def update_cached_executor(self, model_id: int, executor: Any) -> bool:
        """Set the shared executor; False for an unknown id."""
        with self._lock:
            found = self._models.get(model_id)
            if found is None:
                return False
            found.executor = executor
            return True

    def unload_cached_model_data(self, model_id: int) -> bool:
        """Drop the bytes of a model, which stays registered; False for an unknown id."""
        with self._lock:
            found = self._models.get(model_id)
            if found is None:
                return False
            found.data, found.size_bytes = b"", 0
            return True

    def create_cached_executor(self, model_id: int, stream: Hashable, make: Callable[[OpModel], Any]) -> Any:
        """The executor of a model for a stream, made at the first call; None for an unknown id."""
        with self._lock:
            found = self._models.get(model_id)
            if found is None:
                return None
            if stream not in found.executors:
                found.executors[stream] = make(found)
            return found.executors[stream]

    def clean_cached_executor(self, stream: Hashable) -> bool:
        """Drop the executors of a stream from every model."""
        with self._lock:
            for model in self._models.values():
                model.executors.pop(stream, None)
            return True

    def clean_cached_models(self) -> None:
        """Forget everything. GE takes no lock here; a run in another thread would lose its model."""
        with self._lock:
            self._models.clear()
            self._by_key.clear()
            self._unpinned = 0

    def _evict(self) -> None:
        for model_id, model in self._models.items():
            if not model.is_pinned:
                self.counters.evictions += 1
                self.delete(model_id, is_dynamic=model.fuzz == FUZZ_DYNAMIC)
                return

    def _forget(self, model_id: int) -> OpModel | None:
        found = self._models.pop(model_id, None)
        if found is not None:
            self._unpinned -= not found.is_pinned
            if self._by_key.get(found.cache_key) == model_id:
                del self._by_key[found.cache_key]
        return found
