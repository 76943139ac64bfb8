"""Variables at compile time (GE: VarManager): keys, memory, roads, sessions of several graphs, cache matching."""
