"""The studies that kernattn brings: a design, what the field says, and what the records show."""
