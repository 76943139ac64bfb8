"""Running a model slice by slice: cut at data-dependent shapes, compile each slice for what comes in (cache.md 9)."""
