#!/usr/bin/env python3
"""Compiles the kernels with NVRTC, without a GPU and without a CUDA toolkit.

    python3 kernels/build.py            writes kernels/cubins and its manifest
    python3 kernels/build.py --check    compiles again and compares bytes; looks for spills and for the instructions that
                                        each kernel counts on

NVRTC and the tools that read its output come from PyPI, in fixed versions, into ~/.cache/memslate/nvrtc. The same sources
give the same bytes on every machine.
"""

import ctypes
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
CUBINS = HERE / "cubins"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "memslate/nvrtc"
PACKAGES = ["nvidia-cuda-nvrtc-cu12==12.9.86", "nvidia-cuda-cuobjdump==13.2.78", "nvidia-cuda-nvdisasm==13.2.78"]
OPTIONS = ["--std=c++17", "-default-device"]
# What may run where: a cubin runs on later minors of its major version, sm_90a on 9.0 alone, PTX anywhere from 8.0 on.
TARGETS = ["sm_80", "sm_89", "sm_90a", "compute_80"]
# Instructions that a kernel's arithmetic counts on, as patterns.
WANTED = {
    "gemm": ["HMMA", r"LDGSTS\S*\.128", r"LDSM", r"STG\.E\.128"],
    "attention": ["HMMA", r"LDGSTS\S*\.128", "LDSM"],
    # The second: probabilities from registers, values as rows.
    "attention_sm90": [r"HGMMA\S* R\d+, gdesc", r"HGMMA\S* R\d+, R\d+, gdesc\S*tnspB", "UTMALDG"],
    "score_head": ["HMMA"],
    "gemm_sm90": ["HGMMA", "UTMALDG"],
    "embed": [r"LDG\.E\.\S*128", r"STG\.E\.128"],
    "layer_norm": [r"LDG\.E\.\S*128", r"STG\.E\.128"],
}


def fail(what):
    sys.exit(f"kernels/build.py: {what}")


def install():
    stamp = CACHE / "installed.txt"
    wanted = "\n".join(PACKAGES)
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    print(f"installing {', '.join(PACKAGES)} into {CACHE}", file=sys.stderr)
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--upgrade", "--target", str(CACHE), *PACKAGES]
    if subprocess.run(command, stdout=subprocess.DEVNULL).returncode:
        fail(f"{', '.join(PACKAGES)} could not be installed from PyPI; is there a network?")
    stamp.write_text(wanted)


def found(pattern):
    paths = sorted(CACHE.glob(f"nvidia/**/{pattern}"))
    if not paths:
        fail(f"{pattern} is not in {CACHE}: remove that folder and run this again")
    return paths[0]


