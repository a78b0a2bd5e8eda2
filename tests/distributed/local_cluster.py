"""Several processes on this machine that form a TensorFlow cluster, for tests.

Processes are waited for, never slept for, and none outlives the ``with`` block, whatever happens.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

# Reached only if something hangs: a busy machine may take minutes for what takes seconds here.
PATIENCE = 600.0


class LocalCluster:
    """Runs one Python command line in each of several processes, worker by worker.

    :param arguments: what follows ``python``.
    :param num_workers: number of processes; with one there is no TF_CONFIG.
    :param logs: directory for what the processes print.
    """

    def __init__(self, arguments: Sequence[str], num_workers: int, logs: Path) -> None:
        self.arguments = arguments
        self.num_workers = num_workers
        self.logs = logs
        self.processes: list[subprocess.Popen] = []

    def __enter__(self) -> "LocalCluster":
        ports = free_ports(self.num_workers)
        workers = [f"127.0.0.1:{port}" for port in ports]
        for index in range(self.num_workers):
            task = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
            environment = {
                **os.environ,
                "CUDA_VISIBLE_DEVICES": "",
                "TF_CPP_MIN_LOG_LEVEL": "3",
                "TF_NUM_INTRAOP_THREADS": "1",
                "PYTHONUNBUFFERED": "1",
                "no_proxy": "127.0.0.1",
            }
            if self.num_workers > 1:
                environment["TF_CONFIG"] = json.dumps(task)
            with self.log(index).open("w") as log:
                process = subprocess.Popen(
                    [sys.executable, "-W", "ignore", *self.arguments],
                    env=environment,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            self.processes.append(process)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for index in range(self.num_workers):
            self.kill(index)

    def log(self, index: int) -> Path:
        return self.logs / f"worker-{index}.log"

    def output(self, index: int = 0) -> str:
        return self.log(index).read_text(errors="replace")

    def kill(self, index: int) -> None:
        """End a worker and its children with SIGKILL."""
        process = self.processes[index]
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds; a worker that fails before that fails the test."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            codes = [process.poll() for process in self.processes]
            logs = "\n".join(self.output(i)[-3000:] for i in range(self.num_workers))
            assert not any(codes), f"A worker ended early, with {codes}:\n{logs}"
            assert time.monotonic() < deadline, f"The cluster hangs:\n{logs}"
            time.sleep(0.05)

    def finish(self) -> None:
        """Wait until all workers have ended well."""
        self.wait_for(lambda: all(process.poll() == 0 for process in self.processes))


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on; all held at once, so that they differ."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()
