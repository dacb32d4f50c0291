"""ONNX Runtime's operator LinearAttention (domain com.microsoft), float32, forward."""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

from common import LAYERS

NAME = f"onnxruntime {onnxruntime.__version__}"
RULES = {
    ("hebbian", False): "linear",
    ("hebbian", True): "gated",
    ("delta", False): "delta",
    ("delta", True): "gated_delta",
}


def peers(problem, options):
    if problem.layer == "softmax":  # no kernel of its own
        return {}
    decayed = "log_decay" in problem.inputs
    rule = RULES[LAYERS[problem.layer][0], decayed]
    # Inputs by position: query, key, value, past state, decay, step; heads are packed in the rows.
    names = ["q", "k", "v", "", "log_decay" if decayed else "", "step"]
    names = [n if n in problem.inputs else "" for n in names]
    while names[-1] == "":
        names.pop()
    node = helper.make_node(
        "LinearAttention", names, ["y", "state"], domain="com.microsoft", update_rule=rule,
        q_num_heads=problem.heads, kv_num_heads=problem.heads, scale=1.0,
    )
    info = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
    graph = helper.make_graph(
        [node], "layer", [info(n) for n in names if n], [info("y"), info("state")]
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 10
    session_options = onnxruntime.SessionOptions()
    session_options.intra_op_num_threads = options.threads
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), session_options, providers=["CPUExecutionProvider"]
    )
    pack = lambda x: np.ascontiguousarray(x.swapaxes(0, 1).reshape(1, problem.tokens, -1))
    feed = {n: pack(problem.inputs[n]) for n in names if n}

    def run():
        y = session.run(["y"], feed)[0]
        return y.reshape(problem.tokens, problem.heads, -1).swapaxes(0, 1)

    return {f"{NAME} LinearAttention": run}


def gradient_peers(problem, dy, options):
    return {}
