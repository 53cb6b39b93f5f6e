"""The commands, one module each: parsed arguments in, exit code out.

Rules of this package:

1. The command line imports the module of the command that is asked for, and no other.
2. Everything for people and pipes goes through `console`: results to stdout, remarks to stderr.
3. Foreseen errors are raised; the command line turns them into their line and exit code.
"""
