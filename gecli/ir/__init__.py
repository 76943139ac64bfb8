"""The intermediate representation: graphs, nodes, tensor descriptors, data types, formats and weights.

`gecli.ir.graph` imports networkx; readers that need no graph surgery (inspect-om, run) import the modules they
need and leave it out.
"""
