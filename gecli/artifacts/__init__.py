"""Byte layouts: OM file, variable records, kernel stores, and publishing them whole."""
