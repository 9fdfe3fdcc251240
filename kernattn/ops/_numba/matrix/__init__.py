"""The matrix unit: products of tiles of bfloat16 with sums in float32, by Intel's AMX or emulated bit for bit."""
