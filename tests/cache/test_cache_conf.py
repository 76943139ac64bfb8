"""cache.conf: GE's rules, and gecli's own member."""

from __future__ import annotations

from pathlib import Path

import pytest

from gecli.cache.cache_conf import BrokenConf, CacheConf, parse_cache_conf, read_cache_conf


@pytest.mark.parametrize("text", ["{}", "[]", "1", '{"other": 1}'])
def test_what_says_nothing_gives_the_defaults(text: str) -> None:
    assert parse_cache_conf(text.encode()) == CacheConf()


def test_a_missing_file_gives_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "cache.conf").symlink_to(tmp_path / "nothing")
    assert read_cache_conf(str(tmp_path)) == CacheConf()


def test_the_two_switches_of_ge_are_read() -> None:
    conf = parse_cache_conf(b'{"cache_manual_check": true, "cache_debug_mode": true}')
    assert (conf.manual_check, conf.debug_mode) == (True, True)


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "x", "NaN", '{"cache_debug_mode": "failed"}', '{"cache_manual_check": 1}', '{"x": NaN}',
        '{"cache_debug_mode": null}', '{"x": -Infinity}', '{"x": ' + "1" * 5000 + "}", "[" * 100_000,
    ],
)  # fmt: skip
def test_a_broken_file_stops_the_command(text: str) -> None:
    with pytest.raises(BrokenConf):
        parse_cache_conf(text.encode())


def test_bytes_behind_the_first_value_are_only_a_warning() -> None:
    conf = parse_cache_conf(b'{"cache_debug_mode": true} trailing')
    assert (conf.debug_mode, len(conf.warnings)) == (True, 1)


def test_gecli_has_settings_of_its_own() -> None:
    conf = parse_cache_conf(b'{"gecli": {"timestamp": "ge", "max_size": "10GB", "max_age": "30d", "shared": true}}')
    assert (conf.timestamp, conf.max_size, conf.max_age, conf.shared) == ("ge", 10 << 30, 30 * 86400, True)


@pytest.mark.parametrize(
    ("member", "do"),
    [
        ('{"timestamp": "x"}', 'use "seed" or "ge"'),
        ('{"foreign_entries": "maybe"}', 'use "accept" or "warn" or "reject"'),
        ('{"max_size": 5}', 'use a text such as "10G"'),
        ('{"max_age": "long"}', 'use a text such as "30d"'),
        ('{"shared": "yes"}', "use true or false"),
        ("[]", 'an object, such as {"foreign_entries": "reject"}'),
        (
            '{"new": 1}',
            "the settings are auto_graph_key, foreign_entries, max_age, max_size, shared, timestamp",
        ),
    ],
)
def test_a_wrong_value_of_gecli_is_a_warning_with_a_cure(member: str, do: str) -> None:
    conf = parse_cache_conf(f'{{"gecli": {member}}}'.encode())
    (warning,) = conf.warnings
    assert "of cache.conf is not used: " in warning.message and warning.do == do
    assert conf._replace(warnings=()) == CacheConf()
