"""What people and programs read: summaries, tables, JSON documents. rich lives here."""
