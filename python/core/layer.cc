// class Layer: whole sequences, with the state as a dictionary.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "python/core/calls.h"
#include "python/core/copies.h"
#include "python/core/executors.h"
#include "python/core/module.h"
#include "python/names.h"
#include "python/switches.h"
#include "ttr/decoder.h"
#include "ttr/error.h"

namespace ttr::python {
namespace {

#define TTR_QKV "q: object = None, k: object = None, v: object = None"
#define TTR_STATE "dict[str, numpy.typing.NDArray[typing.Any]]"
#define TTR_GIVEN "collections.abc.Mapping[str, object] | None"
#define TTR_ARRAY "numpy.typing.NDArray[typing.Any]"

nb::object WithStatus(const OutputArrays& arrays, nb::object state) {
  if (!arrays.status().is_valid()) return nb::make_tuple(arrays.y(), state);
  return nb::make_tuple(arrays.y(), state, arrays.status());
}

nb::object Forward(const SharedLayer& self, nb::handle q, nb::handle k, nb::handle v,
                   nb::handle given_state, nb::handle threads, bool return_status, nb::handle out,
                   nb::kwargs others) {
  const std::string_view op = "forward";
  const Layer& layer = *self.layer;
  CallOptions options = TakeSwitches(op, others);
  const GivenInputs given(op, layer.requirements(), q, k, v, others);
  const Dims dims = InferDims(op, layer.requirements(), given.inputs());
  State state = CopyState(op, layer, given_state);
  const OutputArrays arrays(op, dims, given, out, return_status);
  options.executor = &ExecutorFor(threads);
  {
    const Unlocked unlocked;
    layer.Forward(given.inputs(), state, arrays.outputs(), options);
  }
  nb::object result = ShareState(std::move(state));
  if (!return_status) return nb::make_tuple(arrays.y(), result);
  return WithStatus(arrays, std::move(result));
}

nb::object ForwardAt(const SharedLayer& self, const std::vector<std::int64_t>& at, nb::handle q,
                     nb::handle k, nb::handle v, nb::handle given_state, nb::handle threads,
                     nb::handle out, const nb::kwargs& others) {
  const std::string_view op = "forward";
  const Layer& layer = *self.layer;
  const GivenInputs given(op, layer.requirements(), q, k, v, others);
  const Dims dims = InferDims(op, layer.requirements(), given.inputs());
  State state = CopyState(op, layer, given_state);
  const OutputArrays arrays(op, dims, given, out, false);
  Executor& executor = ExecutorFor(threads);
  std::vector<State> states(at.size());
  {
    const Unlocked unlocked;
    layer.Forward(given.inputs(), state, arrays.outputs(), at, states, {.executor = &executor});
  }
  nb::list there;
  for (State& one : states) there.append(ShareState(std::move(one)));
  return nb::make_tuple(arrays.y(), ShareState(std::move(state)), there);
}

nb::object Step(const SharedLayer& self, nb::handle q, nb::handle k, nb::handle v,
                nb::handle given_state, nb::handle threads, nb::handle out,
                const nb::kwargs& others) {
  const std::string_view op = "step";
  const Layer& layer = *self.layer;
  if (!nb::isinstance<nb::dict>(given_state)) {
    throw nb::type_error("[step] state must be a dictionary, which is updated ({}: the start)");
  }
  const GivenInputs given(op, layer.requirements(), q, k, v, others);
  const Dims dims = InferDims(op, layer.requirements(), given.inputs());
  BoundState state(op, layer, given_state, true);
  const OutputArrays arrays(op, dims, given, out, false);
  Executor& executor = ExecutorFor(threads);
  {
    const Unlocked unlocked;
    ReservePairs(op, layer.requirements(), dims, given.inputs(), state.state());
    layer.Step(given.inputs(), state.state(), arrays.outputs(), {.executor = &executor});
  }
  state.Return();
  return arrays.y();
}

nb::object Memorize(const SharedLayer& self, nb::handle k, nb::handle v, nb::handle given_state,
                    nb::handle threads, nb::kwargs others) {
  const std::string_view op = "memorize";
  const Layer& layer = *self.layer;
  CallOptions options = TakeSwitches(op, others);
  const GivenInputs given(op, layer.requirements(), nb::none(), k, v, others);
  State state = CopyState(op, layer, given_state);
  options.executor = &ExecutorFor(threads);
  {
    const Unlocked unlocked;
    layer.Memorize(given.inputs(), state, options);
  }
  return ShareState(std::move(state));
}

nb::object Retrieve(const SharedLayer& self, nb::handle q, nb::handle given_state,
                    nb::handle threads, nb::handle out, const nb::kwargs& others) {
  const std::string_view op = "retrieve";
  const Layer& layer = *self.layer;
  const GivenInputs given(op, layer.requirements(), q, nb::none(), nb::none(), others);
  BoundState state(op, layer, given_state, false);
  const Dims dims =
      InferDims(op, layer.requirements(), given.inputs(), Needs::kRead, &state.state());
  const OutputArrays arrays(op, dims, given, out, false);
  Executor& executor = ExecutorFor(threads);
  {
    const Unlocked unlocked;
    layer.Retrieve(given.inputs(), state.state(), arrays.outputs(), {.executor = &executor});
  }
  return arrays.y();
}

/// Gradients as arrays of the inputs' shapes, by their keywords.
class Gradients {
 public:
  Gradients(const Requirements& requirements, const GivenInputs& given, nb::handle names) {
    const nb::object wanted = names.is_none() ? nb::none() : nb::object(nb::set(names));
    for (const InputSpec& spec : requirements.inputs) {
      const TensorView& input = given.inputs().*spec.view;
      const std::string keyword = Keyword(spec.name);
      if (!input.defined() || !IsFloating(input.dtype())) continue;
      if (!wanted.is_none() && !nb::cast<nb::set>(wanted).contains(keyword.c_str())) continue;
      nb::object array = NewArray(input.dtype(), input.shape(), given.bfloat16());
      arrays_.push_back(WriteArray("backward", keyword, array));
      views_.*spec.view = arrays_.back().view;
      gradients_[keyword.c_str()] = array;
    }
    if (wanted.is_none()) return;
    for (nb::handle name : wanted) {
      if (gradients_.contains(name)) continue;
      throw Error("backward", "a name in wanted", "an input that is given", nb::repr(name).c_str());
    }
  }

