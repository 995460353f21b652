"""The emulated host around a scratch nginx."""