class Nvrtc:
    def __init__(self):
        # The library looks its builtins up by name: they are opened first.
        ctypes.CDLL(str(found("libnvrtc-builtins.so.*")), ctypes.RTLD_GLOBAL)
        self.library = ctypes.CDLL(str(found("libnvrtc.so.*")), ctypes.RTLD_GLOBAL)

    def text(self, what, program, raw=False):
        size = ctypes.c_size_t()
        getattr(self.library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        getattr(self.library, f"nvrtcGet{what}")(program, buffer)
        return buffer.raw if raw else buffer.value.decode()

    def compile(self, source, headers, target):
        program = ctypes.c_void_p()
        bodies = (ctypes.c_char_p * len(headers))(*[h.read_bytes() for h in headers])
        names = (ctypes.c_char_p * len(headers))(*[h.name.encode() for h in headers])
        create = self.library.nvrtcCreateProgram
        if create(ctypes.byref(program), source.read_bytes(), source.name.encode(), len(headers), bodies, names):
            fail(f"NVRTC takes no program from {source.name}")
        options = [f"--gpu-architecture={target}", *OPTIONS]
        array = (ctypes.c_char_p * len(options))(*[o.encode() for o in options])
        status, log = self.library.nvrtcCompileProgram(program, len(options), array), self.text("ProgramLog", program)
        if status:
            fail(f"{source.name} does not compile for {target}:\n{log}")
        if "serialized" in log:
            fail(f"{source.name} waits for each of its products, for {target}:\n{log}")
        return self.text("PTX" if target.startswith("compute") else "CUBIN", program, raw=True)


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def headers_of(source):
    """The headers that a source reads, in order of name; the emulation's are not compiled."""
    seen, waiting = set(), [source]
    while waiting:
        for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', waiting.pop().read_text(), re.M):
            path = HERE / name
            if path.parent == HERE and path not in seen and path.is_file():
                seen.add(path)
                waiting.append(path)
    return sorted(seen)


def targets(source):
    return ["sm_90a"] if source.stem.endswith("_sm90") else TARGETS


def file_name(source, target):
    return f"{source.stem}.{target}.{'ptx' if target.startswith('compute') else 'cubin'}"


def registers(cubin):
    """By kernel: registers, stack and local memory in bytes."""
    text = subprocess.run([str(found("cuobjdump")), "-res-usage", str(cubin)], capture_output=True, text=True).stdout
    used = {}
    for name, line in re.findall(r"Function (\w+):\n(.*)", text):
        numbers = dict(re.findall(r"([A-Z]+):(\d+)", line))
        used[name] = {k.lower(): int(numbers.get(k, 0)) for k in ("REG", "STACK", "LOCAL", "SHARED")}
    if not used:
        fail(f"cuobjdump says nothing of {cubin.name}")
    return used


def build(folder):
    nvrtc, manifest = Nvrtc(), {"nvrtc": PACKAGES[0], "options": OPTIONS, "files": {}}
    for source in sorted(HERE.glob("*.cu")):
        headers = headers_of(source)
        inputs = {path.name: sha256(path.read_bytes()) for path in [source, *headers]}
        for target in targets(source):
            name = file_name(source, target)
            image = nvrtc.compile(source, headers, target)
            (folder / name).write_bytes(image)
            entry = {"sha256": sha256(image), "inputs": inputs}
            if name.endswith("cubin"):
                entry["kernels"] = registers(folder / name)
            manifest["files"][name] = entry
            print(f"{name}: {len(image)} bytes")
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")


def compare(fresh):
    """Names of files that differ from the committed ones, or are on one side only."""
    names = {p.name for p in fresh.iterdir()} | {p.name for p in CUBINS.iterdir()}
    same = lambda n: (fresh / n).is_file() and (CUBINS / n).is_file() and (fresh / n).read_bytes() == (CUBINS / n).read_bytes()
    return [f"{n} is not what the sources give: run `make kernels`" for n in sorted(names) if not same(n)]


def inspect(folder):
    """What the machine code lacks or has too much of."""
    wrong = []
    for cubin in sorted(folder.glob("*.cubin")):
        for kernel, used in registers(cubin).items():
            if used["stack"] or used["local"]:
                wrong.append(f"{cubin.name}: {kernel} keeps {used['stack'] + used['local']} bytes in local memory")
        code = subprocess.run([str(found("nvdisasm")), str(cubin)], capture_output=True, text=True).stdout
        wrong += [f"{cubin.name}: {op} in its code" for op in ("LDL", "STL") if re.search(rf"\b{op}\b", code)]
        wanted = WANTED.get(cubin.name.split(".")[0], [])
        wrong += [f"{cubin.name}: no {op} in its code" for op in wanted if not re.search(op, code)]
    return wrong


def main():
    install()
    if sys.argv[1:] == ["--check"]:
        with tempfile.TemporaryDirectory() as folder:
            fresh = pathlib.Path(folder)
            build(fresh)
            wrong = compare(fresh) + inspect(fresh)
        if wrong:
            fail("\n  " + "\n  ".join(wrong))
        print("all as committed; no spills; the instructions are there")
    elif len(sys.argv) == 1:
        CUBINS.mkdir(exist_ok=True)
        for old in CUBINS.iterdir():
            old.unlink()
        build(CUBINS)
    else:
        fail(__doc__)


if __name__ == "__main__":
    main()
