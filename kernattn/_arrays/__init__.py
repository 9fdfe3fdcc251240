"""Arrays of any library: namespaces, dtypes, devices, and the bridge to compiled ops."""
