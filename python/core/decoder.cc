// class Decoder: token by token, with what the engine keeps beside the state.
#include "ttr/decoder.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "python/core/calls.h"
#include "python/core/copies.h"
#include "python/core/executors.h"
#include "python/core/module.h"
#include "ttr/error.h"

namespace ttr::python {
namespace {

#define TTR_QKV "q: object = None, k: object = None, v: object = None"
#define TTR_STATE "dict[str, numpy.typing.NDArray[typing.Any]]"
#define TTR_GIVEN "collections.abc.Mapping[str, object] | None"
#define TTR_ARRAY "numpy.typing.NDArray[typing.Any]"

/// A decoder, the layer that it needs, and who may use it now.
class SharedDecoder {
 public:
  SharedDecoder(std::shared_ptr<const Layer> layer, const Dims& dims, const DecoderOptions& options)
      : layer_(std::move(layer)),
        dims_(dims),
        options_(options),
        decoder_(*layer_, dims, options) {}
  SharedDecoder(const SharedDecoder& other)
      : layer_(other.layer_),
        dims_(other.dims_),
        options_(other.options_),
        decoder_(other.Copy()) {}

  const Layer& layer() const { return *layer_; }
  const Dims& dims() const { return dims_; }
  DType dtype() const { return options_.state; }
  const DecoderOptions& options() const { return options_; }
  Turn& turn() const { return turn_; }
  Decoder& decoder() { return decoder_; }
  const Decoder& decoder() const { return decoder_; }

 private:
  Decoder Copy() const {
    const Unlocked unlocked(turn_);
    return decoder_;
  }

