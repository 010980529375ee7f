#!/usr/bin/env python3
"""Let PyPI's torch be imported without the 2.5 GB of NVIDIA libraries it is linked to.

PyPI has only the CUDA build of torch for Linux. On a machine without a GPU it calls next to
nothing of CUDA, but the loader wants every library and every symbol before it lets torch in.
So this reads from torch and torchvision what they want, and compiles one small library per
wanted one, next to torch's own where their run path looks. Every function in it fails with
cudaErrorInsufficientDriver; `torch.cuda.is_available()` is then False.

    cuda_stubs.py SITE_PACKAGES         needs gcc and readelf
"""
import pathlib
import re
import subprocess
import sys
import tempfile

LIBRARY = re.compile(r"lib(cu|nv|nccl)")
SYMBOL = re.compile(r"_*p?(cu|nv|nccl)", re.IGNORECASE)
# Callers print these results as strings, or dereference them.
GIVES_TEXT = re.compile(r"(cuda|nccl|cublas|cudnn|cufft|cusolver|nvrtc|cupti).*(String|Name)$|^cudnnGetLastErrorMessage$")
GIVES_HANDLE = {"__cudaRegisterFatBinary"}


class Wants:
    """What one shared object needs and gives, as readelf tells it."""

    def __init__(self, path):
        told = subprocess.run(["readelf", "-W", "--dynamic", "--dyn-syms", path],
                              check=True, capture_output=True, text=True).stdout
        needed = re.findall(r"\(NEEDED\).*\[(.+)\]", told)
        self.libraries = [name for name in needed if LIBRARY.match(name)]
        self.defined, self.wanted = set(), {}
        for line in told.splitlines():
            fields = line.split()
            # Num: Value Size Type Bind Visibility Section Name[@Version]
            if len(fields) < 8 or not fields[0].endswith(":"):
                continue
            size, kind, section = fields[2], fields[3], fields[6]
            name, _, version = fields[7].replace("@@", "@").partition("@")
            if section != "UND":
                self.defined.add(name)
            elif SYMBOL.match(name):
                # A size is known only where the linker copied it; 64 bytes hold any handle.
                self.wanted[name] = (version, max(int(size, 0), 64) if kind == "OBJECT" else 0)


def plan(objects):
    """For each missing library its symbols: {library: {name: (version, data size)}}."""
    defined = set().union(*(one.defined for one in objects))
    libraries = {name: {} for one in objects for name in one.libraries}
    for one in objects:
        for name, (version, size) in one.wanted.items():
            if name in defined or not one.libraries:
                continue
            # NVIDIA names a symbol's version after its library. One without a version may
            # come from anywhere the loader looks, so the object's first library will do.
            home = version if version in libraries else one.libraries[0]
            libraries[home][name] = (version, size)
    return libraries


def c_source(symbols):
    lines = ['static const char text[] = "stand-in library: there is no CUDA here";', "static char handle[64];"]
    for name, (_, size) in sorted(symbols.items()):
        if size:
            lines.append(f"char {name}[{size}];")
        elif name in GIVES_HANDLE:
            lines.append(f"void *{name}(void) {{ return handle; }}")
        elif GIVES_TEXT.search(name):
            lines.append(f"const char *{name}(void) {{ return text; }}")
        else:
            lines.append(f"long {name}(void) {{ return 35; }}")
    return "\n".join(lines) + "\n"


def version_script(symbols):
    versions = {}
    for name, (version, _) in sorted(symbols.items()):
        versions.setdefault(version, []).append(name)
    versions.pop("", None)
    return "\n".join(f"{version} {{ global: {'; '.join(names)}; }};" for version, names in versions.items())


def build(library, symbols, folder):
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        made = pathlib.Path(scratch, library)
        command = ["gcc", "-shared", "-fPIC", "-w", "-fno-builtin", "-nostdlib", f"-Wl,-soname,{library}",
                   "-o", made, "-xc", "-"]
        script = version_script(symbols)
        if script:
            pathlib.Path(scratch, "versions").write_text(script)
            command.insert(1, f"-Wl,--version-script={scratch}/versions")
        subprocess.run(command, input=c_source(symbols), text=True, check=True)
        made.rename(folder / library)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    packages = pathlib.Path(sys.argv[1])
    folder = packages / "torch" / "lib"
    if not folder.is_dir():
        sys.exit(f"no torch in {packages}: {folder} is not a folder")
    files = sorted(path for package in ("torch", "torchvision")
                   for path in (packages / package).rglob("*.so*") if path.is_file())
    libraries = plan([Wants(path) for path in files])
    missing = {name: wanted for name, wanted in libraries.items() if not (folder / name).exists()}
    for library, symbols in sorted(missing.items()):
        build(library, symbols, folder)
    print(f"made {len(missing)} of {len(libraries)} libraries with "
          f"{sum(map(len, missing.values()))} symbols in {folder}")


if __name__ == "__main__":
    main()
