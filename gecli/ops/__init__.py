"""Operators: everything gecli knows about one GE type is one class in a family file.

Loader, shape inference, constant folding, engine table, executor and documentation ask the same registry
(`gecli.ops.registry`).
"""