  std::shared_ptr<const Layer> layer_;
  Dims dims_;
  DecoderOptions options_;
  mutable Turn turn_;
  Decoder decoder_;
};

void Construct(SharedDecoder* self, nb::handle layer, std::int64_t batch,
               const nb::kwargs& others) {
  auto planned = LayerFrom(layer);
  const auto [sizes, options] = DecoderKeywordsFrom("Decoder", others, batch);
  const Dims dims = DimsFrom(planned->recipe(), sizes);
  new (self) SharedDecoder(std::move(planned), dims, options);
}

nb::object Step(SharedDecoder& self, nb::handle q, nb::handle k, nb::handle v, nb::handle threads,
                nb::handle out, const nb::kwargs& others) {
  const std::string_view op = "step";
  const Requirements& requirements = self.layer().requirements();
  const GivenInputs given(op, requirements, q, k, v, others);
  const Dims dims = InferDims(op, requirements, given.inputs());
  const OutputArrays arrays(op, dims, given, out, false);
  Executor& executor = ExecutorFor(threads);
  const Unlocked unlocked(self.turn());
  self.decoder().Step(given.inputs(), arrays.outputs(), {.executor = &executor});
  return arrays.y();
}

void Memorize(SharedDecoder& self, nb::handle k, nb::handle v, nb::handle threads,
              const nb::kwargs& others) {
  const GivenInputs given("memorize", self.layer().requirements(), nb::none(), k, v, others);
  Executor& executor = ExecutorFor(threads);
  const Unlocked unlocked(self.turn());
  self.decoder().Memorize(given.inputs(), {.executor = &executor});
}

nb::object Retrieve(const SharedDecoder& self, nb::handle q, nb::handle threads, nb::handle out,
                    const nb::kwargs& others) {
  const std::string_view op = "retrieve";
  const Requirements& requirements = self.layer().requirements();
  const GivenInputs given(op, requirements, q, nb::none(), nb::none(), others);
  Dims dims = InferDims(op, requirements, given.inputs(), Needs::kRead);
  dims.heads = self.dims().heads;
  dims.value_dim = self.dims().value_dim;
  if (!given.inputs().q.defined()) {  // a recipe without queries
    dims.batch = self.dims().batch;
    dims.tokens = 1;
    dims.query_heads = dims.heads;
  }
  const OutputArrays arrays(op, dims, given, out, false);
  Executor& executor = ExecutorFor(threads);
  const Unlocked unlocked(self.turn());
  self.decoder().Retrieve(given.inputs(), arrays.outputs(), {.executor = &executor});
  return arrays.y();
}

/// The state after the last token, and a copy of what is kept beside it where `auxiliary`.
State Flushed(SharedDecoder& self, Tensor* auxiliary) {
  Executor& executor = ExecutorFor(nb::none());
  const Unlocked unlocked(self.turn());
  State copy;
  for (const State::Entry& entry : self.decoder().state({.executor = &executor}).entries()) {
    copy.Set(entry.name, Tensor::Copy(entry.view));
  }
  if (auxiliary != nullptr) *auxiliary = Tensor::Copy(self.decoder().auxiliary());
  return copy;
}

void Start(SharedDecoder& self, nb::handle given_state) {
  const State state = CopyState("start", self.layer(), given_state);
  const Unlocked unlocked(self.turn());
  self.decoder().Start(state);
}

nb::object Auxiliary(SharedDecoder& self) {
  Tensor auxiliary;
  Flushed(self, &auxiliary);
  return auxiliary.defined() ? CopyArray(auxiliary.view()) : nb::none();
}

nb::tuple GetState(SharedDecoder& self) {
  Tensor auxiliary;
  State state = Flushed(self, &auxiliary);
  const Dims& d = self.dims();
  return nb::make_tuple(ToString(self.layer().recipe()), self.layer().plan().engine,
                        nb::make_tuple(d.batch, d.heads, d.query_heads, d.key_heads, d.value_heads,
                                       d.key_dim, d.value_dim, d.features, d.hidden),
                        Name(self.dtype()), ShareState(std::move(state)),
                        auxiliary.defined() ? CopyArray(auxiliary.view()) : nb::none(),
                        self.options().draft, self.options().window);
}

void SetState(SharedDecoder& self, const nb::tuple& saved) {
  auto layer = std::make_shared<const Layer>(ParseRecipe(nb::cast<std::string>(saved[0])),
                                             nb::cast<std::string>(saved[1]));
  const nb::tuple sizes = saved[2];
  const auto size = [&](int i) { return nb::cast<std::int64_t>(sizes[i]); };
  const Dims dims{.batch = size(0),
                  .tokens = 1,
                  .query_heads = size(2),
                  .key_heads = size(3),
                  .value_heads = size(4),
                  .heads = size(1),
                  .key_dim = size(5),
                  .value_dim = size(6),
                  .features = size(7),
                  .hidden = size(8)};
  // Those of earlier versions kept no drafts.
  const bool drafts = saved.size() > 6;
  new (&self) SharedDecoder(std::move(layer), dims,
                            {.state = StateDType("Decoder", saved[3]),
                             .draft = drafts ? nb::cast<std::int64_t>(saved[6]) : 0,
                             .window = drafts ? nb::cast<std::int64_t>(saved[7]) : 0});
  self.decoder().Start(CopyState("Decoder", self.layer(), saved[4]));
  if (nb::object numbers = saved[5]; !numbers.is_none()) {
    self.decoder().SetAuxiliary(ReadArray("Decoder", "auxiliary", numbers).view);
  }
}

void BindSteps(nb::class_<SharedDecoder>& bound) {
  using D = SharedDecoder;
  const auto none = nb::none();
  bound
      .def("step", &Step, nb::arg("q") = none, nb::arg("k") = none, nb::arg("v") = none,
           nb::kw_only(), nb::arg("threads") = none, nb::arg("out") = none, nb::arg("inputs"),
           nb::sig("def step(self, " TTR_QKV ", *, threads: int | None = None, "
                   "out: " TTR_GIVEN " = None, **inputs: object) -> " TTR_ARRAY),
           "Memorizes a token, or several, and answers each (k, v have n rows a token where the "
           "recipe takes n steps).")
      .def(
          "roll_back",
          [](D& self, std::int64_t tokens) {
            const Unlocked unlocked(self.turn());
            self.decoder().RollBack(tokens);
          },
          nb::arg("tokens"), nb::sig("def roll_back(self, tokens: int) -> None"),
          "Forgets the last tokens, at most `pending`, as if they had never been.")
      .def_prop_ro(
          "pending",
          [](const D& self) {
            const Unlocked unlocked(self.turn());
            return self.decoder().pending();
          },
          nb::sig("def pending(self) -> int"), "Tokens that roll_back can take back now.")
      .def("memorize", &Memorize, nb::arg("k") = none, nb::arg("v") = none, nb::kw_only(),
           nb::arg("threads") = none, nb::arg("inputs"),
           nb::sig("def memorize(self, k: object = None, v: object = None, *, "
                   "threads: int | None = None, **inputs: object) -> None"),
           "Writes one token without reading.")
      .def("retrieve", &Retrieve, nb::arg("q") = none, nb::kw_only(), nb::arg("threads") = none,
           nb::arg("out") = none, nb::arg("inputs"),
           nb::sig("def retrieve(self, q: object = None, *, threads: int | None = None, "
                   "out: " TTR_GIVEN " = None, **inputs: object) -> " TTR_ARRAY),
           "Reads without writing, any number of queries.");
}

void BindState(nb::class_<SharedDecoder>& bound) {
  using D = SharedDecoder;
  const auto none = nb::none();
  bound
      .def(
          "state", [](D& self) { return ShareState(Flushed(self, nullptr)); },
          nb::sig("def state(self) -> " TTR_STATE),
          "The state after the last token, as new arrays; empty before the first.")
      .def_prop_ro("auxiliary", &Auxiliary, nb::sig("def auxiliary(self) -> " TTR_ARRAY " | None"),
                   R"(What the engine keeps beside the state: saved with it, and put back by
set_auxiliary behind start, later answers are the same bit for bit. None where there is none.)")
      .def(
          "set_auxiliary",
          [](D& self, nb::handle numbers) {
            const Array array = ReadArray("set_auxiliary", "numbers", numbers);
            const Unlocked unlocked(self.turn());
            self.decoder().SetAuxiliary(array.view);
          },
          nb::arg("numbers"), nb::sig("def set_auxiliary(self, numbers: object) -> None"))
      .def_prop_ro_static(
          "most_draft", [](nb::handle) { return Decoder::kMostTokens; },
          "Tokens of a draft, at most.")
      .def_prop_ro("recipe", [](const D& self) { return self.layer().recipe(); })
      .def("__repr__",
           [](const D& self) {
             const Dims& d = self.dims();
             return "Decoder(" +
                    std::string(nb::repr(nb::cast(ToString(self.layer().recipe()))).c_str()) +
                    ", key_dim=" + std::to_string(d.key_dim) +
                    ", value_dim=" + std::to_string(d.value_dim) +
                    ", heads=" + std::to_string(d.heads) + ", batch=" + std::to_string(d.batch) +
                    ", dtype='" + std::string(Name(self.dtype())) + "')";
           })
      .def("__getstate__", &GetState, nb::sig("def __getstate__(self) -> tuple[typing.Any, ...]"))
      .def("__setstate__", &SetState, nb::arg("saved"),
           nb::sig("def __setstate__(self, saved: tuple[typing.Any, ...], /) -> None"));
}

}  // namespace

std::shared_ptr<const Layer> LayerFrom(nb::handle layer) {
  if (nb::isinstance<SharedLayer>(layer)) return nb::cast<SharedLayer&>(layer).layer;
  return std::make_shared<const Layer>(RecipeFrom(layer));
}

DecoderKeywords DecoderKeywordsFrom(std::string_view op, const nb::kwargs& keywords,
                                    std::int64_t batch) {
  GivenSizes::Size draft, window;
  DecoderKeywords made{.sizes = {.batch = batch}, .options = {}};
  GivenSizes& sizes = made.sizes;
  const std::pair<std::string_view, GivenSizes::Size*> known[] = {
      {"key_dim", &sizes.key_dim},
      {"value_dim", &sizes.value_dim},
      {"heads", &sizes.heads},
      {"query_heads", &sizes.query_heads},
      {"key_heads", &sizes.key_heads},
      {"value_heads", &sizes.value_heads},
      {"features", &sizes.features},
      {"draft", &draft},
      {"window", &window},
  };
  const auto refuse = [op](std::string_view name, const std::string& what) {
    throw nb::type_error(("[" + std::string(op) + "] " + std::string(name) + " " + what).c_str());
  };
  for (const auto& [key, value] : keywords) {
    const auto name = nb::cast<std::string_view>(key);
    if (name == "dtype") {
      made.options.state = StateDType(op, value);
      continue;
    }
    const auto* const found =
        std::ranges::find(known, name, [](const auto& one) { return one.first; });
    if (found == std::end(known)) refuse(name, "must be a keyword of it but is none");
    if (!nb::try_cast(value, *found->second)) {
      refuse(name, std::string("must be a whole number but is ") + nb::repr(value).c_str());
    }
  }
  if (!sizes.key_dim) refuse("key_dim", "must be given but is absent");
  if (!sizes.value_dim) refuse("value_dim", "must be given but is absent");
  made.options.draft = draft.value_or(0);
  made.options.window = window.value_or(0);
  return made;
}

void BindDecoder(nb::module_& module) {
  using D = SharedDecoder;
  const auto none = nb::none();
  nb::class_<D> bound(module, "Decoder",
                      R"(Token by token: a state, and what an engine keeps beside it.

    decoder = Decoder("gated_deltanet", heads=4, key_dim=64, value_dim=64)
    decoder.start(state)                                 # left by Layer.forward of the prompt
    y = decoder.step(q, k, v, log_decay=g, step=beta)    # [B, 1, H, D], as often as there are tokens
    state = decoder.state()

    decoder = Decoder("gated_deltanet", heads=4, key_dim=64, value_dim=64, draft=4)
    y = decoder.step(q, k, v, ...)                       # [B, 4, H, D]: four tokens that are guessed
    decoder.roll_back(3)                                 # one was right

Faster than Layer.step: least squares update a factor in O(D^2); memories that erase defer a token's
write to the next. A draft that is taken back leaves no trace: later answers are, bit for bit, those
of a decoder that never saw it. deepcopy and (without a draft) pickle go on bit for bit. Threads take
turns.)");
  BindCopies(bound, "Decoder");
  bound
      .def(
          "__init__", &Construct, nb::arg("layer"), nb::kw_only(), nb::arg("batch") = 1,
          nb::arg("others"),
          nb::sig("def __init__(self, layer: Layer | str | dict[str, typing.Any] | Recipe, *, "
                  "batch: int = 1, " TTR_DECODER_KEYWORDS),
          R"(heads: the memories; those of queries, keys and values are as many where nothing is said.
features: the rows of `features_w`, where the recipe takes it. dtype: of the state, float32 or float64;
or bfloat16 or float16 where writes can wait: two bytes a number, rounded every 8 tokens (or `window`); `state`
is float32 then, a copy with all that waits, and a pickled decoder is rounded as it is loaded.
draft: tokens that roll_back can take back, 0 to 64. Where a layer is written by rank-one steps they wait
beside the state, else the state is copied before every token. window: tokens after which what waits
beside those of a draft is written, 1 to 64; 0: as the engine chooses. ValueError: out of range.)")
      .def("start", &Start, nb::arg("state") = none,
           nb::sig("def start(self, state: " TTR_GIVEN " = None) -> None"),
           "Goes on from a copy of `state`; None or {}: from the recipe's start.");
  BindSteps(bound);
  BindState(bound);
}

}  // namespace ttr::python
