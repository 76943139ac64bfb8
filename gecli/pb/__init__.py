"""Protobuf messages of the files gecli reads and writes; only `gecli.wire` uses them."""
