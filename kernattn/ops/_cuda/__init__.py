"""What the CUDA siblings share: headers, launches, constants on a device, maps and rows as kernels take them."""
