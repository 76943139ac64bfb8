"""The in-process cache of single-operator models keeps GE's rules, and ages what is not pinned."""

from __future__ import annotations

import threading

import pytest

from gecli.cache.op_model_cache import FUZZ_DYNAMIC, OpModel, OpModelCache, next_model_id


def model(key: str = "", **fields: object) -> OpModel:
    return OpModel("Add", b"om", 2, cache_key=key, **fields)  # type: ignore[arg-type]  # fields of the class


def test_an_id_is_taken_once() -> None:
    cache = OpModelCache()
    assert cache.add(1, model("a"))
    assert not cache.add(1, model("b"))
    found = cache.get_op_model(1)
    assert found is not None
    assert (found.cache_key, found.id) == ("a", 1)


def test_ids_of_the_process_count_up() -> None:
    first = next_model_id()
    assert next_model_id() == first + 1


def test_the_record_that_is_given_is_a_copy() -> None:
    cache = OpModelCache()
    cache.add(1, model())
    found = cache.get_op_model(1)
    assert found is not None
    found.data = b""
    again = cache.get_op_model(1)
    assert again is not None and again.data == b"om"


def test_an_unknown_id_is_none_or_failure_but_can_be_deleted() -> None:
    cache = OpModelCache()
    assert cache.get_op_model(7) is None
    assert cache.get_cache_mutex(7) is None
    assert cache.get_rt2_executor(7) is None
    assert cache.create_cached_executor(7, 0, lambda each: each) is None
    assert not cache.update_cached_executor(7, object())
    assert not cache.unload_cached_model_data(7)
    assert cache.delete(7)
    assert cache.clean_cached_executor(0)


def test_the_bytes_can_go_and_the_record_stays() -> None:
    cache = OpModelCache()
    cache.add(1, model())
    assert cache.unload_cached_model_data(1)
    found = cache.get_op_model(1)
    assert found is not None
    assert (found.data, found.size_bytes, found.name) == (b"", 0, "Add")


def test_executors_are_made_once_for_each_stream_and_go_with_it() -> None:
    cache = OpModelCache()
    cache.add(1, model())
    cache.add(2, model())
    made: list[int] = []

    def make(each: OpModel) -> object:
        made.append(each.id)
        return object()

    first = cache.create_cached_executor(1, "s", make)
    assert cache.create_cached_executor(1, "s", make) is first
    assert cache.create_cached_executor(1, "t", make) is not first
    cache.create_cached_executor(2, "s", make)
    assert made == [1, 1, 2]
    assert cache.clean_cached_executor("s")
    cache.create_cached_executor(1, "t", make)
    cache.create_cached_executor(1, "s", make)
    assert made == [1, 1, 2, 1]


def test_what_computes_the_same_is_not_added_again() -> None:
    cache = OpModelCache()
    assert cache.add(1, model("a"))
    assert not cache.add(2, model("a"))
    assert (len(cache), cache.id_of("a"), cache.id_of("b")) == (1, 1, None)
    assert (cache.counters.hits, cache.counters.misses) == (0, 0)
    cache.delete(1)
    assert cache.add(2, model("a"))
    assert cache.find("a") == 2


def test_the_shared_executor_is_the_one_that_was_set() -> None:
    cache = OpModelCache()
    cache.add(1, model())
    executor = object()
    assert cache.get_rt2_executor(1) is None
    assert cache.update_cached_executor(1, executor)
    assert cache.get_rt2_executor(1) is executor


def test_the_model_that_was_not_used_for_the_longest_time_is_aged() -> None:
    gone: list[tuple[str, int]] = []
    cache = OpModelCache(
        2,
        unload_static=lambda each: gone.append(("static", each.id)),
        unload_dynamic=lambda each: gone.append(("dynamic", each.id)),
    )
    cache.add(1, model("a"))
    cache.add(2, model("b", fuzz=FUZZ_DYNAMIC))
    assert cache.find("a") == 1
    cache.add(3, model("c"))
    assert gone == [("dynamic", 2)]
    assert cache.find("b") is None
    cache.add(4, model("d"))
    assert gone == [("dynamic", 2), ("static", 1)]
    assert (cache.counters.hits, cache.counters.misses, cache.counters.evictions) == (1, 1, 2)


def test_pinned_models_are_never_aged() -> None:
    cache = OpModelCache(1)
    for number in range(1, 4):
        cache.add(number, model(f"p{number}", is_pinned=True))
    cache.add(4, model("a"))
    cache.add(5, model("b"))
    assert [cache.get_op_model(number) is not None for number in range(1, 6)] == [True, True, True, False, True]


def test_nothing_is_left_after_cleaning() -> None:
    cache = OpModelCache(1)
    cache.add(1, model("a"))
    cache.clean_cached_models()
    assert len(cache) == 0 and cache.find("a") is None
    cache.add(2, model("b"))
    assert cache.counters.evictions == 0


def test_a_cache_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="a cache of 0 models"):
        OpModelCache(0)


def test_many_threads_leave_it_whole() -> None:
    cache = OpModelCache(8)
    faults: list[Exception] = []

    def work(seed: int) -> None:
        try:
            for step in range(300):
                key = f"k{(seed * 7 + step) % 20}"
                if cache.find(key) is None:
                    cache.add(next_model_id(), model(key))
                if step % 50 == 0:
                    cache.clean_cached_models()
        except Exception as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert len(cache) <= 8
