"""Without PyTorch or scikit-learn their tests are left out; scripts/test_python always has both."""

import importlib.util

collect_ignore = [] if importlib.util.find_spec("torch") else ["torch", "transformers"]
if not importlib.util.find_spec("sklearn"):
    collect_ignore.append("sklearn")
