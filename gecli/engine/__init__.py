"""The simulated AI-Core engine: which formats and data types an operator runs in, and the conversions between them."""
