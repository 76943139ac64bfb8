"""The model cache: fingerprints, index, lock, entries, garbage collection."""
