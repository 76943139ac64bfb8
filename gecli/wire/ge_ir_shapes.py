"""Where ModelDef may hold large byte fields: the data of tensors in attributes."""

from __future__ import annotations

from gecli.wire.walker import Shape

TENSOR = Shape(large={2: (15001, 15002)})
DESC = Shape()
NAMED_ATTRS = Shape()
LIST = Shape(children={8: DESC, 9: TENSOR, 11: NAMED_ATTRS})
ATTR = Shape(children={1: LIST, 10: NAMED_ATTRS, 11: DESC, 12: TENSOR})
ATTR_ENTRY = Shape(children={2: ATTR})
DESC.children[5] = ATTR_ENTRY
TENSOR.children[1] = DESC
NAMED_ATTRS.children[2] = ATTR_ENTRY
OP = Shape(children={10: ATTR_ENTRY, 33: DESC, 34: DESC})
GRAPH = Shape(children={6: OP, 11: ATTR_ENTRY})
MODEL = Shape(children={7: GRAPH, 11: ATTR_ENTRY})
