"""The record a cache entry keeps of variables (GE: VarDescCache, VarMatchInfo), and its match with a session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gecli.ir.tensor_desc import TensorDesc
from gecli.variables.trans_road import TransRoad


@dataclass(frozen=True, slots=True)
class VarDescCache:
    """What the variable manager knew at one moment: current descs, roads, names changed and descs staged by a graph.

    The last two are filled only in the record taken after a compile.
    """

    var_desc_map: Mapping[str, TensorDesc] = field(default_factory=dict)
    var_trans_roads_map: Mapping[str, TransRoad] = field(default_factory=dict)
    changed_var_names: tuple[str, ...] = ()
    staged_var_desc_map: Mapping[str, TensorDesc] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VarMatch:
    """The content of an `.rdcpkt`: the manager before and after the compile."""

    before: VarDescCache
    after: VarDescCache

    @property
    def is_empty(self) -> bool:
        """True when no file is written for it."""
        return not self.before.var_desc_map and not self.after.var_desc_map
