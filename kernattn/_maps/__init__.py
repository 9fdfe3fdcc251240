"""Maps as plain numbers: specs, nonlinearities, chains of transforms, cotangents."""
