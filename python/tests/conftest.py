"""Without PyTorch its tests are left out; scripts/test_python always has it."""

import importlib.util

collect_ignore = [] if importlib.util.find_spec("torch") else ["torch", "transformers"]
