"""Reason codes: why an entry was not used (cache.md 12.6). Stable; scripts and reports use them."""

from __future__ import annotations

REASONS: dict[str, str] = {
    "disabled": "the cache is off",
    "no_entry": "no entry for this key",
    "refresh": "--cache-mode refresh skips the look-up",
    "debug_mode": "debug mode compiles anyway",
    "index_corrupt": "the index of the key cannot be read",
    "index_entry_invalid": "a record of the index is malformed",
    "bad_path": "a record of the index names a file that does not lie directly in the cache directory, or no .om",
    "om_missing": "the .om of the entry is missing",
    "om_corrupt": "the .om of the entry is damaged",
    "rdcpkt_missing": "the .rdcpkt of the entry is missing",
    "rdcpkt_corrupt": "the .rdcpkt of the entry is damaged",
    "sidecar_invalid": "the .gecli.json of the entry is damaged or does not belong to it",
    "fingerprint_mismatch": "the entry was compiled from something else",
    "signature_mismatch": "inputs, outputs or variables of the entry differ from the model's",
    "foreign_rejected": "the entry was made by another tool, and cache.conf rejects those",
    "manual_check_required": "the entry waits for a confirmation",
    "var_missing": "a variable that the entry needs is not known to the session",
    "var_desc_mismatch": "a variable of the session has another description than the entry's",
    "var_conflict": "a variable that the entry created or changed stands otherwise in the session already",
    "trans_road_missing": "the entry changed a variable without saying how",
    "weights_missing": "an external weight file of the entry is missing",
    "weights_corrupt": "an external weight file of the entry is damaged",
    "weights_unsafe": "the entry names a weight file outside its weight directory",
    "load_failed": "the .om of the entry cannot be delivered",
    "lock_timeout": "the lock of the key was not obtained in time",
    "lock_unavailable": "the lock of the key cannot be used",
    "io_error": "the cache directory cannot be used",
    "jit_stale": "the slices belong to another graph, other options or other tools",
    "jit_corrupt": "a file of the slices is damaged",
    "jit_foreign": "the graph was cut by another tool",
    "guard_unreadable": "a compiled slice has no guard that gecli reads",
    # gecli only
    "session": "the session has external weights, or a model before this one has to be compiled first",
}
