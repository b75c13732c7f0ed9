"""Run one shell command that nobody trusts on a folder of files, and return the folder after it.

The folder travels as a tar archive and exists only while the command runs: in a file system in
memory, in mount, process, network and (unless root runs this) user namespaces of its own. The
command sees that folder, the system's programs and this Python, all but the folder read-only; no
network, no other process, no ``/proc``, no other file, no variable of the caller. It has no
capability, cannot gain one, and is limited in time, memory, processes, files and output. Its
processes end with it. The kernel is shared: that is weaker than a virtual machine.
"""

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from ascribe.steps.errors import AscribeError, InputError

SECONDS = 30
"""Time that a command may take. A busy machine takes many times what a command needs."""
MOST_BYTES = 16_000_000
"""Of the folder and the output together."""
NOBODY = "65534"

PLACES = ("/usr", "/bin", "/lib", "/lib64", "/etc/alternatives")
LIMITS = "--cpu=5 --as=500000000 --fsize=1000000 --nproc=32 --nofile=256 --core=0"
SCRIPT = f"""
set -eu
spare=$1 folder=$2 command=$3 user=$4 path=$5 places=("${{@:6}}")
mount -t tmpfs -o size={MOST_BYTES},nr_inodes=4k,mode=755 tmpfs "$spare"
root=$spare/root
mkdir -p "${{places[@]/#/$root}}" "$root/dev" "$root/tmp"
chmod 1777 "$root/tmp"
for place in "${{places[@]}}"; do mount --rbind -o ro "$place" "$root$place"; done
for device in null zero urandom; do
    : > "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
tar x --no-same-owner -C "$root"
chown -R "${{user:-0}}" "$root/$folder"
set +e
timeout -s KILL {SECONDS} chroot "$root" prlimit {LIMITS} \
    setpriv ${{user:+--reuid $user --regid $user --clear-groups}} \
    --inh-caps=-all --bounding-set=-all --no-new-privs \
    env -C "/$folder" PATH="$path" HOME=/tmp bash -c "$command" > "$spare/output" 2>&1 < /dev/null
echo $? > "$spare/code"
kill -9 -1 # what the command left running: this is process 1 of its namespace
tar c --hard-dereference --mtime=@1767225600 -C "$spare" code output -C "$root" "$folder" \
    | head -c {MOST_BYTES}
"""


class SandboxError(AscribeError, RuntimeError):
    """A command could not be confined, so it was not run."""


class Ran(NamedTuple):
    """What came of a command."""

    code: int
    output: str
    folder: bytes
    """The folder afterwards, as a tar archive."""
    files: dict[str, bytes]
    """Its regular files by path, without those of git."""


def run(command: str, folder: bytes, name: str, variables: Mapping[str, str]) -> Ran:
    """Run a command with bash in a folder.

    Args:
        command: what to run; killed after 30 seconds.
        folder: the files, as a tar archive of paths that begin with ``name``.
        name: where the folder is to stand, such as ``tmp/work``.
        variables: the environment variables; there are no others but PATH and HOME.

    Raises:
        SandboxError: if the system does not allow to confine it, or it filled the folder.
    """
    root = os.geteuid() == 0
    flags = ["--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child"]
    places = dict.fromkeys((*PLACES, sys.base_prefix, sys.prefix))
    # A place inside another one is there already, and some systems have no /lib64.
    kept = [
        place
        for place in places
        if Path(place).is_dir() and not any(place.startswith(f"{other}/") for other in places)
    ]
    path = f"{sys.prefix}/bin:/usr/bin:/bin"
    with TemporaryDirectory() as spare:
        words = [spare, name, command, NOBODY if root else "", path]
        script = ["bash", "-c", SCRIPT, "sandbox", *words, *kept]
        try:
            done = subprocess.run(
                ["unshare", *flags, *([] if root else ["--map-root-user"]), "--", *script],
                input=folder,
                capture_output=True,
                timeout=SECONDS + 20,
                check=False,
                env={**variables, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SandboxError(f"the sandbox did not start or end: {error}") from error
    if done.returncode or not done.stdout:
        message = done.stderr.decode(errors="replace").strip()[-300:]
        raise SandboxError(f"the sandbox failed: {message or f'exit code {done.returncode}'}")
    try:
        return _ran(done.stdout, name)
    except (tarfile.TarError, EOFError, KeyError, ValueError) as error:
        raise SandboxError(f"the folder cannot be read back: {error}") from error


def _ran(archive: bytes, name: str) -> Ran:
    contents: dict[str, bytes] = {}
    folder = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive)) as tar,
        tarfile.open(fileobj=folder, mode="w") as kept,
    ):
        if not tar.getmember(name).isdir():
            raise InputError("it is no folder any more")
        for member in tar:
            data = tar.extractfile(member) if member.isreg() else None
            if member.name.startswith(name):
                kept.addfile(member, data)
            if data is not None:
                data.seek(0)
                contents[member.name] = data.read()
    code, output = int(contents.pop("code")), contents.pop("output").decode(errors="replace")
    files = {path.removeprefix(f"{name}/"): data for path, data in contents.items()}
    shown = {path: data for path, data in files.items() if not path.startswith(".git/")}
    return Ran(code, output, folder.getvalue(), shown)


def pack(files: Mapping[str, str], name: str) -> bytes:
    """A tar archive of text files in a folder."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path, text in files.items():
            member = tarfile.TarInfo(f"{name}/{path}")
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return archive.getvalue()


@cache
def check_sandbox() -> None:
    """Raise a SandboxError unless commands can be confined here."""
    try:
        done = run("git --version", pack({"empty": ""}, "tmp/check"), "tmp/check", {})
        if done.code:
            raise SandboxError(done.output)
    except SandboxError as error:
        raise SandboxError(
            "repository runs commands that a model writes, and they cannot be confined here: "
            f"{error}",
            hint=(
                "it needs Linux with unprivileged user namespaces, or root with "
                "CAP_SYS_ADMIN, and the programs unshare, setpriv, prlimit, tar and git"
            ),
        ) from error
