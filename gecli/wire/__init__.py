"""Protobuf messages to and from the IR: the only package that touches protobuf."""
