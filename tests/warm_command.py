"""A command, in a process that is forked from the one of `warm_commands.py`: SOCKET CODE ARGUMENTS…

It imports next to nothing, as it is started for each command. A signal that it gets is passed on; if it is killed, the
command is.
"""

import marshal
import os
import signal
import socket
import sys

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def main() -> None:
    """Give the order, wait for the exit code, and end in the same way."""
    _, address, code, *arguments = sys.argv
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(address)
        order = marshal.dumps((arguments, code, os.getcwd(), dict(os.environ)))
        socket.send_fds(server, [len(order).to_bytes(8)], [0, 1, 2])
        server.sendall(order)
        pid = int.from_bytes(server.recv(8))
        for number in PASSED_ON:
            signal.signal(number, lambda number, _: pass_on(pid, number))
        answer = server.recv(8)
    exit_code = int.from_bytes(answer, signed=True)
    if not answer:
        sys.exit("the process that commands are forked from has ended")
    if exit_code < 0:
        if exit_code != -signal.SIGKILL:
            signal.signal(-exit_code, signal.SIG_DFL)
        os.kill(os.getpid(), -exit_code)
    os._exit(exit_code)


def pass_on(pid: int, number: int) -> None:
    """Send the command a signal; it may have ended meanwhile."""
    try:  # noqa: SIM105  # contextlib takes as long to import as all of the rest
        os.kill(pid, number)
    except ProcessLookupError:
        pass


main()
