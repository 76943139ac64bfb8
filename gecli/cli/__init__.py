"""The command line: parse, call, report, exit. Everything heavy is imported by the command that needs it."""
