"""The simulated runtime: loading OM files, variables at logical addresses, a flat program of numpy steps."""
