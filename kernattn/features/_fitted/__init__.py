"""Maps whose numbers are learnt from data, in arrays of NumPy."""
