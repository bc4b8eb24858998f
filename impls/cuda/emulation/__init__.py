"""The project's side of the emulator: its own launches, and `nvfp4bench emulate` for anybody's PTX."""
