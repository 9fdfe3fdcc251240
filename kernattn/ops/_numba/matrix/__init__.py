"""The matrix unit: products of bfloat16 with sums in float32, by AMX's tiles, which may be emulated, or by pairs."""
