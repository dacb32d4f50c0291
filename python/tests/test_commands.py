"""Commands that documents show: each is run, as it stands or in the shorter form that a rule here gives."""

from __future__ import annotations

import importlib.util
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "native"
DOCUMENTS = ["README.md", "CONTRIBUTING.md", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/**/*.md"))]
PROGRAMS = r"(?:[A-Z_]+=\S+ )*(?:ttr|awk|ttr_test_\w+|python|make|pip|build/native/\S+|scripts/\S+)"


def commands(document: str) -> Iterator[str]:
    """Lines of shell blocks, indented lines and lines behind `$ ` that begin with a program."""
    text = (ROOT / document).read_text(encoding="utf-8").replace("\\\n", "")
    shell = re.findall(r"^```(?:sh|console)?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    outside = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    indented = [line[4:] for line in outside.splitlines() if line.startswith("    ")]
    for line in [*"\n".join(shell).splitlines(), *indented]:
        line = re.sub(r"\s+#.*$", "", line.strip().removeprefix("$ "))
        if re.match(PROGRAMS + r"(?: |$)", line) and not re.match(r"ttr +(?:\W|$)|python/", line):
            yield line


ALL = sorted({(line, document) for document in DOCUMENTS for line in commands(document)})
LINES = sorted({line for line, _ in ALL})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that looks like the clone, where documents run their commands."""
    made = tmp_path_factory.mktemp("commands")
    for name in ("data", "docs", "examples", "README.md", "LICENSE"):
        (made / name).symlink_to(ROOT / name)
    wave = "\n".join(f"{np.sin(0.1 * t):.6f}" for t in range(400))
    (made / "sine.csv").write_text(f"x\n{wave}\n")
    shop = [f"{t},{int(t % 7 != 5)},{np.sin(0.7 * t * t):.6f}" for t in range(207)]
    sold = [f"{row},{100 + 3 * t % 7}" for t, row in enumerate(shop)]
    (made / "shop.csv").write_text("\n".join(["day,open,sun,sales", *sold[:200]]) + "\n")
    (made / "plan.csv").write_text("\n".join(["day,open,sun", *shop[200:]]) + "\n")
    for line in only(LINES, "awk"):  # tables that other commands read
        subprocess.run(line, shell=True, cwd=made, check=True, timeout=120)
        assert (made / line.split()[-1]).stat().st_size
    return made


def run(folder: Path, words: list[str], **environment: str) -> str:
    path = f"{BUILD / 'tools'}:{BUILD / 'tests'}:{os.environ['PATH']}"
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, timeout=120, env={**os.environ, "PATH": path, **environment}
    )
    assert done.returncode == 0, f"{shlex.join(words)}: {done.stdout[-500:]}{done.stderr[-1500:]}"
    return done.stdout


def only(lines: list[str], start: str) -> list[str]:
    found = [line for line in lines if re.match(r"(?:[A-Z_]+=\S+ )*" + start, line)]
    assert found, f"no command of a document begins with {start}"
    return found


def test_every_command_has_a_test_here() -> None:
    kinds = [r"ttr (?:experiment|bench|forecast|plan|zoo|recall|apply|doctor)", r"python (?:-m ttr\.|bench/|examples/)"]
    kinds += ["awk ", r"(?:build/native/tests/)?ttr_test_", "make ", "pip install ", "scripts/", "build/native/tools/ttr "]
    strange = [line for line in LINES if not re.match(r"(?:[A-Z_]+=\S+ )*(?:" + "|".join(kinds) + ")", line)]
    assert not strange


@pytest.mark.parametrize("line", only(LINES, "ttr (?:forecast|plan|zoo|recall|doctor)"))
def test_quick_commands_run_as_they_stand(line: str, folder: Path) -> None:
    assert run(folder, shlex.split(line))


@pytest.mark.parametrize("line", only(LINES, "ttr apply"))
def test_layers_are_applied_to_files(line: str, folder: Path) -> None:
    words = shlex.split(line)
    safetensors = pytest.importorskip("safetensors.numpy")
    random = np.random.default_rng(0)
    tensors = {name: random.standard_normal((1, 8, 2, 4)).astype(np.float32) for name in "qkv"}
    tensors |= {"log_decay": -np.ones((1, 8, 2), np.float32), "step": np.ones((1, 8, 2), np.float32)}
    safetensors.save_file(tensors, folder / words[words.index("--in") + 1])
    run(folder, words)
    assert safetensors.load_file(folder / words[words.index("--out") + 1])["y"].shape == (1, 8, 2, 4)


def test_help_of_apply_makes_the_file_that_it_applies(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("safetensors")
    text = run(folder, ["ttr", "apply", "--help"])
    program = text[text.index("  import numpy") :]
    monkeypatch.chdir(folder)
    exec(compile("\n".join(line.strip() for line in program.splitlines()), "ttr apply --help", "exec"), {})
    run(folder, shlex.split("ttr apply gated_deltanet --in qkv.safetensors --out y.safetensors"))


@pytest.mark.parametrize("line", only(LINES, "ttr experiment"))
def test_experiments_run_in_their_quick_forms(line: str, folder: Path) -> None:
    # Whole ones take up to minutes. What a line says of sizes is parsed, and then smaller.
    line = re.sub(r"--tokens \d+", "--tokens 64", line)
    assert run(folder, [*shlex.split(line), "--quick"])


@pytest.mark.parametrize("line", only(LINES, "ttr bench"))
def test_benchmarks_take_their_options(line: str, folder: Path) -> None:
    # Measuring takes minutes; one measurement at a tiny size has all other words as they stand.
    measured = re.findall(r"--(?:measure|part) ((?:[a-z_0-9]+ ?)+?)(?=-|'|$|[A-Z])", line)
    known = re.search(r"--measure,--part \{([^}]*)\}", run(folder, ["ttr", "bench", "--help"]))
    assert known
    for word in " ".join(measured).split():
        assert word in known[1].split(",") or run(folder, ["ttr", "zoo", word])
    line = re.sub(r"--(tokens|heads|d|repeats|threads)( \d+)+", "", line)
    line = re.sub(r"--(?:measure|part) (?:(?:" + known[1].replace(",", "|") + r")(?: |$))+", "", line)
    named = line.removeprefix("ttr bench").split("--")[0].strip()
    sizes = "--measure prefill --tokens 64 --heads 1 --d 8 --repeats 1 --quiet".split()
    words = shlex.split(line) + ([] if named else ["gated_deltanet"])
    assert run(folder, [*words, *sizes])


@pytest.mark.parametrize("line", only(LINES, r"(?:build/native/tests/)?ttr_test_"))
def test_filters_of_tests_match_some(line: str, folder: Path) -> None:
    words = [word for word in shlex.split(line) if "=" not in word or word.startswith("-")]
    program = BUILD / "tests" / Path(words[0]).name
    if not program.exists():
        pytest.skip(f"{program.name} is not built")
    listed = run(folder, [str(program), *words[1:], "--gtest_list_tests"])
    assert re.search(r"^  \S", listed, re.MULTILINE), f"{line} runs no test"


@pytest.mark.parametrize("line", only(LINES, r"make|pip install|scripts/"))
def test_what_builds_is_there(line: str) -> None:
    # Each builds for minutes, or calls for what a test must not install.
    for words in (shlex.split(part) for part in line.split("&&")):
        words = [word for word in words if not re.match(r"[A-Z_]+=", word)]
        if words[0] == "make":
            makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
            assert re.search(rf"^{words[1]}:", makefile, re.MULTILINE), line
        elif words[0].startswith("scripts/"):
            assert os.access(ROOT / words[0], os.X_OK), line


@pytest.mark.parametrize("line", only(LINES, r"python (?:bench|examples)/"))
def test_programs_of_the_repository_are_there(line: str) -> None:
    # They take minutes or packages of their own.
    words = [word for word in shlex.split(line) if not re.match(r"[A-Z_]+=", word)]
    text = (ROOT / words[1]).read_text(encoding="utf-8")
    compile(text, words[1], "exec")
    for option in (word for word in words[2:] if word.startswith("--")):
        assert f'"{option}"' in text, f"{words[1]} has no {option}"


@pytest.mark.filterwarnings("ignore:.*found in sys.modules")  # what other tests have imported
@pytest.mark.parametrize("line", only(LINES, r"python -m ttr\."))
def test_modules_have_their_options(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # They measure or train for minutes; tests of their own run them at small sizes.
    pytest.importorskip("torch")
    module, *words = shlex.split(line)[2:]
    if "transformers" in module:
        pytest.importorskip("transformers")
    name = words[:1] if module == "ttr.experiments" else []
    monkeypatch.setattr(sys, "argv", [module, *name, "--help"])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_module(module, run_name="__main__")
    assert not stopped.value.code
    shown = capsys.readouterr().out
    assert not [word for word in words if word.startswith("--") and word not in shown]