  const Inputs& views() const { return views_; }
  const nb::dict& arrays() const { return gradients_; }

 private:
  Inputs views_;
  nb::dict gradients_;
  std::vector<Array> arrays_;
};

nb::object Backward(const SharedLayer& self, nb::handle dy, nb::handle q, nb::handle k,
                    nb::handle v, nb::handle given_state, nb::handle given_dstate,
                    nb::handle wanted, nb::handle threads, const nb::kwargs& others) {
  const std::string_view op = "backward";
  const Layer& layer = *self.layer;
  const GivenInputs given(op, layer.requirements(), q, k, v, others);
  BoundState state(op, layer, given_state, false);
  BoundState dstate("backward: dstate", layer, given_dstate, false);
  InferDims(op, layer.requirements(), given.inputs());
  const Array output_gradient = ReadArray(op, "dy", dy);
  const Gradients gradients(layer.requirements(), given, wanted);
  Executor& executor = ExecutorFor(threads);
  State dinitial;
  {
    const Unlocked unlocked;
    layer.Backward(given.inputs(), state.state(), output_gradient.view, dstate.state(),
                   gradients.views(), dinitial, {.executor = &executor});
  }
  return nb::make_tuple(gradients.arrays(), ShareState(std::move(dinitial)));
}

nb::object InitialState(const SharedLayer& self, nb::handle k, nb::handle v,
                        const nb::kwargs& others) {
  const GivenInputs given("initial_state", self.layer->requirements(), nb::none(), k, v, others);
  State state;
  {
    const Unlocked unlocked;
    state = self.layer->InitialState(given.inputs());
  }
  return ShareState(std::move(state));
}

void Construct(SharedLayer* self, nb::handle recipe, std::optional<std::string> engine) {
  const Recipe planned = RecipeFrom(recipe);
  new (self) SharedLayer{engine ? std::make_shared<const Layer>(planned, *engine)
                                : std::make_shared<const Layer>(planned)};
}

/// The switches of a call as parameters: "bfloat16_products: bool = False, ".
std::string SwitchParameters() {
  std::string text;
  for (const CallSwitch& known : kCallSwitches) {
    text += std::string(known.name) + ": bool = False, ";
  }
  return text;
}

nb::tuple Reduce(const SharedLayer& self) {
  return nb::make_tuple(nb::type<SharedLayer>(),
                        nb::make_tuple(ToString(self.layer->recipe()), self.layer->plan().engine));
}

void BindForward(nb::class_<SharedLayer>& bound) {
  const std::string forward_signature = "def forward(self, " TTR_QKV ", *, state: " TTR_GIVEN
                                        " = None, threads: int | None = None, " +
                                        SwitchParameters() +
                                        "return_status: bool = False, out: " TTR_GIVEN
                                        " = None, **inputs: object) -> tuple[" TTR_ARRAY
                                        ", " TTR_STATE "]";
  const auto none = nb::none();
  bound
      .def(
          "forward", &Forward, nb::arg("q") = none, nb::arg("k") = none, nb::arg("v") = none,
          nb::kw_only(), nb::arg("state") = none, nb::arg("threads") = none,
          nb::arg("return_status") = false, nb::arg("out") = none, nb::arg("inputs"),
          nb::sig(forward_signature.c_str()),
          R"(Memorizes every token and answers every query: y [B, T, max(H, Hq), Dv] in the type of v
(float32 for bfloat16 of a library that is not NumPy), and the state after the last token, new arrays.

return_status: a third result, int8 [B, T, max(H, Hq)]: 0 solved, 1 singular and solved by the smallest
norm, 2 not converged, 3 nothing to solve. out: arrays to write into, by name: "y", "status",
"iterations" (int64), "residual" (float64); of local polynomials "slope" [B, T, heads, Dk Dv], of
least squares and kernel regression "leverage", of weighted means and local polynomials
"effective_pairs" (float64 [B, T, heads]). bfloat16_products: products with the memory may be rounded
to bfloat16 where q, k, v are that; off by some 1e-3.)")
      .def(
          "forward_at", &ForwardAt, nb::arg("at"), nb::arg("q") = none, nb::arg("k") = none,
          nb::arg("v") = none, nb::kw_only(), nb::arg("state") = none, nb::arg("threads") = none,
          nb::arg("out") = none, nb::arg("inputs"),
          nb::sig("def forward_at(self, at: collections.abc.Sequence[int], " TTR_QKV
                  ", *, state: " TTR_GIVEN " = None, threads: int | None = None, "
                  "out: " TTR_GIVEN " = None, **inputs: object) "
                  "-> tuple[" TTR_ARRAY ", " TTR_STATE ", list[" TTR_STATE "]]"),
          R"(`forward`, with the states as after the first at[i] tokens (of what is packed: after token
at[i] - 1, of its sequence alone), which a prefix cache keeps: y, the last state, these states. `at` rises
from 1 to T.)");
}

void BindReading(nb::class_<SharedLayer>& bound) {
  const std::string memorize_signature =
      "def memorize(self, k: object = None, v: object = None, *, state: " TTR_GIVEN
      " = None, threads: int | None = None, " +
      SwitchParameters() + "**inputs: object) -> " TTR_STATE;
  const auto none = nb::none();
  bound
      .def(
          "step", &Step, nb::arg("q") = none, nb::arg("k") = none, nb::arg("v") = none,
          nb::kw_only(), nb::arg("state").none(), nb::arg("threads") = none, nb::arg("out") = none,
          nb::arg("inputs"),
          nb::sig("def step(self, " TTR_QKV ", *, state: " TTR_STATE ", "
                  "threads: int | None = None, out: " TTR_GIVEN " = None, **inputs: object) "
                  "-> " TTR_ARRAY),
          R"(One token (T = 1), in place: the arrays in `state` are written; what it lacks, or what grows,
is put into it. A Decoder is faster.)")
      .def("memorize", &Memorize, nb::arg("k") = none, nb::arg("v") = none, nb::kw_only(),
           nb::arg("state") = none, nb::arg("threads") = none, nb::arg("inputs"),
           nb::sig(memorize_signature.c_str()),
           "Writes without reading: the state after the last token.")
      .def(
          "retrieve", &Retrieve, nb::arg("q") = none, nb::kw_only(), nb::arg("state") = none,
          nb::arg("threads") = none, nb::arg("out") = none, nb::arg("inputs"),
          nb::sig("def retrieve(self, q: object = None, *, state: " TTR_GIVEN " = None, "
                  "threads: int | None = None, out: " TTR_GIVEN " = None, **inputs: object) "
                  "-> " TTR_ARRAY),
          R"(Reads without writing: y = m(q), from q and the constants of the recipe. A recipe without
queries, or an empty state, takes the size of the answer from out["y"].)");
}

void BindBackward(nb::class_<SharedLayer>& bound) {
  const auto none = nb::none();
  bound.def(
      "backward", &Backward, nb::arg("dy"), nb::arg("q") = none, nb::arg("k") = none,
      nb::arg("v") = none, nb::kw_only(), nb::arg("state") = none, nb::arg("dstate") = none,
      nb::arg("wanted") = none, nb::arg("threads") = none, nb::arg("inputs"),
      nb::sig("def backward(self, dy: object, " TTR_QKV ", *, state: " TTR_GIVEN " = None, "
              "dstate: " TTR_GIVEN " = None, "
              "wanted: collections.abc.Iterable[str] | None = None, "
              "threads: int | None = None, **inputs: object) "
              "-> tuple[" TTR_STATE ", " TTR_STATE "]"),
      R"(Gradients of a scalar loss from dy, its gradient for y, and dstate, that for the final state
(absent: zero). The inputs and the state are those of the forward call at its start. Two dictionaries:
gradients of the inputs by their keywords (of those in `wanted` alone, where it is given), and of the
initial state. Where has_gradients is False it takes central differences: for small inputs.)");
}

void BindStart(nb::class_<SharedLayer>& bound) {
  using L = SharedLayer;
  const auto none = nb::none();
  bound
      .def("initial_state", &InitialState, nb::arg("k") = none, nb::arg("v") = none,
           nb::arg("inputs"),
           nb::sig("def initial_state(self, k: object = None, v: object = None, "
                   "**inputs: object) -> " TTR_STATE),
           "What an empty state means for inputs of these shapes: the start, as arrays.")
      .def("__repr__",
           [](const L& self) {
             return "Layer(" +
                    std::string(nb::repr(nb::cast(ToString(self.layer->recipe()))).c_str()) +
                    ", engine='" + std::string(self.layer->plan().engine) + "')";
           })
      .def("__reduce__", &Reduce, nb::sig("def __reduce__(self) -> tuple[typing.Any, ...]"));
}

}  // namespace

