"""Planning: a graph in, frozen plans out: feature-map memory, weights, tasks. No files are touched here."""
