"""The gRPC interface. `import grpc` means gRPC's own library, in here, too: imports are absolute."""

if __name__ == "grpc":
    raise ImportError(
        "The folder surfaces/ is first on sys.path, so that its grpc/ hides gRPC's library: start modules of fepflow "
        "with `python -m` from the folder above, not as files."
    )
