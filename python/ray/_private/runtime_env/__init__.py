"""Names that programs import from here."""