void BindLayer(nb::module_& module) {
  using L = SharedLayer;
  nb::class_<L> bound(module, "Layer", R"(A planned recipe, ready to run on arrays.

    layer = Layer("gated_deltanet")
    y, state = layer.forward(q, k, v, log_decay=g, step=beta)
    y, state = layer.forward(q2, k2, v2, log_decay=g2, step=beta2, state=state)   # goes on

Arrays are NumPy's, or any other by DLPack; float32, float64, bfloat16 or float16; [B, T, H, D] with any
strides. Nothing is copied but a last axis with gaps. `input_specs(recipe)` lists what a recipe takes,
`state_specs(recipe)` what its state consists of. H memories: the heads of k and v divide H, those of q
divide it or are a multiple. Whole = split anywhere = token by token, to rounding.

A state is a dictionary of arrays; what it lacks has the recipe's start, None and {} lack all.

Every call: `threads` is None (as many as the machine has, or the variable TTR_THREADS) or a number; the
same bits for any. The GIL is free meanwhile. ValueError that names the argument, before any work and
with nothing written, for shapes, types, ranges; TypeError for a name that no input has.

engine: "definition" (every recipe, literally, in float64; slow) or the planned one.)");
  BindCopies(bound, "Layer");
  bound
      .def("__init__", &Construct, nb::arg("recipe"), nb::arg("engine") = nb::none(),
           nb::sig("def __init__(self, recipe: str | dict[str, typing.Any] | Recipe, "
                   "engine: str | None = None) -> None"))
      .def_prop_ro("recipe", [](const L& self) { return self.layer->recipe(); })
      .def_prop_ro(
          "engine", [](const L& self) { return self.layer->plan().engine; },
          "The name of the engine that runs it.")
      .def_prop_ro(
          "has_gradients", [](const L& self) { return self.layer->HasGradients(); },
          "Does backward cost some three times forward? Else: central differences.")
      .def_prop_ro(
          "has_bfloat16_products", [](const L& self) { return self.layer->HasBFloat16Products(); },
          "Is bfloat16_products there for this recipe, and faster on this processor?")
      .def_prop_ro(
          "keeps_drafts", [](const L& self) { return Decoder::KeepsDrafts(*self.layer); },
          "Do the writes of a draft wait beside the state, so that slots of a pool can take it "
          "back?");
  BindForward(bound);
  BindReading(bound);
  BindBackward(bound);
  BindStart(bound);
}

}  // namespace ttr::python
