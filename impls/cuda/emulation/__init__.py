"""`nvfp4bench emulate`: anybody's PTX, executed, checked and counted without its GPU."""
