"""Graph passes: one file a pass, one table of all of them in GE's order (`gecli.passes.registry`)."""
