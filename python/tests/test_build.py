"""What pip does with this folder: what a compile lacks in one line, which PyTorch it asks for, and
what the source distribution holds."""

import importlib
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
LIBRARIES = ["libtbb-dev", "libeigen3-dev", "librandom123-dev", "nlohmann-json3-dev"]


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("scikit_build_core")
    monkeypatch.syspath_prepend(ROOT / "python/backend")
    monkeypatch.delenv("TTR_SETUP", raising=False)
    monkeypatch.chdir(ROOT)
    return importlib.import_module("ttr_build")


def test_nothing_is_missing_here(backend: ModuleType) -> None:
    assert backend.needs.missing(os.environ) == []


def test_an_empty_path_lacks_everything(backend: ModuleType) -> None:
    assert backend.needs.missing({}) == ["g++", *LIBRARIES, "pkg-config", "libhwy-dev"]
    assert backend.needs.missing({}, library=False) == ["g++"]


def test_libraries_are_those_that_the_compiler_does_not_see(
    backend: ModuleType, tmp_path: Path
) -> None:
    # An empty folder: g++ 12 refuses to look where there is none at all.
    prefix = tmp_path / "prefix/include"
    prefix.mkdir(parents=True)
    blind = {**os.environ, "CXX": f"g++ -nostdinc -I{tmp_path}", "CMAKE_PREFIX_PATH": str(prefix.parent)}
    assert backend.needs.missing(blind) == LIBRARIES
    assert backend.needs.missing(blind, library=False) == []
    (prefix / "Random123").mkdir()
    (prefix / "Random123/philox.h").touch()
    assert backend.needs.missing(blind) == [name for name in LIBRARIES if "random123" not in name]


def test_scripts_setup_installs_what_is_named(backend: ModuleType) -> None:
    setup = (ROOT / "scripts/setup").read_text()
    assert all(f"\n{package} " in setup for package in backend.needs.missing({}))


def test_pip_is_told_in_one_line(backend: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    for hook in (backend.get_requires_for_build_wheel, backend.get_requires_for_build_editable):
        with pytest.raises(SystemExit, match="apt-get install g[+][+] libtbb-dev ") as error:
            hook()
        assert "\n" not in str(error.value)
    with pytest.raises(SystemExit, match="apt-get install g[+][+] [(]"):
        backend.build_wheel("nowhere", {"cmake.define.TTR_ROOT": "prefix"})


def test_pytorch_is_asked_for_only_where_it_is_wanted_and_missing(
    backend: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asks(settings: dict[str, str]) -> bool:
        return backend._requirements(lambda _: [], settings) == [backend.PINNED]

    monkeypatch.setattr(backend, "find_torch", lambda: None)
    assert not asks({}) and not asks({"cmake.define.TTR_TORCH": "OFF"})
    assert asks({"cmake.define.TTR_TORCH": "ON"})
    monkeypatch.setattr(backend, "find_torch", lambda: Path("torch"))
    assert not asks({"cmake.define.TTR_TORCH": "ON"})


def test_pytorch_is_the_one_that_scripts_pin(backend: ModuleType) -> None:
    assert f"pinned_torch={backend.PINNED}\n" in (ROOT / "scripts/python_venv").read_text()


def test_the_source_distribution_holds_what_a_compile_takes(tmp_path: Path) -> None:
    pytest.importorskip("scikit_build_core")
    # In a process of its own, as pip makes it: the backend warns about what is deprecated.
    subprocess.run(
        [sys.executable, "-c", f"import ttr_build; ttr_build.build_sdist({str(tmp_path)!r})"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python/backend")},
        check=True,
        capture_output=True,
    )
    (archive,) = tmp_path.glob("test_time_regression-*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    kept = ["CMakeLists.txt", "LICENSE", "NOTICE", "README.md", "pyproject.toml"]
    kept += ["cmake", "include", "src", "experiments", "tools", "python"]
    kept += [":!python/tests", ":!python/adapters"]
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *kept],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode != 0:
        pytest.skip("not a checkout")
    assert names - {"PKG-INFO"} == set(listed.stdout.split())
