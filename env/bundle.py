"""Collect in one folder what a host without a network needs: ``make bundle``.

The folder holds a clone of this checkout, the packages that ``env/*.lock`` name, and an
``install.sh`` that runs the Makefile's own installation from them. It fits hosts with the operating
system, processor and Python version of the machine that made it.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
INSTALL = """\
#!/bin/sh
# Install from this folder, with no network: {stamps}.
# It needs make and {python} with its venv module; PYTHON=/path/to/it names another place.
set -eu
cd "$(dirname "$0")/ppas"
export PIP_NO_INDEX=1 PIP_FIND_LINKS=../wheels
make PYTHON="${{PYTHON:-{python}}}" {stamps}
echo "Installed. Next: cd $PWD && make reproduce"
"""


def main() -> None:
    """Make the bundle that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vllm", default="none", help="a file env/vllm-VLLM.lock, or none")
    parser.add_argument("folder", type=Path, help="made anew; what it held is deleted")
    options = parser.parse_args()
    lock = ROOT / f"env/vllm-{options.vllm}.lock"
    if options.vllm != "none" and not lock.exists():
        known = ", ".join(sorted(path.stem[5:] for path in lock.parent.glob("vllm-*.lock")))
        sys.exit(f"ppas: VLLM={options.vllm}: no file env/{lock.name}; known: none, {known}")
    # A folder that something else fills is not ours to delete.
    if options.folder.exists() and not (options.folder / "install.sh").exists():
        sys.exit(f"ppas: {options.folder}: not a bundle; name a new folder with BUNDLE=")
    shutil.rmtree(options.folder, ignore_errors=True)
    bundle(options.folder, None if options.vllm == "none" else lock)


def bundle(folder: Path, vllm: Path | None) -> None:
    """Fill ``folder``; ``vllm`` is the lock file of the server's environment, if it is wanted."""
    wheels = folder / "wheels"
    wheels.mkdir(parents=True)
    clone(folder / "ppas")
    # As published, and not built here, since the lock's hashes are checked again on the host.
    lock = ROOT / "env/cpu.lock"
    pip("download", "--no-deps", "--require-hashes", "--dest", wheels, "--requirement", lock)
    # Some of them have no wheel, like antlr4-python3-runtime; these build it on the host.
    pip("download", "--dest", wheels, "setuptools", "wheel")
    pip("wheel", "--no-deps", "--wheel-dir", wheels, folder / "ppas")
    stamps = [".venv/.installed"]
    if vllm:
        pip("wheel", "--no-deps", "--wheel-dir", wheels, "--requirement", vllm)
        stamps.append(f".venv-{vllm.stem}/.installed")
    install = folder / "install.sh"
    install.write_text(INSTALL.format(python=PYTHON, stamps=" ".join(stamps)))
    install.chmod(0o755)
    files = list(wheels.iterdir())
    size = sum(file.stat().st_size for file in files) / 1e9
    print(f"{folder}: {len(files)} packages, {size:.1f} GB. On the host: sh install.sh")


def clone(target: Path) -> None:
    """The committed state of this checkout, with its history."""
    if not (ROOT / ".git").exists():
        sys.exit(f"ppas: {ROOT}: not a git checkout; clone the repository with git and bundle that")
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", ROOT, target], check=True)
    subprocess.run(["git", "-C", target, "remote", "remove", "origin"], check=True)
    changed = subprocess.run(
        ["git", "-C", ROOT, "status", "--porcelain"], check=True, capture_output=True, text=True
    ).stdout
    if changed:
        print(f"ppas: not committed, so not in the bundle:\n{changed}", end="", file=sys.stderr)


def pip(*arguments: str | Path) -> None:
    """Run pip; it has said what went wrong if it fails."""
    if subprocess.run([*PIP, *arguments], check=False).returncode:
        sys.exit("ppas: pip could not collect the packages (see above)")


if __name__ == "__main__":
    main()
