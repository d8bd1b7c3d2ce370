"""A Slurm cluster of one node on this machine, with everything it has in one folder.

Nothing under /etc is read or written. The node claims more cores and memory than the machine has,
and its GPUs are devices that do nothing: enough to see what is queued and which GPU a job is given.
"""

import os
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue")
SECONDS_TO_START = 30
SLURM_CONF = """\
ClusterName=ppas
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmctldPort={controller_port}
SlurmdPort={node_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
MailProg=/bin/true
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_interval=1,sched_min_interval=0,bf_interval=1,batch_sched_delay=0
GresTypes=gpu
NodeName=node NodeHostname={host} NodeAddr=127.0.0.1 CPUs=64 RealMemory=512000 Gres=gpu:{gpus}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str | None:
    """What keeps a cluster from starting here, or None."""
    absent = [program for program in PROGRAMS if shutil.which(program) is None]
    if absent:
        return f"no {', '.join(absent)}: apt-get install slurm-wlm munge"
    return "Slurm's daemons need root" if os.geteuid() else None


@contextmanager
def cluster(folder: Path, gpus: int) -> Iterator[dict[str, str]]:
    """Run a cluster in ``folder``, which must not exist; give the environment its clients need."""
    configure(folder, gpus)
    env = os.environ | {"SLURM_CONF": f"{folder}/slurm.conf"}
    env["PATH"] = f"{folder}/bin:{env['PATH']}"
    munged = [
        "munged", "--foreground", "--force",
        *(f"--{name}={folder}/munge.{name.split('-')[0]}"
          for name in ("socket", "key-file", "log-file", "pid-file", "seed-file")),
    ]  # fmt: skip
    with ExitStack() as daemons:
        daemons.enter_context(daemon(munged, env, folder))
        wait_for((folder / "munge.socket").exists, folder)
        daemons.enter_context(daemon(["slurmctld", "-D"], env, folder))
        daemons.enter_context(daemon(["slurmd", "-D", "-N", "node"], env, folder))
        wait_for(lambda: ask(env, "sinfo", "--noheader", "--format=%T") == "idle", folder)
        try:
            yield env
        finally:
            ask(env, "scancel", "--user", str(os.geteuid()))
            wait_for(lambda: not ask(env, "squeue", "--noheader"), folder)


def configure(folder: Path, gpus: int) -> None:
    """Write the cluster's files."""
    for name in ("state", "spool", "bin"):
        (folder / name).mkdir(parents=True)
    with socket.socket() as controller, socket.socket() as node:
        for held in (controller, node):
            held.bind(("127.0.0.1", 0))
        ports = {"controller_port": controller.getsockname()[1], "node_port": node.getsockname()[1]}
    host = socket.gethostname().split(".")[0]
    conf = SLURM_CONF.format(folder=folder, host=host, gpus=gpus, **ports)
    (folder / "slurm.conf").write_text(conf)
    for gpu in range(gpus):
        os.mknod(folder / f"gpu{gpu}", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    (folder / "gres.conf").write_text(f"Name=gpu File={folder}/gpu[0-{gpus - 1}]\n")
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(128))
    # The executor hides SLURM_* from the srun of a job, and with it where this cluster is.
    srun = folder / "bin" / "srun"
    srun.write_text(f'#!/bin/sh\nSLURM_CONF={folder}/slurm.conf exec {shutil.which("srun")} "$@"\n')
    srun.chmod(0o755)


@contextmanager
def daemon(command: list[str], env: dict[str, str], folder: Path) -> Iterator[None]:
    """Run a program until the end of the block; its output goes to ``folder``."""
    with (folder / f"{command[0]}.out").open("w") as out:
        process = subprocess.Popen(command, env=env, cwd=folder, stdout=out, stderr=out)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def ask(env: dict[str, str], *command: str) -> str:
    """What a client of the cluster prints."""
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def wait_for(condition, folder: Path) -> None:
    """Wait until something holds; after too long, fail with what the daemons said."""
    end = time.monotonic() + SECONDS_TO_START
    while not condition():
        if time.monotonic() > end:
            logs = [f"{path.name}:\n{path.read_text()}" for path in sorted(folder.glob("*.out"))]
            raise TimeoutError("\n".join(["Slurm does not answer", *logs]))
        time.sleep(0.1)
