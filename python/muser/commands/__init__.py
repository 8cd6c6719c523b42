"""The commands of `muser`, one module each: `add` defines the arguments, `run` does the work."""
