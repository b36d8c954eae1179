"""The command line: arguments in, results out; everything else is `lockstep.runtime` and below."""
