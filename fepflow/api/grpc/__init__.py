"""The gRPC interface. `import grpc` means gRPC's own library, in here, too: imports are absolute."""

import os

# gRPC's core reads this once, when it is loaded. Its lines tell of what callers do, as often as they do it: one for
# each compressed message and each failed handshake. Errors of ours are in our log.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
