"""--if-changed: whether an output already is what this compile would write (cli.md 1.11)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gecli.cache.fingerprint import Fingerprint
from gecli.compiler.job import STDIO, Job
from gecli.compiler.result import ModelResult, OutputFile
from gecli.errors import GecliError
from gecli.loading import LoadedModel
from gecli.options.values import Options

if TYPE_CHECKING:
    from gecli.wire.model_record import ModelRecord

NEEDS_PACKET = ("Variable", "VariableV2", "Constant", "FileConstant", "ConstPlaceHolder")


def is_up_to_date(job: Job, digest: Fingerprint, weights: str) -> bool:
    """True when the OM was made from the same source by this version, and what it needs beside it is there.

    That is its packet, and the files of external weights in the directory `weights`. An OM that cannot be read is not
    up to date.
    """
    if job.om_path == STDIO or not os.path.isfile(job.om_path):
        return False
    from gecli.artifacts.om_file import read_om

    try:
        om = read_om(job.om_path)
        if om.verify_checksum() is not None:
            return False
        model = om.model()
    except GecliError:
        return False
    if model.root.attrs.get("_gecli_fp") != digest.source or any(p.severity == "error" for p in model.problems):
        return False
    needs = {node.type for graph in model.graphs for node in graph.nodes}.intersection(NEEDS_PACKET)
    if needs and not os.path.isfile(job.rdcpkt_path):
        return False
    return "FileConstant" not in needs or _has_weights(model, weights)


def _has_weights(model: ModelRecord, folder: str) -> bool:
    from gecli.cache.weight_files import BadWeightRow, damaged_weight, weights_of_model

    try:
        return damaged_weight(folder, weights_of_model(model)) is None
    except BadWeightRow:
        return False


def up_to_date_result(job: Job, loaded: LoadedModel, options: Options) -> ModelResult:
    """The report of an output that was left as it is."""
    result = ModelResult(job.source, loaded.front_end, OutputFile(job.om_path, os.path.getsize(job.om_path)))
    result.up_to_date = True
    result.options = options.records()
    result.session = options.text("session") or "default"
    result.files_read = list(loaded.files)
    result.warnings = list(loaded.warnings)
    if os.path.isfile(job.rdcpkt_path):
        result.rdcpkt = OutputFile(job.rdcpkt_path, os.path.getsize(job.rdcpkt_path))
    return result
