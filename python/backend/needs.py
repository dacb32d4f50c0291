"""What compiling ttr takes, and one line that says what is missing.

CMake stops at the first library, with a page of its own. This asks the compiler for all of them at
once, before anything is downloaded. Packages have the names that scripts/setup has, Debian's.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping

#: Headers of each library; one of them does.
HEADERS = {
    "libtbb-dev": ["tbb/task_arena.h"],
    "libeigen3-dev": ["eigen3/Eigen/Core", "Eigen/Core"],
    "librandom123-dev": ["Random123/philox.h"],
    "nlohmann-json3-dev": ["nlohmann/json.hpp"],
}
#: Highway is found by pkg-config, as cmake/FindHWY.cmake does it.
HIGHWAY = "libhwy >= 1.0.3"

#: The preprocessor prints the packages that are missing.
QUESTIONS = "#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 12\ng++\n#endif\n"
LIBRARY_QUESTIONS = "".join(
    "#if " + " && ".join(f"!__has_include(<{name}>)" for name in names) + f"\n{package}\n#endif\n"
    for package, names in HEADERS.items()
)


def _run(command: list[str], environment: Mapping[str, str], text: str = "") -> str | None:
    """What a command prints, or None where it is not there or fails."""
    program = shutil.which(command[0], path=environment.get("PATH", ""))
    if program is None:
        return None
    done = subprocess.run(
        [program, *command[1:]], input=text, capture_output=True, text=True, env=dict(environment)
    )
    return None if done.returncode else done.stdout


def missing(environment: Mapping[str, str], *, library: bool = True) -> list[str]:
    """The packages that are not here, as far as a compiler can tell. Without `library` those that
    it takes to link one that is installed."""
    prefixes = environment.get("CMAKE_PREFIX_PATH", "").split(os.pathsep)
    options = [*(f"-I{prefix}/include" for prefix in prefixes if prefix), "-xc++", "-E", "-P", "-"]
    for compiler in [environment["CXX"]] if environment.get("CXX") else ["c++", "g++", "clang++"]:
        questions = QUESTIONS + LIBRARY_QUESTIONS * library
        answer = _run([*shlex.split(compiler), *options], environment, questions)
        if answer is not None:
            found = answer.split()
            break
    else:
        found = ["g++", *(HEADERS if library else ())]
    pkg_config = environment.get("PKG_CONFIG") or "pkg-config"
    if library and _run([pkg_config, "--version"], environment) is None:
        found.append("pkg-config")
    if library and _run([pkg_config, "--exists", HIGHWAY], environment) is None:
        found.append("libhwy-dev")
    return found


def complaint(packages: list[str]) -> str:
    """One line that says what to do."""
    return (
        f"ttr must be compiled here, which lacks what this installs: apt-get install "
        f"{' '.join(packages)} (Debian's names; where all of it is in places of its own, set "
        "TTR_SETUP=skip)"
    )
