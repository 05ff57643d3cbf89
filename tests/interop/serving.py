"""Starts `tilewright serve` for the clients in this folder."""

import collections
import contextlib
import re
import subprocess
import sys
import threading


@contextlib.contextmanager
def serving(program, model, *options):
    """Serves a model with one CPU worker on a free port and yields the address, such as http://127.0.0.1:4321.

    The server must end with exit code 0 after SIGTERM. If the caller fails, the server's last lines are printed.
    """
    command = [program, "serve", "--model", str(model), "--listen", "127.0.0.1:0", "--device", "cpu:1", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    log = collections.deque(maxlen=20)
    # Reads the rest of the log, so that the server never waits for a full pipe.
    reader = threading.Thread(target=log.extend, args=[process.stderr])
    is_done = False
    try:
        found = None
        while found is None:
            line = process.stderr.readline()
            assert line, "the server ended before it listened"
            log.append(line)
            found = re.search(r"listening at (http://\S+)", line)
        reader.start()
        yield found[1]
        is_done = True
    finally:
        process.terminate()
        process.wait()
        if reader.ident is not None:
            reader.join()
        if not is_done:
            sys.stderr.write("the server's last lines:\n" + "".join(log))
    assert process.returncode == 0, f"the server ended with exit code {process.returncode}"
